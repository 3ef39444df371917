"""Groups of real gloo ranks: every operation, overlapping groups, groups that are made to be timed,
and computations at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commands import Ended, run_commbench, run_program_as
from gloo_ranks import on_ranks

from commbench.analysis.rows import make_rows
from commbench.plan.operations import OPERATIONS
from commbench.plan.plan import Plan
from commbench.results.journal_reader import read_run
from commbench.results.schema import OK, Batch, Run
from commbench.worker.communicator import Communicator
from commbench.worker.groups import GroupView
from commbench.worker.measure import LocalSamples, no_samples
from commbench.worker.reduction import reduce_batch

COUNTERS = torch.zeros(5, dtype=torch.int64)
SHAPES = {
    "mesh": ["--mesh", "dp=2,tp=2", "--over", "tp,dp,dp+tp,world"],
    "unequal": ["--groups", "0-2;3,4", "--nproc-per-node", "6"],
    "overlapping": ["--groups", "0-2;2,3;1,3", "--nproc-per-node", "5"],
}
"""By the name of the test data. One rank of the last two is in no group, three are in two."""
LARGE = {"mesh", "unequal"}
"""They run with all tests only, with more dtypes and sizes."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(s, marks=[pytest.mark.full] * (s in LARGE)) for s in SHAPES],
)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All operations, with odd sizes, in groups of one shape, together and alone."""
    is_large = request.param in LARGE
    return run_commbench(
        tmp_path_factory.mktemp(request.param), "run", "--op", "all,p2p", "--dtype",
        "float32,int8" if is_large else "float32", "--sizes", "487,100001" if is_large else "487",
        "--iters", "1", "--warmup", "0", "--no-plots", "--concurrency", "both", "--root", "1",
        *SHAPES[request.param],
    )  # fmt: skip


def test_every_operation_is_right_in_every_group(measured: Ended) -> None:
    assert measured.code == 0, measured.err
    run = read_run(measured.folder)
    assert {(m.status, m.wrong or 0) for m in run.measurements} == {(OK, 0)}, measured.out
    for name in run.header.plan.operations:
        operation = OPERATIONS[name]
        found = [m for m in run.measurements if m.case.operation == name]
        assert {m.case.group for m in found} == {found.name for found in run.header.plan.group_sets}
        assert {m.wrong for m in found} == ({0} if operation.has_data else {None})


def test_every_group_has_its_time_and_every_rank_of_a_group_its_own(measured: Ended) -> None:
    run = read_run(measured.folder)
    for measurement in run.measurements:
        case, groups = measurement.case, run.header.plan.groups_of(measurement.case)
        for batch in measurement.batches:
            assert len(batch.group_medians_s) == (len(groups) if len(groups) > 1 else 0)
            assert max(batch.group_medians_s, default=0) <= max(batch.samples_s)
            if len(groups) > 1:
                number, found = len(batch.samples_s), batch.group_samples_s
                by_group = [found[i : i + number] for i in range(0, len(found), number)]
                slowest = tuple(map(max, zip(*by_group, strict=True)))
                assert slowest == pytest.approx(batch.samples_s, abs=1e-9)
                assert len(by_group) == len(groups)
        (times,) = measurement.rank_times
        assert len(times.medians_s) == len(run.header.plan.ranks_of(case))
        assert min(times.medians_s) > 0


def test_rows_say_how_many_groups_call_at_once_and_how_much_they_interfere(measured: Ended) -> None:
    plan = read_run(measured.folder).header.plan
    sets = {found.name: found.groups for found in plan.group_sets}
    for row in measured.rows():
        groups = sets[row["group"]]
        together = row["concurrency"] == "together"
        assert int(row["groups"]) == (len(groups) if together else 1)
        if row["concurrency"] == "alone":
            assert row["worst_group"] == row["group_ranks"]
        assert bool(row["interference"]) == (together and len(groups) > 1)


def reduced(
    durations_us: list[list[float]], groups: tuple[tuple[int, ...], ...], base_ns: int | None
) -> Batch:
    """What rank 0 gets of ranks in these groups; others have measured nothing."""

    def work(comm: Communicator) -> Batch:
        ns = torch.tensor([round(1000 * value) for value in durations_us[comm.rank]])
        views = tuple(
            GroupView(None, group.index(comm.rank), group, group, number)
            for number, group in enumerate(groups)
            if comm.rank in group
        )
        samples = LocalSamples(ns, torch.zeros_like(ns), COUNTERS)
        if not views:
            samples = no_samples(len(ns), is_async=False)
        return reduce_batch(samples, comm, 1, base_ns, views, groups)

    return on_ranks(len(durations_us), work)[0]


@pytest.mark.parametrize("base_ns", [0, None])
def test_a_group_without_rank_0_is_reduced_to_its_own_ranks(base_ns: int | None) -> None:
    batch = reduced([[99, 99], [10, 12], [14, 8]], ((1, 2),), base_ns)
    assert batch.samples_s == pytest.approx((14e-6, 12e-6))
    assert batch.rank_medians_s == pytest.approx((11e-6, 11e-6))
    assert batch.group_medians_s == ()
    assert batch.last_in == ((2, 0) if base_ns is not None else ())


def test_a_rank_in_two_groups_needs_memory_for_both(tmp_path: Path) -> None:
    planned = run_commbench(tmp_path, "run", "--groups", "0-2;2,3;4", "--sizes", "4K", "--dry-run")
    assert "Groups, which call all at once" in planned.out
    row = next(line.split() for line in planned.out.splitlines() if "  0-2;2,3;4  " in line)
    assert row == ["0-2;2,3;4", "3", "1,", "2,", "3", "0-2,", "2,3,", "4"]
    assert "a rank needs at most 8.0 KiB for buffers" in planned.out


COUNTED = """
import os
from pathlib import Path
from commbench.worker import rank
measure_cases = rank.measure_cases
def is_socket(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    except OSError:
        return False
def counted(task, comm, *rest):
    found = measure_cases(task, comm, *rest)
    number = sum(map(is_socket, os.listdir("/proc/self/fd")))
    Path(task.folder, f"sockets-{comm.rank}").write_text(str(number))
    return found
rank.measure_cases = counted
"""
"""Each rank leaves the number of its sockets when it has measured."""


def most_sockets(where: Path, mesh: str) -> int:
    """The most sockets that a rank has which measured the last dimension of a mesh."""
    where.mkdir()
    run_program_as(
        where, COUNTED, "run", "--mesh", mesh, "--over", "tp", "--sizes", "4K", "--iters", "2",
        "--warmup", "0", "--no-plots", "--output", "run",
    ).good()  # fmt: skip
    return max(int(file.read_text()) for file in (where / "run").glob("sockets-*"))


@pytest.mark.full
def test_connections_grow_with_the_groups_and_not_with_the_number_of_ranks(tmp_path: Path) -> None:
    few, many = (most_sockets(tmp_path / mesh, mesh) for mesh in ("dp=2,tp=4", "dp=8,tp=4"))
    # Four times the ranks: with a connection to each other rank there would be 24 more.
    assert many - few <= 10


@pytest.fixture(scope="module")
def new_groups(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_commbench(
        tmp_path_factory.mktemp("init"), "init", "--mesh", "dp=2,tp=2",
        "--op", "new_group,split_group,all_gather,barrier", "--sizes", "4001", "--iters", "4",
        "--output", "run",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(new_groups: Ended) -> Run:
    assert new_groups.code == 0, new_groups.err
    return read_run(new_groups.folder)


def test_new_groups_and_calls_on_them_are_timed_and_checked(run: Run) -> None:
    found = {(m.case.operation, m.case.form, m.case.group): m for m in run.measurements}
    forms = ("direct", "first", "second")
    wanted = {(op, form) for op in ("all_gather", "barrier") for form in forms}
    wanted |= {("new_group", "direct"), ("split_group", "direct")}
    assert found.keys() == {(*each, group) for each in wanted for group in ("dp", "tp")}
    for (operation, form, _), measurement in found.items():
        if operation == "split_group":
            assert measurement.reason == "gloo has no split_group"
            continue
        assert measurement.status == "ok"
        assert len(measurement.samples_s) == 4
        assert measurement.wrong == (0 if operation == "all_gather" else None)
        for batch in measurement.batches:
            is_new = operation == "new_group" or form != "direct"
            assert (batch.group_bytes is not None) == is_new


def test_making_a_group_takes_memory_and_longer_than_a_barrier_in_it(run: Run) -> None:
    rows = {(r.measurement.case.operation, r.measurement.case.form): r for r in make_rows(run)}
    made, used = rows["new_group", "direct"], rows["barrier", "direct"]
    assert made.ordered_s[0] > used.ordered_s[0]  # the fastest of each, since hosts are busy
    known = [row.group_bytes for row in rows.values() if row.group_bytes is not None]
    assert 4096 <= max(known) < 64 << 20


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"groups": "0-1"}, "all ranks take part in making a group: measure groups together, "),
     ({"groups": "0-2;2-3"}, "all ranks take part in making a group: measure groups together, "),
     ({"mesh": "dp=2,tp=2", "concurrency": "alone"}, "all ranks take part in making a group"),
     ({"timing": "pipelined"}, "the first calls on new groups are timed one by one")],
)  # fmt: skip
def test_groups_that_leave_ranks_out_are_refused(given: dict[str, str], reason: str) -> None:
    plan = Plan(
        operations=("all_reduce",), sizes=(64,), forms=("first",), backend="gloo", device="cpu",
        world_size=4, **given,
    )  # type: ignore[arg-type] # fmt: skip
    refused = [case for case in plan.cases() if case.form == "first"]
    assert refused
    assert all(case.reason.startswith(reason) for case in refused)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--ranks", "2,x"], "error: --ranks '2,x' is no list of numbers"),
     (["--ranks", "2", "--nproc-per-node", "2"], "error: --ranks and --nproc-per-node exclude"),
     (["--ranks", "0,2"], "error: --ranks is 0")],
)  # fmt: skip
def test_a_wrong_number_of_ranks_is_refused(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], message: str
) -> None:
    ended = run_commbench(tmp_path_factory.mktemp("wrong"), "init", *words)
    assert ended.code == 2
    assert ended.err.startswith(message)


COUNTS = """
import torch.distributed as dist
from commbench.worker import communicator

def noted(*arguments, make=communicator.groups.open_idle_groups):
    before = len(dist.distributed_c10d._world.pg_map)
    make(*arguments)
    open("groups", "a").write(f"{len(dist.distributed_c10d._world.pg_map) - before} ")

communicator.groups.open_idle_groups = noted
"""


def test_groups_that_are_open_already_are_made_and_shown(tmp_path: Path) -> None:
    options = ("--op", "new_group", "--open-groups", "0,3", "--nproc-per-node", "2", "--iters", "2")
    ended = run_program_as(tmp_path, COUNTS, "init", *options, "--output", "runs").good()
    assert (tmp_path / "groups").read_text().split() == ["0", "0", "3", "3"]
    rows = [line.split() for line in ended.out.splitlines() if line.startswith("  new_group ")]
    # All have two ranks and one group, so these columns are left out.
    assert [row[:2] for row in rows] == [["new_group", "0"], ["new_group", "3"]]
    plans = [read_run(tmp_path / "runs" / f"{n}-open").header.plan for n in (0, 3)]
    assert [plan.open_groups for plan in plans] == [0, 3]


OVERLAPPED = ("all_reduce", "send_recv")


@pytest.fixture(scope="module")
def overlapped(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Three ranks, of which two groups of two overlap."""
    return run_commbench(
        tmp_path_factory.mktemp("overlap"), "run", "--nproc-per-node", "3", "--groups", "0,1;1,2",
        "--concurrency", "together", "--op", ",".join(OVERLAPPED), "--sizes", "4K", "--iters", "6",
        "--overlap", "matmul:8x8x8:20", "--no-plots", forks_ranks=True,
    )  # fmt: skip


def test_every_operation_is_right_while_its_rank_computes(overlapped: Ended) -> None:
    assert overlapped.code == 0, overlapped.err
    rows = overlapped.rows()
    assert {row["operation"] for row in rows} == set(OVERLAPPED)
    for row in rows:
        assert row["wrong"] == ("" if row["part"] == "computation" else "0"), row
        assert row["work"] == "20 x matmul 8x8x8 float32"


def test_rows_of_both_say_when_each_ended_where_gloo_tells(overlapped: Ended) -> None:
    both = [row for row in overlapped.rows() if row["part"] == "both"]
    assert len(both) == len(OVERLAPPED)
    for row in both:
        assert float(row["computation_at_once_us"]) > 0
        assert bool(row["communication_at_once_us"]) == (row["operation"] != "send_recv"), row
        assert bool(row["communication_slowdown"]) == bool(row["communication_at_once_us"])


def test_ranks_move_freely_unless_a_cpu_mode_is_given(overlapped: Ended, tmp_path: Path) -> None:
    assert {row["cpu_mode"] for row in overlapped.rows()} == {"plain"}
    planned = run_commbench(
        tmp_path, "run", "--overlap", "matmul", "--cpu-mode", "batch", "--dry-run"
    )
    assert "batch" in planned.out
    assert "for buffers and a computation" in planned.out

"""Groups of real gloo ranks: every operation, overlapping groups, groups of different sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commands import Ended, run_commbench, run_program_as
from gloo_ranks import on_ranks

from commbench.results.journal_reader import read_run
from commbench.results.schema import OK, Batch
from commbench.spec.operations import OPERATIONS
from commbench.worker.communicator import Communicator
from commbench.worker.groups import GroupView
from commbench.worker.measure import LocalSamples, no_samples
from commbench.worker.reduction import MOST_GROUP_SAMPLES, reduce_batch

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
            assert len(batch.rank_medians_s) == len(run.header.plan.ranks_of(case))
            assert max(batch.group_medians_s, default=0) <= max(batch.samples_s)
            if len(groups) > 1:
                number, found = len(batch.samples_s), batch.group_samples_s
                by_group = [found[i : i + number] for i in range(0, len(found), number)]
                slowest = tuple(map(max, zip(*by_group, strict=True)))
                assert slowest == pytest.approx(batch.samples_s, abs=1e-9)
                assert len(by_group) == len(groups)
            assert min(batch.rank_medians_s) > 0


def test_rows_say_how_many_groups_call_at_once_and_how_much_they_interfere(
    measured: Ended,
) -> None:
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
def test_the_median_of_a_group_is_that_of_its_slowest_rank(base_ns: int | None) -> None:
    durations = [[10, 50, 30], [20, 40, 60], [7, 7, 7], [8, 1, 1], [900, 900, 900]]
    batch = reduced(durations, ((0, 1), (2, 3), (1, 3)), base_ns)
    assert batch.samples_s == pytest.approx((20e-6, 50e-6, 60e-6))
    assert batch.group_medians_s == pytest.approx((50e-6, 7e-6, 40e-6))
    us = (20, 50, 60, 8, 7, 7, 20, 40, 60)
    assert batch.group_samples_s == pytest.approx(tuple(value * 1e-6 for value in us))
    long = [row * 2000 for row in durations]
    assert 3 * len(long[0]) > MOST_GROUP_SAMPLES
    batch = reduced(long, ((0, 1), (2, 3), (1, 3)), base_ns)
    assert batch.group_medians_s == pytest.approx((50e-6, 7e-6, 40e-6))
    assert batch.group_samples_s == ()
    assert batch.rank_medians_s == pytest.approx((30e-6, 40e-6, 7e-6, 1e-6))


@pytest.mark.parametrize("base_ns", [0, None])
def test_a_group_without_rank_0_is_reduced_to_its_own_ranks(base_ns: int | None) -> None:
    batch = reduced([[99, 99], [10, 12], [14, 8]], ((1, 2),), base_ns)
    assert batch.samples_s == pytest.approx((14e-6, 12e-6))
    assert batch.rank_medians_s == pytest.approx((11e-6, 11e-6))
    assert batch.group_medians_s == ()
    assert batch.last_in == ((2, 0) if base_ns is not None else ())


def test_a_mesh_starts_as_many_ranks_as_it_has(tmp_path: Path) -> None:
    planned = run_commbench(tmp_path, "run", "--mesh", "dp=2,tp=3", "--dry-run")
    assert planned.code == 0, planned.err
    assert planned.out.startswith("would measure with 6 gloo ranks")
    groups = planned.out.split("Groups:\n")[1].split("\n\n")[0]
    assert groups.splitlines() == [
        "  dp: 3 groups of 2 ranks, all at once (0,3; 1,4; 2,5)",
        "  tp: 2 groups of 3 ranks, all at once (0-2; 3-5)",
    ]


def test_a_rank_in_two_groups_needs_memory_for_both(tmp_path: Path) -> None:
    planned = run_commbench(tmp_path, "run", "--groups", "0-2;2,3;4", "--sizes", "4K", "--dry-run")
    assert "  0-2;2,3;4: 3 groups of 1, 2, 3 ranks, all at once (0-2; 2,3; 4)" in planned.out
    assert "a rank needs at most 8 KiB for buffers" in planned.out


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
    ended = run_program_as(
        where, COUNTED, "run", "--mesh", mesh, "--over", "tp", "--sizes", "4K", "--iters", "2",
        "--warmup", "0", "--no-plots", "--output", "run",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return max(int(file.read_text()) for file in (where / "run").glob("sockets-*"))


@pytest.mark.full
def test_connections_grow_with_the_groups_and_not_with_the_number_of_ranks(tmp_path: Path) -> None:
    few, many = (most_sockets(tmp_path / mesh, mesh) for mesh in ("dp=2,tp=4", "dp=8,tp=4"))
    # Four times the ranks: with a connection to each other rank there would be 24 more.
    assert many - few <= 10

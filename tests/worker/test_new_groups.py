"""Process groups that are made to be timed: real ranks, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Ended, run_commbench, run_program_as

from commbench.analysis.rows import make_rows
from commbench.api.measuring import init_options
from commbench.errors import UsageError
from commbench.report.start_up_table import VIEW, StartUps, document
from commbench.results.journal_reader import read_run
from commbench.results.schema import Run
from commbench.spec.plan import Plan
from commbench.views.document import Table


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_commbench(
        tmp_path_factory.mktemp("init"), "init", "--mesh", "dp=2,tp=2",
        "--op", "new_group,split_group,all_gather,barrier", "--sizes", "4001", "--iters", "4",
        "--output", "run",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(measured: Ended) -> Run:
    assert measured.code == 0, measured.err
    return read_run(measured.folder)


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


def test_the_header_says_how_long_joining_took(measured: Ended, run: Run) -> None:
    found = run.header.start_up
    assert found is not None
    assert 0 < found.init_fastest_s <= found.init_s < 60
    assert found.groups_s > 0
    assert found.connect_s > 0
    head = json.loads((measured.folder / "run.jsonl").read_text().splitlines()[0])
    assert head["start_up"]["init_s"] == found.init_s
    assert StartUps([run]).joined == [(run.header.plan, found)]


def test_both_tables_say_how_many_groups_were_open(run: Run) -> None:
    opened = run.header._replace(plan=replace(run.header.plan, open_groups=16))
    tables = document(StartUps([run, run._replace(header=opened)])).blocks[:2]
    for table in tables + document(StartUps([run])).blocks[:2]:
        assert isinstance(table, Table)
        cells = {column.heading: {*found} for column, found in table.cells()}
        assert cells.get("open") == ({"0", "16"} if table in tables else None)


def test_the_table_has_a_row_for_each_operation_and_dimension(measured: Ended, run: Run) -> None:
    calls = StartUps([run]).calls
    operations = ("new_group", "all_gather", "barrier")
    assert [call.call for call in calls] == [
        f"{name} over {group}" for name in operations for group in ("dp", "tp")
    ]
    assert all(call[1:4] == (2, 0, 2) for call in calls)
    assert all(call.first and call.first.value > 0 for call in calls)
    missing = "split_group over dp together, split_group over tp together: gloo has no split_group"
    assert missing in " ".join(measured.out.split())
    tables = measured.out.split("init_process_group on")[0]
    assert max(map(len, tables.splitlines())) <= 80


def test_what_nccl_says_of_its_own_time_is_below_the_table(run: Run) -> None:
    said = {"init_s": 55.01, "init_parts_s": {"kernels": 52.45, "bootstrap": 0.57}}
    environment = run.header.environment | {"nccl_log": said}
    text = VIEW.write(StartUps([run._replace(header=run.header._replace(environment=environment))]))
    own = "NCCL's own time of the communicator of all ranks: 55.01 s (kernels 52.45, bootstrap"
    assert own in " ".join(text.split())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"groups": "0-1"}, "all ranks take part in making a group: measure groups together, "),
        ({"groups": "0-2;2-3"}, "all ranks take part in making a group: measure groups together, "),
        ({"mesh": "dp=2,tp=2", "concurrency": "alone"}, "all ranks take part in making a group"),
        ({"timing": "pipelined"}, "the first calls on new groups are timed one by one"),
    ],
)
def test_groups_in_which_ranks_would_be_missing_are_refused(
    given: dict[str, str], reason: str
) -> None:
    plan = Plan(
        operations=("all_reduce",), sizes=(64,), forms=("first",), backend="gloo", device="cpu",
        world_size=4, **given,
    )  # type: ignore[arg-type] # fmt: skip
    refused = [case for case in plan.cases() if case.form == "first"]
    assert refused
    assert all(case.reason.startswith(reason) for case in refused)


def test_forms_on_new_groups_are_measured_where_they_are_named_only() -> None:
    plan = Plan(
        operations=("all_reduce", "new_group"), sizes=(64,), forms=("all",), backend="gloo",
        device="cpu", world_size=2,
    )  # fmt: skip
    forms = {case.form for case in plan.cases()}
    assert "async" in forms
    assert forms.isdisjoint({"first", "second"})
    assert {case.form for case in plan.cases() if case.operation == "new_group"} == {"direct"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "2,x"], "error: --ranks '2,x' is no list of numbers"),
        (["--ranks", "2", "--nproc-per-node", "2"], "error: --ranks and --nproc-per-node exclude"),
        (["--ranks", "0,2"], "error: --nproc-per-node"),
    ],
)
def test_a_wrong_number_of_ranks_is_refused(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], message: str
) -> None:
    ended = run_commbench(tmp_path_factory.mktemp("wrong"), "init", *words)
    assert ended.code == 2
    assert ended.err.startswith(message)


COUNTS = """
import torch.distributed as dist
import commbench.worker.communicator as communicator

def noted(*arguments, make=communicator.open_idle_groups):
    before = len(dist.distributed_c10d._world.pg_map)
    make(*arguments)
    open("groups", "a").write(f"{len(dist.distributed_c10d._world.pg_map) - before} ")

communicator.open_idle_groups = noted
"""


def test_groups_that_are_open_already_are_made_and_shown(tmp_path: Path) -> None:
    options = ("--op", "new_group", "--open-groups", "0,3", "--nproc-per-node", "2", "--iters", "2")
    ended = run_program_as(tmp_path, COUNTS, "init", *options, "--output", "runs")
    assert ended.code == 0, ended.err
    assert (tmp_path / "groups").read_text().split() == ["0", "0", "3", "3"]
    rows = [line.split() for line in ended.out.splitlines() if line.startswith("  new_group ")]
    assert [row[:4] for row in rows] == [["new_group", "2", "0", "1"], ["new_group", "2", "3", "1"]]
    plans = [read_run(tmp_path / "runs" / f"{n}-open").header.plan for n in (0, 3)]
    assert [plan.open_groups for plan in plans] == [0, 3]


def test_a_list_of_numbers_of_groups_is_one() -> None:
    with pytest.raises(UsageError, match="--open-groups '4;8' is no list of numbers"):
        init_options(open_groups="4;8")
    both = init_options(ranks="2,4", open_groups="0,16")
    assert [options.label for options in both] == [
        "init-2-0-open", "init-2-16-open", "init-4-0-open", "init-4-16-open"
    ]  # fmt: skip
    (alone,) = init_options(ranks="4", budget=0.5)
    assert (alone.label, alone.iters, alone.budget) == ("init", None, 0.5)

"""What a document of a run says, as data. The runs are synthetic, so no rank is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic import header, plan, steady, synthetic_run
from synthetic_replay import WORKLOAD, replay_plan
from synthetic_rows import written_row

import commbench
from commbench.analysis.diagnostics import diagnose_row
from commbench.analysis.rows import make_rows
from commbench.errors import UsageError
from commbench.report.plan_table import plan_document
from commbench.report.run_document import VIEW, ShownRun, document
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import CUT_OFF, IN_PROCESS, Batch, Measurement, RankInfo, Run, RunEnd
from commbench.spec.case import READY, Case
from commbench.spec.operations import OPERATION_SETS
from commbench.spec.plan import Plan
from commbench.views.document import Block, Document, Facts, Folded, Items, Section, Table

OVERLAP_MS = {"communication": 10.0, "computation": 8.0, "both": 12.0}


def durations(case: Case) -> list[float]:
    """Nine samples of 100 us plus 1 ns a byte, within 2 %."""
    middle = 1e-4 + case.size_bytes * 1e-9
    return [middle * (1 + 0.005 * (i - 4)) for i in range(9)]


def run_of(asked: Plan, end: RunEnd | None = RunEnd("complete"), **changes: Any) -> Run:  # noqa: B008
    """A run of every case of a plan; `changes` are of the measurement of its last case."""
    found = []
    for case in asked.cases():
        batches = (Batch(tuple(durations(case))),) if case.status == READY else ()
        status = "ok" if case.status == READY else case.status
        wrong = 0 if case.dtype and batches else None
        found.append(Measurement(case, status, case.reason, "fixed", wrong, batches=batches))
    found[-1] = found[-1]._replace(**changes)
    return Run("results/mine", header(asked, "mine"), tuple(found), end)


def blocks_of(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Section | Folded):
            yield from blocks_of(block.blocks)


def described(run: Run, **options: Any) -> Document:
    return document(ShownRun(run, **options))


def table_of(found: Document, title: str) -> Table:
    tables = [each for each in blocks_of(found.blocks) if isinstance(each, Table) and each.rows]
    (table,) = [each for each in tables if each.title.startswith(title)]
    return table


def column(table: Table, heading: str) -> list[str]:
    cells = {each.heading.replace("\n", " "): cells for each, cells in table.cells()}
    return [cell.strip() for cell in cells.get(heading, [])]


def items_of(found: Document, title: str) -> list[str]:
    (items,) = [b for b in blocks_of(found.blocks) if isinstance(b, Items) and b.title == title]
    return [*items.texts]


def test_one_kind_is_a_table_and_a_sentence_with_the_digits_of_the_intervals() -> None:
    found = described(run_of(plan(sizes=(1 << 10, 1 << 16, 1 << 20), iterations=9)))
    assert found.answer == [
        "The highest bus bandwidth is 0.913 GB/s: all_reduce at 1 MiB.",
        "3 of 3 cases were measured; all results are correct.",
    ]
    summary = [cells[0].strip() for _, cells in table_of(found, "Summary").cells()]
    assert summary == ["101.0 us", "0.913", "1 MiB", "103 KiB", "0"]
    rows = table_of(found, "all_reduce float32 sum in_place")
    assert column(rows, "time") == ["101.0 us", "165.5 us", "1.149 ms"]
    assert column(rows, "95 % interval")[0] == "99.5 … 102.5 us"
    assert column(rows, "busbw GB/s") == ["0.01014", "0.396", "0.913"]
    assert column(rows, "status") == []


def test_an_operation_without_bandwidth_has_no_such_columns() -> None:
    rows = table_of(described(run_of(plan(operations=("barrier",), iterations=9))), "barrier")
    assert [each.heading for each, _ in rows.cells()] == ["time", "95 % interval", "n"]


def test_a_run_that_lacks_launches_says_how_many_it_has_and_marks_its_rows(tmp_path: Path) -> None:
    asked = plan(sizes=(1024, 2048), launches=3)
    folder = synthetic_run(tmp_path / "run", "mine", lambda _: steady(1e-4), asked, launches=1)
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    assert '"status": "complete"' in lines[-1]
    run = read_run(folder)
    assert (run.launches, run.end) == (1, None)
    found = described(run)
    assert found.subtitle[1].endswith("; 1 of 3 launches")
    assert column(table_of(found, "all_reduce"), "status") == ["cut off", "cut off"]
    assert "2 of them only in part (cut off)" in commbench.report(folder, format="html")
    whole = synthetic_run(tmp_path / "whole", "mine", lambda _: steady(1e-4), asked, launches=3)
    found = described(read_run(whole))
    assert found.subtitle[1].endswith("; 3 launches")
    assert column(table_of(found, "all_reduce"), "status") == []


def test_several_nodes_on_one_host_are_counted() -> None:
    run = run_of(plan(sizes=(1024,)))
    ranks = tuple(rank._replace(local_rank=0) for rank in run.header.ranks)
    nodes = run._replace(header=run.header._replace(ranks=ranks))
    program = nodes._replace(header=nodes.header._replace(launcher=IN_PROCESS))
    for each, said in ((run, "ranks on"), (nodes, "ranks of 2 nodes on"), (program, "ranks on")):
        assert f"2 gloo {said} node1" in described(each).subtitle[0]


@pytest.mark.parametrize(
    ("changes", "status", "sentence"),
    [
        ({"stop_reason": CUT_OFF}, CUT_OFF, "1 of them only in part (cut off)"),
        ({"status": "wrong", "wrong": 3}, "wrong", "Some results are wrong."),
    ],
)
def test_a_row_that_is_not_as_the_others_is_marked_where_it_stands(
    changes: dict[str, Any], status: str, sentence: str
) -> None:
    found = described(run_of(plan(sizes=(1024, 2048), iterations=9), **changes))
    assert column(table_of(found, "all_reduce"), "status") == ["", status]
    assert sentence in found.answer[0]


def test_a_run_that_has_not_ended_says_so() -> None:
    found = described(run_of(plan(), None))
    assert "This run has not ended: it is still running, or it was cut off." in found.answer
    assert found.tone == "bad"


def test_what_was_not_measured_is_listed_by_reason() -> None:
    asked = plan(operations=("all_reduce", "broadcast"), dtypes=("float32", "float16"),
                 reduce_ops=("sum", "band"), sizes=(2, 1024), iterations=9)  # fmt: skip
    assert items_of(described(run_of(asked)), "Not measured") == [
        "all_reduce float32 sum in_place 2 B, broadcast float32 in_place root 0 2 B: skipped: "
        "less than one float32",
        "all_reduce float32 band in_place: unsupported: band is not defined for float32",
        "all_reduce float16 band in_place: unsupported: band is not defined for float16",
    ]


def test_forms_are_compared_with_one_direct_call_of_the_same_bytes() -> None:
    asked = plan(
        sizes=(1 << 10, 1 << 20), tensors=("4",), forms=("separate", "async"), iterations=9
    )
    found = [
        m._replace(batches=(Batch(tuple(t * k for t in durations(m.case))),))
        for m, k in zip(run_of(asked).measurements, (1, 1, 4, 4, 1.5, 1.5), strict=True)
    ]
    rows = table_of(described(run_of(asked)._replace(measurements=tuple(found))), "Every row")
    assert column(rows, "over flat") == ["", "", "4.00", "4.00", "1.50", "1.50"]


def test_both_ways_of_timing_stand_side_by_side_with_their_ratio() -> None:
    asked = plan(operations=("all_reduce", "barrier"), sizes=(64, 128), timing="both", iterations=9)
    found = [
        m._replace(batches=(Batch(tuple(t * (2 - (m.case.timing == "isolated")) for t in
                                        durations(m.case)), calls=20),))
        for m in run_of(asked).measurements
    ]  # fmt: skip
    run = run_of(asked)._replace(measurements=tuple(found))
    rows = table_of(described(run), "Time alone over time back to back")
    assert [row.title for row in rows.rows] == ["all_reduce float32 sum in_place"] * 2 + ["barrier"]
    assert column(rows, "ratio") == ["0.50"] * 3
    checked = "6 of 6 cases were measured; the results of 4 were checked and are correct."
    assert checked in described(run).answer
    once = run._replace(measurements=run.measurements[:2])
    with pytest.raises(ValueError, match="not enough values"):
        table_of(described(once), "Time alone")


def test_many_rows_are_summarised_in_a_terminal() -> None:
    sizes = tuple(1 << n for n in range(10, 27))
    asked = plan(operations=OPERATION_SETS["all"], sizes=sizes, iterations=9)
    found = described(run_of(asked), is_brief=True)
    summary, rows = table_of(found, "Summary"), table_of(found, "Every row")
    assert len(summary.rows) == len(OPERATION_SETS["all"])
    first = [cells[0].strip() for _, cells in summary.cells()]
    assert first == ["101.0 us", "0.999", "64 MiB", "100 KiB", "0"]
    assert (len(rows.rows), rows.brief) == (9 * 17 + 1, [])
    assert len(table_of(described(run_of(asked)), "Every row").brief or ()) == 9 * 17 + 1
    few = plan(operations=("all_reduce", "broadcast"), iterations=9)
    rows = table_of(described(run_of(few), is_brief=True), "Every row")
    assert rows.brief == rows.rows


def test_every_format_is_there_and_another_is_refused_with_the_list() -> None:
    shown = ShownRun(run_of(plan(iterations=9)))
    assert all(VIEW.write(shown, format_) for format_ in VIEW.formats)
    with pytest.raises(UsageError) as refused:
        VIEW.write(shown, "table")
    assert refused.value.hint == "known: text, markdown, html, json, nccl-tests"


def overlap_run(cases: int = 3, **more: Any) -> Run:
    """A run of so many cases of an overlap, nine samples within 2 % each."""
    asked = plan(sizes=(1 << 20,), overlap=("matmul:8x8x8",), iterations=9)
    near = [1e-3 * (1 + 0.005 * (i - 4)) for i in range(9)]
    found = []
    for case in asked.cases()[:cases]:
        samples = tuple(OVERLAP_MS[case.part] * s for s in near)
        batch = Batch(samples, work="40 x matmul 8x8x8 float32")
        if case.part == "both":
            ends = [tuple(ms * s for s in near) for ms in (11.5, 10)]
            batch = batch._replace(communication_s=ends[0], computation_s=ends[1])
        found.append(Measurement(case, "ok", "", "fixed", batches=(batch,)))
    return Run("results/mine", header(asked, "mine", **more), tuple(found), RunEnd("complete"))


def test_figures_of_an_overlap_have_their_intervals_and_the_times_are_below() -> None:
    found = described(overlap_run())
    title = "all_reduce float32 sum in_place with matmul:8x8x8: "
    figures, times = table_of(found, f"{title}at once"), table_of(found, f"{title}times")
    assert [cells for _, cells in figures.cells()] == [
        ["1 MiB"], ["75 (72 … 78)"], ["25 (22 … 28)"], ["15 (13 … 17)"], ["1.50 (1.47-1.53)"],
    ]  # fmt: skip
    assert [cells[0] for _, cells in times.cells()][1:6] == [
        "10.00 ms", "11.50 ms", "8.00 ms", "10.00 ms", "12.00 ms",
    ]  # fmt: skip
    rows = table_of(found, "Every row")
    assert (len(rows.rows), rows.brief) == (3, [])
    cut = described(overlap_run(cases=2))
    assert len(table_of(cut, "Every row").brief or ()) == 2
    assert not [b for b in cut.blocks if isinstance(b, Table) and b.title.startswith(title)]


def test_what_computes_has_no_bandwidth() -> None:
    rows = [written_row(row) for row in make_rows(overlap_run())]
    assert [row["busbw_GBps"] is None for row in rows] == [False, True, True]
    assert [row["hidden_share"] for row in rows] == [None, None, pytest.approx(0.75)]


@pytest.mark.parametrize(("cores", "warned"), [((0, 1, 2, 3), False), ((0, 1), True)])
def test_too_few_cores_for_both_at_once_are_warned_about(
    cores: tuple[int, ...], warned: bool
) -> None:
    ranks = tuple(RankInfo(rank, "node1", 1, "cpu", cores) for rank in range(2))
    rows = make_rows(overlap_run(ranks=ranks))
    found = [
        row.measurement.case.part
        for row in rows
        if "overlap_cores" in {diagnostic.name for diagnostic in diagnose_row(row)}
    ]
    assert found == (["both"] if warned else [])


def test_the_plan_of_a_replay_names_its_workload_and_the_memory_of_steps() -> None:
    found = plan_document(replay_plan(), "torchrun ...")
    (facts,) = (dict(block.pairs) for block in found.blocks if isinstance(block, Facts))
    assert facts["workload"] == "resnet: step train (3 calls of rank 0)"
    assert facts["variants"] == "all"
    assert not {"operations", "placement", "timing", "root", "concurrency"} & set(facts)
    cases = table_of(found, "")
    memory = dict(zip(column(cases, "case"), column(cases, "bytes per rank"), strict=True))
    # The buffers of three calls under way at once, each of whole pages.
    assert memory["replay train calls"] == "6168 KiB"
    assert found.answer == ["Cases: 7; a rank needs at most 6192 KiB for buffers."]
    noted = WORKLOAD._replace(notes=("the trace has no start times",))
    found = plan_document(replay_plan(["calls"], noted), "torchrun ...")
    assert items_of(found, "Notes on the workload") == ["the trace has no start times"]

"""What a document of a run says, as data. The runs are synthetic, so no rank is started."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic import header, plan, steady, synthetic_run
from synthetic_replay import WORKLOAD, replay_plan, synthetic_replay
from synthetic_rows import batches, ranks, row, written_row
from synthetic_rows import plan as row_plan

import commbench
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.show.lists import RUNS, RunList, runs_document
from commbench.answers.show.plan import plan_document
from commbench.answers.show.run_document import ShownRun, document
from commbench.answers.show.run_notes import find_warnings, interfaces_text, warnings_section
from commbench.plan.case import READY, Case
from commbench.plan.operations import OPERATION_SETS
from commbench.plan.plan import Plan
from commbench.results.journal_reader import read_run
from commbench.results.records import RankInfo
from commbench.results.run_folder import JOURNAL, StoredRun, list_stored_runs
from commbench.results.schema import IN_PROCESS, Batch, Measurement, Run, RunEnd, RunHeader
from commbench.views.document import Block, Document, Facts, Folded, Items, Section, Table, Text

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
        ["1 MiB"], ["75 (72 … 78)"], ["1.25 (1.22 … 1.28)"], ["1.15 (1.13 … 1.17)"],
        ["1.50 (1.47 … 1.53)"],
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


def test_the_plan_of_a_replay_names_its_workload_and_the_memory_of_steps() -> None:
    found = plan_document(replay_plan(), "torchrun ...")
    (facts,) = (dict(block.pairs) for block in found.blocks if isinstance(block, Facts))
    assert facts["workload"] == "resnet: step train (3 calls of rank 0)"
    assert facts["variants"] == "all"
    assert not {"operations", "placement", "timing", "root", "concurrency"} & set(facts)
    cases = table_of(found, "")
    memory = dict(zip(column(cases, "case"), column(cases, "bytes per rank"), strict=True))
    # The buffers of three calls under way at once, each of whole pages.
    assert memory["replay train calls"] == "6.0 MiB"
    assert found.answer == ["Cases: 7; a rank needs at most 6.0 MiB for buffers."]
    noted = WORKLOAD._replace(notes=("the trace has no start times",))
    found = plan_document(replay_plan(["calls"], noted), "torchrun ...")
    assert items_of(found, "Notes on the workload") == ["the trace has no start times"]


SIZES = tuple(1 << n for n in range(10, 27))
STARTED = "2026-11-21T06:00:00+00:00"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def rows(*runs: StoredRun) -> list[tuple[str, ...]]:
    table = runs_document(RunList(runs, ())).blocks[0]
    assert isinstance(table, Table)
    return [tuple(column.cell(run) for column in table.columns) for run in runs]


def test_a_run_is_one_line_with_what_it_measured() -> None:
    assert rows(
        StoredRun(STARTED, Path("a"), "ring", ("all_reduce",), SIZES, "nccl", 16, "complete"),
        StoredRun(STARTED, Path("b"), "b", ("barrier",), SIZES, "gloo", 2, "interrupted"),
        StoredRun(STARTED, Path("c"), "c", ("gather", "reduce"), (8, 24), "gloo", 2, "failed"),
        StoredRun("", Path("d"), "d"),
    ) == [
        ("a", "ring", "2026-11-21 06:00:00", "all_reduce 1K-64M", "16 nccl", ""),
        ("b", "b", "2026-11-21 06:00:00", "barrier", "2 gloo", "interrupted"),
        ("c", "c", "2026-11-21 06:00:00", "gather +1 8B-24B", "2 gloo", "failed"),
        ("d", "d", "", "", "", "not ended"),
    ]


def test_the_start_is_left_out_where_the_name_of_the_folder_has_it() -> None:
    folder = "20261121-060000-" + "x" * 64
    run = StoredRun(STARTED, Path(folder), "x" * 64, ("gather",), SIZES, "gloo", 1024, "failed")
    assert rows(run)[0][:3] == (folder, "x" * 64, "")


def test_a_replay_is_listed_with_the_name_of_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic_replay(Path("results/20261121-060000-mine"), "mine", variants=["calls"])
    runs = list_stored_runs()
    assert [row[3:] for row in rows(*runs)] == [("replay of resnet", "2 gloo", "")]
    found = json.loads(RUNS.write(RunList(runs, ["a-sweep"]), "json"))
    assert (found["runs"][0]["label"], found["sweeps"]) == ("mine", ["a-sweep"])


MS = 1e-3


def waiting(share: float, size: int = 1024, **wishes: Any) -> ResultRow:
    """A row whose threads waited for a processor in this share of the time."""
    found = batches(*[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.1 * share)
    return row(*found, sizes=(size,), ranks=ranks((0,), (1,)), **wishes)


def test_nothing_is_warned_about_where_nothing_misleads() -> None:
    assert find_warnings([waiting(0.1), waiting(0.2)]) == find_warnings([]) == []
    assert warnings_section([]) == Items(())
    assert warnings_section([], True) == Section("Warnings", [Text("None.")])


def test_a_warning_has_the_largest_figure_and_what_to_do() -> None:
    (found,) = find_warnings([waiting(0.6), waiting(0.9), row()])
    assert (found.name, found.which, found.rows) == ("queued", "all rows", "")
    assert "up to 90 %" in found.message


def where(*rows: ResultRow) -> str:
    """Which rows the first warning is said to be about."""
    return find_warnings(rows)[0].which


def test_a_warning_of_some_rows_names_their_sizes() -> None:
    calm = waiting(0.0)
    assert where(waiting(0.9, 1 << 20), calm) == "all_reduce 1M"
    many = [waiting(0.9, 1 << n) for n in range(10, 18)]
    assert where(*many, waiting(0.0, 1 << 20)) == "all_reduce 1K-128K"
    assert where(*many[:2], *many[4:], waiting(0.0, 1 << 12), waiting(0.0, 1 << 13)) == (
        "all_reduce 1K-2K, 16K-128K"
    )


def test_a_warning_of_rows_of_several_kinds_names_some_and_counts_the_others() -> None:
    rows = [waiting(0.9, operations=(name,)) for name in ("all_gather", "broadcast", "gather")]
    assert where(*rows, waiting(0.0)) == "all_gather 1K; broadcast 1K; gather 1K"
    more = [waiting(0.9, size, operations=("all_to_all",)) for size in (4096, 8192)]
    assert where(*rows, *more, waiting(0.0)) == (
        "all_gather 1K; broadcast 1K; gather 1K; 2 more rows"
    )
    assert where(waiting(0.9, operations=("barrier",)), waiting(0.0)) == "barrier"


DISTURBED = Batch(
    samples_s=(MS,) * 20, elapsed_s=0.1, queued_s=0.09, stolen_s=0.02, throttled_s=0.01,
    entry_skew_s=0.5 * MS, last_in=(0, 20),
)  # fmt: skip


def disturbed_row(*cores: tuple[int, ...]) -> ResultRow:
    return row(*[DISTURBED] * 5, ranks=ranks(*cores), resolution_s=MS)


def test_the_most_important_warnings_are_first_and_explained_with_their_rows() -> None:
    found = find_warnings([disturbed_row((0,), (1,)), waiting(0.0, 1 << 20)])
    assert [each.name for each in found] == ["throttled", "stolen", "always_last", "coarse_clock"]
    assert {each.rows for each in found} == {"all_reduce 1K"}
    section = warnings_section(found)
    lines, folded = section.blocks
    assert isinstance(lines, Items) and len(lines.texts) == 4
    assert isinstance(folded, Folded) and isinstance(folded.blocks[0], Items)
    assert folded.blocks[0].texts[3] == f"coarse_clock: {found[3].explanation} Rows: all_reduce 1K."
    assert isinstance(warnings_section(found, are_explained=True).blocks[1], Section)


def header_of_hosts(*ways: tuple[str, str, str], **more: Any) -> RunHeader:
    """Two ranks on each of these hosts, which have an interface and an address."""
    ranks = tuple(
        RankInfo(2 * i + local, host, 1, "cpu", local_rank=local, interface=name, address=address)
        for i, (host, name, address) in enumerate(ways)
        for local in range(2)
    )
    return RunHeader(
        plan=row_plan(), label="", started="", launcher="", ranks=ranks,
        **({"num_nodes": len(ways)} | more),
    )  # fmt: skip


def test_several_hosts_are_told_with_their_interfaces() -> None:
    alike = header_of_hosts(("n1", "eth0", "10.0.0.1"), ("n2", "eth0", "10.0.0.2"))
    assert interfaces_text(alike) == "Network interfaces: eth0 of n1 (10.0.0.1), n2 (10.0.0.2)."
    differing = header_of_hosts(
        ("n1", "ib0", "10.0.0.1"), ("n2", "docker0", "172.17.0.1"), ("n3", "", "10.0.0.3")
    )
    assert interfaces_text(differing) == (
        "Network interfaces: an unknown interface of n3 (10.0.0.3); docker0 of n2 (172.17.0.1); "
        "ib0 of n1 (10.0.0.1)."
    )
    many = header_of_hosts(*((f"n{i}", "eth0", f"10.0.0.{i}") for i in range(10)))
    assert "n7 (10.0.0.7) and 2 more." in interfaces_text(many)

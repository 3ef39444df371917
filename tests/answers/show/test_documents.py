"""What documents of runs, plans and lists say. The runs are synthetic, so no rank is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pictures
import pytest
from synthetic import header, plan, steady, synthetic_run
from synthetic_replay import WORKLOAD, replay_plan
from synthetic_rows import batches, ranks, row

import commbench
from commbench.analysis.diagnostics import WAITED
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.show import start_up
from commbench.answers.show.formats import texts
from commbench.answers.show.lists import RunList, runs_document
from commbench.answers.show.plan import left_out, plan_document
from commbench.answers.show.plots import run_pictures
from commbench.answers.show.rows import BELOW_P5
from commbench.answers.show.run_document import ShownRun, document
from commbench.answers.show.run_notes import find_warnings, interfaces_text, warnings_section
from commbench.answers.show.shapes import (
    Finding,
    GroupRow,
    find_shapes,
    group_rows,
    groups_blocks,
    shapes_sentence,
)
from commbench.errors import UsageError
from commbench.plan.case import READY, Case
from commbench.plan.operations import OPERATION_SETS
from commbench.plan.plan import Plan
from commbench.plan.splits import UNIFORM
from commbench.results.journal_reader import read_run
from commbench.results.records import RankInfo
from commbench.results.run_folder import JOURNAL, StoredRun
from commbench.results.schema import IN_PROCESS, Batch, Measurement, Run, RunEnd
from commbench.stats import Estimate
from commbench.views.document import Block, Document, Facts, Folded, Items, Section, Table, Text

MS = 1e-3
MIB = 1 << 20


def usual_ms(case: Case) -> float:
    """100 us and 1 ns a byte."""
    return 0.1 + case.size_bytes * 1e-6


def run_of(asked: Plan, time_ms: Callable[[Case], float] = usual_ms) -> Run:
    """A run whose calls take so long, nine samples within 2 % each."""
    found = []
    for case in (case for case in asked.cases() if case.status == READY):
        batch = Batch(tuple(time_ms(case) * MS * (1 + 0.005 * (i - 4)) for i in range(9)))
        wrong = 0 if case.dtype else None
        found.append(Measurement(case, "ok", "", "fixed", wrong=wrong, batches=(batch,)))
    return Run("results/mine", header(asked, "mine"), tuple(found), RunEnd("complete"))


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


def test_a_run_that_lacks_launches_says_how_many_it_has_and_marks_its_rows(tmp_path: Path) -> None:
    asked = plan(sizes=(1024, 2048), launches=3)
    said = {
        1: ("; 1 of 3 launches complete", ["cut off", "cut off"]),
        3: ("; 3 launches within 1 s", []),
    }
    for launches, (how, status) in said.items():
        folder = synthetic_run(
            tmp_path / str(launches), "mine", lambda _: steady(1e-4), asked, launches
        )
        assert '"status": "complete"' in (folder / JOURNAL).read_text()
        found = described(read_run(folder))
        assert found.subtitle[1].endswith(how)
        assert column(table_of(found, "all_reduce"), "status") == status
    text = commbench.report(tmp_path / "1", format="markdown")
    assert "2 of 2 cases were measured only in part (cut off)" in text


@pytest.mark.parametrize(
    ("sizes", "measured", "said"),
    [(3, 1, "1 of 3 cases was"), (1, 1, "1 of 1 case was"), (3, 2, "2 of 3 cases were"),
     (1, 0, "0 of 1 case was")],
)  # fmt: skip
def test_one_case_was_and_several_were_measured(sizes: int, measured: int, said: str) -> None:
    wishes = plan(sizes=tuple(1024 << n for n in range(sizes)))
    found = [
        Measurement(case, *(("ok", batches([MS] * 20)) if n < measured else ("failed",)))
        for n, case in enumerate(wishes.cases())
    ]
    shown = document(ShownRun(Run("results/a", header(wishes, "a"), tuple(found), None)))
    assert f"{said} measured" in " ".join(shown.answer)


def test_several_nodes_on_one_host_are_counted() -> None:
    run = run_of(plan(sizes=(1024,)))
    ranks = tuple(rank._replace(local_rank=0) for rank in run.header.ranks)
    for changes, said in (
        ({}, "ranks on"),
        ({"ranks": ranks}, "ranks of 2 nodes on"),
        ({"ranks": ranks, "launcher": IN_PROCESS}, "ranks on"),
    ):
        found = described(run._replace(header=run.header._replace(**changes)))
        assert f"2 gloo {said} node1" in found.subtitle[0]


@pytest.mark.usefixtures("launches_alike")
def test_many_rows_are_summarised_in_a_terminal() -> None:
    sizes = tuple(1 << n for n in range(10, 27))
    run = run_of(plan(operations=OPERATION_SETS["all"], sizes=sizes, iterations=9))
    found = described(run, is_brief=True)
    summary, rows = table_of(found, "Summary"), table_of(found, "Every row")
    assert len(summary.rows) == len(OPERATION_SETS["all"])
    first = [cells[0].strip() for _, cells in summary.cells()]
    assert first == ["101.0 (99.5 … 102.5) us", "0.999", "64 MiB", "97 … 104 KiB", "0"]
    assert (len(rows.rows), rows.brief) == (9 * 17 + 1, [])
    assert len(table_of(described(run), "Every row").brief or ()) == 9 * 17 + 1
    few = run_of(plan(operations=("all_reduce", "broadcast"), iterations=9))
    rows = table_of(described(few, is_brief=True), "Every row")
    assert rows.brief == rows.rows


def test_of_an_overlap_that_was_cut_the_parts_are_rows() -> None:
    run = run_of(plan(sizes=(MIB,), overlap=("matmul:8x8x8",), iterations=9))
    found = described(run._replace(measurements=run.measurements[:2]))
    assert len(table_of(found, "Every row").brief or ()) == 2
    assert not [b for b in found.blocks if isinstance(b, Table) and "at once" in b.title]


@pytest.mark.parametrize("sizes", [(MIB,), (MIB, 2 * MIB)])
def test_an_overlap_whose_ranks_waited_is_marked_with_the_legend(sizes: tuple[int, ...]) -> None:
    asked, found = plan(sizes=sizes, overlap=("matmul:8x8x8",)), []
    for case in asked.cases():
        batch = Batch((MS,) * 9, elapsed_s=0.1, queued_s=0.09, computation_s=(MS,) * 9)
        found.append(Measurement(case, "ok", wrong=0, batches=(batch,)))
    run = Run("results/mine", header(asked, "mine"), tuple(found), RunEnd("complete"))
    told = described(run)
    title = "all_reduce float32 sum in_place with matmul:8x8x8: at once"
    assert column(table_of(told, title), "") == ["*"] * len(sizes)
    assert any(f"*: {WAITED}." in b.texts for b in blocks_of(told.blocks) if isinstance(b, Items))
    (picture,) = [each for each in run_pictures([run]) if each.name == "time"]
    assert "Hollow points do not count" in pictures.said(pictures.require_readable(picture))


def test_the_plan_of_a_replay_names_its_workload_and_the_memory_of_steps() -> None:
    noted = WORKLOAD._replace(notes=("the trace has no start times",))
    found = plan_document(replay_plan(workload=noted), "torchrun ...")
    (facts,) = (dict(block.pairs) for block in found.blocks if isinstance(block, Facts))
    assert facts["workload"] == "resnet: step train (3 calls of rank 0)"
    assert facts["variants"] == "all"
    assert not {"operations", "placement", "timing", "root", "concurrency"} & set(facts)
    cases = table_of(found, "")
    memory = dict(zip(column(cases, "case"), column(cases, "bytes per rank"), strict=True))
    # The buffers of three calls under way at once, each of whole pages.
    assert memory["replay train calls"] == "6.0 MiB"
    assert found.answer == [
        "Cases: 7; a rank needs at most 6.0 MiB for buffers.",
        "Timing takes about 1 s, longer where calls take over 33.3 ms or the host is busy. "
        "Checks and 1 start of all ranks take some seconds more.",
    ]
    assert Items(["the trace has no start times"], "Notes on the workload") in found.blocks


SIZES = tuple(1 << n for n in range(10, 27))
STARTED = "2026-11-21T06:00:00+00:00"
IN_NAME = "20261121-060000-" + "x" * 64


@pytest.mark.parametrize(
    ("run", "cells"),
    [
        ((STARTED, Path("a"), "ring", ("all_reduce",), SIZES, "nccl", 16, "complete"),
         ("a", "ring", "2026-11-21 06:00:00", "all_reduce 1K-64M", "16 nccl", "")),
        ((STARTED, Path("b"), "b", ("barrier",), SIZES, "gloo", 2, "interrupted"),
         ("b", "b", "2026-11-21 06:00:00", "barrier", "2 gloo", "interrupted")),
        ((STARTED, Path(IN_NAME), "c", ("gather", "reduce"), (8, 24), "gloo", 2, "failed"),
         (IN_NAME, "c", "", "gather +1 8B-24B", "2 gloo", "failed")),
        (("", Path("d"), "d"), ("d", "d", "", "", "", "not ended")),
    ],
)  # fmt: skip
def test_a_run_is_one_line_with_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, run: tuple[Any, ...], cells: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (table, _) = runs_document(RunList([StoredRun(*run)], ())).blocks
    assert isinstance(table, Table)
    assert tuple(each.cell(StoredRun(*run)) for each in table.columns) == cells


def waiting(share: float, size: int = 1024, operation: str = "all_reduce") -> ResultRow:
    """A row whose threads waited for a processor in this share of the time."""
    found = batches(*[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.1 * share)
    return row(*found, sizes=(size,), ranks=ranks((0,), (1,)), operations=(operation,))


def test_nothing_is_warned_about_where_nothing_misleads() -> None:
    assert find_warnings([waiting(0.1), waiting(0.2)]) == find_warnings([]) == []
    assert warnings_section([]) == Items(())
    assert warnings_section([], are_explained=True) == Section("Warnings", [Text("None.")])


@pytest.mark.parametrize(
    ("shares", "highest", "names", "figures"),
    [
        ((0.1, 0.1, 0.1, 0.1, 0.1), 16, "", (1, 16, "")),
        ((0.9, 0.1, 0.1, 0.1, 0.1), 16, "all_reduce 1K", (2, 16, "")),
        ((0.1, 0.1, 0.1, 0.1, 0.9), 8, "all_reduce 16K", (1, 8, "")),
        ((0.9, 0.1, 0.1, 0.9, 0.9), 0, "", (2, 4, "")),
        ((0.9, 0.9, 0.9, 0.9, 0.9), 0, "", (1, 16, "*")),
    ],
)
def test_the_highest_bandwidth_is_of_rows_whose_ranks_did_not_wait(
    shares: tuple[float, ...], highest: int, names: str, figures: tuple[int, int, str]
) -> None:
    wishes = plan(sizes=tuple(1024 << n for n in range(5)))
    found = tuple(
        Measurement(case, "ok", batches=batches(
            *[[(1 + n / 100) * MS] * 20] * 5, elapsed_s=0.1, queued_s=0.1 * share
        ))
        for n, (case, share) in enumerate(zip(wishes.cases(), shares, strict=True))
    )  # fmt: skip
    shown = document(ShownRun(Run("results/a", header(wishes, "a"), found, None)))
    answer, waited = " ".join(shown.answer), "Ranks waited for a core over 40 % of the time"
    assert (f"all_reduce at {highest} KiB." in answer) == bool(highest)
    assert (f"{waited}, so these rows do not count: {names}." in answer) == bool(names)
    assert (f"{waited}: this shows the host" in answer) == (not highest)
    tables = (each for each in shown.blocks if isinstance(each, Table))
    (kind,) = next(table.rows for table in tables if table.title.startswith("Summary"))
    of_rows = (kind.curve.latency.case.size_bytes, kind.curve.peak.case.size_bytes)
    assert (*(size >> 10 for size in of_rows), kind.mark) == figures


def test_a_warning_has_the_largest_figure_and_what_to_do() -> None:
    (found,) = find_warnings([waiting(0.6), waiting(0.9), row()])
    assert (found.name, found.which, found.rows) == ("queued", "all rows", "")
    assert "up to 90 %" in found.message
    (found,) = find_warnings([waiting(0.6), waiting(0.9, MIB)])
    assert found.which == "all rows; most at all_reduce 1M"


def test_a_warning_says_what_it_explains_and_whether_in_all_rows() -> None:
    late = row(
        *batches(*[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.06, entry_skew_s=0.5 * MS),
        ranks=ranks((0,), (1,)),
    )
    (found,) = find_warnings([waiting(0.9, MIB), late])
    said = "time; try --cpu-mode realtime. In some rows this explains ranks that start late"
    assert (found.name, said in found.message) == ("queued", True)


KINDS = [(1024, operation) for operation in ("all_gather", "broadcast", "gather")]


@pytest.mark.parametrize(
    ("concerned", "others", "which"),
    [
        ([(MIB, "all_reduce")], [1024], "all_reduce 1M"),
        ([(1 << n, "all_reduce") for n in range(10, 18)], [MIB], "all_reduce 1K-128K"),
        ([(1 << n, "all_reduce") for n in (10, 11, 14, 15, 16, 17)], [MIB, 1 << 12, 1 << 13],
         "all_reduce 1K-2K, 16K-128K"),
        (KINDS, [1024], "all_gather 1K; broadcast 1K; gather 1K"),
        ([*KINDS, (4096, "all_to_all"), (8192, "all_to_all")], [1024],
         "5 of 6 rows"),
        ([(1024, "barrier")], [1024], "barrier"),
    ],
)  # fmt: skip
def test_a_warning_of_some_rows_names_or_counts_them(
    concerned: list[tuple[int, str]], others: list[int], which: str
) -> None:
    rows = [waiting(0.9, *case) for case in concerned] + [waiting(0.0, size) for size in others]
    assert find_warnings(rows)[0].which == which


def test_warnings_name_where_rows_were_measured_unless_it_is_everywhere() -> None:
    rows = [waiting(0.9), waiting(0.8, MIB), waiting(0.0), waiting(0.0, MIB)]
    places = dict(zip(map(id, rows), ("under a", "under b", "under a", "under b"), strict=True))
    (found,) = find_warnings(rows, lambda each: places[id(each)])
    assert found.which == "all_reduce 1K-1M; most at all_reduce 1K under a"
    (found,) = find_warnings([rows[0], *rows[2:]], lambda each: places[id(each)])
    assert found.which == "all_reduce 1K under a"


def test_the_most_important_warnings_are_first_and_explained_with_their_rows() -> None:
    disturbed = batches(
        *[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.09, stolen_s=0.02, throttled_s=0.01,
        entry_skew_s=0.5 * MS, last_in=(0, 20),
    )  # fmt: skip
    bad = row(*disturbed, ranks=ranks((0,), (1,)), resolution_s=MS)
    found = find_warnings([bad, waiting(0.0, MIB)])
    assert [each.name for each in found] == ["throttled", "stolen", "always_last", "coarse_clock"]
    assert {each.rows for each in found} == {"all_reduce 1K"}
    named = [("", each) for each in found]
    brief, whole = (warnings_section(named, are_explained=explained) for explained in (0, 1))
    assert isinstance(brief, Section) and isinstance(whole, Section)
    (first, folded), (lines, meaning) = brief.blocks, whole.blocks
    assert isinstance(folded, Folded) and folded.title.startswith("2 more warnings: ")
    assert folded.blocks[1] == meaning
    assert all(isinstance(each, Items) for each in (first, lines, folded.blocks[0]))
    assert [*first.texts, *folded.blocks[0].texts] == lines.texts and len(first.texts) == 2
    assert isinstance(meaning, Section) and isinstance(meaning.blocks[0], Items)
    texts = meaning.blocks[0].texts
    assert texts[3] == f"coarse_clock: {found[3].explanation} Rows: all_reduce 1K."


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([("n1", "eth0", "10.0.0.1")], ""),
        ([("n1", "eth0", "10.0.0.1"), ("n2", "eth0", "10.0.0.2")], "eth0 of n1 (10.0.0.1), "
         "n2 (10.0.0.2)"),
        ([("n1", "ib0", "10.0.0.1"), ("n2", "docker0", "172.17.0.1"), ("n3", "", "10.0.0.3")],
         "an unknown interface of n3 (10.0.0.3); docker0 of n2 (172.17.0.1); ib0 of n1 (10.0.0.1)"),
        ([(f"n{i}", "eth0", "a") for i in range(10)],
         f"eth0 of {', '.join(f'n{i} (a)' for i in range(8))} and 2 more"),
    ],
)  # fmt: skip
def test_several_hosts_are_told_with_their_interfaces(
    hosts: list[tuple[str, str, str]], text: str
) -> None:
    ranks = [
        RankInfo(2 * i + local, host, 1, "cpu", local_rank=local, interface=name, address=address)
        for i, (host, name, address) in enumerate(hosts)
        for local in range(2)
    ]
    found = header(plan(), "mine", ranks=tuple(ranks), num_nodes=len(hosts))
    assert interfaces_text(found) == (text and f"Network interfaces: {text}.")


ALONE_MS = {"0,1": 0.1, "2,3": 0.15}
TOGETHER_MS = {"0,1": 0.11, "2,3": 0.3}


def grouped_run() -> Run:
    """Two groups: the second one is slower, and twice as slow beside the first."""
    asked = plan(world_size=4, mesh="dp=2,tp=2", over=("tp",), concurrency="both", sizes=(MIB,))
    measurements = []
    for case in asked.cases():
        times = [ALONE_MS[case.group_ranks]] if case.group_ranks else [*TOGETHER_MS.values()]
        medians = tuple(time * MS for time in times)
        batch = Batch((max(medians),) * 10, group_medians_s=medians if len(times) > 1 else ())
        found = Measurement(case, "ok", stop_reason="fixed", wrong=0, batches=(batch,) * 6)
        measurements.append(found)
    return Run("mine", header(asked, "mine"), tuple(measurements), RunEnd("complete"))


def with_batches(number: int, *found: Batch) -> Run:
    """The grouped run with other batches of one measurement: 0 is that of both groups."""
    run = grouped_run()
    measurements = [*run.measurements]
    measurements[number] = measurements[number]._replace(batches=found)
    return run._replace(measurements=tuple(measurements))


def groups_of(run: Run) -> dict[str, GroupRow]:
    """The rows of the groups by their ranks; there is one size."""
    return {group.ranks: group for group in group_rows(make_rows(run))}


def medians(row: ResultRow) -> dict[str, float]:
    return {ranks: time.value for ranks, time in row.group_times.items()}


def test_each_group_is_shown_alone_and_together() -> None:
    run = grouped_run()
    groups = groups_of(run)
    assert {group.title for group in groups.values()} == {"all_reduce float32 sum in_place over tp"}
    for name, group in groups.items():
        assert group.alone and group.together and group.interference
        assert group.alone.value == pytest.approx(ALONE_MS[name] * MS)
        assert group.together.value == pytest.approx(TOGETHER_MS[name] * MS)
        assert group.interference.value == pytest.approx(TOGETHER_MS[name] / ALONE_MS[name])
    found = described(run)
    every, shown = table_of(found, "Every row"), table_of(found, "Time of each group")
    assert [row.worst_group for row in every.rows] == ["2,3", "2,3"]
    assert [row.measurement.case.concurrency for row in every.brief or ()] == ["together"]
    assert [group.ranks for group in shown.rows] == ["0,1", "2,3"]
    notes = [text for b in found.blocks if isinstance(b, Items) for text in b.texts]
    assert sum(text.startswith("Groups together: ") for text in notes) == 1


def test_the_time_of_a_group_alone_is_that_of_its_row() -> None:
    # The median of the batches' medians would be 100 us, and of all iterations it is 900 us.
    run = with_batches(1, Batch((100e-6,)), Batch((100e-6,)), Batch((900e-6,) * 20))
    rows = {row.measurement.case.group_ranks: row for row in make_rows(run)}
    assert rows["0,1"].time and rows["0,1"].time.median == 900e-6
    assert medians(rows["0,1"]) == {"0,1": 900e-6}
    alone = {ranks: found.value for ranks, found in rows[""].alone.items()}
    assert alone == {"0,1": 900e-6, "2,3": pytest.approx(150e-6)}
    found = groups_of(run)["0,1"]
    assert found.alone and found.alone.value == 900e-6
    assert found.interference and found.interference.value == pytest.approx(110 / 900)


def test_a_group_together_is_weighted_by_the_iterations_of_its_batches() -> None:
    few = Batch((900e-6,) * 2, group_medians_s=(800e-6, 900e-6))
    many = Batch((300e-6,) * 20, group_medians_s=(200e-6, 300e-6))
    row = make_rows(with_batches(0, few, few, many))[0]
    assert medians(row) == {"0,1": 200e-6, "2,3": 300e-6}


def test_the_time_of_a_group_together_is_its_median_over_iterations_with_an_interval() -> None:
    other, last = (8e-4,) * 2, (9e-4,) * 2
    few = Batch(last, group_medians_s=(8e-4, 9e-4), group_samples_s=other + last)
    slow, fast = (3e-4,) * 20, (2.4e-4,) * 10 + (2.2e-4,) * 10
    many = Batch(slow, group_medians_s=(2.3e-4, 3e-4), group_samples_s=fast + slow)
    run = with_batches(0, few, few, many)
    row = make_rows(run)[0]
    assert medians(row) == {"0,1": 2.4e-4, "2,3": 3e-4}  # batches' medians: 2.3e-4
    ratio = row.group_interference["0,1"]
    assert ratio.value == pytest.approx(2.4)
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low < ratio.value <= ratio.high < 9
    assert groups_of(run)["2,3"].interference == row.group_interference["2,3"]
    for each, lacks in ((run, False), (grouped_run(), True)):
        _, notes = groups_blocks(make_rows(each))
        assert isinstance(notes, Items)
        assert ({*texts("medians only")} <= {*notes.texts}) == lacks


@pytest.mark.parametrize(
    ("layout", "ranks", "said"),
    [
        ({"groups": "0-1;2"}, 4, "Of one rank, so not measured: group 2. Ranks in no group: 3."),
        ({"groups": "0-1;4;5"}, 6, "Of one rank, so not measured: group 4, group 5. "
         "Ranks in no group: 2, 3."),
        ({"mesh": "pp=1,tp=2"}, 2, "Of one rank, so not measured: dimension pp."),
        ({"mesh": "pp=1,tp=2", "over": ("tp",)}, 2, ""),
        ({"mesh": "dp=2,tp=2"}, 4, ""),
        ({}, 4, ""),
    ],
)  # fmt: skip
def test_groups_of_one_rank_and_ranks_in_no_group_are_named(
    layout: dict[str, Any], ranks: int, said: str
) -> None:
    asked = plan(world_size=ranks, **layout)
    assert " ".join(left_out(asked)) == said
    for found in (plan_document(asked, "torchrun"), described(run_of(asked))):
        assert Items(left_out(asked)) in found.blocks


def test_groups_of_other_sizes_are_not_compared_as_the_same() -> None:
    old, new = (
        run_of(plan(world_size=4, mesh=mesh, over=("tp",), sizes=(MIB,)))._replace(path=mesh)
        for mesh in ("dp=2,tp=2", "dp=1,tp=4")
    )
    with pytest.raises(UsageError, match=r"group of tp is 2 in mine \(dp=2,tp=2\), 4 in mine"):
        commbench.compare(old, new)


def only(run: Run) -> Finding:
    (found,) = find_shapes(make_rows(run))
    return found


def test_unequal_blocks_are_compared_with_equal_ones_at_the_largest_size() -> None:
    asked = plan(
        operations=("all_to_all_v",), sizes=(MIB, 4 * MIB), world_size=4, iterations=9,
        imbalance=(UNIFORM, "zipf:1"),
    )  # fmt: skip
    run = run_of(
        asked, lambda case: (1.9 if case.imbalance == "zipf:1" else 1.0) * case.size_bytes / MIB
    )
    found = only(run)
    assert (found.shape, found.call, found.size_bytes) == ("uneven", "all_to_all_v", 4 * MIB)
    assert (found.what, found.other, found.verdict) == ("zipf:1", "receives", "slower")
    assert found.figures["ratio"].value == pytest.approx(1.9)
    assert found.figures["max_over_mean"] == pytest.approx(1.92, abs=0.01)
    unequal = tuple(m for m in run.measurements if m.case.imbalance == "zipf:1")
    assert not find_shapes(make_rows(run._replace(measurements=unequal)))


def test_the_fastest_form_is_found_at_the_smallest_and_at_the_largest_size() -> None:
    times = {
        "flat": (0.5, 0.5), "separate": (4, 8), "async": (3, 8.1), "coalesced": (3.01, 7.99),
        "flat_copy": (1, 12),
    }  # fmt: skip
    asked = plan(sizes=(1 << 16, MIB), tensors=("4",), forms=("all",), iterations=9)
    run = run_of(asked, lambda case: times[case.form][case.size_bytes > 1 << 16])
    small, large = find_shapes(make_rows(run))
    assert (small.size_bytes, small.what, small.other) == (1 << 16, "flat_copy", "separate")
    assert small.figures["ratio"].value == pytest.approx(4)
    assert (large.size_bytes, large.what) == (MIB, "coalesced")
    assert (large.other, large.verdict) == ("flat_copy", "slower")
    said = shapes_sentence(run.header, [small, large])
    assert "of 4 tensors, separate (a call for each tensor, each waited for) takes 4.0" in said
    assert said.endswith("coalesced (a call for each in torch's coalescing manager); separate and "
                         "async may be as fast as coalesced.")  # fmt: skip


def test_a_first_call_that_is_too_noisy_to_compare_has_its_times_and_the_ends() -> None:
    first, later = Estimate(2e-3, 1e-4, 9e-3), Estimate(1e-3, 2e-4, 9e-3)
    figures = {"ratio": Estimate(2.0, 0.011, 90.0), "first_s": first, "later_s": later}
    found = Finding("first_call", "send_recv", 4096, "first", "later", figures)
    assert shapes_sentence(header(plan(), "mine"), [found]).startswith(
        "send_recv at 4 KiB: the first call on a new group takes 2.0 ms (100 us … 9.0 ms), a later "
        "one 1.0 ms (200 us … 9.0 ms); the first takes 0.01 … 90 times as long: undecided; "
    )


def test_the_surest_of_several_kinds_is_said() -> None:
    times = {"reduce_scatter+all_gather": 2.0, "gather+broadcast": 1.5, "direct": 3.0}
    asked = plan(
        operations=("all_reduce", "all_gather"), sizes=(MIB,), forms=tuple(times), iterations=9
    )
    found = only(run_of(asked, lambda case: times[case.form]))
    assert (found.call, found.what) == ("all_gather", "gather+broadcast")
    assert found.figures["ratio"].value == pytest.approx(2)


@pytest.mark.parametrize(
    ("noisy", "call", "end"),
    [
        ((0.05, 0.24, 0.1), "all_reduce", "The other calls of 2 ranks are undecided, too."),
        ((0.005,) * 3, "all_gather", "The ratio is surely larger for no other call of 2 ranks."),
    ],
)
def test_the_first_call_that_is_told_of_is_the_surest(
    noisy: tuple[float, ...], call: str, end: str
) -> None:
    ratios = {"all_reduce": 1.2, "all_gather": 3.3, "broadcast": 1.1}
    noise = dict(zip(ratios, noisy, strict=True))
    asked = plan(operations=tuple(ratios), sizes=(4096,), forms=("direct", "first"), iterations=9)
    run = run_of(asked, lambda case: ratios[case.operation] if case.form == "first" else 1.0)
    found = []
    for each in run.measurements:
        middle, wide = each.batches[0].samples_s[4], noise[each.case.operation]
        batch = Batch(tuple(middle * (1 + wide * (i - 4)) for i in range(9)))
        found.append(each._replace(batches=(batch,)))
    (said,) = start_up.document(start_up.StartUps([run._replace(measurements=tuple(found))])).answer
    assert said.startswith(f"{call} at 4 KiB: the first call on a new group takes")
    assert (said.endswith(end), ": undecided" in said) == (True, "undecided" in end)


def test_more_ranks_than_cores_are_named_as_the_cause() -> None:
    asked = plan(operations=("ping_pong", "stream"), sizes=(1 << 10, MIB), iterations=9)
    run = run_of(asked, lambda _: 1.0)
    latency, bandwidth = find_shapes(make_rows(run))
    assert (latency.size_bytes, bandwidth.size_bytes) == (1 << 10, MIB)
    assert latency.figures["time_s"].value == pytest.approx(MS)
    for cores, said in (((0,), True), ((0, 1), False)):
        ranks = tuple(RankInfo(r, "a", r, "cpu", cores, "quiet") for r in range(2))
        text = shapes_sentence(run.header._replace(ranks=ranks), [latency, bandwidth])
        assert ("2 ranks share 1 core:" in text) == said


def test_of_rows_that_were_cut_off_it_is_said_which_were_checked() -> None:
    run = run_of(plan())
    whole, *others = run.measurements
    cut = [each._replace(stop_reason="cut off", wrong=None) for each in others]
    stopped = run._replace(measurements=(whole, *cut), end=RunEnd("interrupted"))
    (measured,) = (t for t in document(ShownRun(stopped)).answer if "cases were" in t)
    assert measured.startswith("4 of 4 cases were measured, 3 of them only in part (cut off)")
    assert measured.endswith(
        "of 1 were checked and are correct; no check is recorded of those that were cut off."
    )


def test_no_answer_has_the_bandwidth_of_wrong_results(tmp_path: Path) -> None:
    for right, said in ((1 << 18, "at 256 KiB"), (0, "")):
        wrong = dict.fromkeys({1 << 10, 1 << 14, 1 << 18, 1 << 20} - {right}, "wrong")
        run = synthetic_run(tmp_path / str(right), "r", lambda _: steady(1e-4), statuses=wrong)
        shown = commbench.load(run).text()
        assert ("The highest bus bandwidth is" in shown, said in shown) == (bool(said), True)
        (summary,) = re.findall(r"(?m)^  all_reduce  .*", shown)
        assert (said[3:] in summary, "1 MiB" in summary) == (True, False)


def test_a_note_says_why_an_interval_begins_below_p5() -> None:
    run = commbench.load(Path(__file__).parents[3] / "results" / "reference")
    assert BELOW_P5 in " ".join(run.text().split())
    assert BELOW_P5 not in commbench.load(run, op="all_reduce", size="64M").text()

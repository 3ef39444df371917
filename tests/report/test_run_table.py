"""The tables of a run, whole tables compared. The runs are synthetic, so no rank is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic import header, plan, steady, synthetic_run

import commbench
from commbench.report.run_table import run_text
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import CUT_OFF, IN_PROCESS, Batch, Measurement, Run, RunEnd
from commbench.spec.case import READY, Case
from commbench.spec.links import parse_peak
from commbench.spec.operations import OPERATION_SETS, OPERATIONS
from commbench.spec.plan import Plan


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


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


def tables(text: str) -> list[str]:
    """The parts of the text without the head."""
    return text.split("\n\n")[1:]


def test_a_table_has_the_digits_of_the_intervals_and_a_summary() -> None:
    text = run_text(run_of(plan(sizes=(1 << 10, 1 << 16, 1 << 20), iterations=9)))
    assert text == (
        "mine\n"
        "2 gloo ranks on node1 (Made-up 9000), cpu mode quiet\n"
        "each call alone, slowest rank, median\n"
        "\n"
        "all_reduce float32 sum in_place\n"
        "                                                   algbw    busbw\n"
        "    size   count      time     95 % interval  n     GB/s     GB/s  wrong\n"
        "  ──────────────────────────────────────────────────────────────────────\n"
        "   1 KiB     256  101.0 us   99.5 … 102.5 us  9  0.01014  0.01014      0\n"
        "  64 KiB   16384  165.5 us  163.1 … 168.0 us  9  0.396    0.396        0\n"
        "   1 MiB  262144  1.149 ms  1.131 … 1.166 ms  9  0.913    0.913        0\n"
        "  Peak busbw 0.913 GB/s (1 MiB), half at about 103 KiB; latency 101.0 us (1 KiB)"
    )


def test_an_operation_without_bandwidth_has_no_such_columns() -> None:
    text = run_text(run_of(plan(operations=("barrier",), iterations=9)))
    assert tables(text) == [
        "barrier\n"
        "      time    95 % interval  n\n"
        "  ────────────────────────────\n"
        "  100.0 us  98.5 … 101.5 us  9"
    ]


def test_a_run_that_lacks_launches_says_how_many_it_has_and_marks_its_rows(tmp_path: Path) -> None:
    asked = plan(sizes=(1024, 2048), launches=3)
    folder = synthetic_run(tmp_path / "run", "mine", lambda _: steady(1e-4), asked, launches=1)
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    assert '"status": "complete"' in lines[-1]
    run = read_run(folder)
    assert (run.launches, run.end) == (1, None)
    text, page = run_text(run), commbench.report(folder, format="html")
    assert "; 1 of 3 launches" in text
    assert [line.split()[0] for line in text.splitlines() if line.endswith("cut off")] == ["1", "2"]
    assert "2 of them only in part (cut off)" in page
    whole = synthetic_run(tmp_path / "whole", "mine", lambda _: steady(1e-4), asked, launches=3)
    assert "; 3 launches" in run_text(read_run(whole))
    assert "cut off" not in run_text(read_run(whole))


def test_several_nodes_on_one_host_are_counted() -> None:
    run = run_of(plan(sizes=(1024,)))
    ranks = tuple(rank._replace(local_rank=0) for rank in run.header.ranks)
    nodes = run._replace(header=run.header._replace(ranks=ranks))
    assert "2 gloo ranks on node1" in run_text(run)
    assert "2 gloo ranks of 2 nodes on node1" in run_text(nodes)
    program = nodes._replace(header=nodes.header._replace(launcher=IN_PROCESS))
    assert "2 gloo ranks on node1" in run_text(program)


def test_a_row_that_was_cut_off_is_marked_where_it_stands() -> None:
    run = run_of(plan(sizes=(1024, 2048), iterations=9), None, stop_reason=CUT_OFF)
    table, end = tables(run_text(run))
    marked = [line for line in table.splitlines() if "cut off" in line]
    assert [line.split()[:2] for line in marked] == [["2", "KiB"]]
    assert max(map(len, table.splitlines())) <= 80
    assert end == "This run has not ended: it is still running, or it was cut off."


def test_a_row_with_wrong_results_is_marked() -> None:
    table = tables(run_text(run_of(plan(iterations=9), status="wrong", wrong=3)))[0]
    assert [line.split()[-2:] for line in table.splitlines() if "wrong" in line][1:] == [
        ["3", "wrong"]
    ]


def test_a_table_that_is_too_wide_loses_its_least_important_columns() -> None:
    asked = plan(sizes=(1 << 30, 1 << 32), iterations=9)
    narrow, wide = (
        tables(run_text(run_of(asked, stop_reason=stop), parse_peak("100GB/s")))[0]
        for stop in ("fixed", CUT_OFF)
    )
    assert "count" in narrow
    assert "count" not in wide
    assert max(len(line) for line in wide.splitlines()) <= 80


def test_what_was_not_measured_is_listed_by_reason() -> None:
    asked = plan(operations=("all_reduce", "broadcast"), dtypes=("float32", "float16"),
                 reduce_ops=("sum", "band"), sizes=(2, 1024), iterations=9)  # fmt: skip
    *_, missing = tables(run_text(run_of(asked)))
    assert missing == (
        "Not measured:\n"
        "  all_reduce float32 sum in_place 2 B, broadcast float32 in_place root 0 2 B:\n"
        "    skipped: less than one float32\n"
        "  all_reduce float32 band in_place: unsupported: band is not defined for float32\n"
        "  all_reduce float16 band in_place: unsupported: band is not defined for float16"
    )


def test_forms_are_compared_with_one_direct_call_of_the_same_bytes() -> None:
    asked = plan(
        sizes=(1 << 10, 1 << 20), tensors=("4",), forms=("separate", "async"), iterations=9
    )
    found = [
        m._replace(batches=(Batch(tuple(t * k for t in durations(m.case))),))
        for m, k in zip(run_of(asked).measurements, (1, 1, 4, 4, 1.5, 1.5), strict=True)
    ]
    flat, separate, _, forms = tables(run_text(run_of(asked)._replace(measurements=tuple(found))))
    assert "direct" not in flat
    assert separate == (
        "all_reduce float32 sum in_place 4 tensors separate\n"
        "                                               algbw    busbw  over\n"
        "   size   count     time   95 % interval  n     GB/s     GB/s  flat  wrong\n"
        "  ────────────────────────────────────────────────────────────────────────\n"
        "  1 KiB     256   404 us    398 … 410 us  9  0.00253  0.00253  4.00      0\n"
        "  1 MiB  262144  4.59 ms  4.53 … 4.66 ms  9  0.2282   0.2282   4.00      0\n"
        "  Peak busbw 0.2282 GB/s (1 MiB), half at about 352 KiB; latency 404 us (1 KiB)"
    )
    assert forms == (
        "all_reduce float32 sum in_place 4 tensors: time over that of flat\n"
        "   size      flat  separate  async\n"
        "  ────────────────────────────────\n"
        "  1 KiB  101.0 us      4.00   1.50\n"
        "  1 MiB  1.149 ms      4.00   1.50"
    )


EVERYTHING = {"operations": OPERATION_SETS["all"], "sizes": tuple(1 << n for n in range(10, 27))}


def test_many_rows_are_condensed_to_one_table_where_that_is_wanted() -> None:
    run = run_of(plan(**EVERYTHING, dtypes=("float32", "int64"), iterations=9))
    text = run_text(run, is_condensed=True)
    (table,) = tables(text)
    lines = table.splitlines()
    heads = "operation dtype latency GB/s at size peak at wrong"
    assert " ".join(lines[1].split()) == heads
    first = "all_reduce float32 101.0 us 0.999 64 MiB 100 KiB 0"
    assert " ".join(lines[3].split()) == first
    assert sum(line.split()[0] in OPERATIONS for line in lines) == 9 * 2 + 1
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 35
    assert len(run_text(run).splitlines()) > 9 * 2 * 17


def test_few_rows_are_not_condensed() -> None:
    run = run_of(plan(operations=("all_reduce", "broadcast"), iterations=9))
    assert run_text(run, is_condensed=True) == run_text(run)

"""The tables of overlaps, whole tables compared. The runs are synthetic, so no rank is started."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import header, plan
from synthetic_rows import written_row

from commbench.analysis.diagnostics import diagnose_row
from commbench.analysis.rows import make_rows
from commbench.report.overlap_table import meanings, overlap_tables
from commbench.report.run_table import run_text
from commbench.results.schema import Batch, Measurement, RankInfo, Run, RunEnd
from commbench.spec.case import Case

TIMES_MS = {"communication": 10.0, "computation": 8.0, "both": 12.0}


def batch(case: Case) -> Batch:
    """Nine samples within 2 % of the time of the case."""
    near = [1e-3 * (1 + 0.005 * (i - 4)) for i in range(9)]
    found = Batch(tuple(TIMES_MS[case.part] * s for s in near), work="40 x matmul 8x8x8 float32")
    if case.part != "both":
        return found
    return found._replace(
        communication_s=tuple(11.5 * s for s in near), computation_s=tuple(10 * s for s in near)
    )


def run_of(cases: int = 3, **more: Any) -> Run:
    """A run of so many cases of an overlap."""
    asked = plan(sizes=(1 << 20,), overlap=("matmul:8x8x8",), iterations=9)
    found = [
        Measurement(case, "ok", "", "fixed", batches=(batch(case),))
        for case in asked.cases()[:cases]
    ]
    return Run("results/mine", header(asked, "mine", **more), tuple(found), RunEnd("complete"))


def test_figures_have_their_intervals_and_the_times_are_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_text(run_of()).split("\n\n")[1] == (
        "all_reduce float32 sum in_place with matmul:8x8x8\n"
        "               hidden   computation  communication\n"
        "   size             %   slower by %    slower by %                gain\n"
        "  ────────────────────────────────────────────────────────────────────\n"
        "  1 MiB  75 (72 … 78)  25 (22 … 28)   15 (13 … 17)  1.50 (1.47 … 1.53)\n"
        "         communi-             compu-\n"
        "           cation             tation                both  overlap  overlap\n"
        "   size     alone   at once    alone   at once     ended   of IMB   of OSU\n"
        "  ────────────────────────────────────────────────────────────────────────\n"
        "  1 MiB  10.00 ms  11.50 ms  8.00 ms  10.00 ms  12.00 ms     60 %     60 %\n"
        "  The computation is 40 x matmul 8x8x8 float32; intervals are of 95 %."
    )


def test_all_tables_are_printed_only_with_all_warnings() -> None:
    assert "GB/s" not in run_text(run_of())
    assert "GB/s" in run_text(run_of(), most_warnings=None)


def test_of_a_run_that_was_cut_off_the_parts_are_shown() -> None:
    text = run_text(run_of(cases=2))
    assert "hidden" not in text
    assert "computation" in text


def test_what_computes_has_no_bandwidth() -> None:
    rows = [written_row(row) for row in make_rows(run_of())]
    assert [row["busbw_GBps"] is None for row in rows] == [False, True, True]
    assert rows[2]["hidden_share"] == pytest.approx(0.75)
    assert rows[0]["hidden_share"] is None


@pytest.mark.parametrize(("cores", "warned"), [((0, 1, 2, 3), False), ((0, 1), True)])
def test_too_few_cores_for_both_at_once_are_warned_about(
    cores: tuple[int, ...], warned: bool
) -> None:
    ranks = tuple(RankInfo(rank, "node1", 1, "cpu", cores) for rank in range(2))
    rows = make_rows(run_of(ranks=ranks))
    found = [row.measurement.case.part for row in rows if "overlap_cores" in names(row)]
    assert found == (["both"] if warned else [])


def names(row: Any) -> set[str]:
    return {diagnostic.name for diagnostic in diagnose_row(row)}


def test_a_document_has_both_tables_and_what_their_columns_mean() -> None:
    rows = make_rows(run_of())
    titles = [title.partition(": ")[2] for title, _, _ in overlap_tables(rows)]
    assert titles == ["at once", "times"]
    assert "gain" in meanings(rows)
    assert overlap_tables(rows[:2]) == [] and meanings(rows[:2]) == {}

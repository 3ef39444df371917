"""Ratio and interval against numbers worked out by hand, and the table of verdicts."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from commbench.compare.ratio import MedianCI, decide_verdict, time_ratio, why_not_compared

A, B = MedianCI(100, 95, 106), MedianCI(120, 114, 127)


def test_the_interval_is_movers() -> None:
    # d = ln 1.2 = 0.182322
    # low  = d - sqrt(ln(120/114)^2 + ln(106/100)^2) = 0.182322 - 0.077629 = 0.104693
    # high = d + sqrt(ln(127/120)^2 + ln(100/95)^2)  = 0.182322 + 0.076452 = 0.258774
    ratio = time_ratio(A, B)
    assert ratio.median == pytest.approx(1.2)
    assert ratio.low == pytest.approx(1.11037, abs=1e-5)
    assert ratio.high == pytest.approx(1.29534, abs=1e-5)


def test_swapping_the_sides_inverts_ratio_and_interval() -> None:
    there, back = time_ratio(A, B), time_ratio(B, A)
    assert there.median and there.low and there.high
    assert back.median == pytest.approx(1 / there.median)
    assert (back.low, back.high) == (
        pytest.approx(1 / there.high), pytest.approx(1 / there.low)
    )  # fmt: skip


def test_a_known_median_leaves_the_other_ones_interval() -> None:
    ratio = time_ratio(MedianCI(100, 100, 100), B)
    assert (ratio.low, ratio.high) == (pytest.approx(1.14), pytest.approx(1.27))


def test_without_an_interval_on_either_side_there_is_none() -> None:
    assert time_ratio(MedianCI(100, None, None), B) == (pytest.approx(1.2), None, None)
    assert time_ratio(A, MedianCI(90, None, None)) == (pytest.approx(0.9), None, None)
    assert time_ratio(A, MedianCI(90, 80, None)) == (pytest.approx(0.9), None, None)


def test_without_a_time_on_either_side_there_is_no_ratio() -> None:
    none = MedianCI(None, None, None)
    for missing in (none, MedianCI(0.0, 0.0, 0.0)):
        assert time_ratio(A, missing) == time_ratio(missing, B) == none


def test_a_ratio_or_an_end_that_is_no_float_raises_nothing() -> None:
    assert time_ratio(MedianCI(1e-300, None, None), MedianCI(9e15, None, None)).median is None
    wide = time_ratio(MedianCI(1e-300, 1e-300, 9e15), MedianCI(1, 1e-300, 9e15))
    assert wide.high == inf
    assert time_ratio(MedianCI(1, 0, 1), MedianCI(1, 0, 1)) == (1.0, 0.0, inf)


# Tolerance 5 %: the same is 0.95238 to 1.05.
VERDICTS = [
    ((1.08, 1.06, 1.10), "slower"),
    ((1.07, 1.05, 1.10), "undecided"),
    ((0.93, 0.90, 0.95), "faster"),
    ((0.93, 0.90, 0.96), "undecided"),
    ((1.00, 0.96, 1.04), "same"),
    ((1.00, 0.9524, 1.05), "same"),
    ((1.00, 0.95, 1.04), "undecided"),
    ((1.03, 1.00, 1.06), "undecided"),
    ((1.00, 0.50, 2.00), "undecided"),
    ((39.0, 28.8, 51.8), "slower"),
    # Without an interval the ratio decides.
    ((1.06, None, None), "slower"),
    ((0.95, None, None), "faster"),
    ((1.05, None, None), "same"),
    ((1.00, None, None), "same"),
    ((None, None, None), "undecided"),
]


@pytest.mark.parametrize(("ratio", "verdict"), VERDICTS)
def test_verdicts(ratio: tuple[float | None, float | None, float | None], verdict: str) -> None:
    assert decide_verdict(MedianCI(*ratio), 0.05) == verdict


def test_without_tolerance_any_difference_counts() -> None:
    ratios = MedianCI(1.01, 1.001, 1.02), MedianCI(1, 1, 1), MedianCI(1, 0.99, 1.01)
    verdicts = [decide_verdict(ratio, 0.0) for ratio in ratios]
    assert verdicts == ["slower", "same", "undecided"]


def test_rows_that_compute_different_amounts_are_not_compared() -> None:
    def row(part: str, work: str) -> SimpleNamespace:
        return SimpleNamespace(status="ok", time_us=1.0, part=part, work=work)

    ratio = time_ratio(A, B)
    assert why_not_compared(row("both", "9 x m"), row("both", "9 x m"), ratio) == ""
    assert why_not_compared(row("both", "9 x m"), row("both", "8 x m"), ratio) == (
        "9 x m is computed in A, and 8 x m in B"
    )
    alone = row("communication", "9 x m"), row("communication", "8 x m")
    assert why_not_compared(*alone, ratio) == ""

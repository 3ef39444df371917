"""Ratio and interval against numbers worked out by hand, and the table of verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from commbench.compare.ratio import MedianCI, ratio_of, verdicts_of


def times(*rows: tuple[float, float, float]) -> MedianCI:
    """Median, lower and upper end of each row."""
    return MedianCI(*np.array(rows, dtype=float).T)


def test_the_interval_is_movers() -> None:
    # d = ln 1.2 = 0.182322
    # low  = d - sqrt(ln(120/114)^2 + ln(106/100)^2) = 0.182322 - 0.077629 = 0.104693
    # high = d + sqrt(ln(127/120)^2 + ln(100/95)^2)  = 0.182322 + 0.076452 = 0.258774
    ratio = ratio_of(times((100, 95, 106)), times((120, 114, 127)))
    assert ratio.median[0] == pytest.approx(1.2)
    assert ratio.low[0] == pytest.approx(1.11037, abs=1e-5)
    assert ratio.high[0] == pytest.approx(1.29534, abs=1e-5)


def test_swapping_the_sides_inverts_ratio_and_interval() -> None:
    a, b = times((100, 95, 106)), times((120, 114, 127))
    there, back = ratio_of(a, b), ratio_of(b, a)
    assert back.median == pytest.approx(1 / there.median)
    assert (back.low, back.high) == (
        pytest.approx(1 / there.high), pytest.approx(1 / there.low)
    )  # fmt: skip


def test_a_known_median_leaves_the_other_ones_interval() -> None:
    ratio = ratio_of(times((100, 100, 100)), times((120, 114, 127)))
    assert (ratio.low[0], ratio.high[0]) == (pytest.approx(1.14), pytest.approx(1.27))


def test_without_an_interval_on_either_side_there_is_none() -> None:
    nan = float("nan")
    ratio = ratio_of(times((100, nan, nan), (100, 95, 105)), times((120, 114, 127), (90, nan, nan)))
    assert list(ratio.median) == [pytest.approx(1.2), pytest.approx(0.9)]
    assert np.isnan(ratio.low).all()
    assert np.isnan(ratio.high).all()


# Tolerance 5 %: the same is 0.95238 to 1.05.
VERDICTS = [
    ((1.06, 1.10), 0.01, "slower"),
    ((1.05, 1.10), 0.01, "undecided"),
    ((0.90, 0.95), 0.01, "faster"),
    ((0.90, 0.96), 0.01, "undecided"),
    ((0.96, 1.04), 0.80, "same"),
    ((0.96, 1.04), 0.01, "same"),
    ((0.9524, 1.05), 0.80, "same"),
    ((0.95, 1.04), 0.80, "undecided"),
    ((1.00, 1.06), 0.01, "undecided"),
    ((0.50, 2.00), 0.50, "undecided"),
    ((1.06, 1.10), 0.05, "undecided"),
    ((0.80, 0.90), 0.20, "undecided"),
    ((1.06, 1.10), float("nan"), "slower"),
    ((0.80, 0.90), float("nan"), "faster"),
    ((float("nan"), float("nan")), float("nan"), "undecided"),
]


@pytest.mark.parametrize(("interval", "p_value", "verdict"), VERDICTS)
def test_verdicts(interval: tuple[float, float], p_value: float, verdict: str) -> None:
    low, high = interval
    ratio = times(((low * high) ** 0.5, low, high))
    assert list(verdicts_of(ratio, np.array([p_value]), 0.05)) == [verdict]


def test_without_tolerance_any_difference_counts() -> None:
    ratio = times((1.01, 1.001, 1.02), (1, 1, 1), (1, 0.99, 1.01))
    verdicts = verdicts_of(ratio, np.full(3, np.nan), 0.0)
    assert list(verdicts) == ["slower", "same", "undecided"]

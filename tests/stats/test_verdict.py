"""What an interval allows to say."""

from __future__ import annotations

import pytest

from commbench.stats.estimate import Estimate
from commbench.stats.verdict import FAIL, PASS, UNDECIDED, decide, judge


# A tolerance of 5 %: the same is 0.95238 to 1.05.
@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
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
        ((1.06,), "slower"),
        ((0.95,), "faster"),
        ((1.05,), "same"),
    ],
)
def test_the_whole_interval_decides_on_a_ratio(ratio: tuple[float, ...], verdict: str) -> None:
    assert decide(Estimate(*ratio), 0.05) == verdict


def test_an_unknown_ratio_is_undecided_and_without_tolerance_any_difference_counts() -> None:
    ratios = None, Estimate(1.01, 1.001, 1.02), Estimate(1, 1, 1), Estimate(1, 0.99, 1.01)
    verdicts = [decide(ratio, 0.0) for ratio in ratios]
    assert verdicts == ["undecided", "slower", "same", "undecided"]


@pytest.mark.parametrize(
    ("limit", "found", "is_least", "outcome"),
    [
        (1.1, (39.0, 28.8, 51.8), False, FAIL),
        (1.1, (1.05, 1.0, 1.1), False, PASS),
        (1.1, (1.05, 1.0, 1.11), False, UNDECIDED),
        (1.1, (1.3, 1.09, 1.5), False, UNDECIDED),
        (1.1, (1.2, 1.101, 1.3), False, FAIL),
        (1.1, (1.101,), False, FAIL),
        (1.1, (1.1,), False, PASS),
        (3e9, (3.5e9, 3.0e9, 4e9), True, PASS),
        (3e9, (3.5e9, 2.9e9, 4e9), True, UNDECIDED),
        (3e9, (2.5e9, 2.0e9, 2.9e9), True, FAIL),
        (3e9, (2.5e9,), True, FAIL),
    ],
)
def test_the_whole_interval_decides_on_a_limit(
    limit: float, found: tuple[float, ...], is_least: bool, outcome: str
) -> None:
    assert judge(Estimate(*found), limit, is_least) == outcome

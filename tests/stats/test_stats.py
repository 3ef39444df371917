"""Intervals of ratios and of other figures against numbers worked out by hand, and what an interval
allows to say."""

from __future__ import annotations

from math import exp, hypot, inf, log

import pytest

from commbench.stats import (
    FAIL,
    PASS,
    UNDECIDED,
    Estimate,
    combine,
    combine_ratio,
    decide,
    judge,
    known,
    ratio,
    spread,
    student_tail,
)

A, B = Estimate(100, 95, 106), Estimate(120, 114, 127)


def test_the_interval_of_a_ratio_is_movers() -> None:
    # d = ln 1.2 = 0.182322
    # low  = d - sqrt(ln(120/114)^2 + ln(106/100)^2) = 0.182322 - 0.077629 = 0.104693
    # high = d + sqrt(ln(127/120)^2 + ln(100/95)^2)  = 0.182322 + 0.076452 = 0.258774
    assert ratio(B, A) == pytest.approx((1.2, 1.11037, 1.29534), abs=1e-5)
    assert combine_ratio(lambda b, a: b / a, B, A) == pytest.approx(ratio(B, A))


def test_swapping_the_sides_inverts_ratio_and_interval() -> None:
    there = ratio(B, A)
    assert there
    assert ratio(A, B) == pytest.approx(there.map(lambda found: 1 / found))


def test_an_exact_value_leaves_the_other_ones_interval() -> None:
    assert ratio(B, Estimate(100, 100, 100)) == pytest.approx((1.2, 1.14, 1.27))


@pytest.mark.parametrize("bare", [Estimate(90), Estimate(90, 80, None)])
def test_without_an_interval_on_either_side_there_is_none(bare: Estimate) -> None:
    assert not bare.has_interval
    assert bare.ends == (90, 90)
    assert bare.scaled(2) == (180, None, None)
    assert ratio(bare, A) == (pytest.approx(0.9), None, None)
    assert ratio(A, bare) == (pytest.approx(1 / 0.9), None, None)
    assert combine(lambda x, y: x - y, A, bare) == (10, None, None)


def test_without_a_value_on_either_side_there_is_no_ratio() -> None:
    for missing in (known(None), Estimate(0.0, 0.0, 0.0)):
        assert ratio(missing, A) is ratio(A, missing) is None


def test_a_ratio_or_an_end_that_is_no_float_raises_nothing() -> None:
    assert ratio(Estimate(9e300), Estimate(1e-300)) is None
    wide = ratio(Estimate(1, 1e-300, 9e15), Estimate(1e-300, 1e-300, 9e15))
    assert wide and wide.high == inf
    assert ratio(Estimate(1, 0, 1), Estimate(1, 0, 1)) == (1.0, 0.0, inf)
    assert combine_ratio(lambda x, y: x / y, Estimate(1, 0, 1), A) == (0.01, None, None)


def test_the_interval_of_a_figure_adds_the_moves_of_its_values_as_squares() -> None:
    found = combine(lambda x, y: x - y, A, B)
    assert found == pytest.approx((-20, -20 - hypot(5, 7), -20 + hypot(6, 6)))
    exact = combine(lambda x, y: x - y, Estimate(3, 3, 3), Estimate(1, 1, 1))
    assert exact == (2, 2, 2)


def test_a_falling_function_swaps_the_ends() -> None:
    assert A.map(lambda value: 1 / value) == pytest.approx((1 / 100, 1 / 106, 1 / 95))
    assert A.map(log).map(exp) == pytest.approx(A)


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (8, 2.30600), (35, 2.03011)]
)
def test_the_tail_of_students_t_is_that_of_tables(degrees: int, t: float) -> None:
    assert student_tail(t, degrees) == pytest.approx(0.025, rel=1e-4)
    assert student_tail(-t, degrees) == pytest.approx(0.975, rel=1e-4)
    tails = [student_tail(t, degrees) for t in (0.0, 1.0, 10.0, 1e3, 1e9)]
    assert tails[0] == pytest.approx(0.5) and tails[-1] == pytest.approx(0.0, abs=1e-9)
    assert tails == sorted(tails, reverse=True)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        ((1.08, 1.06, 1.10), "slower"), ((1.07, 1.05, 1.10), "undecided"),
        ((0.93, 0.90, 0.95), "faster"), ((0.93, 0.90, 0.96), "undecided"),
        ((1.00, 0.96, 1.04), "same"), ((1.00, 0.9524, 1.05), "same"),
        ((1.00, 0.95, 1.04), "undecided"), ((1.03, 1.00, 1.06), "undecided"),
        ((1.00, 0.50, 2.00), "undecided"), ((39.0, 28.8, 51.8), "slower"),
        # Without an interval the ratio decides.
        ((1.06,), "slower"), ((0.95,), "faster"), ((1.05,), "same"),
    ],
)  # fmt: skip
def test_the_whole_interval_decides_on_a_ratio(ratio: tuple[float, ...], verdict: str) -> None:
    assert decide(Estimate(*ratio), 0.05) == verdict


def test_an_unknown_ratio_is_undecided_and_without_tolerance_any_difference_counts() -> None:
    ratios = None, Estimate(1.01, 1.001, 1.02), Estimate(1, 1, 1), Estimate(1, 0.99, 1.01)
    verdicts = [decide(ratio, 0.0) for ratio in ratios]
    assert verdicts == ["undecided", "slower", "same", "undecided"]


@pytest.mark.parametrize(
    ("limit", "found", "is_least", "outcome"),
    [
        (1.1, (39.0, 28.8, 51.8), False, FAIL), (1.1, (1.05, 1.0, 1.1), False, PASS),
        (1.1, (1.05, 1.0, 1.11), False, UNDECIDED), (1.1, (1.3, 1.09, 1.5), False, UNDECIDED),
        (1.1, (1.2, 1.101, 1.3), False, FAIL), (1.1, (1.101,), False, FAIL),
        (1.1, (1.1,), False, PASS), (3e9, (3.5e9, 3.0e9, 4e9), True, PASS),
        (3e9, (3.5e9, 2.9e9, 4e9), True, UNDECIDED), (3e9, (2.5e9, 2.0e9, 2.9e9), True, FAIL),
        (3e9, (2.5e9,), True, FAIL),
    ],
)  # fmt: skip
def test_the_whole_interval_decides_on_a_limit(
    limit: float, found: tuple[float, ...], is_least: bool, outcome: str
) -> None:
    assert judge(Estimate(*found), limit, is_least) == outcome


def test_independent_errors_are_added_to_an_interval_as_squares() -> None:
    found = spread(Estimate(2.0, 2 / exp(3.0), 2 * exp(3.0)), 4.0)
    assert found == pytest.approx((2.0, 2 / exp(5.0), 2 * exp(5.0)))
    assert spread(Estimate(2.0), 1.0) == Estimate(2.0)
    assert spread(Estimate(2.0, 0.0, 3.0), 1.0).low == 0.0

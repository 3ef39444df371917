"""Intervals of ratios and of other figures, against numbers worked out by hand."""

from __future__ import annotations

from math import exp, hypot, inf, log

import pytest

from commbench.stats.estimate import Estimate, combine, combine_ratio, known, ratio

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

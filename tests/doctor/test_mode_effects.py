"""Modes held against plain: what may be told, and what may not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_hosts import USUAL, point, trials

from commbench.doctor.host_bandwidth import median_range
from commbench.doctor.mode_effects import (
    GROUPS,
    LARGE,
    SMALL,
    ModeEffect,
    compare_mode,
    compare_modes,
    find_times,
)
from commbench.doctor.mode_trials import SIZES, Trial
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import FASTER, SLOWER, UNDECIDED


def test_a_range_is_the_median_the_least_and_the_largest() -> None:
    assert median_range([3.0, 1.0, 2.0, 10.0]) == Estimate(2.5, 1.0, 10.0)
    assert median_range([3.0]) == Estimate(3.0)


def effect(plain: list[float], quiet: list[float]) -> ModeEffect:
    found = compare_mode(trials({"plain": plain, "quiet": quiet}), "quiet", LARGE)
    assert found
    return found


@pytest.mark.parametrize(
    ("plain", "quiet", "verdict"),
    [
        ([4, 5, 6], [1, 2, 3], FASTER),
        ([1, 2, 3], [4, 5, 6], SLOWER),
        ([1, 2, 4], [3, 5, 6], UNDECIDED),
        ([1, 2, 3], [3, 4, 5], UNDECIDED),
        ([1, 2], [4, 5], UNDECIDED),
        ([1], [2, 3, 4, 5, 6], UNDECIDED),
        ([1, 2], [3, 4, 5, 6, 7], SLOWER),
        ([100, 101, 102], [98, 98, 99], UNDECIDED),
        ([], [1, 2, 3], ""),
    ],
)
def test_a_mode_differs_if_all_launches_do_by_enough_and_are_enough(
    plain: list[float], quiet: list[float], verdict: str
) -> None:
    assert effect(plain, quiet).verdict == verdict


@settings(deadline=None, max_examples=60)
@given(st.permutations([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
def test_of_three_and_three_one_order_in_ten_lies_apart(order: list[float]) -> None:
    found = effect(order[:3], order[3:])
    assert (found.verdict != UNDECIDED) is ({1.0, 2.0, 3.0} in ({*order[:3]}, {*order[3:]}))
    assert found.chance == 0.1


def test_figures_are_those_of_every_mode_and_size_with_plain_first() -> None:
    measured = trials({"quiet": USUAL["quiet"], "plain": USUAL["plain"]})
    found = compare_modes(measured, [(size,) for size in SIZES])
    assert [(f.mode, f.sizes_bytes) for f in found] == [
        (mode, (size,)) for mode in ("plain", "quiet") for size in SIZES
    ]
    first, last = found[0], found[-1]
    assert (first.time_s, first.launches) == (Estimate(104e-6, 100e-6, 108e-6), 3)
    assert (first.ratio, first.verdict, first.chance) == (None, "", None)
    assert last.ratio == pytest.approx(median_range([50 / 100, 51 / 104, 52 / 108]))
    assert (last.stalled_share, last.queued_share) == (0.0, 0.1)
    assert last.busbw_bytes_per_s == SIZES[-1] / 51e-6
    assert [f.sizes_bytes for f in compare_modes(measured, GROUPS)] == [*GROUPS, *GROUPS]


def test_ratios_are_taken_within_rounds_that_have_both() -> None:
    last = effect([100e-6, 200e-6], [50e-6, 100e-6, 7e-6])
    assert last.ratio == pytest.approx(median_range([0.5, 0.5]))
    assert last.launches == 3


def test_several_sizes_count_by_their_geometric_mean_and_only_together() -> None:
    points = [
        point(size, time, stalled_share=1e5 * time)
        for size, time in zip(SMALL, (1e-6, 10e-6, 100e-6), strict=True)
    ]
    whole, part = Trial(0, "plain", tuple(points)), Trial(1, "plain", tuple(points[:2]))
    assert find_times([whole, part], "plain", SMALL) == {0: pytest.approx(10e-6)}
    found = compare_mode([whole], "plain", SMALL)
    assert found and (found.stalled_share, found.busbw_bytes_per_s) == (pytest.approx(10.0), None)

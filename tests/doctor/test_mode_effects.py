"""Modes held against plain: what may be told, and what may not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_hosts import USUAL, point, trials

from commbench.doctor.mode_effects import (
    FASTER,
    LARGE,
    SLOWER,
    SMALL,
    UNCLEAR,
    compare_modes,
    compare_stalls,
    find_times,
    make_mode_results,
)
from commbench.doctor.mode_trials import SIZES, Trial
from commbench.doctor.sample_range import SampleRange, is_disjoint, make_range


def test_a_spread_is_the_middle_the_least_the_largest_and_how_many() -> None:
    assert make_range([3.0, 1.0, 2.0, 10.0]) == SampleRange(2.5, 1.0, 10.0, 4)


@pytest.mark.parametrize(
    ("some", "others", "apart"),
    [
        ([1, 2, 3], [4, 5, 6], True),
        ([4, 5, 6], [1, 2, 3], True),
        ([1, 2, 4], [3, 5, 6], False),
        ([1, 2, 3], [3, 4, 5], False),
        ([1, 2], [4, 5], False),
        ([1], [2, 3, 4, 5, 6], False),
        ([1, 2], [3, 4, 5, 6, 7], True),
        ([], [1, 2, 3], False),
    ],
)
def test_values_lie_apart_if_all_do_and_are_enough(
    some: list[float], others: list[float], apart: bool
) -> None:
    assert is_disjoint(some, others) is apart


@settings(deadline=None, max_examples=60)
@given(st.permutations(range(6)))
def test_of_three_and_three_one_order_in_ten_lies_apart(order: list[int]) -> None:
    some, others = set(order[:3]), set(order[3:])
    assert is_disjoint(list(some), list(others)) is ({0, 1, 2} in (some, others))


def test_figures_are_those_of_every_mode_and_size_with_plain_first() -> None:
    figures = make_mode_results(trials({"quiet": USUAL["quiet"], "plain": USUAL["plain"]}))
    assert [(f.mode, f.size_bytes) for f in figures] == [
        (mode, size) for mode in ("plain", "quiet") for size in SIZES
    ]
    assert figures[0].time_s == SampleRange(104e-6, 100e-6, 108e-6, 3)
    assert figures[0].ratio is None
    assert figures[4].ratio == pytest.approx(make_range([50 / 100, 51 / 104, 52 / 108]))
    assert (figures[4].stalled_share, figures[4].queued_share) == (0.0, 0.1)


def test_ratios_are_taken_within_rounds_that_have_both() -> None:
    found = trials({"plain": (100e-6, 200e-6), "batch": (50e-6, 100e-6, 7e-6)})
    last = make_mode_results(found)[-1]
    assert last.ratio == pytest.approx(make_range([0.5, 0.5]))
    assert last.time_s.number == 3


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ((50e-6, 51e-6, 52e-6), FASTER),
        ((150e-6, 151e-6, 152e-6), SLOWER),
        ((50e-6, 51e-6, 101e-6), UNCLEAR),
        ((98e-6, 98e-6, 99e-6), UNCLEAR),
        ((50e-6, 51e-6), UNCLEAR),
    ],
)
def test_a_difference_is_told_beyond_noise_only(times: tuple[float, ...], verdict: str) -> None:
    found = trials({"plain": (100e-6, 101e-6, 102e-6), "quiet": times})
    assert [compare_modes(found, "quiet", sizes).verdict for sizes in (SMALL, LARGE)] == [
        verdict
    ] * 2  # type: ignore[union-attr]


def test_several_sizes_count_by_their_geometric_mean_and_only_run_parallel() -> None:
    points = [point(size, time) for size, time in zip(SMALL, (1e-6, 10e-6, 100e-6), strict=True)]
    whole, part = Trial(0, "plain", tuple(points)), Trial(1, "plain", tuple(points[:2]))
    assert find_times([whole, part], "plain", SMALL) == {0: pytest.approx(10e-6)}


def test_without_plain_there_is_no_effect() -> None:
    assert compare_modes(trials({"quiet": (1e-6, 2e-6, 3e-6)}), "quiet", SMALL) is None


def test_stalls_are_told_where_they_differ_beyond_noise() -> None:
    plains = trials({"plain": (1e-6, 1e-6, 1e-6)}, stalled_share=0.5)
    quiet = trials({"quiet": (1e-6, 1e-6, 1e-6)}, stalled_share=0.1)
    alike = trials({"batch": (1e-6, 1e-6, 1e-6)}, stalled_share=0.49)
    assert compare_stalls(plains + quiet, "quiet") == (0.1, 0.5)
    assert compare_stalls(plains + alike, "batch") is None
    assert compare_stalls(plains[:2] + quiet[:2], "quiet") is None

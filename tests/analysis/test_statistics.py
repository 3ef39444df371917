"""Median, its interval and percentiles, against exact arithmetic and simulated cases."""

from __future__ import annotations

import statistics
from fractions import Fraction
from itertools import chain
from math import ceil, comb, exp, floor, hypot, sqrt
from random import Random
from typing import NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.analysis.statistics import (
    ENOUGH_FOR_P5,
    ENOUGH_FOR_P95,
    ENOUGH_FOR_P99,
    Summary,
    design_effect,
    launch_half_width,
    median,
    median_ci,
    median_ranks,
    percentile,
    quantile_ranks,
    summarise,
)


def median_interval(ordered: list[float]) -> tuple[float | None, float | None]:
    """The 95 % interval of the median of sorted, independent samples; (None, None) below 6."""
    ranks = median_ranks(len(ordered))
    return (ordered[ranks[0] - 1], ordered[ranks[1] - 1]) if ranks else (None, None)


quick = settings(deadline=None, max_examples=100)
durations = st.floats(1e-7, 10)


# Le Boudec, Performance Evaluation (2010), Theorem 2.1, symmetric ranks; exact coverage.
@pytest.mark.parametrize(
    ("number", "low", "high", "coverage"),
    [
        (6, 1, 6, 0.969), (7, 1, 7, 0.984), (8, 1, 8, 0.992), (9, 2, 8, 0.961),
        (10, 2, 9, 0.979), (11, 2, 10, 0.988), (12, 3, 10, 0.961), (15, 4, 12, 0.965),
        (20, 6, 15, 0.959), (25, 8, 18, 0.957), (30, 10, 21, 0.957), (40, 14, 27, 0.962),
        (50, 18, 33, 0.967), (71, 27, 45, 0.968), (100, 40, 61, 0.965), (200, 86, 115, 0.960),
        (500, 228, 273, 0.956), (1000, 469, 532, 0.954),
    ],
)  # fmt: skip
def test_the_ranks_that_bound_the_median_are_those_of_the_table(
    number: int, low: int, high: int, coverage: float
) -> None:
    assert median_ranks(number) == (low, high)
    assert float(exact_coverage(number, low, high)) == pytest.approx(coverage, abs=5e-4)


def exact_coverage(number: int, low: int, high: int) -> Fraction:
    """P(x_(low) <= median <= x_(high)) = P(low <= Binomial(n, 1/2) <= high - 1)."""
    return Fraction(sum(comb(number, k) for k in range(low, high)), 2**number)


@pytest.mark.parametrize("number", range(6))
def test_fewer_than_six_samples_bound_nothing(number: int) -> None:
    assert median_ranks(number) is None
    assert number == 0 or median_ci([[1.0] * number]) == (None, None)


def test_the_interval_covers_the_median_with_95_percent_and_no_narrower_one_does() -> None:
    for number in [*range(6, 301), 400, 555, 777, 999, 1000]:
        low, high = median_ranks(number) or (0, 0)
        assert 1 <= low < high == number + 1 - low
        assert exact_coverage(number, low, high) >= Fraction(95, 100)
        assert exact_coverage(number, low + 1, high - 1) < Fraction(95, 100)


@pytest.mark.parametrize("number", [1001, 1024, 2000, 3333, 5000])
def test_the_interval_of_many_samples_covers_the_median_and_is_hardly_wider(number: int) -> None:
    low, high = median_ranks(number) or (0, 0)
    assert high == number + 1 - low
    assert exact_coverage(number, low, high) >= Fraction(95, 100)
    assert exact_coverage(number, low + 2, high - 2) < Fraction(95, 100)


@quick
@given(st.lists(durations, min_size=6, max_size=80))
def test_the_median_lies_within_its_interval_and_all_are_of_the_samples(
    samples: list[float],
) -> None:
    ordered = sorted(samples)
    low, high = median_interval(ordered)
    assert low in ordered
    assert high in ordered
    assert low <= median(ordered) <= high


@quick
@given(st.lists(durations, min_size=1, max_size=80))
def test_the_median_is_that_of_the_standard_library(samples: list[float]) -> None:
    assert median(sorted(samples)) == statistics.median(samples)


def test_a_percentile_is_the_least_sample_that_so_many_do_not_exceed() -> None:
    for number in range(1, 401):
        ordered = range(1, number + 1)
        for percent in range(1, 100):
            rank = ceil(Fraction(percent * number, 100))
            assert percentile(ordered, percent / 100) == rank, (number, percent)


@pytest.mark.parametrize(
    ("number", "p10", "p90", "p95", "p99"),
    [
        (1, 1, 1, None, None),
        (10, 1, 9, None, None),
        (11, 2, 10, None, None),
        (58, 6, 53, None, None),
        (59, 6, 54, 57, None),
        (100, 10, 90, 95, None),
        (298, 30, 269, 284, None),
        (299, 30, 270, 285, 297),
        (1000, 100, 900, 950, 990),
    ],
)
def test_percentiles_of_the_first_numbers_are_nearest_ranks_and_given_from_enough_samples(
    number: int, p10: int, p90: int, p95: int | None, p99: int | None
) -> None:
    summary = summarise([[float(i) for i in range(number, 0, -1)]])
    assert (summary.p10, summary.p90, summary.p95, summary.p99) == (p10, p90, p95, p99)


def test_enough_samples_are_those_whose_largest_exceeds_the_percentile_with_95_percent() -> None:
    for enough, fraction in ((ENOUGH_FOR_P95, 0.95), (ENOUGH_FOR_P99, 0.99)):
        assert 1 - fraction**enough >= 0.95
        assert 1 - fraction ** (enough - 1) < 0.95
    assert (ENOUGH_FOR_P95, ENOUGH_FOR_P99) == (59, 299)


def test_a_summary_of_a_few_samples_is_complete_and_drops_none() -> None:
    assert summarise([[4.0, 1.0], [2.0, 9.0]]) == Summary(
        iterations=4, median=3.0, low=None, high=None, design_effect=1.0, minimum=1.0, mean=4.0,
        p10=1.0, p90=9.0, p95=None, p99=None, maximum=9.0,
    )  # fmt: skip
    assert summarise([[5.0]]).median == 5.0


def test_an_outlier_moves_the_mean_and_the_maximum_but_not_the_median() -> None:
    calm = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    calm_summary, hit = summarise([calm]), summarise([[*calm[:-1], 1000.0]])
    assert (hit.median, hit.low) == (calm_summary.median, calm_summary.low) == (1.3, 1.0)
    assert (hit.maximum, hit.high) == (1000.0, 1000.0)
    assert hit.mean is not None
    assert hit.mean > 100


def test_precision_is_half_the_interval_over_the_median() -> None:
    # Of ten samples the interval goes from the second to the ninth: 92 to 108 around 100.
    ten = [91.0, 92, 97, 98, 99, 101, 102, 103, 108, 109]
    assert summarise([ten]).precision == pytest.approx(0.08)
    assert summarise([ten[:5]]).precision is None
    assert summarise([[0.0] * 10]).precision == 0.0


def together(batches: list[list[float]]) -> list[float]:
    """All samples, sorted."""
    return sorted(chain.from_iterable(batches))


several_batches = st.lists(st.lists(durations, max_size=30), min_size=1, max_size=8).filter(any)


@quick
@given(st.lists(durations, min_size=1, max_size=80))
def test_one_batch_alone_has_the_interval_of_its_samples(samples: list[float]) -> None:
    assert design_effect([samples], median(sorted(samples))) == 1
    assert median_ci([samples]) == median_interval(sorted(samples))


@quick
@given(
    st.lists(durations | st.sampled_from([1e-3, 2e-3]), min_size=1, max_size=30),
    st.integers(1, 8),
    st.randoms(),
)
def test_batches_that_agree_have_the_interval_of_all_their_samples(
    samples: list[float], number: int, chance: Random
) -> None:
    batches = [chance.sample(samples, len(samples)) for _ in range(number)]
    assert median_ci(batches) == median_interval(sorted(samples * number))


@quick
@given(several_batches)
def test_the_interval_is_that_of_all_samples_or_wider_and_holds_the_median(
    batches: list[list[float]],
) -> None:
    ordered = together(batches)
    (low, high), (plain_low, plain_high) = median_ci(batches), median_interval(ordered)
    if low is None or high is None or plain_low is None or plain_high is None:
        assert (low, high, plain_low, plain_high) == (None,) * 4
        assert len(ordered) < 6
        return
    assert ordered[0] <= low <= plain_low <= median(ordered) <= plain_high <= high <= ordered[-1]
    if design_effect(batches, median(ordered)) == 1:
        assert (low, high) == (plain_low, plain_high)


@quick
@given(several_batches, st.randoms())
def test_the_order_of_batches_and_within_them_does_not_matter(
    batches: list[list[float]], chance: Random
) -> None:
    others = [chance.sample(batch, len(batch)) for batch in batches]
    chance.shuffle(others)
    assert median_ci(others) == median_ci(batches)


def batches_with(number: int, *below: int) -> list[list[float]]:
    """Batches of so many samples each, of which so many lie below 1 and the others above."""
    return [[0.5] * found + [1.5] * (number - found) for found in below]


# Chi-square's 95th percentile: 3.841, 5.991, 7.815, 11.070, 16.919 for 1, 2, 3, 5, 9 degrees of
# freedom. A batch of n samples with d more below the median than n/2 adds 4 d^2 / n.
@pytest.mark.parametrize(
    ("below", "scatter", "limit"),
    [
        ((479, 521), 3.528, 3.841),
        ((478, 522), 3.872, 3.841),
        ((473, 500, 527), 5.832, 5.991),
        ((472, 500, 528), 6.272, 5.991),
        ((478, 522, 478, 522), 7.744, 7.815),
        ((477, 523, 477, 523), 8.464, 7.815),
        ((479, 521, 479, 521, 479, 521), 10.584, 11.070),
        ((478, 522, 478, 522, 478, 522), 11.616, 11.070),
        ((480, 520) * 5, 16.0, 16.919),
        ((479, 521) * 5, 17.64, 16.919),
    ],
)
def test_batches_differ_where_a_chi_square_test_at_5_percent_says_so(
    below: tuple[int, ...], scatter: float, limit: float
) -> None:
    assert sum(4 * (found - 500) ** 2 / 1000 for found in below) == pytest.approx(scatter)
    assert (design_effect(batches_with(1000, *below), 1.0) > 1) is (scatter > limit)


# The design effect is scatter / (batches - 1); Student's t widens it by (t / 1.96)^2.
@pytest.mark.parametrize(
    ("batches", "student"),
    [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (6, 2.571), (10, 2.262), (20, 2.093)],
)
def test_the_inflation_is_kishs_design_effect_times_students_factor(
    batches: int, student: float
) -> None:
    found = design_effect(batches_with(20, *[*(4, 16) * (batches // 2), 10][:batches]), 1.0)
    # Each batch adds 4 x 6^2 / 20 = 7.2, one that has half of its samples below nothing.
    effect = 7.2 * (batches // 2 * 2) / (batches - 1)
    assert found == pytest.approx(effect * (student / 1.96) ** 2, rel=0.035)


def test_samples_that_equal_the_median_count_half_as_below_it() -> None:
    assert design_effect([[1.0] * 40, [1.0] * 40, [1.0] * 40], 1.0) == 1
    assert design_effect([[0.5] * 20 + [1.0] * 20, [1.0] * 20 + [1.5] * 20], 1.0) == pytest.approx(
        design_effect(batches_with(40, 30, 10), 1.0)
    )


def test_a_coarse_clock_alone_does_not_make_batches_differ() -> None:
    # Six in ten take the median itself, and none less.
    agreeing = [[8.0] * 60 + [8.5] * 40] * 5
    assert design_effect(agreeing, 8.0) == 1
    assert median_ci([*agreeing, [8.0] * 58 + [8.5] * 41 + [9.0]]) == (8.0, 8.0)


def test_batches_without_samples_say_nothing() -> None:
    batches = batches_with(40, 30, 10)
    assert design_effect([[], *batches, []], 1.0) == design_effect(batches, 1.0)


def test_the_ranks_move_apart_by_the_root_of_the_inflation() -> None:
    # Ten batches of ten samples, all below or all above a gap in turn. Plain ranks are 40 and 61.
    batches = [[float(i + 10 * v) + 1000 * (v % 2) for i in range(10)] for v in range(10)]
    factor = design_effect(batches, median(together(batches)))
    # Each batch lies on one side: 4 x 5^2 / 10 = 10 each, over 9, times (2.262 / 1.96)^2.
    assert factor == pytest.approx(100 / 9 * (2.262 / 1.96) ** 2, rel=0.02)
    half = 21 / 2 * factor**0.5  # 40.4: from 50.5 to ranks 10 and 91
    ordered = together(batches)
    assert (floor(50.5 - half), ceil(50.5 + half)) == (10, 91)
    assert median_ci(batches) == (ordered[9], ordered[90])


def test_batches_that_have_nothing_in_common_bound_the_median_by_the_extremes() -> None:
    batches = [[float(v)] * 50 for v in range(4)]
    assert median_ci(batches) == (0.0, 3.0)


# s'^2 = (4 usual^2 + squares) / (4 + k - 1), half = t s' / sqrt(k); plain t without a usual spread.
@pytest.mark.parametrize(
    ("logs", "usual", "half"),
    [
        ((0.0, 0.02, 0.04), 0.04, 2.447 * (0.0012 / 3) ** 0.5),  # (0.0064 + 0.0008) / 6 = 0.0012
        ((0.0, 0.02, 0.04), 0.0, 4.303 * (0.0004 / 3) ** 0.5),
        ((0.3, 0.3, 0.3), 0.03, 2.447 * (0.0006 / 3) ** 0.5),  # 0.0036 / 6
        ((0.0, 0.2), 0.04, 2.571 * (0.00528 / 2) ** 0.5),  # (0.0064 + 0.02) / 5
        ((0.7,), 0.04, 2.776 * 0.04),
    ],
)
def test_the_interval_of_launches_is_that_of_the_moderated_t(
    logs: tuple[float, ...], usual: float, half: float
) -> None:
    # Student's t is approximated, worst for few degrees of freedom.
    assert launch_half_width(logs, usual) == pytest.approx(half, rel=0.018)


def test_the_interval_covers_that_of_several_launches_though_their_batches_agree() -> None:
    launches = [[0.98] * 40, [1.0] * 40, [1.02] * 40]
    # One batch has all samples, so that no batch differs: the order statistics are the median.
    assert median_ci([together(launches)]) == (1.0, 1.0)
    wide = [[*launch, 0.5, 2.0] for launch in launches]
    factor = exp(2.447 * 0.02)  # as in the table above
    assert median_ci([together(wide)], wide, 0.04) == pytest.approx((1 / factor, factor), rel=1e-3)
    # Beyond all samples only as far as launches that agree would need.
    low, high = median_ci([together(launches)], launches, 0.04)
    factor = exp(2.447 * sqrt(4 * 0.04**2 / 6) / sqrt(3))
    assert (low, high) == (pytest.approx(1 / factor, rel=1e-3), pytest.approx(factor, rel=1e-3))
    summary = summarise([together(launches)], launches, 0.04)
    assert (summary.low, summary.high, summary.design_effect) == (low, high, 1)
    # The 5th percentile is 0.98 in all, and each launch has its own.
    assert (summary.p5_low, summary.p5_high) == (
        pytest.approx(0.98 / factor, rel=1e-3), pytest.approx(0.98 * factor, rel=1e-3),
    )  # fmt: skip


def test_launches_never_narrow_an_interval_and_a_single_one_does_not_widen_it() -> None:
    batches = [[0.5] * 5 + [1.5] * 5] * 4
    plain = median_ci(batches)
    assert plain == (0.5, 1.5)
    assert median_ci(batches, [together(batches)], 0.04) == plain
    alike = [together(batches[:2]), together(batches[2:])]
    assert median_ci(batches, alike, 0.04) == plain


@pytest.mark.parametrize("cases", [400, pytest.param(3000, marks=pytest.mark.full)])
@pytest.mark.parametrize("launches", [2, 3, 6])
def test_the_interval_of_a_few_launches_covers_the_true_median(launches: int, cases: int) -> None:
    chance = numpy.random.default_rng(launches)
    held = plain = 0
    for _ in range(cases):
        shift = 0.04 * chance.standard_normal((launches, 1, 1))
        found = numpy.exp(0.05 * chance.standard_normal((launches, 2, 10)) + shift)
        batches = found.reshape(-1, 10).tolist()
        summary = summarise(batches, found.reshape(launches, -1).tolist(), 0.04)
        assert summary.low is not None and summary.high is not None
        held += summary.low <= 1 <= summary.high
        low, high = median_interval(together(batches))
        assert low is not None and high is not None
        plain += low <= 1 <= high
    assert held / cases >= 0.93
    assert plain / cases < 0.7


class Coverage(NamedTuple):
    """In which share of simulated cases an interval held the true median."""

    ours: float
    plain: float
    """Of the interval that takes all samples as independent."""


def coverage(
    batches: int, iterations: int, effect: float, cases: int, sigma: float = 0.2
) -> Coverage:
    """Of cases whose durations are lognormal around 1, each batch shifted at random by `effect`."""
    chance = numpy.random.default_rng([batches, iterations, int(1000 * effect)])
    ours = plain = 0
    for _ in range(cases):
        shift = effect * chance.standard_normal((batches, 1))
        found = numpy.exp(sigma * chance.standard_normal((batches, iterations)) + shift)
        low, high = median_ci(found.tolist())
        plain_low, plain_high = median_interval(numpy.sort(found, axis=None).tolist())
        assert low is not None and high is not None
        assert plain_low is not None and plain_high is not None
        ours += low <= 1 <= high
        plain += plain_low <= 1 <= plain_high
    return Coverage(ours / cases, plain / cases)


@pytest.mark.parametrize(("batches", "iterations"), [(5, 4), (5, 40), (10, 10), (10, 20)])
@pytest.mark.parametrize("cases", [1000, pytest.param(4000, marks=pytest.mark.full)])
def test_the_interval_of_independent_samples_covers_the_true_median_in_95_percent_of_cases(
    batches: int, iterations: int, cases: int
) -> None:
    found = coverage(batches, iterations, effect=0.0, cases=cases)
    assert found.ours == pytest.approx(0.95, abs=0.02)
    assert found.plain == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("batches", "iterations", "effect", "independent"),
    [(8, 20, 0.1, 0.75), (8, 100, 0.2, 0.35), (12, 20, 0.2, 0.6), (20, 20, 0.1, 0.75)],
)
@pytest.mark.parametrize("cases", [400, pytest.param(1500, marks=pytest.mark.full)])
def test_where_batches_differ_the_interval_still_covers_and_that_of_independent_samples_does_not(
    batches: int, iterations: int, effect: float, independent: float, cases: int
) -> None:
    found = coverage(batches, iterations, effect, cases)
    assert found.ours >= 0.88
    assert found.plain < independent


# Where the difference is too small to be noticed every time, some intervals stay too narrow.
@pytest.mark.parametrize(("batches", "iterations", "effect"), [(8, 20, 0.08), (12, 50, 0.03)])
@pytest.mark.parametrize("cases", [400, pytest.param(1500, marks=pytest.mark.full)])
def test_where_batches_hardly_differ_the_interval_still_covers(
    batches: int, iterations: int, effect: float, cases: int
) -> None:
    assert coverage(batches, iterations, effect, cases).ours >= 0.88


@pytest.mark.parametrize("cases", [300, pytest.param(1000, marks=pytest.mark.full)])
def test_where_six_launches_differ_the_interval_covers_though_batches_alone_do_not_show_it(
    cases: int,
) -> None:
    chance = numpy.random.default_rng(3)
    held = by_batches = 0
    for _ in range(cases):
        shift = 0.1 * chance.standard_normal((6, 1, 1))
        found = numpy.exp(0.2 * chance.standard_normal((6, 5, 20)) + shift)
        batches, launches = found.reshape(30, 20).tolist(), found.reshape(6, 100).tolist()
        low, high = median_ci(batches, launches)
        assert low is not None and high is not None
        held += low <= 1 <= high
        low, high = median_ci(batches)
        assert low is not None and high is not None
        by_batches += low <= 1 <= high
    assert held / cases >= 0.90
    assert by_batches / cases < 0.75


def share_at_most(number: int, most: int) -> Fraction:
    """P(Binomial(n, 1/20) <= most)."""
    return Fraction(sum(comb(number, k) * 19 ** (number - k) for k in range(most + 1)), 20**number)


def test_the_ranks_that_bound_the_5th_percentile_leave_at_most_2_5_percent_beyond_either_end() -> (
    None
):
    tail = Fraction(25, 1000)
    for number in [72, 73, 100, 150, 200, 333, 500, 1000]:
        low, high = quantile_ranks(number, 0.05) or (0, 0)
        assert share_at_most(number, low - 1) <= tail < share_at_most(number, low)
        assert 1 - share_at_most(number, high - 1) <= tail < 1 - share_at_most(number, high - 2)


@pytest.mark.parametrize("number", [1001, 2000, 5000])
def test_the_ranks_of_many_samples_cover_the_5th_percentile(number: int) -> None:
    low, high = quantile_ranks(number, 0.05) or (0, 0)
    covered = share_at_most(number, high - 1) - share_at_most(number, low - 1)
    assert 0.95 <= covered <= 0.97


def test_the_5th_percentile_needs_72_samples() -> None:
    assert ENOUGH_FOR_P5 == 72
    few, enough = ([float(i) for i in range(1, n + 1)] for n in (71, 72))
    assert (quantile_ranks(71, 0.05), summarise([few]).p5) == (None, None)
    found = summarise([enough])
    assert (found.p5, found.p5_low, found.p5_high) == (4.0, 1.0, 9.0)


# What 4000 cases gave: 96.5, 91.5, 92.0 and 96.5 %.
@pytest.mark.parametrize(
    ("batches", "iterations", "effect"), [(10, 20, 0.0), (10, 40, 0.1), (10, 100, 0.2), (30, 9, 0)]
)
@pytest.mark.parametrize("cases", [300, pytest.param(1000, marks=pytest.mark.full)])
def test_the_interval_of_the_5th_percentile_covers_it(
    batches: int, iterations: int, effect: float, cases: int
) -> None:
    chance = numpy.random.default_rng([batches, iterations])
    truth = exp(-1.6448536 * hypot(0.2, effect))
    held = 0
    for _ in range(cases):
        shift = effect * chance.standard_normal((batches, 1))
        found = numpy.exp(0.2 * chance.standard_normal((batches, iterations)) + shift)
        summary = summarise(found.tolist())
        assert summary.p5_low is not None and summary.p5_high is not None
        held += summary.p5_low <= truth <= summary.p5_high
    assert 0.90 <= held / cases <= 0.99, held


def test_batches_in_which_the_host_was_slow_move_the_5th_percentile_little() -> None:
    fast = [[1 + 0.001 * i for i in range(20)]] * 4
    slow = [[1.3 + 0.001 * i for i in range(20)]] * 6
    found = summarise([*fast, *slow])
    assert found.median > 1.3
    assert found.p5_low == 1.0
    assert found.p5 is not None and found.p5 < 1.01

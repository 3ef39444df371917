"""Steps of series whose truth is known: how often one is found that is not there, and how well one
is found that is; beside the detectors of asv and ruptures where these are installed."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import mean, median

import numpy as np
import pytest
from step_power import (
    KINDS,
    NOISE,
    POINTS,
    by_turns,
    checked,
    correlated,
    oracles,
    ours,
    outlying,
    series,
    share_found,
    share_with_a_step,
    white,
    with_step,
)

from commbench.answers.history import level as levels
from commbench.answers.history import steps
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.level import find_level
from commbench.answers.history.steps import find_steps
from commbench.answers.history.two_levels import ALPHA
from commbench.stats import Estimate

FULL = pytest.mark.full


# 10 in 1,000 would be alpha. With an autocorrelation of 0.5, 16 of 1,000 have a step.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("times", "number", "most"),
    [
        (100, POINTS, 0.03),
        pytest.param(1000, POINTS, 0.01, marks=FULL),
        *(pytest.param(1000, n, 0.02, marks=FULL) for n in (12, 20, 40, 100, 400)),
    ],
)
def test_few_stationary_series_have_a_step(kind: str, times: int, number: int, most: float) -> None:
    assert share_with_a_step(kind, ours, times, number) <= most


@pytest.mark.parametrize("runs", [(6, 4, 4), (8, 6, 3, 3), (10, 5, 5, 5, 5)])
def test_levels_by_turns_are_found_in_a_short_history(runs: tuple[int, ...]) -> None:
    assert by_turns(runs, 0.03, 1.5, 40) >= 0.95


def test_outliers_do_not_hide_a_slowdown() -> None:
    """Times of a real history: runs 3, 4 and 17 are outliers, and runs 15 to 20 are slower."""
    times = (
        170, 139, 337, 285, 139, 163, 133, 144, 136, 136, 142, 146, 139, 142, 464, 486, 916, 421,
        414, 473, 127, 173, 165, 135, 140, 155, 144, 129,
    )  # fmt: skip
    fit = find_steps([Estimate(each * 1e-6) for each in times], ALPHA / 3)
    assert [step.at for step in fit.steps] == [14, 20]


def test_a_step_of_5_percent_is_found_when_enough_points_have_followed() -> None:
    assert share_found(ours, 100, 100) >= 0.9
    assert share_found(ours, 170, 60) >= 0.8
    assert share_found(ours, 197, 60) <= 0.3


@pytest.mark.parametrize(
    ("slow", "by", "steps"),
    [([20, 21, 59], 1.0, []), ([*range(30, 37)], 0.3, [30, 37])],
    ids=["outliers", "a slow week"],
)
def test_only_what_lasts_is_a_step_and_the_level_returns(
    slow: list[int], by: float, steps: list[int]
) -> None:
    logs = NOISE * white(np.random.default_rng(2), 60)
    logs[slow] += by
    fit = find_steps(series(logs))
    ends = [0, *steps, 60]
    assert [step.at for step in fit.steps] == steps
    assert [part.number for part in fit.segments] == [b - a for a, b in pairwise(ends)]
    assert fit.segments[-1].level.value == pytest.approx(1.0, abs=0.02)


def test_a_slow_part_of_a_short_series_does_not_hide_itself() -> None:
    """Runs beside it were disturbed in part. By the noise of differences alone, 1 in 5 shows."""
    rng, found = np.random.default_rng(3), 0
    for _ in range(100):
        logs = 0.03 * white(rng, 15)
        logs[5:11] += math.log(2)
        logs[[4, 11]] += rng.uniform(0.3, 0.7, 2) * math.log(2)
        found += ours(logs) in ([4, 11], [5, 11], [4, 12], [5, 12])
    assert found >= 85


def test_a_second_slow_part_does_not_hide_the_first() -> None:
    found = 0
    for seed in range(50):
        logs = 0.03 * white(np.random.default_rng(seed), 21)
        logs[6:10] += math.log(4)
        logs[16:20] += math.log(1.5)
        found += {6, 10} <= {step.at for step in find_steps(series(logs), ALPHA / 2).steps}
    assert found >= 45


@pytest.mark.parametrize("rows", [1, 130, 1000])
def test_a_large_step_is_found_however_many_rows_are_beside_it(rows: int) -> None:
    rng, found = np.random.default_rng(1), 0
    for _ in range(100):
        logs = 0.023 * white(rng, 12)
        logs[8:] += math.log(1.8)
        found += [step.at for step in find_steps(series(logs), ALPHA / rows).steps] == [8]
    assert found >= 99


@FULL
def test_95_of_100_steps_are_found_within_4_points_and_others_do_not_find_more() -> None:
    own = share_found(ours, 100, 1000)
    assert own >= 0.95
    others = {name: share_found(find, 100, 200) for name, find in oracles().items()}
    assert all(own > share - 0.03 for share in others.values())


@FULL
@pytest.mark.parametrize("kind", KINDS)
def test_false_alarms_are_few_and_those_of_others_are_stated(kind: str) -> None:
    others = {name: share_with_a_step(kind, find, 200) for name, find in oracles().items()}
    own = share_with_a_step(kind, ours, 200)
    assert own <= max(0.01, min(others.values(), default=0.0))


def test_the_size_of_a_step_is_within_its_interval() -> None:
    rng = np.random.default_rng(9)
    fits = [find_steps(series(with_step(rng, 80, 1.2))) for _ in range(60)]
    (ratios) = [fit.steps[0].ratio for fit in fits if len(fit.steps) == 1]
    assert len(ratios) >= 58
    covered = mean(low <= 1.2 <= high for low, high in (ratio.ends for ratio in ratios))
    assert covered >= 0.85  # the noise is estimated
    assert mean(s.earliest <= 80 <= s.latest for f in fits for s in f.steps) >= 0.9


def test_noise_does_not_contain_steps_and_outliers() -> None:
    rng = np.random.default_rng(3)
    logs = NOISE * outlying(rng, 400) + np.repeat([0.0, 0.5, 0.2, 0.9], 100)
    assert steps.estimate_noise(logs).deviation == pytest.approx(NOISE, rel=0.3)
    found = [steps.estimate_noise(correlated(rng, 400)) for _ in range(30)]
    assert mean(noise.correlation for noise in found) == pytest.approx(0.5, abs=0.05)
    assert median(noise.long_run for noise in found) == pytest.approx(3.0, rel=0.2)


def test_a_short_level_beside_a_large_step_is_found() -> None:
    times = [387, 360, 364, 370, 251, 241, 252, 2687, 2646, 2670]
    for number, places in ((7, [4]), (10, [4, 7])):
        fit = find_steps([Estimate(us * 1e-6) for us in times[:number]])
        assert [step.at for step in fit.steps] == places


@pytest.mark.parametrize(("runs", "quantile"), [(6, 2.571), (11, 2.228), (30, 2.045)])
@pytest.mark.parametrize("sd", [0.05, 0.16])
def test_the_interval_of_a_new_run_holds_and_is_no_wider(
    sd: float, runs: int, quantile: float
) -> None:
    found = checked(runs, sd, 1000)
    assert 0.035 <= mean(not each.low < 1 < each.high for each in found) <= 0.06
    halves = sorted(math.log(each.high / each.low) / 2 for each in found)
    ideal = quantile * sd * math.sqrt(1 + 1 / runs)  # Student's, of a sample with this deviation
    assert median(halves) == pytest.approx(ideal, rel=0.07)
    assert halves[950] < 1.7 * ideal


def test_an_outlier_does_not_make_that_interval_useless() -> None:
    *logs, last = 0.05 * white(np.random.default_rng(2), 12)
    assert single([*logs[:5], 1.0]) == pytest.approx(single(logs[:5]), rel=0.05)
    assert single([*logs, last + 1.0]) == pytest.approx(single(logs), rel=0.05)
    assert single([*logs, 1.0, 1.0]) == pytest.approx(single(logs), rel=0.05)
    assert single([*logs, 1.0, 1.0, 1.0, 1.0]) > 5 * single(logs)  # more than one in five are usual


def single(logs: list[float]) -> float:
    return levels.single_points(
        logs, [steps.Segment(0, len(logs) - 1, Estimate(1.0))], np.ones(len(logs))
    )[0]


def test_points_with_wide_intervals_weigh_less() -> None:
    values = [1.0, 1.01, 0.99] * 6 + [1.3, 1.3, 1.3]
    known = [Estimate(value, value / 1.01, value * 1.01) for value in values]
    assert len(find_steps(known).steps) == 1
    unsure = [*known[:-3], *(Estimate(1.3, 0.5, 3.0) for _ in range(3))]
    assert not find_steps(unsure).steps


@pytest.mark.parametrize("number", [6, 8, 12, 30])
def test_95_percent_of_runs_are_in_the_interval_of_the_usual_level(number: int) -> None:
    rng, within = np.random.default_rng(6), 0
    for _ in range(200):
        *logs, later = 0.03 * white(rng, number + 1)
        low, high = find_level(series(np.array(logs))).prediction.ends
        within += low <= math.exp(later) <= high
    assert 180 <= within <= 198


@pytest.mark.parametrize(("by", "found"), [(0.5, 0.8), (3.0, 0.8)])
def test_one_outlier_hides_few_steps(by: float, found: float) -> None:
    rng, shown = np.random.default_rng(3), 0
    for _ in range(60):
        logs = 0.03 * white(rng, 15)
        logs[7:] += math.log(1.3)
        logs[rng.integers(15)] += math.log(by)
        shown += bool(find_steps(series(logs), ALPHA / 3, 0.02).steps)
    assert shown >= 60 * found


def test_a_tolerance_removes_small_steps() -> None:
    logs = 0.001 * white(np.random.default_rng(4), 60)
    logs[30:] += math.log(1.015)
    assert len(find_steps(series(logs)).steps) == 1
    assert not find_steps(series(logs), tolerance=0.02).steps


def test_few_and_equal_points() -> None:
    assert find_steps([]) == ((), (), None)
    short = find_steps([Estimate(2.0)] * (FEWEST - 1))
    assert short.noise is None and short.segments[0].level.value == pytest.approx(2.0)
    assert short.segments[0].level.ends[0] < 2.0 < short.segments[0].level.ends[1]
    assert find_steps([Estimate(2.0)] * (SHORTEST - 1)).segments[0].level is None
    equal = find_steps([Estimate(1.0)] * 10 + [Estimate(1.5)] * 10)
    assert [step.at for step in equal.steps] == [10]


@pytest.mark.parametrize("usual", [6, 7, 8])
@pytest.mark.parametrize("slow", [1, 2, 3, 4])
def test_the_first_runs_of_a_slower_level_take_none_of_the_earlier_one(
    usual: int, slow: int
) -> None:
    times_us = [244, 238, 242, 240, 240, 243, 249, 238][-usual:] + [597, 599, 599, 598][:slow]
    times = [Estimate(time, 0.98 * time, 1.02 * time) for time in times_us]
    found, level = find_steps(times, tolerance=0.02), find_level(times)
    assert [step.at for step in found.steps] == [usual] * (slow >= SHORTEST)
    assert all(step.ratio.low < 598 / 241 < step.ratio.high for step in found.steps)
    assert (level.runs, level.end) == (usual, usual)
    assert level.time == pytest.approx(241, rel=0.01) and level.deviation < 0.02


def test_the_level_of_a_few_runs_covers_how_these_differ() -> None:
    before = [100.0, 102, 99, 101, 98, 103, 100, 99, 101, 100, 102, 98]
    fit = find_steps([Estimate(value) for value in (*before, 178.0, 285, 183, 194)])
    assert [step.at for step in fit.steps] == [len(before)]
    calm, scattered = (segment.level for segment in fit.segments)
    assert calm.high / calm.low < 1.05
    assert scattered.low < 178 and scattered.high > 240
    assert fit.steps[0].ratio.high / fit.steps[0].ratio.low > 1.5

"""Finds the steps of a series of times: a piecewise constant fit of their logarithms.

The fit minimises, over all ways to cut the series into segments of at least SHORTEST points,

    sum of w_i (y_i - level of its segment)^2  +  penalty x number of steps

exactly, by dynamic programming (Jackson et al., IEEE Signal Processing Letters 12, 2005). Points
far from the median of their neighbours are moved to CLIP standard deviations from it first, so that
an outlier is not a segment, and the fit has nearly the precision of least squares. Beside a step
the neighbours may be on the other level: so each step is then moved past points that are on the
other level, or dropped. These neighbours may also hide a short level, so each segment is cut again
by itself. Steps of a short series raise the noise, so that this fit misses them: see
two_levels.py. The levels
are of points moved towards the median of their segment.

Penalty. A step at place k of a series without one lowers the sum by L Z_k^2, where Z_k is normal.
There are n - 1 places, so by Bonferroni's inequality a step is found with probability of at most
alpha where the penalty is L z^2 and z the normal quantile of 1 - alpha / (2 (n - 1)). L is
estimated (noise.py), so the quantile is Student's. The degrees of freedom were chosen so that the
simulations of tests/answers/history/test_steps.py keep alpha for 12 to 400 points.

The idea of such a fit for histories of benchmarks, weighted by their intervals and with noise that
is autocorrelated, is that of asv (asv/step_detect.py, which minimises absolute deviations).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, starmap
from math import exp, inf, log, sqrt
from operator import sub
from statistics import NormalDist
from typing import NamedTuple

from commbench.analysis.statistics import Z
from commbench.answers.history.cuts import FEWEST, SHORTEST, Sums
from commbench.answers.history.noise import (
    CLIP,
    JUMP,
    LEAST_NOISE,
    Noise,
    clip,
    estimate_noise,
)
from commbench.answers.history.two_levels import ALIKE, ALPHA, more_cuts
from commbench.stats import Array, Estimate, around, combine, factor_of_all, np, student_quantile

TOLERANCE = 0.02
"""A level that changes by less has no step."""
STEADY = 2 * FEWEST
"""Points of a level of which one outlier hardly changes the mean or the noise."""
NEIGHBOURS = 3
"""On each side of a point, of which the median is taken."""
_NORMAL = NormalDist()


def freedom(number: int) -> int:
    """The degrees of freedom of the noise of a series of so many points."""
    return max(min(number, 10), 7 + number // 12)


class Segment(NamedTuple):
    """Points between two steps, `first` to `last`."""

    first: int
    last: int
    level: Estimate | None
    """Their level, in the unit of the series; None for fewer than SHORTEST points."""

    @property
    def number(self) -> int:
        """How many points it has."""
        return self.last - self.first + 1


class Step(NamedTuple):
    """A step between two segments."""

    at: int
    """The first point of the new level."""
    earliest: int
    latest: int
    """The places between which it is with 95 % confidence."""
    ratio: Estimate
    """The new level over the old one."""

    @property
    def is_sure(self) -> bool:
        """Whether its interval does not contain 1, also as it is written."""
        low, high = (round(end, 2) for end in self.ratio.ends)
        return not low <= 1 <= high


class Fit(NamedTuple):
    """A series as segments."""

    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    noise: Noise | None
    """None for a series with fewer than FEWEST points."""


def find_steps(
    series: Sequence[Estimate], alpha: float = ALPHA, tolerance: float = 0.0, begin: int = 0
) -> Fit:
    """The steps of a series of values above 0, in their order in time. `tolerance` is the change of
    a level up to which there is no step: 0.02 for 2 %. At the place `begin` a level begins in any
    case: someone accepted that run."""
    values = np.log([estimate.value for estimate in series])
    number = len(values)
    accepted = [begin] * (0 < begin < number)
    if number < FEWEST:  # their noise is not known
        parts = [*pairwise([0, *accepted, number])] if number else []
        own = [values[slice(*part)] for part in parts]
        means = [_cover(Estimate(float(each.mean())), each) for each in own]
        return Fit(_segments(parts, means), (), None)
    noise = estimate_noise(values)
    weights = weights_of(series, noise)
    cuts = _find_cuts(values, weights, noise, penalty(noise, number, alpha))
    known = len(cuts)
    while found := more_cuts(values, weights, cuts, alpha):
        cuts = sorted([*cuts, *found])
    if len(cuts) > known:  # what is slow there had counted as noise
        noise = estimate_noise(values - _medians(values, cuts))
        weights = weights_of(series, noise)
    medians = _medians(values, sorted({*cuts, *accepted}))
    clipped = clip(values, medians, CLIP * noise.deviation)
    sums = Sums(clipped, weights)
    cuts = _merge(sums, _without_mixed(values, cuts), log(1 + tolerance))
    if accepted:
        cuts = sorted([*accepted, *(cut for cut in cuts if abs(cut - begin) >= SHORTEST)])
    ends = [0, *cuts, number]
    parts = [*pairwise(ends)]
    levels = [_cover(sums.level(*part, noise), values[slice(*part)]) for part in parts]
    segments = _segments(parts, levels)
    steps = []
    for n, at in enumerate(cuts):
        first, last = at, at
        if at not in accepted:
            first, last = sums.places(ends[n], at, ends[n + 2], noise.deviation**2)
        steps.append(Step(at, first, last, combine(sub, levels[n + 1], levels[n]).map(exp)))
    return Fit(segments, tuple(steps), noise)


def _segments(parts: Iterable[tuple[int, int]], levels: Iterable[Estimate]) -> tuple[Segment, ...]:
    """The parts with their levels, given as logarithms; None for fewer than SHORTEST points."""
    return tuple(
        Segment(first, end - 1, level.map(exp) if end - first >= SHORTEST else None)
        for (first, end), level in zip(parts, levels, strict=True)
    )


def _cover(level: Estimate, own: Array) -> Estimate:
    """A level of a few points with Student's interval of these alone, if that is wider: they may
    scatter more than the other points of the series. One point does not count where it is an
    outlier: at 5 % for all together, by Student's t of the others."""
    number = len(own)
    if number >= STEADY or number < SHORTEST:
        return level
    away = int(np.abs(own - np.median(own)).argmax())
    others = np.delete(own, away)
    error = max(float(np.std(others, ddof=1)), LEAST_NOISE) * sqrt(number / (number - 1))
    most = student_quantile(factor_of_all(number), number - 2)
    if number > SHORTEST and abs(own[away] - others.mean()) > most * error:
        own, number = others, number - 1
    error = max(float(np.std(own, ddof=1)), LEAST_NOISE) / sqrt(number)
    half = max(level.ends[1] - level.value, student_quantile(Z, number - 1) * error)
    return around(level.value, half)


def weights_of(series: Sequence[Estimate], noise: Noise) -> Array:
    """The weight of each point. The noise of the series contains the usual interval already; a
    point with a wider one has the variance that is more, too."""
    variances = np.minimum(np.square([own_deviation(each) for each in series]), 1.0)
    more = np.maximum(variances - np.median(variances), 0.0)
    return np.asarray(noise.deviation**2 / (noise.deviation**2 + more))


def own_deviation(found: Estimate) -> float:
    """The standard deviation of the logarithm of a value, by its own interval."""
    low, high = found.ends
    return log(high / low) / 2 / Z if low > 0 else inf


def _moving_medians(values: Array) -> Array:
    """Of each point the median of its neighbours and itself."""
    padded = np.pad(values, NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1)
    return np.asarray(np.nanmedian(windows, axis=1))


def _medians(values: Array, cuts: Sequence[int]) -> Array:
    """Of each point the median of its segment."""
    parts = np.split(values, cuts)
    return np.concatenate([np.full(len(part), np.median(part)) for part in parts])


def penalty(noise: Noise, number: int, alpha: float) -> float:
    """What a step of a series of so many points costs, in squares of logarithms."""
    z = _NORMAL.inv_cdf(1 - alpha / (2 * (number - 1)))
    return noise.long_run * student_quantile(z, freedom(number)) ** 2


def _find_cuts(values: Array, weights: Array, noise: Noise, cost: float) -> list[int]:
    """The places of steps, each of which costs so much. Each segment is then cut again by itself:
    there, the moving medians have no values from beyond another step."""
    smooth = Sums(clip(values, _moving_medians(values), CLIP * noise.deviation), weights)
    cuts = _settle(values, smooth.cut(cost), JUMP * noise.deviation)
    found = [*cuts]
    for first, end in pairwise([0, *cuts, len(values)] if cuts else ()):
        own = slice(first, end)
        found += [first + at for at in _find_cuts(values[own], weights[own], noise, cost)]
    return sorted(found)


def _settle(values: Array, cuts: Sequence[int], far: float) -> list[int]:
    """The steps, each moved past the points beside it that are on the other level: `far` from the
    median of their segment, and nearer to that of the other one. A fit puts them there for a
    segment to have SHORTEST points. Without steps that then have fewer on a side."""
    settled = [0]
    for cut, end in pairwise([*cuts, len(values)]):
        first, at = settled[-1], cut
        medians = np.median(values[first:cut]), np.median(values[cut:end])
        before, after = (np.abs(values - median) for median in medians)
        while at < end and far < after[at] > before[at]:
            at += 1
        while at <= cut and at > first and far < before[at - 1] > after[at - 1]:
            at -= 1
        if min(at - first, end - at) >= SHORTEST:
            settled.append(at)
    return settled[1:]


def _without_mixed(values: Array, cuts: Sequence[int]) -> list[int]:
    """The steps without those beside a segment of fewer than STEADY points of which not ALIKE are
    on its side of the middle: these are outliers."""
    kept = [0]
    for cut, end in pairwise([*cuts, len(values)]):
        sides = values[kept[-1] : cut], values[cut:end]
        before, after = map(np.median, sides)
        alike = [
            float(np.mean((each > (before + after) / 2) == is_slow))
            for each, is_slow in zip(sides, (before > after, after > before), strict=True)
            if len(each) < STEADY
        ]
        if min(alike, default=1.0) >= ALIKE:
            kept.append(cut)
    return kept[1:]


def _merge(sums: Sums, cuts: list[int], least: float) -> list[int]:
    """The steps without those that are smaller than a difference of logarithms, the smallest first,
    as a level changes when its neighbour joins it."""
    end = len(sums)
    while cuts:
        ends = [0, *cuts, end]
        sizes = [abs(b - a) for a, b in pairwise(starmap(sums.mean, pairwise(ends)))]
        if (smallest := min(sizes)) >= least:
            break
        del cuts[sizes.index(smallest)]
    return cuts

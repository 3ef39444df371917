"""Finds points that are slower than the others of a series, by Student's t test of two samples.

Steps of a short series raise the noise by which steps.py judges, since that is estimated from the
differences of neighbours: so steps.py misses them. Here the scatter about both levels is the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb, exp, log, sqrt
from statistics import NormalDist

from commbench.analysis.statistics import Z
from commbench.answers.history.cuts import FEWEST, SHORTEST, Sums
from commbench.answers.history.noise import LEAST_NOISE, clip, inflation, median_deviation
from commbench.stats import Array, Estimate, around, np, student_quantile

ALPHA = 0.01
"""The probability that a step is found in a series without one, or in any row of a system."""
MOST_STEPS = 4
"""Steps within a segment that are looked for."""
MOST_SEARCHED = 100
"""Points of a segment in which they are: with more, the noise is known well."""
CLIPPED = 4
"""So often outliers are moved, at most, and steps looked for again."""
ALIKE = 0.61
"""More than three of five points."""
FAR = 3.0
"""Points more deviations away are moved to there, as outliers."""
_NORMAL = NormalDist()


def slow_end(logs: Sequence[float], tolerance: float) -> tuple[int, Estimate]:
    """How many of the last points of a level are slower than the others by more than a tolerance,
    as they are too few for a step, or for one that is certain, and how many times; 0 where none. At
    least SHORTEST points are not slower. Half of the points or more are slower only where that is
    also certain with their autocorrelation, and FEWEST are not."""
    values = np.array(logs)
    found = _slower_since(values, SHORTEST, is_correlated=False)
    if found and 2 * found[0] <= len(logs):
        found = _slower_since(values, FEWEST, is_correlated=True)
    if not found or found[1].value <= log(1 + tolerance):
        return 0, Estimate(1.0)
    if values[-1] < values[: found[0]].mean() + found[1].value / 2:  # fast again
        return 0, Estimate(1.0)
    return len(logs) - found[0], found[1].map(exp)


def _slower_since(values: Array, least: int, *, is_correlated: bool) -> tuple[int, Estimate] | None:
    """Since which place, after at least so many points, the others are slower most clearly, and by
    how much; None where that may be chance."""
    number, same = len(values), np.ones(len(values))
    first = np.arange(least, number)
    if not len(first):
        return None
    above = np.maximum(Sums(values, same).above(first, number), 0.0)
    at = int(first[(above**2 / first / (number - first)).argmax()])
    is_slow = np.arange(number) >= at
    found = _slower(values, same, is_slow, ALPHA / len(first), is_correlated=is_correlated)
    return (at, found) if found else None


def more_cuts(values: Array, weights: Array, cuts: Sequence[int], alpha: float) -> list[int]:
    """The places of steps within the segments of a series between these cuts."""
    found = []
    for first, end in pairwise([0, *cuts, len(values)]):
        own = slice(first, end)
        found += [first + at for at in _cuts_by_turns(values[own], weights[own], alpha)]
    return found


def _cuts_by_turns(values: Array, weights: Array, alpha: float) -> Sequence[int]:
    """The places of up to MOST_STEPS steps at which a segment turns from fast to slow, or back;
    empty where that may be chance. `alpha` holds for all places and numbers of steps
    (Bonferroni)."""
    length = len(values)
    if not FEWEST <= length <= MOST_SEARCHED:
        return ()
    for number in range(1, min(MOST_STEPS, length // SHORTEST - 1) + 1):
        cuts, is_slow = _best_cuts(values, weights, number)
        each = part_of_alpha(length, number)
        found = _slower(values, weights, is_slow, alpha * each, is_correlated=True)
        if found and not _are_outliers(values, cuts, is_slow):
            return cuts
    return ()


def _best_cuts(values: Array, weights: Array, number: int) -> tuple[list[int], Array]:
    """The places of so many steps with the smallest sum of squares, and which points are on the
    slow level then. Outliers of these levels are moved to them, and the places looked for again."""
    moved, places = values, np.arange(len(values))
    cuts: list[int] = []
    for _ in range(CLIPPED):
        sums, last = Sums(moved, weights), cuts
        *_, cuts = sums.best(number)
        is_slow = np.searchsorted(cuts, places, side="right") % 2 == 1
        if np.average(moved[is_slow], weights=weights[is_slow]) < sums.mean(0, len(values)):
            is_slow = ~is_slow
        if cuts == last:
            break
        moved = _without_outliers(values, weights, is_slow)
    return cuts, is_slow


def part_of_alpha(length: int, number: int) -> float:
    """The part of alpha of each way in which so many steps cut a series into segments of SHORTEST
    points or more, which are fast and slow by turns. A quarter is for one step, a quarter for two,
    and a quarter of these for three and for four: more steps follow noise that is correlated."""
    ways = 2 * comb(length - SHORTEST * (number + 1) + number, number)
    return 4.0 ** -((number + 1) // 2) / ways


def _are_outliers(values: Array, cuts: Sequence[int], is_slow: Array) -> bool:
    """Whether in a segment fewer than SHORTEST points, or than ALIKE of them, are slow, or fast, as
    it is."""
    middle = (np.median(values[is_slow]) + np.median(values[~is_slow])) / 2
    alike = np.split((values > middle) == is_slow, cuts)
    return any(part.sum() < max(SHORTEST, ALIKE * len(part)) for part in alike)


def _without_outliers(values: Array, weights: Array, is_slow: Array) -> Array:
    """The values, each at most FAR deviations from the median of those that are as slow."""
    slow, other = (_median(values[part], weights[part]) for part in (is_slow, ~is_slow))
    middle = np.where(is_slow, slow, other)
    usual = median_deviation(values - middle) * (1 + 5 / len(values))
    return clip(values, middle, FAR * max(usual, LEAST_NOISE))


def _median(values: Array, weights: Array) -> float:
    """The weighted median."""
    order = np.argsort(values)
    below = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(weights.sum() / 2, below, values[order]))


def _slower(
    values: Array, weights: Array, is_slow: Array, alpha: float, *, is_correlated: bool
) -> Estimate | None:
    """By how much some points are slower than the others; None where that may be chance: Student's
    t of two samples. The autocorrelation about the two means may count."""
    values, number, parts = (
        _without_outliers(values, weights, is_slow),
        len(values),
        (is_slow, ~is_slow),
    )
    slow, other = (float(np.average(values[part], weights=weights[part])) for part in parts)
    rest = np.sqrt(weights) * (values - np.where(is_slow, slow, other))
    squares = max(float(rest @ rest), (number - 2) * LEAST_NOISE**2)
    variance = squares / (number - 2) * sum(1 / float(weights[part].sum()) for part in parts)
    if is_correlated:
        variance *= inflation(float(rest[1:] @ rest[:-1]) / squares, number)
    limit = student_quantile(_NORMAL.inv_cdf(1 - alpha), number - 2)
    if slow - other <= limit * sqrt(variance):
        return None
    return around(slow - other, student_quantile(Z, number - 2) * sqrt(variance))

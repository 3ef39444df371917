"""How the time of a call grows with its size, by the sizes of one run: quick, without intervals.

The model is Hockney's, T = fixed + S beta, in up to three ranges of sizes, because libraries switch
protocols. A range is added only where it lowers the error clearly. `commbench model fit` takes
longer, and tests what it chooses on points that a fit was made without.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

from commbench.models.machine import Point

FEWEST_SIZES = 3
FEWEST_IN_RANGE = 4
MOST_RANGES = 3
WORTH = 0.2
"""A further range of sizes must lower the mean error by this part."""
SMALLEST_ERROR = 1e-4
"""Smaller ones are no reason for a further range."""


class Range(NamedTuple):
    """A range of sizes with parameters of its own."""

    sizes: tuple[int, ...]
    """Those measured, ascending."""
    fixed_s: float
    beta: float
    """In seconds per byte."""
    errors: tuple[float, ...]
    """The absolute errors of log(time)."""


class SizeCurve(NamedTuple):
    """The fitted time by size, for one number of ranks."""

    ranges: tuple[Range, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those measured, ascending."""
        return tuple(size for each in self.ranges for size in each.sizes)

    @property
    def error(self) -> float:
        """The mean absolute error of log(time)."""
        errors = [error for each in self.ranges for error in each.errors]
        return sum(errors) / len(errors)

    def range_of(self, size: float) -> Range:
        """The range that a size belongs to."""
        return next((each for each in self.ranges if size <= each.sizes[-1]), self.ranges[-1])

    def at(self, size: float) -> tuple[float, float]:
        """The time at this size in seconds: the part that does not grow with the size within the
        range of sizes, and the part that does."""
        own = self.range_of(size)
        return own.fixed_s, own.beta * size

    @property
    def half_size(self) -> float | None:
        """n-half: the size at which a call takes twice as long as one of no bytes; None where that
        is no measured size."""
        target, sizes = 2 * self.ranges[0].fixed_s, self.sizes
        if not target or sum(self.at(sizes[-1])) < target:
            return None
        low, high = 0.0, float(sizes[-1])
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(self.at(middle)) < target else (low, middle)
        return high if high > sizes[0] else None


def fit_sizes(points: Sequence[Point]) -> SizeCurve | None:
    """The curve of points of different sizes; None for fewer than FEWEST_SIZES."""
    ordered = sorted(points, key=lambda point: point.size_bytes)
    if len(ordered) < FEWEST_SIZES:
        return None

    @cache
    def fit(low: int, high: int) -> Range:
        return _fit_range(ordered[low:high], is_quick=True)

    count = len(ordered)
    best: tuple[Range, ...] = (fit(0, count),)
    for number in range(1, MOST_RANGES):
        found = [
            tuple(fit(low, high) for low, high in pairwise((0, *cuts, count)))
            for cuts in combinations(range(1, count), number)
            if all(high - low >= FEWEST_IN_RANGE for low, high in pairwise((0, *cuts, count)))
        ]
        if found:
            chosen = min(found, key=_judged_error)
            worth = (1 - WORTH) ** (len(chosen) - len(best))
            best = chosen if _judged_error(chosen) < _judged_error(best) * worth else best
    ends = [0, *accumulate(len(each.sizes) for each in best)]
    return SizeCurve(tuple(_fit_range(ordered[low:high]) for low, high in pairwise(ends)))


def _fit_range(points: Sequence[Point], is_quick: bool = False) -> Range:
    """The range of these points; a quick fit is not robust."""
    import numpy as np

    from commbench.models.fit import fit_parameters, least_squares, log_errors

    times_s = np.array([point.time_s for point in points])
    sizes = [point.size_bytes for point in points]
    terms = np.array([(1.0, size / sizes[-1]) for size in sizes])
    if is_quick:
        parameters = least_squares(terms / times_s[:, None], np.ones(len(points)))
    else:
        parameters = fit_parameters(terms, times_s)
    errors = np.abs(log_errors(times_s, terms @ parameters))
    fixed_s, beta = parameters / [1.0, sizes[-1]]
    return Range(tuple(sizes), float(fixed_s), float(beta), tuple(errors.tolist()))


def _judged_error(ranges: Sequence[Range]) -> float:
    return max(SMALLEST_ERROR, SizeCurve(tuple(ranges)).error)

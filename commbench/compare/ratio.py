"""The ratio of two medians with its interval, and the verdict on it.

    d = b - a        low = d - sqrt((b - low_b)^2 + (high_a - a)^2)
                     high = d + sqrt((high_b - b)^2 + (a - low_a)^2)

with a and b the logarithms of the medians, and low and high the ends of their 95 % intervals: the
method of variance estimates recovery (MOVER; Zou and Donner, Statistics in Medicine 27, 2008). It
needs no symmetry and no normal distribution, only the two intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
NOT_COMPARED = "not compared"
VERDICTS = (FASTER, SLOWER, SAME, UNDECIDED, NOT_COMPARED)
TOLERANCE = 0.05
"""Ratios from 1/(1 + tolerance) to 1 + tolerance count as the same."""


class MedianCI(NamedTuple):
    """Medians and the ends of their 95 % intervals, one each per row; NaN where there is none."""

    median: Numbers
    low: Numbers
    high: Numbers


def ratio_of(a: MedianCI, b: MedianCI) -> MedianCI:
    """The ratio of b over a and its 95 % interval, row by row; NaN where an end is missing."""
    import numpy as np

    with np.errstate(all="ignore"):
        log_a, low_a, high_a = (np.log(values) for values in a)
        log_b, low_b, high_b = (np.log(values) for values in b)
        difference = log_b - log_a
        down = np.hypot(log_b - low_b, high_a - log_a)
        up = np.hypot(high_b - log_b, log_a - low_a)
        return MedianCI(b.median / a.median, np.exp(difference - down), np.exp(difference + up))


def verdicts_of(ratio: MedianCI, p_values: Numbers, tolerance: float) -> Numbers:
    """The verdict on each ratio: decided only where the whole interval lies on one side of the
    tolerance, and the rank test (NaN: there is none) does not say that it may be chance."""
    import numpy as np

    _, low, high = ratio
    upper = 1 + tolerance
    differs = ~(p_values >= SIGNIFICANCE)
    return np.select(
        [
            (low > upper) & differs,
            (high < 1 / upper) & differs,
            (low >= 1 / upper) & (high <= upper),
        ],
        [SLOWER, FASTER, SAME],
        UNDECIDED,
    )


SIGNIFICANCE = 0.05

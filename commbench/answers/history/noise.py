"""The noise of a series of times: how their logarithms vary from point to point.

Steps and outliers must not count as noise, so it is estimated from differences of points
that are k apart, without those that span a jump, and clipped at CLIP deviations. With the
autocorrelation r^k of a process AR(1) the half of their variance is v_k = s^2 (1 - r^k). So
r = v_2 / v_1 - 1, the variance is s^2 = v_1 / (1 - r), and the mean of n points has the variance
L / n, where L = s^2 (1 + r) / (1 - r) is the long-run variance. Of few points r is hardly known: an
r of 0.9 by chance makes L 190 times as large as r = 0 does, and hides any step. So r has a limit.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from commbench.stats import Array, np

CLIP = 2.5
JUMP = 3.0
"""A difference of two neighbours of more deviations is no noise, nor is any that spans it."""
LEAST_NOISE = 1e-3
"""A standard deviation of logarithms; a series of rounded times may have none."""
_NORMAL = NormalDist()
_CLIPPED_VARIANCE = 1 - 2 * (1 - _NORMAL.cdf(CLIP)) * (1 - CLIP**2) - 2 * CLIP * _NORMAL.pdf(CLIP)
"""The variance of a standard normal variable that is clipped at CLIP."""


def most_correlated(number: int) -> float:
    """The largest autocorrelation that a series of so many points may be found to have."""
    return min(max(0.5, 1 - 8 / number), 0.9)


def inflation(found: float, number: int) -> float:
    """By how much an autocorrelation that so many points have about their means makes the variance
    of these larger: without its bias, and as large as chance may hide."""
    most = found + (1 + 3 * found) / number + 2 / sqrt(number)
    most = min(max(most, 0.0), most_correlated(number))
    return (1 + most) / (1 - most)


class Noise(NamedTuple):
    """How the logarithms of a series vary from point to point."""

    deviation: float
    """The standard deviation of a point."""
    correlation: float
    """Of a point and the next one."""

    @property
    def long_run(self) -> float:
        """The variance of the mean of n points, times n."""
        return self.deviation**2 * (1 + self.correlation) / (1 - self.correlation)


def estimate_noise(values: Array) -> Noise:
    """The noise of a series of logarithms, which may have steps and outliers."""
    first = values[1:] - values[:-1]
    is_usual = np.abs(first) <= JUMP * sqrt(_clipped_variance(first))
    second = (values[2:] - values[:-2])[is_usual[1:] & is_usual[:-1]]
    one, two = (_clipped_variance(found) / 2 for found in (first[is_usual], second))
    most = most_correlated(len(values))
    correlation = min(max(two / one - 1, 0.0), most) if one else 0.0
    return Noise(max(sqrt(one / (1 - correlation)), LEAST_NOISE), correlation)


def median_deviation(found: Array) -> float:
    """The standard deviation of normal values with mean 0 by the median of their absolute values,
    which a few outliers do not change."""
    return float(np.median(np.abs(found))) / _NORMAL.inv_cdf(0.75)


def clip(values: Array, middle: Array, width: float) -> Array:
    """The values, at most so far from the middle."""
    return np.asarray(np.clip(values, middle - width, middle + width))


def _clipped_variance(found: Array) -> float:
    """The variance of normal values with mean 0, of which some are far too large: that of the
    values clipped at CLIP deviations, which are first the scaled median of the absolute values."""
    if not len(found):
        return 0.0
    deviation = median_deviation(found)
    for _ in range(3):
        clipped = np.minimum(np.abs(found), CLIP * deviation)
        deviation = sqrt(float(np.mean(clipped**2)) / _CLIPPED_VARIANCE)
    return deviation**2

"""A value with its 95 % interval, and the interval of a figure that is made of several values.

The interval of a figure f of values x1, x2, ... follows from their intervals by the method of
variance estimates recovery (MOVER; Zou and Donner, Statistics in Medicine 27, 2008). Every value
moves f downwards by some d_i if it alone is put to one of the ends of its interval; then the lower
end of f is f - sqrt(sum of d_i^2), and the upper end follows in the same way. Of a ratio the
logarithm is taken. The method needs the intervals only; they need be neither symmetric nor normal.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, hypot, inf, log
from typing import NamedTuple

MOST_SPREAD = 100.0
"""An interval whose ends differ by a larger factor says nothing."""
_LARGEST_EXPONENT = 709.0
"""exp() of more than about 709.78 is no float."""


class Estimate(NamedTuple):
    """A value with the ends of its 95 % interval, which are None where it is not known."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are known."""
        return self.low is not None and self.high is not None

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; where it is not known, the value twice."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high

    @property
    def is_unknown(self) -> bool:
        """Whether its interval, of a value above 0, is so wide that it says nothing."""
        low, high = self.ends
        return high > MOST_SPREAD * low

    def scaled(self, factor: float) -> Estimate:
        """The estimate times a factor above 0."""
        return self.map(lambda value: value * factor)

    def map(self, function: Callable[[float], float]) -> Estimate:
        """A rising or falling function of the estimate."""
        value = function(self.value)
        if self.low is None or self.high is None:
            return Estimate(value)
        return Estimate(value, *sorted((function(self.low), function(self.high))))


def known(
    value: float | None, low: float | None = None, high: float | None = None
) -> Estimate | None:
    """The estimate of a value; None where the value is not known."""
    return None if value is None else Estimate(value, low, high)


def combine(figure: Callable[..., float], *estimates: Estimate) -> Estimate:
    """A figure of several estimates, with its interval by MOVER; without one where an estimate has
    none."""
    values = [estimate.value for estimate in estimates]
    value = figure(*values)
    down, up = [], []
    for index, estimate in enumerate(estimates):
        if not estimate.has_interval:
            return Estimate(value)
        found = [figure(*values[:index], end, *values[index + 1 :]) for end in estimate.ends]
        down.append(max(0.0, value - min(found)))
        up.append(max(0.0, max(found) - value))
    return Estimate(value, value - hypot(*down), value + hypot(*up))


def combine_ratio(figure: Callable[..., float], *estimates: Estimate) -> Estimate:
    """The same for a figure that is above 0 wherever the values are: of its logarithm."""
    if any(estimate.low is not None and estimate.low <= 0 for estimate in estimates):
        return Estimate(figure(*(estimate.value for estimate in estimates)))
    return combine(lambda *values: log(figure(*values)), *estimates).map(exp)


def ratio(b: Estimate | None, a: Estimate | None) -> Estimate | None:
    """The ratio of b over a; None where one is unknown or 0 or the ratio is no float, and without
    an interval where one has none. An interval that reaches down to 0 has no end upwards."""
    if not (a and b and a.value and b.value) or not 0 < (found := b.value / a.value) < inf:
        return None
    if not (a.has_interval and b.has_interval):
        return Estimate(found)
    down = hypot(_log_ratio(b.value, b.ends[0]), log(a.ends[1] / a.value))
    up = hypot(log(b.ends[1] / b.value), _log_ratio(a.value, a.ends[0]))
    return Estimate(found, _exp(log(found) - down), _exp(log(found) + up))


def _log_ratio(value: float, low: float) -> float:
    return log(value / low) if low > 0 else inf


def _exp(value: float) -> float:
    return exp(value) if value < _LARGEST_EXPONENT else inf

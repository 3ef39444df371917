"""Values by key; values with their 95 % intervals, and what an interval allows to say; Student's t.

The interval of a figure f of values x1, x2, ... follows from their intervals by the method of
variance estimates recovery (MOVER; Zou and Donner, Statistics in Medicine 27, 2008). Every value
moves f downwards by some d_i if it alone is put to one of the ends of its interval; then the lower
end of f is f - sqrt(sum of d_i^2), and the upper end follows in the same way. Of a ratio the
logarithm is taken. The method needs the intervals only; they need be neither symmetric nor normal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from math import atan, cos, exp, hypot, inf, log, pi, sin, sqrt
from statistics import NormalDist, geometric_mean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    np = numpy
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            found = vars(self)[name] = getattr(numpy, name)
            return found

    np = _Numpy()
    """numpy, which is imported when it is used first: that takes longer than many commands do."""
Array: TypeAlias = "NDArray[Any]"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def collect(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key; keys and values keep their order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def spread_evenly(values: Sequence[V], most: int) -> list[V]:
    """At most so many of the values, evenly spread, with the first and the last."""
    number = min(most, len(values))
    return [values[round(n * (len(values) - 1) / max(1, number - 1))] for n in range(number)]


MAD_TO_SD, MEDIAN_TO_MEAN = 1.4826, 1.2533
"""The standard deviation of normal values over their median absolute deviation; the standard error
of a median over that of a mean."""
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
        return self.is_wider(MOST_SPREAD)

    def is_wider(self, factor: float) -> bool:
        """Whether the ends of its interval differ by more than this factor."""
        low, high = self.ends
        return high > factor * low

    def scaled(self, factor: float) -> Estimate:
        """The estimate times a factor above 0."""
        return self.map(lambda value: value * factor)

    def map(self, function: Callable[[float], float]) -> Estimate:
        """A rising or falling function of the estimate."""
        value = function(self.value)
        if self.low is None or self.high is None:
            return Estimate(value)
        return Estimate(value, *sorted((function(self.low), function(self.high))))


def around(value: float, half: float) -> Estimate:
    """The estimate with an interval that is symmetric: half of its width on each side."""
    return Estimate(value, value - half, value + half)


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


def mean_ratio(ratios: Iterable[Estimate]) -> Estimate:
    """The geometric mean of ratios, and that of the ends of their intervals: their errors do not
    average out. Without an interval where one has none."""
    own = [*ratios]
    parts = zip(*((each.value, *each.ends) for each in own), strict=True)
    value, *ends = map(geometric_mean, parts)
    return Estimate(value, *ends) if all(each.has_interval for each in own) else Estimate(value)


def spread(found: Estimate, *halves: float) -> Estimate:
    """An estimate above 0 whose logarithm has more independent errors, each given as half of its
    95 % interval."""
    if not found.has_interval or not any(halves):
        return found
    low, high = found.ends
    down = hypot(_log_ratio(found.value, low), *halves)
    up = hypot(_log_ratio(high, found.value), *halves)
    return Estimate(found.value, found.value * exp(-down), found.value * _exp(up))


def _log_ratio(value: float, low: float) -> float:
    return log(value / low) if low > 0 else inf


def _exp(value: float) -> float:
    return exp(value) if value < _LARGEST_EXPONENT else inf


def factor_of_all(number: int) -> float:
    """The two-sided factor of the normal distribution for so many intervals that hold with 95 %
    together, 1.96 for one, by Bonferroni's inequality (Dunn, JASA 56, 1961): each holds with
    1 - 5 % / number. It assumes nothing of how they depend on each other."""
    return NormalDist().inv_cdf(1 - 0.025 / number)


def hold_together(
    found: Estimate, number: int, degrees: int = 0, times_as_wide: float = 1.0
) -> Estimate:
    """An estimate above 0 with the interval that holds with 95 % for so many estimates together
    (factor_of_all), and so many times as wide.

    The logarithm of each end moves away from the value by the ratio of two factors: those of
    Student's t with so many degrees of freedom, or of the normal distribution for 0. So the error
    is assumed to have that distribution in the logarithm, far beyond the samples: with few launches
    nothing measures such tails. With 12 degrees (a ratio of two sides of 3 launches), intervals of
    12 rows are 1.6 times as wide as those of one.
    """
    if not found.has_interval or min(found.value, *found.ends) <= 0:
        return found
    times = times_as_wide
    if number > 1:
        factors = [factor_of_all(each) for each in (number, 1)]
        wide, one = [student_quantile(z, degrees) for z in factors] if degrees else factors
        times *= wide / one
    if times == 1:
        return found
    return found.map(lambda end: found.value * _exp(times * log(end / found.value)))


FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
NOT_COMPARED = "not compared"
VERDICTS = (FASTER, SLOWER, SAME, UNDECIDED, NOT_COMPARED)
"""About the ratio of two times."""
CHANGED = (SLOWER, FASTER)
PASS, LIKELY, FAIL, NOT_MEASURED = "pass", "likely pass", "fail", "not measured"
OUTCOMES = (FAIL, UNDECIDED, LIKELY, NOT_MEASURED, PASS)
"""About a limit, in the order in which rows are shown."""
OPEN = (UNDECIDED, LIKELY)
"""Those that the interval of a row, which contains the limit, leaves open."""
CHANGE, KEEP = "change", "keep"
"""About what is in use, where it is not undecided."""
TOLERANCE = 0.05
"""Ratios from 1/(1 + tolerance) to 1 + tolerance count as the same."""


def decide(ratio: Estimate | None, tolerance: float) -> str:
    """The verdict on a ratio of times. It is `slower` or `faster` where the whole interval lies on
    one side of the tolerance, and `same` where the whole interval lies within. A ratio without an
    interval is decided by itself; one that is not known is `undecided`."""
    if ratio is None:
        return UNDECIDED
    low, high = ratio.ends
    upper, lower = 1 + tolerance, 1 / (1 + tolerance)
    if low > upper:
        return SLOWER
    if high < lower:
        return FASTER
    return SAME if low >= lower and high <= upper else UNDECIDED


def judge(estimate: Estimate, limit: float, is_least: bool = False) -> str:
    """The outcome under a limit, the largest value allowed or (`is_least`) the least: `pass` or
    `fail` where the whole interval lies on one side of it, `undecided` where it lies within. A
    value without an interval is decided by itself."""
    beyond = [end < limit if is_least else end > limit for end in estimate.ends]
    if all(beyond):
        return FAIL
    return UNDECIDED if any(beyond) else PASS


def student_tail(t: float, degrees: int) -> float:
    """The probability that Student's t with so many degrees of freedom is above `t`.

    The finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4;
    probabilities below about 1e-15 are 0.
    """
    angle = atan(t / sqrt(degrees))
    term = total = cos(angle) if degrees % 2 else 1.0
    for number in range(2 + degrees % 2, degrees, 2):
        term *= (number - 1) / number * cos(angle) ** 2
        total += term
    inside = total * sin(angle)
    if degrees % 2:
        inside = 2 / pi * (angle + (inside if degrees > 1 else 0.0))
    return min(1.0, max(0.0, (1 - inside) / 2))


MANY = 200
"""Degrees of freedom from which the first terms of an expansion are exact to 0.1 %."""


@cache
def student_quantile(z: float, degrees: int) -> float:
    """What Student's t exceeds as often as a standard normal variable exceeds `z` > 0, exact to
    0.1 %. From MANY degrees on by Abramowitz and Stegun, 26.7.5."""
    if degrees > MANY:
        return z + (z**3 + z) / (4 * degrees)
    tail, low, high = NormalDist().cdf(-z), z, 2 * z
    while student_tail(high, degrees) > tail:
        low, high = high, 2 * high
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, degrees) > tail else (low, middle)
    return (low + high) / 2

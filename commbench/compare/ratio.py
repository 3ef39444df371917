"""The ratio of two median times with its 95 % interval, and the verdict with its reason.

    d = b - a        low  = d - sqrt((b - low_b)^2 + (high_a - a)^2)
                     high = d + sqrt((high_b - b)^2 + (a - low_a)^2)

with a and b the logarithms of the medians, and low and high the logarithms of the ends of their
95 % intervals: the method of variance estimates recovery (MOVER; Zou and Donner, Statistics in
Medicine 27, 2008). It needs the two intervals only; they need be neither symmetric nor normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, hypot, inf, log, sqrt
from typing import Any, NamedTuple

from commbench.analysis.statistics import Z
from commbench.results.schema import OK, WRONG
from commbench.spec.backends import usual_launch_spread
from commbench.spec.computations import COMMUNICATION

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
NOT_COMPARED = "not compared"
VERDICTS = (FASTER, SLOWER, SAME, UNDECIDED, NOT_COMPARED)
TOLERANCE = 0.05
"""Ratios from 1/(1 + tolerance) to 1 + tolerance count as the same."""
SIGNIFICANCE = 0.05
OVERLAP = "the interval reaches over the tolerance"
NO_INTERVAL = "decided by the two times alone, because no interval is known"
_LARGEST_EXPONENT = 709.0
"""exp() of more than about 709.78 is no float."""


class MedianCI(NamedTuple):
    """A quantile of times, or a ratio of two, with the ends of its 95 % interval; None: unknown."""

    median: float | None
    low: float | None
    high: float | None


def row_times(row: Any) -> MedianCI:
    """The median time of a row of results, in microseconds."""
    return MedianCI(row.time_us, row.time_ci_low_us, row.time_ci_high_us)


def undisturbed_times(row: Any) -> MedianCI:
    """The time of undisturbed calls of a row of results, in microseconds."""
    return MedianCI(row.time_p5_us, row.time_p5_ci_low_us, row.time_p5_ci_high_us)


def time_ratio(a: MedianCI, b: MedianCI) -> MedianCI:
    """The ratio of b over a; no ratio where a median is None or 0 or the ratio is no float, no
    interval where an end is None."""
    if not a.median or not b.median:
        return MedianCI(None, None, None)
    ratio = b.median / a.median
    if not 0 < ratio < inf:
        return MedianCI(None, None, None)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return MedianCI(ratio, None, None)
    difference = log(ratio)
    down = hypot(_log_ratio(b.median, b.low), log(a.high / a.median))
    up = hypot(log(b.high / b.median), _log_ratio(a.median, a.low))
    return MedianCI(ratio, _exp(difference - down), _exp(difference + up))


def of_launches(ratio: MedianCI, launches: Sequence[int | None], backend: str) -> MedianCI:
    """The ratio of times from so many launches each. The interval of a single launch does not know
    by how much launches differ: if one side is single, and the ratio is not farther from 1 than
    that of equal runs usually is (95 %), its interval covers that."""
    known = [number for number in launches if number]
    if 1 not in known or not ratio.median or ratio.low is None or ratio.high is None:
        return ratio
    usual = Z * usual_launch_spread(backend) * sqrt(sum(1 / number for number in known))
    if abs(log(ratio.median)) > usual:
        return ratio
    low, high = ratio.median * exp(-usual), ratio.median * exp(usual)
    return MedianCI(ratio.median, min(ratio.low, low), max(ratio.high, high))


def _log_ratio(value: float, low: float) -> float:
    return log(value / low) if low > 0 else inf


def _exp(value: float) -> float:
    return exp(value) if value < _LARGEST_EXPONENT else inf


def decide_verdict(ratio: MedianCI, tolerance: float) -> str:
    """The verdict on a ratio. It is `slower` or `faster` where the whole interval lies on one side
    of the tolerance, and `same` where the whole interval lies within. A ratio without an interval
    is decided by itself."""
    low = ratio.median if ratio.low is None or ratio.high is None else ratio.low
    high = ratio.median if ratio.low is None or ratio.high is None else ratio.high
    if low is None or high is None:
        return UNDECIDED
    upper, lower = 1 + tolerance, 1 / (1 + tolerance)
    if low > upper:
        return SLOWER
    if high < lower:
        return FASTER
    return SAME if low >= lower and high <= upper else UNDECIDED


def why_not_compared(a: Any, b: Any, ratio: MedianCI) -> str:
    """Why two rows of results are not compared; empty where they are."""
    for letter, row in (("A", a), ("B", b)):
        if row.status != OK:
            return f"{'wrong results' if row.status == WRONG else row.status} in {letter}"
        if not row.time_us:
            return f"nothing timed in {letter}"
    if work := other_work(a, b):
        return work
    return "" if ratio.median else "the ratio is out of range"


def other_work(a: Any, b: Any) -> str:
    """What two rows of results compute, where they do not compute the same; otherwise empty."""
    if a.part == COMMUNICATION or a.work == b.work:
        return ""
    return f"{a.work or 'nothing'} is computed in A, and {b.work or 'nothing'} in B"


def remark(a: Any, b: Any, ratio: MedianCI, verdict: str) -> str:
    """What the reader of a verdict on two rows of results should know: that no interval is known,
    and of which side; or why the verdict is `undecided`."""
    if ratio.low is not None:
        return OVERLAP if verdict == UNDECIDED else ""
    lacking = [
        letter
        for letter, row in (("A", a), ("B", b))
        if row.time_ci_low_us is None or row.time_ci_high_us is None
    ]
    return f"{NO_INTERVAL} of {' and '.join(lacking)}"

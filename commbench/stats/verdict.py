"""What the interval of an estimate allows to say: about a ratio of two times, and about a limit."""

from __future__ import annotations

from commbench.stats.estimate import Estimate

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
NOT_COMPARED = "not compared"
VERDICTS = (FASTER, SLOWER, SAME, UNDECIDED, NOT_COMPARED)
"""About the ratio of two times."""
CHANGED = (SLOWER, FASTER)
PASS, FAIL, NOT_MEASURED = "pass", "fail", "not measured"
OUTCOMES = (FAIL, UNDECIDED, NOT_MEASURED, PASS)
"""About a limit, in the order in which rows are shown."""
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

"""The ratio of the times of two rows, its verdict, and the reason of that."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import Any

from commbench.analysis.statistics import Z
from commbench.results.schema import OK, WRONG
from commbench.spec.backends import usual_launch_spread
from commbench.spec.computations import COMMUNICATION
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import UNDECIDED

SIGNIFICANCE = 0.05
OVERLAP = "the interval reaches over the tolerance"
NO_INTERVAL = "decided by the two times alone, because no interval is known"


def of_launches(
    ratio: Estimate | None, launches: Sequence[int | None], backend: str
) -> Estimate | None:
    """The ratio of times from so many launches each. The interval of a single launch does not know
    by how much launches differ: if one side is single, and the ratio is not farther from 1 than
    that of equal runs usually is (95 %), its interval covers that."""
    numbers = [number for number in launches if number]
    if 1 not in numbers or ratio is None or not ratio.has_interval:
        return ratio
    usual = Z * usual_launch_spread(backend) * sqrt(sum(1 / number for number in numbers))
    if abs(log(ratio.value)) > usual:
        return ratio
    low, high = ratio.value * exp(-usual), ratio.value * exp(usual)
    return Estimate(ratio.value, min(ratio.ends[0], low), max(ratio.ends[1], high))


def why_not_compared(a: Any, b: Any, ratio: Estimate | None) -> str:
    """Why two rows of results are not compared; empty where they are."""
    for letter, row in (("A", a), ("B", b)):
        if row.status != OK:
            return f"{'wrong results' if row.status == WRONG else row.status} in {letter}"
        if not row.time_s:
            return f"nothing timed in {letter}"
    if work := other_work(a, b):
        return work
    return "" if ratio else "the ratio is out of range"


def other_work(a: Any, b: Any) -> str:
    """What two rows of results compute, where they do not compute the same; otherwise empty."""
    if a.part == COMMUNICATION or a.work == b.work:
        return ""
    return f"{a.work or 'nothing'} is computed in A, and {b.work or 'nothing'} in B"


def remark(a: Any, b: Any, ratio: Estimate | None, verdict: str) -> str:
    """What the reader of a verdict on two rows of results should know: that no interval is known,
    and of which side; or why the verdict is `undecided`."""
    if ratio and ratio.has_interval:
        return OVERLAP if verdict == UNDECIDED else ""
    lacking = [
        letter for letter, row in (("A", a), ("B", b)) if not (row.time and row.time.has_interval)
    ]
    return f"{NO_INTERVAL} of {' and '.join(lacking)}"

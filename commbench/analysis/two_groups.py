"""Whether durations form two groups, as of calls that take one way or another."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import exp, log, sqrt
from operator import mul
from typing import NamedTuple

from commbench.analysis.statistics import percentile

STALL_FACTOR = 1.5
"""A call that takes so many times as long as usual may have been stalled by the host."""
FEWEST_FOR_SHAPE, MOST_FOR_SHAPE = 20, 20_000
"""With fewer samples the shape of their distribution is unknown; more do not show it better."""
SMALLEST_MODE = 0.15
"""Share of the samples that a group must have to count as a mode."""
DISTINCT = log(1.15)
"""Two modes that differ by less than 15 % count as one."""
BIMODAL = 4.0
"""Two groups are told from one that scatters by a separation above this."""


class TwoGroups(NamedTuple):
    """Durations that form two groups."""

    separation: float
    """Ashman's D: the distance of the groups' means over their standard deviation."""
    low_s: float
    """The mean of the group, of logarithms."""
    high_s: float


def find_two_groups(ordered: Sequence[float]) -> TwoGroups | None:
    """The best split of sorted durations into two groups, on a log scale; None if it may be chance.

    Two groups show above 2. One normal distribution cut in two has 2.7, a uniform one 3.5, and
    small samples more: 98 % of uniform samples stay below 3.25 + 14 / sqrt(n), by simulation. There
    are fewer samples between two groups than around each. A peak with a long tail has no such gap.
    A few calls that the host stalled would hide two groups. So samples above STALL_FACTOR times the
    85th percentile are left out: they are too few for a group.
    """
    ordered = ordered[bisect_right(ordered, 0.0) :]
    ordered = ordered[:: 1 + len(ordered) // MOST_FOR_SHAPE]  # enough of them, evenly chosen
    if len(ordered) < FEWEST_FOR_SHAPE:
        return None
    longest_s = STALL_FACTOR * percentile(ordered, 1 - SMALLEST_MODE)
    logs = [*map(log, ordered[: bisect_right(ordered, longest_s)])]
    number, least = len(logs), max(2, int(SMALLEST_MODE * len(logs)))
    if number < FEWEST_FOR_SHAPE:
        return None
    mean = sum(logs) / number
    deviations = [value - mean for value in logs]
    sums = list(accumulate(deviations, initial=0.0))
    # The variance between the two groups of each split, up to a factor.
    cuts = enumerate(sums[least : number - least + 1], least)
    between = [total * total / (cut * (number - cut)) for cut, total in cuts]
    cut = least + between.index(max(between))
    left, right = sums[cut] / cut, -sums[cut] / (number - cut)
    if right - left <= DISTINCT:
        return None
    squares = sum(map(mul, deviations, deviations))
    within = squares - cut * left**2 - (number - cut) * right**2
    separation = (right - left) / sqrt(max(within / number, 1e-12))
    places, part = (left, (left + right) / 2, right), (right - left) / 6
    ends = ((mean + place - part, mean + place + part) for place in places)
    low, middle, high = (bisect_right(logs, b) - bisect_left(logs, a) for a, b in ends)
    if separation <= 3.25 + 14 / sqrt(number) or middle >= 0.75 * min(low, high):
        return None
    return TwoGroups(separation, exp(mean + left), exp(mean + right))

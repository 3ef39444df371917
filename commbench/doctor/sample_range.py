"""The median and the range of a few values, and whether two sets of values differ."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from commbench.analysis.statistics import median

BY_CHANCE = 0.1
"""Largest probability of two disjoint ranges by chance with which they count as different."""


class SampleRange(NamedTuple):
    """Median, least and largest of several values, and their number."""

    median: float
    low: float
    high: float
    number: int


def make_range(values: Sequence[float]) -> SampleRange:
    """The range of at least one value."""
    ordered = sorted(values)
    return SampleRange(median(ordered), ordered[0], ordered[-1], len(ordered))


def is_disjoint(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether two ranges do not overlap, and hold enough values that chance does not explain it.

    For n and m values of one distribution this has probability 2 / C(n+m, n), the smallest p-value
    of the exact rank-sum test: 10 % for 3 and 3, 2.9 % for 4 and 4.
    """
    if not some or not others or 2 / comb(len(some) + len(others), len(some)) > BY_CHANCE:
        return False
    return max(some) < min(others) or min(some) > max(others)

"""The rank test of Mann and Whitney (also called Wilcoxon's)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import erfc, sqrt

EXACT_UP_TO = 20
"""Up to this number of values in both groups together, the exact distribution is used."""


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value of the rank test of Mann and Whitney; 1 where a group is empty.

    Exact given the ties for few values, by counting all ways to choose the first group's ranks;
    otherwise normal, with tie and continuity correction. Mann and Whitney, Ann. Math. Stat. 18
    (1947); ties as in Hollander and Wolfe, Nonparametric Statistical Methods, 4.1.
    """
    if not first or not second:
        return 1.0
    ordered = sorted((*first, *second))
    ranks = _doubled_ranks(ordered)
    rank_sum = sum(ranks[value] for value in first)
    if len(ordered) <= EXACT_UP_TO:
        return _exact(tuple(ranks[value] for value in ordered), len(first), rank_sum)
    return _normal(Counter(ordered), len(first), len(second), rank_sum / 2)


def _doubled_ranks(ordered: Sequence[float]) -> dict[float, int]:
    """Twice the rank of each value, from 1; tied values share the mean of their ranks."""
    firsts: dict[float, int] = {}
    lasts: dict[float, int] = {}
    for rank, value in enumerate(ordered, start=1):
        firsts.setdefault(value, rank)
        lasts[value] = rank
    return {value: firsts[value] + lasts[value] for value in lasts}


def _exact(ranks: tuple[int, ...], number: int, rank_sum: int) -> float:
    ways = _ways(ranks, number)
    total = sum(ways.values())
    below = sum(count for found, count in ways.items() if found <= rank_sum)
    above = sum(count for found, count in ways.items() if found >= rank_sum)
    return min(1.0, 2 * min(below, above) / total)


@lru_cache(maxsize=256)
def _ways(ranks: tuple[int, ...], number: int) -> Counter[int]:
    """In how many ways `number` of the ranks give each sum."""
    by_size: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in range(number))]
    for rank in ranks:
        for size in range(number, 0, -1):
            for found, count in by_size[size - 1].items():
                by_size[size][found + rank] += count
    return by_size[number]


def _normal(ties: Counter[float], first: int, second: int, rank_sum: float) -> float:
    number = first + second
    tied = sum(count**3 - count for count in ties.values())
    variance = first * second / 12 * (number + 1 - tied / (number * (number - 1)))
    if variance <= 0:
        return 1.0
    distance = abs(rank_sum - first * (number + 1) / 2) - 0.5
    return min(1.0, erfc(max(distance, 0.0) / sqrt(2 * variance)))

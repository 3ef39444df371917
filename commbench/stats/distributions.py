"""Student's t: its tail and its quantiles; and the rank test of Mann and Whitney (also called
Wilcoxon's)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from math import atan, cos, erfc, pi, sin, sqrt
from statistics import NormalDist


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

"""The rank test of each pair of rows, over launches or batches: single samples are not independent.

A launch is an experimental factor of its own (Hunold and Carpen-Amarie, TPDS 2016). So launches are
ranked where there are enough; otherwise batches to the case, other cases having come in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import erfc, sqrt
from typing import TYPE_CHECKING, Any

from commbench.analysis.load import LoadedRun
from commbench.analysis.row_matching import RowMatch
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import median

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

FEWEST = 4
"""With three values against three, no rank test can reach 5 %."""


def rank_tests(a: LoadedRun, b: LoadedRun, matched: RowMatch) -> tuple[Numbers, list[str]]:
    """The p-value of each pair of rows, and what was ranked; NaN and empty where a side has too
    few of either, or holds no samples."""
    import numpy as np

    p_values = np.full(len(matched.in_a), np.nan)
    units = [""] * len(p_values)
    if a.run is None or b.run is None:
        return p_values, units
    for index, (in_a, in_b) in enumerate(zip(matched.in_a, matched.in_b, strict=True)):
        sides = [
            ResultRow(run.header, run.measurements[place], None)
            for run, place in ((a.run, in_a), (b.run, in_b))
        ]
        for name, medians in UNITS.items():
            first, second = map(medians, sides)
            if min(len(first), len(second)) >= FEWEST:
                p_values[index], units[index] = mann_whitney(first, second), name
                break
    return p_values, units


def batch_medians(row: ResultRow) -> tuple[float, ...]:
    """The median of each batch of a case, in seconds."""
    batches = row.measurement.batches
    return tuple(median(sorted(batch.samples_s)) for batch in batches if batch.samples_s)


UNITS: dict[str, Callable[[ResultRow], tuple[float, ...]]] = {
    "launches": lambda row: row.launch_medians,
    "batches": batch_medians,
}
"""What may be ranked, best first."""


EXACT_UP_TO = 20
"""Values of both groups together up to which the exact distribution is used."""


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value; 1 where either group is empty.

    Exact given the ties for few values, by counting all ways to choose the first group's ranks;
    otherwise normal, with tie and continuity correction. Mann and Whitney, Ann. Math. Stat. 18
    (1947); ties as in Hollander and Wolfe, Nonparametric Statistical Methods, 4.1.
    """
    if not first or not second:
        return 1.0
    ordered = sorted((*first, *second))
    middles = _doubled_ranks(ordered)
    rank_sum = sum(middles[value] for value in first)
    if len(ordered) <= EXACT_UP_TO:
        return _exact(tuple(middles[value] for value in ordered), len(first), rank_sum)
    return _normal(Counter(ordered), len(first), len(second), rank_sum / 2)


def _doubled_ranks(ordered: Sequence[float]) -> dict[float, int]:
    """Twice the rank of each value, from 1; tied ones share the mean of theirs."""
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
    """In how many ways so many of the ranks have each sum."""
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

"""Crossovers: the size at which one of two ways becomes the faster one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.stats.estimate import Estimate
from commbench.stats.verdict import FASTER, SLOWER, decide

if TYPE_CHECKING:
    from numpy import ndarray


class Crossing(NamedTuple):
    """Where a ratio of times crosses 1."""

    at: float
    """The size: the logarithm of the ratio is taken as linear in that of the size."""
    low: float
    high: float
    """Its 95 % interval, within `below` and `above`."""
    below: int
    """The largest measured size before it at which the ratio is known to be on one side of 1."""
    above: int
    """The smallest measured size after it at which the ratio is known to be on the other side."""
    rises: bool
    """Whether the ratio is below 1 before it and above 1 after it."""

    def in_units(self, unit: str) -> dict[str, Any]:
        """Its fields, whose names have the unit of the size."""
        return {
            f"at_{unit}": Estimate(self.at, self.low, self.high),
            f"measured_below_{unit}": self.below,
            f"measured_above_{unit}": self.above,
        }


def find_crossing(
    sizes: Sequence[int], ratios: Sequence[Estimate], tolerance: float,
    replicates: Sequence[ndarray],
) -> Crossing | None:  # fmt: skip
    """The only crossing of ratios over ascending sizes; None where there is none or where the sides
    change several times. `replicates` has drawn values of each ratio."""
    decided = [
        (index, verdict)
        for index, ratio in enumerate(ratios)
        if (verdict := decide(ratio, tolerance)) in (FASTER, SLOWER)
    ]
    turns = [(a, b) for a, b in pairwise(decided) if a[1] != b[1]]
    if len(turns) != 1:
        return None
    ((first, verdict), (last, _)) = turns[0]
    chosen = sizes[first : last + 1]
    rises = verdict == FASTER
    drawn = [
        _crossing(chosen, [float(each[r]) for each in replicates[first : last + 1]], rises)
        for r in range(len(replicates[first]))
    ]
    ordered = sorted(drawn)
    low, high = ordered[int(0.025 * len(drawn))], ordered[int(0.975 * (len(drawn) - 1)) + 1]
    at = drawn[0]
    return Crossing(at, min(at, low), max(at, high), chosen[0], chosen[-1], rises)


def _crossing(sizes: Sequence[int], ratios: Sequence[float], rises: bool) -> float:
    """Where the ratio first comes to the other side of 1: the first size where all are there, the
    last one where none is."""
    logs = [log(ratio) if rises else -log(ratio) for ratio in ratios]
    if logs[0] >= 0:
        return float(sizes[0])
    for (a, x), (b, y) in pairwise(zip(sizes, logs, strict=True)):
        if y >= 0:
            return exp(log(a) + log(b / a) * x / (x - y))
    return float(sizes[-1])

"""A figure for each pair of ranks: bandwidth or latency from one rank (row) to another (column).

The values are sparse: a quick search measures few of the n (n - 1) ordered pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from commbench.units import GB


class Quantity(NamedTuple):
    """What is measured between two ranks."""

    name: str
    unit: str
    """The unit in which people read it: `GB/s`."""
    scale: float
    """Of the unit of the values (bytes/s or seconds) one unit has so many."""
    is_better_high: bool
    has_direction: bool
    """Whether i to j and j to i are two measurements. The latency of a ping-pong is one for both:
    the matrix has it twice."""


BANDWIDTH = Quantity("bandwidth", "GB/s", GB, is_better_high=True, has_direction=True)
LATENCY = Quantity("latency", "us", 1e-6, is_better_high=False, has_direction=False)
QUANTITIES = (BANDWIDTH, LATENCY)


class RankMatrix(NamedTuple):
    """A figure for ordered pairs of ranks."""

    quantity: Quantity
    values: Mapping[tuple[int, int], float]
    """By (from, to), in bytes/s or seconds, above 0. A pair that was not measured is missing."""
    hosts: tuple[str, ...]
    """The host of each rank."""
    interfaces: tuple[str, ...] = ()
    """The network interface (or HCA) of each rank; empty where it is not known."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    def value(self, sender: int, receiver: int) -> float | None:
        """The figure from one rank to another; None where it was not measured."""
        return self.values.get((sender, receiver))

"""A few figures that describe how bandwidth grows with size: latency, peak, half-bandwidth size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

from commbench.analysis.rows import ResultRow


class CurveSummary(NamedTuple):
    """The figures of rows that differ only in size; None where nothing was measured."""

    smallest: ResultRow | None
    """The row of the smallest size: its time is the latency."""
    peak: ResultRow | None
    """The row of the highest bus bandwidth; None for an operation without bandwidth."""
    half_bytes: float | None
    """The half-bandwidth size; None where fewer than two sizes have a bandwidth."""
    is_below: bool = False
    """Whether all smaller sizes reach half of the peak too, so that `half_bytes` is the smallest
    measured size, and the half-bandwidth size lies below it."""


def summarise_curve(rows: Sequence[ResultRow]) -> CurveSummary:
    """The summary of rows of one kind, in any order. Rows that were not timed are left out.

    The half-bandwidth size, n-half, is the size from which on the bus bandwidth is at least half of
    its peak. Hockney defines it by the asymptotic bandwidth of a fitted line (Parallel Computing
    20, 1994, p. 389: "The communication challenge for MPP"); here the peak is the highest measured
    bandwidth. Between the two measured sizes on either side, the logarithm of the bandwidth is
    taken as linear in the logarithm of the size.
    """
    timed = sorted((row for row in rows if row.time), key=lambda row: _size(row))
    curve = [row for row in timed if row.busbw]
    if not curve:
        return CurveSummary(timed[0] if timed else None, None, None)
    peak = max(curve, key=lambda row: row.busbw or 0.0)
    rising = curve[: curve.index(peak) + 1]
    half = (peak.busbw or 0.0) / 2
    for below, above in reversed(list(pairwise(rising))):
        if (below.busbw or 0.0) < half:
            return CurveSummary(timed[0], peak, _crossing(below, above, half))
    known = len(curve) > 1
    return CurveSummary(timed[0], peak, float(_size(curve[0])) if known else None, known)


def _crossing(below: ResultRow, above: ResultRow, bandwidth: float) -> float:
    """The size between two rows at which the bus bandwidth is `bandwidth`."""
    low, high = below.busbw or 0.0, above.busbw or 0.0
    part = log(bandwidth / low) / log(high / low)
    return float(_size(below) * (_size(above) / _size(below)) ** part)


def _size(row: ResultRow) -> int:
    return row.measurement.case.size_bytes

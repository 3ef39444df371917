"""A bandwidth held against the speed of a link: what share of it, and by which bound.

Whatever algorithm runs, factor x S bytes have to pass the link of some rank, one way, and
factor(k) x S bytes the network of some node, for k nodes; only all ranks' blocks for one another
(all_to_all) cannot be merged within a node, and each of its ranks adds its own. Where the network
itself reduces (NVLS, SHARP) a rank moves S instead, which is less if the factor exceeds 1.
Bounds: Chan et al. 2007; factors: nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.spec.links import Peak
from commbench.spec.operations import OPERATIONS, Operation

BUS_BOUND = "bus bandwidth"
NODE_BOUND = "node bandwidth"


class PeakFraction(NamedTuple):
    """How much of a peak was needed."""

    bound: str
    """What was held against the peak: BUS_BOUND or NODE_BOUND."""
    factor: float
    """Bytes that had to pass the link, over S."""
    rate: float
    """That many bytes over the time, in bytes/s: what the link had to carry at least."""
    fraction: float
    """`rate` over the peak; 1 is all of it."""
    ceiling: float
    """The largest fraction that can be: above 1 where a network that reduces moves less."""


def share_of_peak(row: ResultRow, peak: Peak) -> PeakFraction | None:
    """The share of the peak that a row needed; None where `why_no_share` says why."""
    if row.algbw is None or why_no_share(row, peak):
        return None
    case = row.measurement.case
    operation = OPERATIONS[case.operation]
    return share(operation, case.ranks, row.header.num_nodes, row.algbw, peak)


def share(
    operation: Operation, ranks: int, nodes: int, algbw: float, peak: Peak
) -> PeakFraction | None:
    """The share of the peak that `algbw` (bytes/s) needs; None without bandwidth.

    A peak of a node is held against what nodes exchange, any other against the bus bandwidth.
    """
    if operation.busbw_factor is None:
        return None
    factor = operation.busbw_factor(nodes if peak.of_node else ranks)
    ceiling = max(factor, 1.0) if operation.reduces else 1.0
    if peak.of_node and operation.is_personalized:
        factor *= ranks / nodes
    rate = factor * algbw
    bound = NODE_BOUND if peak.of_node else BUS_BOUND
    return PeakFraction(bound, factor, rate, rate / peak.bytes_per_second, ceiling)


def why_no_share(row: ResultRow, peak: Peak) -> str:
    """Why a row cannot be held against the peak; empty if it can."""
    if row.busbw is None:
        return "it has no bandwidth"
    if row.measurement.case.ranks == 1:
        return "with one rank nothing crosses a link"
    if row.header.gpu_shared:
        return "ranks shared a GPU, which is no measure of performance"
    if peak.of_node and row.header.num_nodes == 1:
        return "all ranks are on one node, so nothing crosses the network between nodes"
    return ""

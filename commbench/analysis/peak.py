"""A measured bandwidth as a fraction of the link's speed, and the bound on which that is based.

With any algorithm, factor(n) x S bytes pass the link of some rank of n in one direction, and
factor(k) x S bytes the network of some node of k. In all_to_all each rank of a node adds blocks of
its own, which cannot be merged within the node. Where the network itself reduces (NVLS, SHARP), a
rank moves S instead, which is less if the factor exceeds 1.
Bounds: Chan et al. 2007; factors: nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.spec.operations import OPERATIONS, Operation

if TYPE_CHECKING:
    from commbench.spec.links import Peak

BUS_BOUND = "bus bandwidth"
NODE_BOUND = "node bandwidth"


class PeakFraction(NamedTuple):
    """The fraction of a peak that a measured bandwidth needs."""

    bound: str
    """What is compared with the peak: BUS_BOUND or NODE_BOUND."""
    factor: float
    """The bytes that must pass the link, over S."""
    rate_bytes_per_s: float
    """Those bytes over the time: the least that the link carried."""
    fraction: float
    """The rate over the peak; 1 is all of it."""
    ceiling: float
    """The largest possible fraction: above 1 where a network that reduces could move less."""


def find_peak_fraction(row: ResultRow, peak: Peak) -> PeakFraction | None:
    """The fraction of the peak that a row needed; None if `why_no_peak_fraction` says why."""
    if row.algbw is None or why_no_peak_fraction(row, peak):
        return None
    case = row.measurement.case
    operation = OPERATIONS[case.operation]
    if operation.block_counts:
        factor = case.busbw_factor or 0.0
        rate = factor * row.algbw
        return PeakFraction(BUS_BOUND, factor, rate, rate / peak.bytes_per_second, 1.0)
    return peak_fraction(operation, case.ranks, row.header.num_nodes, row.algbw, peak)


def peak_fraction(
    operation: Operation, ranks: int, nodes: int, algbw: float, peak: Peak
) -> PeakFraction | None:
    """The fraction of the peak that `algbw` (bytes/s) needs; None for one without bandwidth.

    The peak of a node is compared with what nodes exchange, any other with the bus bandwidth.
    """
    if operation.busbw_factor is None:
        return None
    factor = operation.busbw_factor(nodes if peak.is_per_node else ranks)
    ceiling = max(factor, 1.0) if operation.reduces else 1.0
    if peak.is_per_node and operation.is_personalized:
        factor *= ranks / nodes
    rate = factor * algbw
    bound = NODE_BOUND if peak.is_per_node else BUS_BOUND
    return PeakFraction(bound, factor, rate, rate / peak.bytes_per_second, ceiling)


def why_no_peak_fraction(row: ResultRow, peak: Peak) -> str:
    """Why a row cannot be compared with the peak; empty if it can."""
    if row.busbw is None:
        return "it has no bandwidth"
    if row.measurement.case.ranks == 1:
        return "with one rank nothing crosses a link"
    if row.header.gpu_shared:
        return "ranks shared a GPU, so its time does not measure performance"
    if peak.is_per_node and row.header.num_nodes == 1:
        return "all ranks are on one node, so nothing crosses the network between nodes"
    operation = OPERATIONS[row.measurement.case.operation]
    if peak.is_per_node and operation.is_paired:
        return "it is not known which pairs are on two nodes"
    if peak.is_per_node and operation.block_counts:
        return "unequal blocks have no bound per node"
    return ""

"""Sentences about slow parts: what is slow, by how much, on what it rests, and what to check."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY, Quantity, RankMatrix
from commbench.analysis.slow_parts import (
    ACROSS,
    ALL,
    BOTH,
    HOST,
    IN,
    INTERFACE,
    LINK,
    OUT,
    RANK,
    WITHIN,
    Diagnosis,
    Finding,
)

_BAD = {BANDWIDTH.name: "low", LATENCY.name: "high"}
_PORT = "its cable, and its port of the switch"
NEXT = {
    (HOST, BOTH): f"the speed and the errors of its network interface (ethtool, ibstat), {_PORT}",
    (HOST, OUT): f"errors, pauses and traffic shaping of what it sends (ethtool -S, tc), {_PORT}",
    (HOST, IN): f"errors and drops of what it receives (ethtool -S), {_PORT}",
    (HOST, WITHIN): "the links between its GPUs (nvidia-smi topo -m), and other programs on it",
    (HOST, ALL): "other programs on it, and its power and clocks (commbench doctor)",
    (INTERFACE, ""): f"its speed and its errors (ethtool, ibstat), {_PORT}",
    (RANK, ""): "the clocks and the PCIe link of its GPU, and other programs on its cores",
    (LINK, ""): "the way between the two: cables between switches, and routing. Their other ways "
    "are not slow",
    (LINK, WITHIN): "the link between the two GPUs (nvidia-smi topo -m, nvidia-smi nvlink -s)",
}
"""What to check next, by kind of part and its scope or direction; the general one is ''."""


def describe_unknown(matrix: RankMatrix, diagnosis: Diagnosis) -> Iterator[str]:
    """Sentences: that no part is slow, as far as that is known, and what the matrix cannot tell."""
    ranks = sorted({rank for pair in matrix.values for rank in pair})
    hosts = {matrix.hosts[rank] for rank in ranks}
    if not diagnosis.findings and diagnosis.link_limit is not None:
        name = matrix.quantity.name
        yield (
            f"No rank, host or link has a {_BAD[name]} {name}. A single link is named only if its "
            f"speed is below {diagnosis.link_limit:.2f} of that of its peers"
            + (": the values scatter too much for more." if diagnosis.link_limit < 0.4 else ".")
        )
    if len(ranks) == 2:
        yield "Two ranks have one link. There is no other to compare it with."
    elif not diagnosis.findings and diagnosis.link_limit is None:
        yield "So few values do not show how much they scatter: nothing can be named."
    elif len(hosts) == 2 and not any(found.scope == ACROSS for found in diagnosis.findings):
        yield "There are two hosts: if one of them was slow to the other, this would not show."


def what_to_check(matrix: RankMatrix, finding: Finding) -> str:
    """What to look at next."""
    kind, scope = finding.kind, finding.scope
    if kind == LINK:
        ends = (matrix.hosts[finding.ranks[0]], matrix.hosts[finding.to_ranks[0]])
        scope = WITHIN if ends[0] == ends[1] else ACROSS
    for key in ((kind, scope), (kind, finding.direction), (kind, "")):
        if key in NEXT:
            return NEXT[key]
    return NEXT[HOST, BOTH]


def name_part(matrix: RankMatrix, finding: Finding) -> str:
    """A slow part in words: `host node3 when it sends`, `the link from rank 0 to rank 5`."""
    first = finding.ranks[0]
    way = {OUT: " when it sends", IN: " when it receives"}.get(finding.direction, "")
    scope = {WITHIN: " within its host", ACROSS: " to other hosts"}.get(finding.scope, "")
    if finding.kind == LINK:
        one_each = len(finding.ranks) == len(finding.to_ranks) == 1
        ends = [
            f"rank {name_rank(matrix, ranks[0])}" if one_each else f"host {matrix.hosts[ranks[0]]}"
            for ranks in (finding.ranks, finding.to_ranks)
        ]
        if finding.direction == BOTH:
            return f"the link between {ends[0]} and {ends[1]}"
        return f"the link from {ends[0]} to {ends[1]}, in this direction only"
    if finding.kind == RANK:
        return f"rank {name_rank(matrix, first)}{way}{scope if len(set(matrix.hosts)) > 1 else ''}"
    host = f"host {matrix.hosts[first]}{way}"
    if finding.kind == INTERFACE:
        return f"interface {matrix.interfaces[first]} of {host}"
    return f"host {matrix.hosts[first]} between its own ranks" if finding.scope == WITHIN else host


def name_rank(matrix: RankMatrix, rank: int) -> str:
    """The rank, with its host where there are several."""
    several = len(set(matrix.hosts)) > 1
    return f"{rank} ({matrix.hosts[rank]})" if several else str(rank)


def format_value(quantity: Quantity, value: float | None) -> str:
    """The value in the unit of the quantity, with three digits; empty for None."""
    if value is None:
        return ""
    text = f"{value / quantity.scale:#.3g}"
    return f"{float(text):.0f}" if "e+" in text else text.rstrip(".")

"""Finds the slow rank, host, interface or link of a matrix of pairs, or none."""

from __future__ import annotations

from typing import NamedTuple

from commbench.analysis.rank_matrix import Quantity, RankMatrix

HOST, INTERFACE, RANK, LINK = "host", "interface", "rank", "link"
"""Kinds of parts. A link is the way between two ranks or two hosts."""
BOTH, OUT, IN = "both", "out", "in"
"""Directions: out is sending. For a link, out is from its first rank (or host) to its second."""
Pair = tuple[int, int]


class Finding(NamedTuple):
    """A part that is slower than its peers, in both directions or in one."""

    kind: str
    direction: str
    ranks: tuple[int, ...]
    """The rank; the ranks of the host or of the interface; or the two ranks of a link, the sender
    first (of a link between two hosts with several ranks: those of the first host)."""
    to_ranks: tuple[int, ...]
    """Of a link the ranks at its other end; otherwise empty."""
    name: str
    """The part in words: `host node3`, `eth1 of host node3`, `rank 5`, `link rank 0 - rank 5`."""
    quantity: Quantity
    value: float
    """The median of the pairs that use it, in bytes/s or seconds."""
    peers: float
    """What the other pairs of the same kind reach, in bytes/s or seconds: their median."""
    ratio: float
    """How much slower: below 1 for both quantities; 0.5 is half the bandwidth or twice the
    latency."""
    pairs: int
    """The number of measured values on which it rests."""
    peer_pairs: int
    """The number of measured values of its peers."""


class Diagnosis(NamedTuple):
    """What a matrix says about slow parts."""

    findings: tuple[Finding, ...]
    """The one that explains most comes first; empty where no part is slower than noise can be."""
    threshold: float
    """A single link is named where its ratio is below this (within or across hosts: the lower)."""
    unknown: tuple[str, ...]
    """What the matrix cannot tell, in sentences: of two ranks, for example."""


class Suspects(NamedTuple):
    """What a second stage measures after a quick one."""

    ranks: tuple[int, ...]
    rounds: tuple[tuple[Pair, ...], ...]
    """Pairs that are measured at once: no rank is twice in one round. Each pair in both
    directions."""


def find_slow(matrix: RankMatrix) -> Diagnosis:
    """The slow parts of a matrix of all pairs, or of a part of them."""
    raise NotImplementedError


def find_suspects(matrix: RankMatrix) -> Suspects:
    """What to measure after a quick stage: suspects with each other and with sound peers, and
    suspected links once more. Empty where nothing is suspected."""
    raise NotImplementedError

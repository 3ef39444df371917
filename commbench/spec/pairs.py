"""Which ranks talk to each other in an operation between pairs, and with which kind of call."""

from __future__ import annotations

import re
from typing import NamedTuple

from commbench.errors import UsageError

SEND, ISEND, BATCH = "send", "isend", "batch"
P2P_CALLS = {
    SEND: "send and recv, which block",
    ISEND: "isend and irecv, then wait",
    BATCH: "batch_isend_irecv, then wait",
}
"""The kinds of call for point to point in torch.distributed."""
DEFAULT_P2P_CALL = "natural"
ALL_P2P_CALLS = "all"
P2P_CALL_CHOICES = (DEFAULT_P2P_CALL, *P2P_CALLS, ALL_P2P_CALLS)

HALVES, NEIGHBOURS = "halves", "neighbours"
DEFAULT_PAIRS = (HALVES,)
DEFAULT_WINDOW = 64
"""Of osu_bw and osu_mbw_mr."""
_PAIR = re.compile(r"(\d{1,7})-(\d{1,7})")


class Peer(NamedTuple):
    """The other rank of a pair, as one of its ranks sees it."""

    rank: int
    """The other rank, within the group."""
    is_first: bool
    """Whether this rank is the first of the pair: the one that sends first."""


def find_peer(pairs: str, rank: int, ranks: int) -> Peer | None:
    """The other rank of the pair of `rank`; None for a rank without one.

    `halves`: i with i + n/2, as in osu_mbw_mr; `neighbours`: 0 with 1, 2 with 3; `0-5`: these two
    ranks only. Of an odd number of ranks the last has no pair.
    """
    if rank >= ranks - ranks % 2 and not _PAIR.fullmatch(pairs):
        return None
    if pairs == NEIGHBOURS:
        return Peer(rank ^ 1, is_first=rank % 2 == 0)
    if pairs == HALVES:
        half = ranks // 2
        return Peer((rank + half) % (2 * half), is_first=rank < half)
    if found := _PAIR.fullmatch(pairs):
        first, second = map(int, found.groups())
        if max(first, second) >= ranks:  # of groups of different sizes a smaller one
            return None
        return {first: Peer(second, True), second: Peer(first, False)}.get(rank)
    return None


def count_pairs(pairs: str, ranks: int) -> int:
    """How many pairs there are."""
    return 1 if _PAIR.fullmatch(pairs) else ranks // 2 if pairs else 0


def why_no_pairs(pairs: str, ranks: int) -> str:
    """Why a group of so many ranks has no such pairs; empty where it has."""
    found = _PAIR.fullmatch(pairs)
    last = max(map(int, found.groups())) if found else 0
    return f"rank {last} of pair {pairs} is not one of {ranks} ranks" if last >= ranks else ""


def parse_pairs(text: str) -> str:
    """The normal form of a text that says which ranks are pairs; UsageError for any other."""
    known = text.strip().lower().replace("neighbors", NEIGHBOURS)
    if known in (HALVES, NEIGHBOURS):
        return known
    if found := _PAIR.fullmatch(known):
        first, second = map(int, found.groups())
        if first != second:
            return f"{first}-{second}"
        raise UsageError(f"pair {known} has one rank twice", "a pair needs two different ranks")
    raise UsageError(
        f"unknown pairs {text!r:.60}", f"known: {HALVES}, {NEIGHBOURS}, or two ranks such as 0-5"
    )


def pairs_title(pairs: str) -> str:
    """How pairs read in the title of a case; the default pairs are not named."""
    return "" if pairs in ("", *DEFAULT_PAIRS) else f"pair {pairs}" if "-" in pairs else pairs

"""Which ranks talk to each other in an operation between pairs, and with which kind of call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
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
EVERY_PAIR, QUICK = "all", "quick"
"""Every pair of ranks, in rounds in which no rank has two pairs; only those rounds that a quick
search for slow ranks and links chooses while it measures (worker.sampling)."""
BACK = ":back"
"""Added to pairs: the second rank of each is the first one, which sends first."""
DEFAULT_PAIRS = (HALVES,)
DEFAULT_WINDOW = 64
"""Of osu_bw and osu_mbw_mr."""
FEW_RANKS = 16
"""Up to so many ranks a quick search looks at every round, and so at every pair."""
_ROUND = re.compile(r"round:(\d{1,7})")
_PAIR_LIST = re.compile(r"\d{1,7}-\d{1,7}(\+\d{1,7}-\d{1,7})*")
_KNOWN = f"known: {HALVES}, {NEIGHBOURS}, {EVERY_PAIR}, {QUICK}, or like round:3, 0-5, 0-5+1-7"


class Peer(NamedTuple):
    """The other rank of a pair, as one of its ranks sees it."""

    rank: int
    """The other rank, within the group."""
    is_first: bool
    """Whether this rank is the first of the pair: the one that sends first."""


def find_peer(pairs: str, rank: int, ranks: int) -> Peer | None:
    """The other rank of the pair of `rank`; None for a rank without one."""
    return _peers(pairs, ranks).get(rank)


@lru_cache(maxsize=64)
def _peers(pairs: str, ranks: int) -> dict[int, Peer]:
    found = {}
    for first, second in list_pairs(pairs, ranks):
        found[first], found[second] = Peer(second, True), Peer(first, False)
    return found


def list_pairs(pairs: str, ranks: int) -> list[tuple[int, int]]:
    """The pairs of so many ranks, each with its first rank first.

    `halves`: i with i + n/2, as in osu_mbw_mr; `neighbours`: 0 with 1, 2 with 3; of an odd number
    of ranks the last has no pair. `round:3`: the pairs of a round of `count_rounds`. `0-5+1-7`:
    these pairs only. The lower rank is the first one, of the last form the one before the dash;
    with `:back` it is the other one.
    """
    if pairs.endswith(BACK):
        return [(b, a) for a, b in list_pairs(pairs.removesuffix(BACK), ranks)]
    if found := _ROUND.fullmatch(pairs):
        return _pairs_of_round(int(found[1]), ranks)
    if _PAIR_LIST.fullmatch(pairs):
        # Of groups of different sizes a smaller one may lack a rank.
        return [pair for pair in _listed(pairs) if max(pair) < ranks]
    half = ranks // 2
    of_name = {
        NEIGHBOURS: [(2 * i, 2 * i + 1) for i in range(half)],
        HALVES: [(i, i + half) for i in range(half)],
    }
    return of_name.get(pairs, [])


def _pairs_of_round(number: int, ranks: int) -> list[tuple[int, int]]:
    """The pairs of a round by the circle method, as in a tournament: in round K the ranks i and j
    are a pair if i + j = K modulo m, where m is n - 1, or n if n is odd. The rank with 2 i = K is
    left: it meets the last one, which is not on the circle; if n is odd, it has no pair."""
    circle = count_rounds(ranks)
    if number >= circle:
        return []
    found = [(rank, (number - rank) % circle) for rank in range(circle)]
    last = [(first, circle) for first, second in found if first == second and circle < ranks]
    return sorted([*last, *((first, second) for first, second in found if first < second)])


def _listed(pairs: str) -> list[tuple[int, int]]:
    """The pairs of a list, such as `0-5+1-7`."""
    found = (text.split("-") for text in pairs.split("+"))
    return [(int(first), int(second)) for first, second in found]


def count_rounds(ranks: int) -> int:
    """In how many rounds every pair of ranks meets once, where each rank has a pair in a round, or
    in one round none if their number is odd."""
    return max(0, ranks - 1 + ranks % 2)


def is_round(pairs: str) -> bool:
    """Whether the pairs are those of a round, in one direction or the other."""
    return bool(_ROUND.fullmatch(pairs.removesuffix(BACK)))


def is_list(pairs: str) -> bool:
    """Whether the pairs are listed, as in `0-5` and `0-5+1-7`."""
    return bool(_PAIR_LIST.fullmatch(pairs))


def expand_pairs(pairs: Sequence[str], ranks: int, *, is_one_way: bool) -> tuple[str, ...]:
    """The pairs with the rounds of so many ranks instead of `all` and `quick`: each in both
    directions for an operation that moves its data one way. A quick search of many ranks also has
    the halves."""
    found: dict[str, None] = {}
    rounds = [f"round:{number}" for number in range(count_rounds(ranks))]
    for text in pairs:
        names = [text]
        if text in (EVERY_PAIR, QUICK):
            more = [HALVES] * (text == QUICK and ranks > FEW_RANKS)
            ways = ("", BACK) if is_one_way else ("",)
            names = [name + way for name in (*rounds, *more) for way in ways]
        found |= dict.fromkeys(names)
    return tuple(found)


def count_pairs(pairs: str, ranks: int) -> int:
    """How many pairs there are."""
    if _PAIR_LIST.fullmatch(pairs):
        return pairs.count("-")
    return ranks // 2 if pairs else 0


def why_no_pairs(pairs: str, ranks: int) -> str:
    """Why a group of so many ranks has no such pairs; empty where it has."""
    named = pairs.removesuffix(BACK)
    if _PAIR_LIST.fullmatch(named):
        last = max(map(max, _listed(named)))
        what = "pairs" if "+" in named else "pair"
        return f"rank {last} of {what} {named} is not one of {ranks} ranks" if last >= ranks else ""
    found = _ROUND.fullmatch(named)
    if found and int(found[1]) >= count_rounds(ranks):
        return f"{ranks} ranks have the rounds 0 to {count_rounds(ranks) - 1}, but not {found[1]}"
    return ""


def parse_pairs(text: str) -> str:
    """The normal form of a text that says which ranks are pairs; UsageError for any other."""
    known = text.strip().lower().replace("neighbors", NEIGHBOURS)
    named = known.removesuffix(BACK)
    if known in (EVERY_PAIR, QUICK) or named in (HALVES, NEIGHBOURS):
        return known
    if found := _ROUND.fullmatch(named):
        return f"round:{int(found[1])}{known[len(named) :]}"
    if _PAIR_LIST.fullmatch(known):
        listed = _listed(known)
        seen: set[int] = set()
        for first, second in listed:
            if first == second:
                raise UsageError(
                    f"pair {first}-{second} has one rank twice", "a pair needs two different ranks"
                )
            if again := seen & {first, second}:
                raise UsageError(
                    f"rank {min(again)} is in two pairs of {known:.60}",
                    "pairs with + call at once, so each rank is in one; separate others by commas",
                )
            seen |= {first, second}
        return "+".join(f"{first}-{second}" for first, second in listed)
    raise UsageError(f"unknown pairs {text!r:.60}", _KNOWN)


def pairs_title(pairs: str) -> str:
    """How pairs read in the title of a case; the default pairs are not named."""
    if pairs in ("", *DEFAULT_PAIRS):
        return ""
    if pairs in (EVERY_PAIR, QUICK):
        return "all pairs" if pairs == EVERY_PAIR else "quick search"
    if "-" in pairs:
        return f"{'pairs' if '+' in pairs else 'pair'} {pairs}"
    return pairs.replace(":", " ")

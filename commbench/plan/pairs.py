"""Point to point: which ranks talk to each other, and the operations of sends and receives.

Each operation is a sequence of steps on every rank. The transfers of a step are under way together,
and the next step starts when they have ended. A step is made of blocking send and recv, of isend
and irecv, or of batch_isend_irecv (P2P_CALLS).

S is one message, in one direction. Half a round trip and the window of messages with one reply:
osu_latency and osu_mbw_mr of the OSU Micro-Benchmarks. Bus bandwidth counts one direction of a
link, as nccl-tests does for sendrecv; osu_bibw adds both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from commbench.errors import UsageError
from commbench.plan.operation import BlockOrigin, BlockPosition, Extent, Operation, Peer, Works
from commbench.validation import by_name

SEND, ISEND, BATCH = "send", "isend", "batch"
P2P_CALLS = (SEND, ISEND, BATCH)
"""The kinds of call for point to point in torch.distributed: send and recv, which block; isend and
irecv, then wait; batch_isend_irecv, then wait."""
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
                hint = "a pair needs two different ranks"
                raise UsageError(f"pair {first}-{second} has one rank twice", hint)
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


class Transfer(NamedTuple):
    """One message of this rank."""

    is_send: bool
    tensor: Any
    rank: int
    """The other rank, within the group."""


_Steps = Iterable[Sequence[Transfer]]


Begin = Callable[[], Sequence[Any]]
"""Begins a step, and returns what to wait for."""


def make_begin(dist: Any, p2p_call: str, transfers: Iterable[Transfer], b: Any) -> Begin:
    """What begins these transfers by a kind of call; that of SEND also ends them."""
    send, receive = (dist.send, dist.recv) if p2p_call == SEND else (dist.isend, dist.irecv)
    given = [
        (send if t.is_send else receive, t.tensor, b.global_ranks[t.rank], b.group)
        for t in transfers
    ]
    if p2p_call == BATCH:
        return partial(dist.batch_isend_irecv, [dist.P2POp(*each) for each in given])
    calls = [partial(call, *to) for call, *to in given]

    def begin() -> Sequence[Any]:
        works = [call() for call in calls]
        return () if p2p_call == SEND else works

    return begin


def _do(steps: Sequence[Begin]) -> None:
    for begin in steps:
        for work in begin():
            work.wait()


def _there_and_back(b: Any) -> _Steps:
    if b.peer is None:
        return ()
    send, receive = Transfer(True, b.send, b.peer.rank), Transfer(False, b.receive, b.peer.rank)
    return ([send], [receive]) if b.peer.is_first else ([receive], [send])


def _both_ways(b: Any) -> _Steps:
    # The first rank sends first: without a batch, NCCL runs the transfers of a pair in this order.
    return [[transfer for step in _there_and_back(b) for transfer in step]]


def _window_and_reply(b: Any) -> _Steps:
    if b.peer is None:
        return ()
    peer, reply = b.peer.rank, b.receive[:1] if b.peer.is_first else b.send[:1]
    messages = b.send if b.peer.is_first else b.receive
    return (
        [Transfer(b.peer.is_first, messages, peer)] * (b.case.window or 1),
        [Transfer(not b.peer.is_first, reply, peer)],
    )


def _from_stage_to_stage(b: Any) -> _Steps:
    receive = [Transfer(False, b.receive, b.rank - 1)] if b.rank else []
    onward = b.receive if b.rank else b.send
    send = [Transfer(True, onward, b.rank + 1)] if b.rank + 1 < b.ranks else []
    return receive, send


def _around_the_ring(b: Any) -> _Steps:
    following, previous = (b.rank + 1) % b.ranks, (b.rank - 1) % b.ranks
    onward = b.send
    for distance in range(1, b.ranks):
        arriving = b.receive_blocks[(b.rank - distance) % b.ranks]
        send, receive = Transfer(True, onward, following), Transfer(False, arriving, previous)
        # As in an exchange: of two neighbours one sends first.
        yield [receive, send] if b.rank % 2 else [send, receive]
        onward = arriving


def _of_peer(at: BlockPosition) -> BlockOrigin | None:
    return BlockOrigin(rank=at.peer.rank, block=0) if at.peer else None


def _entry(steps: Callable[[Any], _Steps], **facts: Any) -> Operation:
    def prepare(dist: Any, b: Any) -> partial[None]:
        made = (make_begin(dist, b.case.p2p_call, own, b) for own in steps(b) if own)
        return partial(_do, [*made])

    def call(dist: Any, b: Any, async_op: bool = False) -> Any:
        prepared = prepare(dist, b)
        if not async_op:
            return prepared()
        (own,) = prepared.args
        return Works(own[0]() if own else (), partial(_do, own[1:]))

    common: dict[str, Any] = {
        "busbw_formula": "1", "min_ranks": 2,
        "messages": "1", "p2p_calls": (BATCH, ISEND),
    }  # fmt: skip
    return Operation(call=call, prepare=prepare, **common | facts)


POINT_TO_POINT = by_name(
    _entry(
        _there_and_back, name="ping_pong", summary="pairs: a tensor there, another one back",
        torch_call="send, recv", expected=_of_peer, p2p_calls=(SEND, ISEND, BATCH), is_paired=True,
        is_latency=True, part="half a round trip", parts=lambda _: 2,
    ),
    _entry(
        _both_ways, name="exchange", summary="pairs: both ranks send and receive at once",
        torch_call="batch_isend_irecv", expected=_of_peer, is_paired=True,
        deadlock="both ranks of a pair wait in send until the other one calls recv",
    ),
    _entry(
        _window_and_reply, name="stream", summary="pairs: a window of messages, one reply",
        torch_call="isend, irecv", p2p_calls=(ISEND, SEND, BATCH),
        expected=lambda at: None if at.peer and at.peer.is_first else _of_peer(at),
        is_paired=True, is_one_way=True, has_window=True, messages="0",
        part="one message of the window", parts=lambda window: window,
    ),
    _entry(
        _from_stage_to_stage, name="pipeline", messages="n-1",
        summary="rank 0 sends to 1, which passes it on to 2", torch_call="send, recv",
        p2p_calls=(SEND, ISEND, BATCH),
        expected=lambda at: BlockOrigin(rank=0, block=0) if at.rank else None,
    ),
    _entry(
        _around_the_ring, name="ring_exchange", messages="n-1",
        summary="n-1 shifts around the ring, as in ring attention", torch_call="batch_isend_irecv",
        send=Extent.BLOCK, blocks=True, busbw_formula="(n-1)/n",
        expected=lambda at: (None if at.block == at.rank else BlockOrigin(rank=at.block, block=0)),
        deadlock="every rank waits in send until the next one calls recv",
    ),
)  # fmt: skip

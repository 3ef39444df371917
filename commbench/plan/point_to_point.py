"""Point to point: the operations that are made of sends and receives.

Each is a sequence of steps on every rank. The transfers of a step are under way together, and the
next step starts when they have ended. A step is made of blocking send and recv, of isend and irecv,
or of batch_isend_irecv (plan.pairs.P2P_CALLS).

S is one message, in one direction. Half a round trip and the window of messages with one reply:
osu_latency and osu_mbw_mr of the OSU Micro-Benchmarks. Bus bandwidth counts one direction of a
link, as nccl-tests does for sendrecv; osu_bibw adds both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from commbench.plan.operation import BlockOrigin, BlockPosition, Extent, Operation, Works
from commbench.plan.pairs import BATCH, ISEND, SEND
from commbench.validation import by_name


class _Transfer(NamedTuple):
    """One message of this rank."""

    is_send: bool
    tensor: Any
    rank: int
    """The other rank, within the group."""


_Steps = Sequence[Sequence[_Transfer]]


class _StepsOfRank:
    """What a rank does in a call: its steps, with everything made that does not change."""

    def __init__(self, steps: _Steps, dist: Any, buffers: Any) -> None:
        begin = _BEGIN[buffers.p2p_call]
        own = buffers.global_ranks, buffers.group
        self._begin = [begin(dist, transfers, *own) for transfers in steps if transfers]

    def __call__(self) -> None:
        for begin in self._begin:
            for work in begin():
                work.wait()

    def start(self) -> _StartedSteps:
        """Begin the first step; `wait()` does the rest."""
        first = self._begin[0]() if self._begin else ()
        return _StartedSteps(first, self._begin[1:])


class _StartedSteps(NamedTuple):
    """A call whose first step has begun."""

    works: Sequence[Any]
    later: Sequence[Callable[[], Sequence[Any]]]

    def wait(self) -> None:
        """Wait for the first step, and do the others."""
        Works(self.works).wait()
        for begin in self.later:
            Works(begin()).wait()


def _calls(send: Any, receive: Any, transfers: Any, *own: Any) -> list[Any]:
    """The calls of these functions, ready to be made; `own` has the group's ranks, and itself."""
    ranks, group = own
    return [
        partial(send if t.is_send else receive, t.tensor, ranks[t.rank], group) for t in transfers
    ]


def _start_all(calls: Sequence[Callable[[], Any]]) -> Sequence[Any]:
    return [call() for call in calls]


def _make_all(calls: Sequence[Callable[[], Any]]) -> Sequence[Any]:
    for call in calls:
        call()
    return ()


_BEGIN: dict[str, Callable[..., Callable[[], Sequence[Any]]]] = {
    SEND: lambda dist, *of: partial(_make_all, _calls(dist.send, dist.recv, *of)),
    ISEND: lambda dist, *of: partial(_start_all, _calls(dist.isend, dist.irecv, *of)),
    BATCH: lambda dist, *of: partial(
        dist.batch_isend_irecv,
        _start_all(_calls(*(partial(dist.P2POp, call) for call in (dist.isend, dist.irecv)), *of)),
    ),
}
"""By the kind of call: makes the function that begins a step and returns what to wait for."""


def _there_and_back(b: Any) -> _Steps:
    if b.peer is None:
        return ()
    send, receive = _Transfer(True, b.send, b.peer.rank), _Transfer(False, b.receive, b.peer.rank)
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
        [_Transfer(b.peer.is_first, messages, peer)] * b.window,
        [_Transfer(not b.peer.is_first, reply, peer)],
    )


def _from_stage_to_stage(b: Any) -> _Steps:
    receive = [_Transfer(False, b.receive, b.rank - 1)] if b.rank else []
    onward = b.receive if b.rank else b.send
    send = [_Transfer(True, onward, b.rank + 1)] if b.rank + 1 < b.ranks else []
    return receive, send


def _around_the_ring(b: Any) -> _Steps:
    following, previous = (b.rank + 1) % b.ranks, (b.rank - 1) % b.ranks
    steps, onward = [], b.send
    for distance in range(1, b.ranks):
        arriving = b.receive_blocks[(b.rank - distance) % b.ranks]
        send, receive = _Transfer(True, onward, following), _Transfer(False, arriving, previous)
        # As in an exchange: of two neighbours one sends first.
        steps.append([receive, send] if b.rank % 2 else [send, receive])
        onward = arriving
    return steps


def _of_peer(at: BlockPosition) -> BlockOrigin | None:
    return BlockOrigin(rank=at.peer.rank, block=0) if at.peer else None


def _of_sender(at: BlockPosition) -> BlockOrigin | None:
    return None if at.peer is None or at.peer.is_first else _of_peer(at)


def _entry(steps: Callable[[Any], _Steps], **facts: Any) -> Operation:
    def prepare(dist: Any, b: Any) -> _StepsOfRank:
        return _StepsOfRank(steps(b), dist, b)

    def call(dist: Any, b: Any, async_op: bool = False) -> Any:
        prepared = prepare(dist, b)
        return prepared.start() if async_op else prepared()

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
        torch_call="isend, irecv", expected=_of_sender, p2p_calls=(ISEND, SEND, BATCH),
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

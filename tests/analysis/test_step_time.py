"""The time of the calls of a traced step without computation."""

from __future__ import annotations

import pytest
from synthetic_workload import TWO_RANKS

from commbench.analysis.step_time import calls_only_s
from commbench.spec.workload import RECV, SEND, Call, Program, Step, Workload


def seconds_of(*programs: tuple[Call, ...]) -> float | None:
    everyone = tuple(range(len(programs)))
    step = Step("train", tuple(Program((rank,), calls) for rank, calls in enumerate(programs)))
    return calls_only_s(Workload("w", "", len(programs), {"world": (everyone,)}, (step,)), step)


def reduction(time_s: float, **facts: object) -> Call:
    return Call("all_reduce", "world", "float32", 8, time_s=time_s, **facts)  # type: ignore[arg-type]


def test_calls_of_one_stream_follow_one_another_and_those_of_two_do_not() -> None:
    first = reduction(2.0, asynchronous=True, waited_after=1)
    assert seconds_of(*[(first, reduction(3.0))] * 2) == 5.0
    assert seconds_of(*[(first, reduction(3.0, stream=1))] * 2) == 3.0


def test_waiting_for_a_rank_that_computes_does_not_count() -> None:
    late, early = reduction(1.0, transfer_s=1.0), reduction(9.0, transfer_s=1.0)
    assert seconds_of((late, early), (early, late)) == 2.0


def test_a_chain_of_messages_takes_as_long_as_all_its_links() -> None:
    send, receive = (Call(kind, "world", "int8", 8, time_s=1.0) for kind in (SEND, RECV))
    first, last = (send._replace(peer=1),), (receive._replace(peer=1, waited_after=0),)
    middle = (receive._replace(peer=0, waited_after=0), send._replace(peer=2))
    assert seconds_of(first, middle, last) == 2.0


def test_without_times_nothing_is_said() -> None:
    assert seconds_of(*[(Call("all_reduce", "world", "float32", 8),)] * 2) is None


def test_the_whole_of_a_step() -> None:
    # Two reductions of 1 ms in one stream; rank 1 waits for the first before its receive of 1 ms,
    # which begins with the second.
    assert calls_only_s(TWO_RANKS, TWO_RANKS.steps[0]) == pytest.approx(2e-3)

"""Ranks that make the calls of a workload in their order: which are one, and which never end."""

from __future__ import annotations

import pytest
from synthetic_workload import TWO_RANKS

from commbench.errors import UsageError
from commbench.spec.workload import RECV, SEND, Call, Program, Step, Workload
from commbench.spec.workload_order import match_calls, waits_after


def two_ranks(first: tuple[Call, ...], second: tuple[Call, ...]) -> Workload:
    programs = (Program((0,), first), Program((1,), second))
    return Workload("w", "", 2, {"world": ((0, 1),)}, (Step("train", programs),))


def matched(workload: Workload) -> list[list[tuple[int, int]]]:
    found = match_calls(workload, workload.steps[0])
    return [[(one.rank, one.number) for one in match] for match in found]


def test_collectives_match_by_their_order_in_the_group_and_messages_by_their_ranks() -> None:
    assert matched(TWO_RANKS) == [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2)]]


def test_collectives_of_different_groups_may_come_in_another_order_on_each_rank() -> None:
    a = Call("all_reduce", "world", "float32", 8, asynchronous=True, waited_after=1)
    b = Call("barrier", "other", size_bytes=0, asynchronous=True, waited_after=1)
    workload = two_ranks((a, b), (b, a))
    assert len(matched(workload._replace(groups=workload.groups | {"other": ((0, 1),)}))) == 2


def test_a_message_before_its_receive_needs_no_other_rank_to_wait() -> None:
    send, receive = (Call(kind, "world", "int8", 8, peer=1) for kind in (SEND, RECV))
    mirrored = (send._replace(peer=0), receive._replace(peer=0))
    assert len(matched(two_ranks((send, receive), mirrored))) == 2


@pytest.mark.parametrize("is_waited", [False, True])
def test_two_blocking_receives_wait_for_each_other_forever(is_waited: bool) -> None:
    receive = Call(RECV, "world", "int8", 8, peer=1, waited_after=0 if is_waited else None)
    send = Call(SEND, "world", "int8", 8, peer=1)
    mirrored = (receive._replace(peer=0), send._replace(peer=0))
    with pytest.raises(UsageError, match="never end: call 1 of rank 0, recv int8 of 8 bytes"):
        matched(two_ranks((receive, send), mirrored))


def test_a_collective_that_a_rank_does_not_make_never_ends() -> None:
    call = Call("all_reduce", "world", "float32", 8)
    with pytest.raises(
        UsageError, match="call 2 of rank 0, all_reduce float32 of 8 bytes over world"
    ):
        matched(two_ranks((call, call), (call,)))


@pytest.mark.parametrize(
    "other",
    [
        Call("all_gather", "world", "float32", 8),
        Call("all_reduce", "world", "float32", 16),
        Call("all_reduce", "world", "bfloat16", 8),
    ],
)
def test_ranks_that_make_different_calls_are_named(other: Call) -> None:
    call = Call("all_reduce", "world", "float32", 8)
    with pytest.raises(UsageError, match="ranks 0 and 1 do not make the same calls") as caught:
        matched(two_ranks((call,), (other,)))
    _, first, second = caught.value.message.split(" is ")
    assert first.partition(",")[0] != second


def test_a_send_without_a_receive_is_named_and_not_what_waits_for_it() -> None:
    send = Call(SEND, "world", "int8", 8, peer=1)
    barrier = Call("barrier", "world", size_bytes=0)
    with pytest.raises(UsageError, match="call 1 of rank 0, send int8 of 8 bytes"):
        matched(two_ranks((send, barrier), (barrier, barrier)))


def test_a_call_whose_wait_is_not_known_is_waited_for_at_once_or_at_the_end() -> None:
    calls = (
        Call("all_reduce", asynchronous=True),
        Call("all_reduce"),
        Call(SEND, peer=1),
        Call("all_reduce", asynchronous=True, waited_after=9),
        Call("all_reduce", waited_after=0),
    )
    assert waits_after(calls) == [[], [1], [], [], [0, 2, 3, 4]]

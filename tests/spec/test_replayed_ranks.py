"""Workloads whose ranks make other calls, wait for one another, or are too many."""

from __future__ import annotations

import pytest
from synthetic_workload import TWO_RANKS, of_ranks, plan_of, reduction, replayed

from commbench.errors import UsageError
from commbench.spec.workload import RECV, SEND, Call, make_workload, workload_values
from commbench.spec.workload_fit import SHRINK, prepare_replay
from commbench.training.megatron import megatron_workload
from commbench.training.megatron_calls import Training
from commbench.training.models import find_transformer


def test_collectives_of_different_groups_may_come_in_another_order_on_each_rank() -> None:
    a = Call("all_reduce", "world", "float32", 8, asynchronous=True, waited_after=1)
    b = Call("barrier", "other", size_bytes=0, asynchronous=True, waited_after=1)
    assert plan_of(of_ranks((a, b), (b, a), other=((0, 1),)))


def test_messages_and_collectives_of_the_same_ranks_are_counted_apart() -> None:
    barrier = Call("barrier", "world", size_bytes=0)
    sides = [Call(kind, "world", "int8", 8, peer=1 - r) for r, kind in enumerate((SEND, RECV))]
    assert plan_of(of_ranks((barrier, sides[0], barrier), (barrier, barrier, sides[1])))


def test_a_message_before_its_receive_needs_no_other_rank_to_wait() -> None:
    send, receive = (Call(kind, "world", "int8", 8, peer=1) for kind in (SEND, RECV))
    assert plan_of(of_ranks((send, receive), (send._replace(peer=0), receive._replace(peer=0))))


@pytest.mark.parametrize("is_waited", [False, True])
def test_two_blocking_receives_wait_for_each_other_forever(is_waited: bool) -> None:
    receive = Call(RECV, "world", "int8", 8, peer=1, waited_after=0 if is_waited else None)
    send = Call(SEND, "world", "int8", 8, peer=1)
    mirrored = (receive._replace(peer=0), send._replace(peer=0))
    with pytest.raises(UsageError, match="never end: call 1 of rank 0, recv int8 of 8 bytes"):
        plan_of(of_ranks((receive, send), mirrored))


def test_a_call_that_another_rank_does_not_make_is_named() -> None:
    call, barrier = Call("all_gather", "world", "float32", 8), Call("barrier", size_bytes=0)
    send = Call(SEND, "world", "int8", 8, peer=1)
    named = "call 2 of rank 0, all_gather float32 of 8 bytes over world"
    with pytest.raises(UsageError, match=named):
        plan_of(of_ranks((call, call), (call,)))
    with pytest.raises(UsageError, match="call 1 of rank 0, send int8 of 8 bytes"):
        plan_of(of_ranks((send, barrier), (barrier, barrier)))


@pytest.mark.parametrize(
    "other",
    [Call("all_gather", "world", "float32", 8), reduction(16),
     Call("all_reduce", "world", "bfloat16", 8)],
)  # fmt: skip
def test_ranks_that_make_different_calls_are_named(other: Call) -> None:
    with pytest.raises(UsageError, match="ranks 0 and 1 do not make the same calls") as caught:
        plan_of(of_ranks((reduction(8),), (other,)))
    _, first, second = caught.value.message.split(" is ")
    assert first.partition(",")[0] != second


def test_a_call_whose_wait_is_not_known_is_waited_for_at_once_or_at_the_end() -> None:
    before, after = (
        [reduction(8), reduction(8, asynchronous=None)],
        [reduction(8, waited_after=9), reduction(8, waited_after=0)],
    )
    sides = [Call(kind, "world", "int8", 8, peer=1 - r) for r, kind in enumerate((SEND, RECV))]
    workload = of_ranks(*((*before, message, *after) for message in sides))
    assert [one.waits for one in replayed(workload, "calls").calls] == [
        (), (1,), (), (), (0, 2, 3, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "fit", "hint"), [(1, "refuse", "--fit shrink"), (8, SHRINK, "start 2 ranks")]
)
def test_another_number_of_ranks_is_refused(ranks: int, fit: str, hint: str) -> None:
    with pytest.raises(UsageError, match="two-ranks has 2 ranks, and not") as caught:
        prepare_replay(TWO_RANKS, ranks, fit)
    assert hint in caught.value.hint
    with pytest.raises(UsageError, match="no call of two-ranks is left on 1 rank"):
        prepare_replay(TWO_RANKS, 1, SHRINK)


def test_data_parallel_ranks_are_left_out_and_sizes_are_kept() -> None:
    made = megatron_workload(
        find_transformer("llama-3-8b")._replace(layers=2), Training(), mesh="dp=4,tp=2"
    )
    fitted, changes = prepare_replay(made, 4, SHRINK)
    assert fitted.groups == {
        "tp": ((0, 1), (2, 3)),
        "dp": ((0, 2), (1, 3)),
        "world": ((0, 1, 2, 3),),
    }
    assert fitted.steps[0].programs[0] == made.steps[0].programs[0]._replace(ranks=(0, 1, 2, 3))
    assert changes == (
        "ranks 0 to 3 of 8 are kept",
        "groups of world have 4 ranks instead of 8; S is kept",
        "groups of dp have 2 ranks instead of 4; S is kept",
    )
    assert make_workload(workload_values(fitted)) == fitted


def test_calls_of_a_single_rank_are_left_out_and_waiting_follows() -> None:
    calls = (
        reduction(8, waited_after=2),
        Call("all_reduce", "dp", "float32", 4, asynchronous=True, waited_after=1),
        Call("all_gather", "world", "float32", 8, waited_after=2),
        Call("barrier", "dp", size_bytes=0),
    )
    fitted, changes = prepare_replay(of_ranks(*[calls] * 4, dp=((0, 2), (1, 3))), 2, SHRINK)
    assert [(c.operation, c.waited_after) for c in fitted.steps[0].programs[0].calls] == [
        ("all_reduce", 1), ("all_gather", 1),
    ]  # fmt: skip
    assert changes[-2:] == (
        "2 calls of all_reduce over dp left out: no other rank is left",
        "2 calls of barrier over dp left out: no other rank is left",
    )


def test_messages_to_lost_ranks_and_unequal_blocks_shrink_with_the_group() -> None:
    blocks = Call("all_to_all_v", "world", "int8", 12, send_splits=(1, 2, 3, 6),
                  receive_splits=(3, 3, 3, 3))  # fmt: skip
    sides = [Call(kind, "pp", "int8", 8, peer=peer) for kind, peer in ((SEND, 1), (RECV, 0))]
    made = of_ranks(*((blocks, sides[rank // 2]) for rank in range(4)), pp=((0, 2), (1, 3)))
    fitted, _ = prepare_replay(made, 3, SHRINK)
    assert [[c.operation for c in p.calls] for p in fitted.steps[0].programs] == [
        ["all_to_all_v", "send"], ["all_to_all_v"], ["all_to_all_v", "recv"],
    ]  # fmt: skip
    unequal = fitted.steps[0].programs[2].calls[0]
    assert (unequal.send_splits, unequal.receive_splits) == ((1, 2, 3), (3, 3, 3))
    assert unequal.size_bytes == 9

"""From a workload to the plan of its replay: cases, variants, fewer ranks, order, and what a rank
does in a step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_workload import (
    MIB,
    TWO_RANKS,
    WORKLOAD,
    of_ranks,
    plan_of,
    reduction,
    replayed,
    two_ranks,
)  # fmt: skip

from commbench.errors import UsageError
from commbench.plan.case import PAGE
from commbench.plan.plan import Plan
from commbench.plan.replay import replayed_step
from commbench.plan.workload import (
    RECV,
    SEND,
    Call,
    Program,
    Step,
    Workload,
    make_workload,
    workload_values,
)  # fmt: skip
from commbench.plan.workload_fit import SHRINK, prepare_replay
from commbench.plan.workload_variants import parse_variant
from commbench.workloads.frameworks import megatron_workload
from commbench.workloads.megatron_calls import Training
from commbench.workloads.models import find_transformer


def test_each_different_call_is_a_case_and_each_step_is_one_in_each_variant() -> None:
    plan = plan_of(TWO_RANKS)
    assert [case.name for case in plan.cases() if not case.step] == [
        "all_reduce float32 sum in_place 4 KiB",
        "all_reduce float32 sum in_place 8 KiB",
        "ping_pong bfloat16 out_of_place send pair 0-1 over pp together 1 KiB",
    ]
    steps = [case for case in plan.cases() if case.step]
    assert [case.title for case in steps] == ["replay train calls", "replay train gaps"]
    assert {case.size_bytes for case in steps} == {4096 + 8192 + 1024}
    assert {case.status for case in plan.cases()} == {"ready"}
    assert plan.operations == ("all_reduce", "ping_pong", "replay")
    assert plan.sizes == (1024, 4096, 8192)  # of single calls


def test_json_has_the_plan_of_a_workload_and_a_damaged_one_is_no_plan() -> None:
    plan = plan_of(TWO_RANKS)
    text = json.dumps(plan.as_json(), allow_nan=False)
    read = Plan.from_json(json.loads(text))
    assert (read, read.digest, read.cases()) == (plan, plan.digest, plan.cases())
    damages: tuple[dict[str, Any], ...] = (
        {"world_size": 3}, {"steps": 1}, {"groups": {"pp": [[7]]}},
    )  # fmt: skip
    for damage in damages:
        values = json.loads(text)
        values["workload"] |= damage
        with pytest.raises(UsageError):
            Plan.from_json(values)


def test_what_is_not_known_is_filled_in_or_left_out_and_said() -> None:
    workload = two_ranks(
        Call("all_reduce", "unknown", "", 64),
        Call("all_reduce", "world", "float32"),
        Call(SEND, "world", "float32", 8),
        Call("broadcast", "world", "float32", 8),
        Call("new_group", "world"),
    )
    fitted, changes = prepare_replay(workload, None)
    assert [call[:4] for _, _, call in fitted.calls()] == [
        ("all_reduce", "world", "float32", 64),
        ("broadcast", "world", "float32", 8),
    ]
    assert changes == (
        "1 call of all_reduce: all ranks take part, since the group is not known",
        "1 call of all_reduce: float32 is used, since the element type is not known",
        "1 call of all_reduce left out: the size is not known",
        "1 call of send left out: of some messages the other rank is not known",
        "1 call of new_group left out: it is no collective that can be replayed",
    )


def test_messages_are_left_out_where_the_other_rank_of_some_is_not_known() -> None:
    known, unknown = (Call(kind, "world", "int8", 8, peer=peer, compute_s=1.0)
                      for kind, peer in ((SEND, 1), (RECV, None)))  # fmt: skip
    barrier = Call("barrier", "world", size_bytes=0, compute_s=0.5)
    programs = (Program((0,), (known, barrier)), Program((1,), (unknown, barrier)))
    workload = Workload("w", "", 2, {"world": ((0, 1),)}, (Step("train", programs),))
    fitted, changes = prepare_replay(workload, None)
    assert [(call.operation, call.compute_s) for _, _, call in fitted.calls()] == [
        ("barrier", 1.5), ("barrier", 1.5),
    ]  # fmt: skip
    assert changes == (
        "1 call of send left out: of some messages the other rank is not known",
        "1 call of recv left out: of some messages the other rank is not known",
    )


def test_a_reduction_with_fewer_elements_than_ranks_is_not_composed() -> None:
    plan = plan_of(two_ranks(*[Call("all_reduce", "world", "float32", n) for n in (4, 1 << 21)]))
    case = next(c for c in plan.cases() if c.variant == "reduce_scatter+all_gather")
    calls = replayed_step(plan, case, 0).calls
    assert [one.case.form for one in calls] == ["direct", "reduce_scatter+all_gather"]


def test_a_step_with_a_call_that_the_backend_lacks_is_unsupported_by_its_name() -> None:
    plan = plan_of(two_ranks(Call("all_reduce", "world", "float32", 8, reduce_op="bor")))
    call, step = plan.cases()[:2]
    assert (call.status, step.status) == ("unsupported", "unsupported")
    assert step.reason == f"all_reduce float32 bor in_place: {call.reason}"


def test_the_step_that_was_made_most_often_is_replayed_or_those_named() -> None:
    (step,) = TWO_RANKS.steps
    workload = TWO_RANKS._replace(steps=(step._replace(name="first", count=1), step))
    names = [[s.name for s in prepare_replay(workload, None, steps=chosen)[0].steps]
             for chosen in ((), ("first",), ("all",))]  # fmt: skip
    assert names == [["train"], ["first"], ["first", "train"]]
    with pytest.raises(UsageError, match="unknown step 'frist'") as caught:
        prepare_replay(workload, None, steps=("frist",))
    assert "first" in caught.value.hint


def test_a_variant_has_one_spelling_and_other_names_are_refused() -> None:
    for text, normal in ((" Calls ", "calls"), ("bucket:25600K", "bucket:25M")):
        assert parse_variant(text) == normal == parse_variant(normal)
    for text in ("", "call", "bucket", "bucket:", "bucket:0", "gaps:1"):
        with pytest.raises(UsageError):
            parse_variant(text)


@pytest.mark.parametrize(
    ("calls", "variants"),
    [
        ((reduction(24 * MIB, start_s=0.0), reduction(10 * MIB, start_s=0.1)),
         ["calls", "gaps", "bucket:12M", "bucket:48M", "reduce_scatter+all_gather"]),
        ((reduction(MIB), reduction(MIB)), ["calls", "bucket:2M", "reduce_scatter+all_gather"]),
        ((reduction(24 * MIB),), ["calls", "reduce_scatter+all_gather"]),
        ((reduction(4096), reduction(4096)), ["calls"]),
    ],
)  # fmt: skip
def test_all_variants_are_those_that_differ(calls: tuple[Call, ...], variants: list[str]) -> None:
    cases = plan_of(two_ranks(*calls), variants=("all",)).cases()
    assert [case.variant for case in cases if case.step] == variants


@pytest.mark.parametrize(
    ("call", "variant", "why"),
    [
        (Call("barrier", size_bytes=0), "gaps", "its source says nothing about gaps"),
        (Call("barrier", size_bytes=0), "bucket:1M", "it has no all_reduce"),
        (Call("barrier", size_bytes=0), "calls", ""),
        (reduction(64 * MIB), "bucket:1", "it would make 67108864 calls, more than 10000"),
        (reduction(64 * MIB), "bucket:64K", ""),
    ],
)
def test_a_variant_that_a_step_cannot_have_says_why(call: Call, variant: str, why: str) -> None:
    assert plan_of(two_ranks(call), variants=(variant,)).cases()[-1].reason == why


def test_a_rank_computes_as_long_as_the_trace_says() -> None:
    calls = (
        reduction(8, start_s=1.0, time_s=3.0, compute_s=0.7),
        reduction(8, start_s=4.0, time_s=1.0, compute_s=0.2, compute_after_s=0.1),
    )
    step = replayed(two_ranks(*calls), "gaps")
    assert ([one.call.compute_s for one in step.calls], step.compute_s) == ([0.7, 0.2], 0.1)


def test_a_rank_computes_from_the_end_of_its_wait_to_its_next_call() -> None:
    step = replayed(TWO_RANKS, "gaps", rank=1)
    # The first call is waited for behind the second one, which begins after 2 ms of computation.
    assert [one.call.compute_s for one in step.calls] == pytest.approx([2e-3, 2e-3, 1e-3])
    assert step.compute_s == pytest.approx(3e-3)
    assert [one.call.compute_s for one in replayed(TWO_RANKS, "calls", 1).calls] == [0, 0, 0]


def test_a_trial_of_a_step_has_small_buffers_and_does_not_compute() -> None:
    plan = plan_of(TWO_RANKS, variants=("gaps",))
    whole, trial = (
        replayed_step(plan, plan.cases()[-1], 0, is_trial) for is_trial in (False, True)
    )
    assert trial.size_bytes < whole.size_bytes
    assert whole.compute_s > trial.compute_s == 0
    assert {one.call.compute_s for one in trial.calls} == {0.0}


def test_a_bucket_begins_when_its_last_byte_is_ready_and_has_the_first_wait_of_its_calls() -> None:
    calls = (
        reduction(4, start_s=1.0, time_s=0.5, waited_after=2),
        reduction(4, start_s=2.0, time_s=0.5, waited_after=3),
        reduction(4, start_s=4.0, time_s=0.5, waited_after=3),
        Call("barrier", size_bytes=0, start_s=5.0, time_s=1.0),
    )
    step = replayed(two_ranks(*calls), "bucket:8")
    assert [(one.call.size_bytes, one.waits) for one in step.calls] == [
        (8, ()), (4, (0,)), (0, (1, 2)),
    ]  # fmt: skip
    assert [one.call.compute_s for one in step.calls] == pytest.approx([2.0, 2.0, 1.0])
    whole = two_ranks(reduction(8, waited_after=0), reduction(8, waited_after=1))
    assert [one.waits for one in replayed(whole, "bucket:8").calls] == [(0,), (1,)]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 75), st.data())
def test_buckets_move_the_same_bytes_and_every_wait_is_possible(
    sizes: list[int], bucket: int, data: st.DataObject
) -> None:
    waits = [data.draw(st.integers(index, len(sizes) - 1)) for index in range(len(sizes))]
    calls = [reduction(4 * n, waited_after=w) for n, w in zip(sizes, waits, strict=True)]
    step = replayed(two_ranks(*calls), f"bucket:{4 * bucket}")
    found = [one.call.size_bytes or 0 for one in step.calls]
    assert sum(found) == 4 * sum(sizes)
    assert set(found[:-1]) <= {4 * bucket} and found[-1] <= 4 * bucket
    waited = sorted((call, at) for at, one in enumerate(step.calls) for call in one.waits)
    assert [call for call, _ in waited] == list(range(len(found)))
    assert all(call <= at for call, at in waited)


def test_messages_that_are_waited_for_together_begin_as_one_batch() -> None:
    pair = [Call(kind, "world", "int8", 8, peer=1, asynchronous=True) for kind in (SEND, RECV)]
    batch = [call._replace(waited_after=1) for call in pair]
    mirrored = [call._replace(peer=0) for call in (batch[1], batch[0])]
    blocking = [Call(SEND, "world", "int8", 8, peer=1), Call(RECV, "world", "int8", 8, peer=1)]
    answering = [Call(RECV, "world", "int8", 8, peer=0), Call(SEND, "world", "int8", 8, peer=0)]
    programs = (
        Program((0,), (*batch, *blocking)),
        Program((1,), (*mirrored, *(c._replace(waited_after=2 + i)
                                    for i, c in enumerate(answering)))),
    )  # fmt: skip
    plan = plan_of(Workload("w", "", 2, {"world": ((0, 1),)}, (Step("train", programs),)))
    found = [replayed_step(plan, plan.cases()[-1], rank).calls for rank in (0, 1)]
    assert [[one.together for one in calls] for calls in found] == [[2, 0, 2, 0], [2, 0, 1, 1]]


def test_unequal_blocks_are_those_of_every_rank() -> None:
    workload = WORKLOAD._replace(
        steps=(
            Step("train", tuple(
                Program((rank,), (
                    Call("all_to_all_v", "world", "int8", 10 * (rank + 1),
                         send_splits=(rank + 1, 0, 2, 3), receive_splits=(1, 2, 3, 4)),
                ))
                for rank in range(4)
            )),
        )
    )  # fmt: skip
    plan = plan_of(workload)
    case = plan.cases()[0]
    assert case.matrix == (1, 0, 2, 3, 2, 0, 2, 3, 3, 0, 2, 3, 4, 0, 2, 3)
    assert case.imbalance.startswith("file:example#")


sizes = st.integers(1, 5000)


@given(st.lists(st.tuples(sizes, st.sampled_from(["float32", "int8"]), st.integers(0, 5)),
                min_size=1, max_size=12))  # fmt: skip
def test_calls_under_way_at_once_share_no_byte_and_element_types_never_do(
    drawn: list[tuple[int, str, int]],
) -> None:
    calls = [
        Call("broadcast", "world", dtype, 4 * size, root=0, asynchronous=True,
             waited_after=min(index + length, len(drawn) - 1))
        for index, (size, dtype, length) in enumerate(drawn)
    ]  # fmt: skip
    plan = plan_of(two_ranks(*calls))
    step = replayed_step(plan, plan.cases()[-1], 1)
    ends = [one.begin + -(-one.case.size_bytes // PAGE) * PAGE for one in step.calls]
    for index, one in enumerate(step.calls):
        assert ends[index] <= step.size_bytes
        for other in range(index):
            assert calls[other].waited_after is not None
            is_over = calls[other].waited_after < index  # type: ignore[operator]
            is_apart = ends[other] <= one.begin or ends[index] <= step.calls[other].begin
            assert is_apart or (is_over and one.case.dtype == step.calls[other].case.dtype)


def test_the_memory_of_a_step_is_needed_by_each_of_its_ranks() -> None:
    plan = plan_of(two_ranks(*[Call("all_reduce", "world", "float32", 1 << 20)] * 3))
    needed = [plan.needed_bytes(plan.cases()[-1], ranks) for ranks in ([0], [0, 1])]
    assert needed[1] == 2 * needed[0]
    assert 1 << 20 <= needed[0] <= (1 << 20) + 4 * PAGE  # one after another: the same place


def test_a_large_layout_is_planned_on_few_ranks() -> None:
    shape = find_transformer("llama-3-8b")._replace(layers=4)
    large = megatron_workload(shape, Training(micro_batches=2), mesh="dp=4,pp=2,tp=2")
    plan = plan_of(large, 4)
    assert plan.world_size == 4
    assert {case.status for case in plan.cases()} == {"ready"}
    assert any("groups of dp" in note for note in prepare_replay(large, 4, SHRINK)[1])


# Ranks that make other calls, wait for one another, or are too many


BARRIER = Call("barrier", "world", size_bytes=0)
SEND_TO, RECEIVE_FROM = (
    [Call(kind, "world", "int8", 8, peer=peer) for peer in (0, 1)] for kind in (SEND, RECV)
)
"""By the other rank."""


def test_calls_of_other_groups_and_messages_may_come_in_another_order_on_each_rank() -> None:
    a = Call("all_reduce", "world", "float32", 8, asynchronous=True, waited_after=1)
    b = Call("barrier", "other", size_bytes=0, asynchronous=True, waited_after=1)
    assert plan_of(of_ranks((a, b), (b, a), other=((0, 1),)))
    before, after = (BARRIER, SEND_TO[1], BARRIER), (BARRIER, BARRIER, RECEIVE_FROM[0])
    assert plan_of(of_ranks(before, after))
    # A message before its receive needs no other rank to wait.
    assert plan_of(of_ranks((SEND_TO[1], RECEIVE_FROM[1]), (SEND_TO[0], RECEIVE_FROM[0])))


@pytest.mark.parametrize("is_waited", [False, True])
def test_two_blocking_receives_wait_for_each_other_forever(is_waited: bool) -> None:
    receives = [call._replace(waited_after=0 if is_waited else None) for call in RECEIVE_FROM]
    with pytest.raises(UsageError, match="never end: call 1 of rank 0, recv int8 of 8 bytes"):
        plan_of(of_ranks((receives[1], SEND_TO[1]), (receives[0], SEND_TO[0])))


def test_a_call_that_another_rank_does_not_make_is_named() -> None:
    call = Call("all_gather", "world", "float32", 8)
    named = "call 2 of rank 0, all_gather float32 of 8 bytes over world"
    with pytest.raises(UsageError, match=named):
        plan_of(of_ranks((call, call), (call,)))
    with pytest.raises(UsageError, match="call 1 of rank 0, send int8 of 8 bytes"):
        plan_of(of_ranks((SEND_TO[1], BARRIER), (BARRIER, BARRIER)))


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
    sides = (SEND_TO[1], RECEIVE_FROM[0])
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
        "tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3)), "world": ((0, 1, 2, 3),),
    }  # fmt: skip
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

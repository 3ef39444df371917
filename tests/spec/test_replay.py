"""From a workload to the plan of its replay: cases, variants, fewer ranks, order, and what a rank
does in a step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_workload import MIB, TWO_RANKS, WORKLOAD, plan_of, reduction, replayed, two_ranks

from commbench.errors import UsageError
from commbench.spec.case import PAGE
from commbench.spec.plan import Plan
from commbench.spec.replay import replayed_step
from commbench.spec.workload import (
    RECV,
    SEND,
    Call,
    Program,
    Step,
    Workload,
)
from commbench.spec.workload_fit import SHRINK, prepare_replay
from commbench.spec.workload_variants import parse_variant
from commbench.training.megatron import megatron_workload
from commbench.training.megatron_calls import Training
from commbench.training.models import find_transformer


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


def test_a_plan_with_a_workload_is_the_same_after_json_both_ways() -> None:
    plan = plan_of(TWO_RANKS)
    read = Plan.from_json(json.loads(json.dumps(plan.as_json(), allow_nan=False)))
    assert (read, read.digest, read.cases()) == (plan, plan.digest, plan.cases())


@pytest.mark.parametrize("damage", [{"world_size": 3}, {"steps": 1}, {"groups": {"pp": [[7]]}}])
def test_a_damaged_workload_is_no_plan(damage: dict[str, Any]) -> None:
    values = plan_of(TWO_RANKS).as_json()
    values["workload"] |= damage
    with pytest.raises(UsageError):
        Plan.from_json(values)


def test_what_is_not_known_is_filled_in_or_left_out_and_said() -> None:
    workload = two_ranks(
        Call("all_reduce", "unknown", "", 64),
        Call("all_reduce", "world", "float32"),
        Call(SEND, "world", "float32", 8),
        Call("broadcast", "world", "float32", 8),
        Call("all_gather_object", "world", "uint8", 8),
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
        "1 call of all_gather_object left out: it is no collective that can be replayed",
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
    names = [[s.name for s in prepare_replay(workload, None, steps=chosen).workload.steps]
             for chosen in ((), ("first",), ("all",))]  # fmt: skip
    assert names == [["train"], ["first"], ["first", "train"]]
    with pytest.raises(UsageError, match="unknown step 'frist'") as caught:
        prepare_replay(workload, None, steps=("frist",))
    assert "first" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "normal"),
    [(" Calls ", "calls"), ("bucket:25600K", "bucket:25M"), ("bucket:1M", "bucket:1M")],
)
def test_a_variant_has_one_spelling(text: str, normal: str) -> None:
    assert parse_variant(text) == normal == parse_variant(normal)


@pytest.mark.parametrize("text", ["", "call", "bucket", "bucket:", "bucket:0", "gaps:1"])
def test_other_names_of_variants_are_refused(text: str) -> None:
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
    assert any("groups of dp" in note for note in prepare_replay(large, 4, SHRINK).changes)

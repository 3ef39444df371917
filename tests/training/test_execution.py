"""Generated workloads end where ranks make their calls in order: no rank waits forever."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import RECV, SEND, Call, Workload
from commbench.training.ddp import ddp_workload
from commbench.training.fsdp import fsdp_workload
from commbench.training.megatron import megatron_workload
from commbench.training.megatron_calls import Training
from commbench.training.models import Transformer, find_transformer, resnet_50

DENSE = Transformer("dense", 4, 64, 4, 4, 128, 300, gated=False, tied=True, positions=32)
GATED = Transformer("gated", 4, 64, 4, 2, 192, 300)
EXPERTS = Transformer("experts", 4, 64, 4, 4, 128, 300, experts=4, top_k=2)
Key = tuple[Any, ...]


def batches(calls: tuple[Call, ...]) -> list[int]:
    """For each call the index of the first one of its batch: messages that are begun one after
    another, and awaited together."""
    found: list[int] = []
    for index, call in enumerate(calls):
        is_more = (
            index > 0
            and {call.operation, calls[index - 1].operation} <= {SEND, RECV}
            and call.asynchronous
            and call.waited_after == calls[index - 1].waited_after
        )
        found.append(found[-1] if is_more else index)
    return found


def stuck(workload: Workload) -> dict[int, str]:
    """The ranks that never end, and the call in which each one waits.

    A rank begins a call, and then waits for those that it awaits there. A collective is done when
    all ranks of the group have begun it, a message when both sides have; and no call is done before
    the earlier calls of the rank in the same group or stream, but for those of its batch.
    """
    (step,) = workload.steps
    programs = {rank: p.calls for p in step.programs for rank in p.ranks}
    groups = {rank: [workload.group_of(c, rank) for c in calls] for rank, calls in programs.items()}
    keys: dict[int, list[Key]] = {}
    parties: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for rank, calls in programs.items():
        counts: dict[Key, int] = defaultdict(int)
        keys[rank] = []
        for index, call in enumerate(calls):
            group = groups[rank][index]
            assert group, call
            way: Key = (call.group, group)
            if call.operation in (SEND, RECV):
                assert call.peer is not None
                pair = (rank, group[call.peer])
                way = (*way, *(pair if call.operation == SEND else pair[::-1]))
            keys[rank].append((*way, counts[way]))
            counts[way] += 1
            parties[keys[rank][-1]].append((rank, index))
    needed = {key: 2 if len(key) == 5 else len(key[1]) for key in parties}
    for key, members in parties.items():
        same = {what(programs[rank][index]) for rank, index in members}
        assert len(same) == 1, (key, same)
    next_call = dict.fromkeys(programs, 0)
    done: dict[int, set[int]] = {rank: set() for rank in programs}
    first = {rank: batches(calls) for rank, calls in programs.items()}

    def is_ready(rank: int, index: int) -> bool:
        calls = programs[rank]
        return index < next_call[rank] and all(
            i in done[rank] or i >= first[rank][index]
            for i in range(index)
            if calls[i].stream == calls[index].stream or calls[i].group == calls[index].group
        )

    moved = True
    while moved:
        moved = False
        for rank, calls in programs.items():
            while next_call[rank] < len(calls) and not waits_for(
                calls, next_call[rank], done[rank]
            ):
                next_call[rank] += 1
                moved = True
        for key, members in parties.items():
            rank, index = members[0]
            if index in done[rank] or len(members) < needed[key]:
                continue
            if all(is_ready(*member) for member in members):
                for rank, index in members:
                    done[rank].add(index)
                moved = True
    return {
        rank: str(calls[min(set(range(len(calls))) - done[rank])])
        for rank, calls in programs.items()
        if len(done[rank]) < len(calls)
    }


def what(call: Call) -> Key:
    """What the ranks of a call must agree on."""
    operation = "message" if call.operation in (SEND, RECV) else call.operation
    return operation, call.dtype, call.size_bytes, call.reduce_op, call.root, call.tensors


def waits_for(calls: tuple[Call, ...], begun: int, done: set[int]) -> set[int]:
    """The calls that the rank awaits before it begins the one with the index `begun`."""
    return {
        index
        for index in range(begun)
        if index not in done and (calls[index].waited_after or index) < begun
    }


WORKLOADS = {
    "ddp": lambda: ddp_workload(resnet_50(), ranks=3),
    "fsdp": lambda: fsdp_workload(GATED.model(), ranks=3),
    "hsdp": lambda: fsdp_workload(GATED.model(), ranks=2, replicas=3, reshard=False),
    "hsdp-reshard": lambda: fsdp_workload(GATED.model(), ranks=2, replicas=2),
} | {
    f"{model.name} {mesh} {batches} {'' if sp else 'no-sp'}{'' if do else 'no-do'}": (
        lambda model=model, mesh=mesh, batches=batches, sp=sp, do=do: megatron_workload(
            model,
            Training(sequence=64, micro_batches=batches, sequence_parallel=sp,
                     distributed_optimizer=do, bucket_bytes=1 << 16),
            mesh=mesh,
        )
    )
    for model, mesh, batches, sp, do in (
        (DENSE, "tp=2,pp=2,dp=2", 4, True, True),
        (DENSE, "tp=2,pp=4", 3, False, False),
        (DENSE, "pp=4,dp=2", 1, True, False),
        (DENSE, "pp=4", 8, True, True),
        (GATED, "tp=2,cp=2,pp=2,dp=2", 3, True, True),
        (GATED, "cp=4", 2, True, False),
        (EXPERTS, "tp=2,dp=4,ep=4", 2, True, True),
        (EXPERTS, "tp=2,cp=2,pp=2,dp=2,ep=2", 3, True, False),
        (EXPERTS, "tp=2,dp=2", 1, True, True),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_rank_of_a_generated_workload_waits_forever(name: str) -> None:
    made: Workload = WORKLOADS[name]()
    assert stuck(made) == {}
    for _, program, call in made.calls():
        assert call.waited_after is not None and call.asynchronous is not None
        assert call.size_bytes
        if call.operation in OPERATIONS and call.operation not in ("broadcast", "all_reduce"):
            elements = call.size_bytes // DTYPES[call.dtype].size_bytes
            group = len(made.group_of(call, program.ranks[0]))
            assert call.operation == "send_recv" or elements % group == 0, call


@pytest.mark.parametrize("stages", [2, 3])
def test_messages_that_are_not_under_way_together_never_end(stages: int) -> None:
    """The check finds what 1F1B needs its batches for."""
    model = DENSE._replace(layers=6)
    made = megatron_workload(model, Training(sequence=8, micro_batches=4), mesh=f"pp={stages}")
    assert stuck(made) == {}
    (step,) = made.steps
    programs = tuple(
        program._replace(
            calls=tuple(c._replace(waited_after=i) for i, c in enumerate(program.calls))
        )
        for program in step.programs
    )
    ranks = stuck(made._replace(steps=(step._replace(programs=programs),)))
    assert set(ranks) == set(range(stages))
    assert {text.split("'")[1] for text in ranks.values()} == {SEND}


def test_a_rank_that_calls_in_another_order_is_found() -> None:
    made = megatron_workload(DENSE, Training(sequence=8), mesh="tp=2,dp=2")
    (step,) = made.steps
    (program,) = step.programs
    other = (*program.calls[:2], *program.calls[3:], program.calls[2])
    programs = (program._replace(ranks=(0, 1, 2)), program._replace(ranks=(3,), calls=other))
    with pytest.raises(AssertionError):
        assert stuck(made._replace(steps=(step._replace(programs=programs),))) == {}


def test_messages_of_a_batch_are_awaited_after_its_last_one() -> None:
    training = Training(micro_batches=4)
    made = megatron_workload(find_transformer("llama-3-8b"), training, mesh="pp=2")
    first, last = (p.calls for p in made.steps[0].programs)
    messages = [
        [
            (c.operation, (c.waited_after or 0) - i)
            for i, c in enumerate(calls)
            if c.peer is not None
        ]
        for calls in (first, last)
    ]
    assert messages[0] == [
        (SEND, 0), *3 * [(SEND, 1), (RECV, 0)], (RECV, 0),
    ]  # fmt: skip
    assert messages[1] == [
        (RECV, 0), *3 * [(SEND, 1), (RECV, 0)], (SEND, 0),
    ]  # fmt: skip
    assert all(c.asynchronous for c in (*first, *last) if c.peer is not None)

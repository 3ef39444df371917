"""Generated workloads end where ranks make their calls in order: no rank waits forever."""

from __future__ import annotations

import pytest

from commbench.analysis.step_time import calls_only_s
from commbench.errors import UsageError
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import RECV, SEND, Workload
from commbench.spec.workload_fit import prepare_replay
from commbench.training.ddp import ddp_workload
from commbench.training.fsdp import fsdp_workload
from commbench.training.megatron import megatron_workload
from commbench.training.megatron_calls import Training
from commbench.training.models import Transformer, find_transformer, resnet_50

DENSE = Transformer("dense", 4, 64, 4, 4, 128, 300, gated=False, tied=True, positions=32)
GATED = Transformer("gated", 4, 64, 4, 2, 192, 300)
EXPERTS = Transformer("experts", 4, 64, 4, 4, 128, 300, experts=4, top_k=2)


def seconds_of(workload: Workload) -> float | None:
    """How long the step takes where each call takes a second, and those of a stream follow one
    another; UsageError where ranks make other calls or wait forever, None where streams do."""
    (step,) = workload.steps
    programs = tuple(
        program._replace(calls=tuple(call._replace(time_s=1.0) for call in program.calls))
        for program in step.programs
    )
    fitted = prepare_replay(workload._replace(steps=(step._replace(programs=programs),)), None)
    assert fitted.changes == ()
    return calls_only_s(fitted.workload, fitted.workload.steps[0])


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
    assert seconds_of(made)
    for _, program, call in made.calls():
        assert call.waited_after is not None and call.asynchronous is not None
        assert call.size_bytes
        if call.operation in OPERATIONS and call.operation not in ("broadcast", "all_reduce"):
            elements = call.size_bytes // DTYPES[call.dtype].size_bytes
            group = len(made.group_of(call, program.ranks[0]))
            assert call.operation == "send_recv" or elements % group == 0, call


@pytest.mark.parametrize("stages", [2, 3])
def test_messages_that_are_not_under_way_together_never_end(stages: int) -> None:
    """What 1F1B needs its batches for."""
    model = DENSE._replace(layers=6)
    made = megatron_workload(model, Training(sequence=8, micro_batches=4), mesh=f"pp={stages}")
    assert seconds_of(made)
    (step,) = made.steps
    programs = tuple(
        program._replace(
            calls=tuple(c._replace(waited_after=i) for i, c in enumerate(program.calls))
        )
        for program in step.programs
    )
    with pytest.raises(UsageError, match=r"would never end: call \d+ of rank \d, send"):
        seconds_of(made._replace(steps=(step._replace(programs=programs),)))


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

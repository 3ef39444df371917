"""Generated workloads, against published sizes and what torch was seen to do; they end where ranks
make their calls in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import real_trace

from commbench.errors import UsageError
from commbench.plan.dtypes import DTYPES
from commbench.plan.operations import OPERATIONS
from commbench.plan.workload import RECV, SEND, Call, Workload, make_workload, workload_values
from commbench.plan.workload_fit import prepare_replay
from commbench.plan.workload_variants import calls_only_s
from commbench.workloads.frameworks import (
    cut_buckets,
    ddp_workload,
    fsdp_workload,
    megatron_workload,
)
from commbench.workloads.megatron_calls import Training
from commbench.workloads.models import (
    ROOT,
    Model,
    Tensor,
    Transformer,
    find_model,
    find_transformer,
    make_transformer,
    resnet_50,
)


@pytest.mark.parametrize(
    ("name", "whole", "block"),
    [("llama-3-8b", 8_030_261_248, 218_112_000), ("llama-3-70b", 70_553_706_496, 855_654_400),
     ("llama-3-405b", 405_853_388_800, 3_187_703_808),
     ("mixtral-8x7b", 46_702_792_704, 1_451_270_144),
     ("gpt-3-175b", 174_604_259_328, 1_812_099_072), ("gpt-2-xl", 1_557_611_200, 30_740_800)],
)  # fmt: skip
def test_a_preset_has_the_published_number_of_parameters(name: str, whole: int, block: int) -> None:
    model = find_model(name)
    assert model.elements == whole
    assert sum(tensor.elements for tensor in model.unit("layers.0")) == block
    units = [model.unit(unit) for unit in (ROOT, *model.blocks)]
    assert sum(t.elements for unit in units for t in unit) == whole


def test_resnet_50_has_the_tensors_of_torchvision() -> None:
    model = resnet_50()
    assert (len(model.parameters), model.elements) == (161, 25_557_032)


def test_a_number_of_parameters_decides_on_the_embedding() -> None:
    model = make_transformer(parameters=7e9, layers=32, hidden=4096).model()
    assert model.elements == pytest.approx(7e9, rel=1e-5)
    assert len(model.blocks) == 32


@pytest.mark.parametrize(
    ("numbers", "message"),
    [({"layers": 4}, "without --hidden"), ({"hidden": 4}, "without --layers"),
     ({"layers": 2, "hidden": 100, "heads": 3}, "cannot be shared by 3 heads"),
     ({"layers": 2, "hidden": 96, "heads": 6, "kv_heads": 4}, "cannot share 4 key heads"),
     ({"layers": 32, "hidden": 4096, "parameters": 1e9}, "more parameters than --params"),
     ({"layers": 2, "hidden": 64, "experts": 4, "top_k": 5}, "5 of 4 experts"),
     ({"layers": 10**6, "hidden": 2**20}, "too large")],
)  # fmt: skip
def test_numbers_that_make_no_model_are_refused(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_transformer(**numbers)  # type: ignore[arg-type]


def test_an_unknown_model_is_refused_and_resnet_is_no_transformer() -> None:
    with pytest.raises(UsageError, match="llama-3-9b"):
        find_model("llama-3-9b")
    with pytest.raises(UsageError, match="no transformer"):
        find_transformer("resnet-50")


def calls_of(workload: Workload, program: int = 0) -> tuple[Call, ...]:
    return workload.steps[0].programs[program].calls


def counted(workload: Workload, program: int = 0) -> Counter[tuple[str, str, int | None]]:
    return Counter((c.operation, c.group, c.size_bytes) for c in calls_of(workload, program))


def is_readable(workload: Workload) -> bool:
    return make_workload(workload_values(workload)) == workload


def test_resnet_50_under_ddp_gives_the_sizes_of_a_real_trace() -> None:
    """The all_reduces of the trace in tests/data, and their order."""
    made = ddp_workload(resnet_50(), ranks=2)
    assert [(c.operation, c.size_bytes) for c in calls_of(made)] == [
        ("broadcast", 4 * 53_120), ("broadcast", 8 * 53),
        *(("all_reduce", size) for size in real_trace.SIZES),
    ]  # fmt: skip
    assert {c.waited_after for c in calls_of(made)[2:]} == {6}
    assert is_readable(made)


def test_a_bucket_is_complete_at_its_limit_and_each_dtype_has_its_own() -> None:
    tensors = [
        Tensor("a", (2,)), Tensor("b", (3,), "bfloat16"), Tensor("c", (2,)), Tensor("d", (9,)),
        Tensor("e", (1,), "bfloat16"),
    ]  # fmt: skip
    buckets = cut_buckets(tensors, [16, 32])
    assert [[t.name for t in bucket] for bucket in buckets] == [["a", "c"], ["d"], ["b", "e"]]


def layers(count: int, *shapes: tuple[int, ...]) -> Model:
    inner = [
        Tensor(f"layers.{i}.{n}", shape) for i in range(count) for n, shape in enumerate(shapes)
    ]
    blocks = tuple(f"layers.{i}" for i in range(count))
    return Model("example", (Tensor("embedding", (5, 2)), *inner), blocks)


def test_fsdp_calls_in_the_order_that_torch_was_seen_to_have() -> None:
    """A backward pass gathers the block before while it computes; 3 rows are padded to 4."""
    made = fsdp_workload(layers(2, (3, 2), (7,)), ranks=2)
    assert is_readable(made)
    assert [(c.operation, c.size_bytes) for c in calls_of(made)] == [
        ("all_gather", 48), ("all_gather", 64), ("all_gather", 64),
        ("all_gather", 64), ("all_gather", 64), ("reduce_scatter", 64), ("reduce_scatter", 64),
        ("reduce_scatter", 48),
    ]  # fmt: skip


def test_fsdp_awaits_a_call_where_torch_does() -> None:
    """A prefetched block when its backward pass begins, a reduce_scatter before the next one."""
    made = fsdp_workload(layers(3, (4, 2)), ranks=2, replicas=2)
    shown = [(c.operation[:8], c.waited_after) for c in calls_of(made)]
    assert shown[:4] == [("all_gath", i) for i in range(4)]
    assert shown[4:] == [
        ("all_gath", 4), ("all_gath", 7), ("reduce_s", 8), ("all_redu", 14),
        ("all_gath", 10), ("reduce_s", 10), ("all_redu", 14),
        ("reduce_s", 12), ("all_redu", 14), ("reduce_s", 14), ("all_redu", 14),
    ]  # fmt: skip


def test_fsdp_that_keeps_its_parameters_gathers_once_and_replicas_reduce_shards() -> None:
    made = fsdp_workload(layers(2, (4, 2)), ranks=2, replicas=3, reshard=False)
    assert counted(made) == {
        ("all_gather", "dp_shard", 48): 1, ("all_gather", "dp_shard", 32): 2,
        ("reduce_scatter", "dp_shard", 48): 1, ("reduce_scatter", "dp_shard", 32): 2,
        ("all_reduce", "dp_replicate", 24): 1, ("all_reduce", "dp_replicate", 16): 2,
    }  # fmt: skip
    assert made.groups == {
        "dp_shard": ((0, 1), (2, 3), (4, 5)), "dp_replicate": ((0, 2, 4), (1, 3, 5))
    }  # fmt: skip


def test_fsdp_refuses_a_unit_of_two_dtypes_unless_they_are_cast() -> None:
    model = Model("example", (Tensor("a", (2,)), Tensor("b", (2,), "bfloat16")))
    with pytest.raises(UsageError, match="bfloat16 and float32"):
        fsdp_workload(model, ranks=2)
    fsdp_workload(model, ranks=2, dtype="bfloat16")


LLAMA = find_transformer("llama-3-8b")
ACTIVATION = 8192 * 4096 * 2
"""s b h B."""


@pytest.mark.parametrize(
    ("is_sequence_parallel", "layers"),
    [
        # Per layer: 2 + 2 forward, 4 + 2 backward; embedding and output: 2 + 1 and 1 + 1.
        (True, {("all_gather", "tp", ACTIVATION): 32 * 6 + 3,
                ("reduce_scatter", "tp", ACTIVATION): 32 * 4 + 2,
                ("all_reduce", "tp", 4 * 4096 * 65): 1}),
        (False, {("all_reduce", "tp", ACTIVATION): 32 * 4 + 2}),
    ],
)  # fmt: skip
def test_tensor_parallel_layers_gather_and_scatter_or_reduce_the_activations(
    is_sequence_parallel: bool, layers: dict[tuple[str, str, int], int]
) -> None:
    training = Training(sequence=8192, sequence_parallel=is_sequence_parallel)
    assert counted(megatron_workload(LLAMA, training, mesh="tp=4")) == layers | {
        ("all_reduce", "tp", 4 * 8192): 3, ("all_reduce", "world", 4): 1,
        ("all_reduce", "tp", 4): 2,
    }  # fmt: skip


def test_stages_send_activations_and_receive_gradients_in_the_order_of_1f1b() -> None:
    training = Training(sequence=8192, micro_batches=4)
    made = megatron_workload(LLAMA, training, mesh="tp=2,pp=2")
    assert [p.ranks for p in made.steps[0].programs] == [(0, 1), (2, 3)]
    for stage, order in enumerate(("ssrsrsrr", "rsrsrsrs")):
        messages = [c for c in calls_of(made, stage) if c.operation in (SEND, RECV)]
        assert "".join(c.operation[0] for c in messages) == order
        assert {(c.peer, c.size_bytes) for c in messages} == {(1 - stage, ACTIVATION // 2)}
    assert is_readable(made)


def test_context_parallel_ranks_shift_keys_and_values_around_the_ring() -> None:
    """2 s b v B / c bytes: 3 shifts forward; 3 with gradients and one of gradients backward."""
    made = megatron_workload(LLAMA, Training(sequence=8192), mesh="cp=4")
    keys = 2 * 8192 * 1024 * 2 // 4
    found = counted(made)
    assert found["send_recv", "cp", keys] == 32 * 4
    assert found["send_recv", "cp", 2 * keys] == 32 * 3


@pytest.mark.parametrize("is_distributed", [True, False])
def test_the_small_calls_of_megatron_follow_the_passes(is_distributed: bool) -> None:
    """GPT-2 XL has a tied embedding, and per layer two norms and two biases that are not cut."""
    training = Training(1000, dtype="float16", distributed_optimizer=is_distributed)
    made = megatron_workload(find_transformer("gpt-2-xl"), training, mesh="tp=5,pp=2,dp=2")
    stats = "world" if is_distributed else "pp+tp"
    first, last = (
        [(c.group, c.reduce_op, c.size_bytes) for c in calls_of(made, stage)
         if c.operation == "all_reduce" and c.group != "dp" and c.size_bytes != 4 * 1000]
        for stage in range(2)
    )  # fmt: skip
    expected = [
        ("tp", "sum", 4 * 1600 * 24 * 6), ("embd", "sum", 4 * -(-50257 // 5) * 1600),
        (stats, "max", 4), (stats, "sum", 4), ("pp+tp", "min", 4), ("pp+tp", "max", 4),
    ]  # fmt: skip
    assert first == expected
    assert last == [("tp", "sum", 4 * 1600 * (24 * 6 + 2)), *expected[1:]]
    assert made.groups["embd"] == made.groups["pp"]
    assert calls_of(made, 1)[-1].size_bytes == 8  # the loss and the tokens, over dp


def test_gradients_are_reduced_in_the_last_backward_pass_and_awaited_after_it() -> None:
    training = Training(micro_batches=2)
    made = megatron_workload(LLAMA, training, mesh="tp=2,pp=2,dp=2")
    for stage, program in enumerate(made.steps[0].programs):
        calls = program.calls
        reduced = [i for i, c in enumerate(calls) if c.group == "dp" and c.operation != "all_gather"
                   and c.dtype == "float32" and c.asynchronous]  # fmt: skip
        last_pass = {calls[i].waited_after for i in reduced}
        assert len(reduced) > 1 if not stage else len(reduced) == 1
        (end,) = [at for at in last_pass if at is not None]
        assert all(c.operation == "all_gather" for c in calls[end + 1 :] if c.group == "tp"
                   and c.dtype == "bfloat16")  # fmt: skip
        assert calls[end].operation == (SEND if stage else "reduce_scatter")
        assert reduced[0] > len(calls) // 2


def test_experts_get_tokens_by_all_to_all() -> None:
    made = megatron_workload(
        find_transformer("mixtral-8x7b"), Training(sequence=4096), mesh="tp=2,dp=8,ep=4"
    )
    found = counted(made)
    assert found["all_to_all", "ep", 4096 // 2 * 2 * 4096 * 2] == 32 * 4
    assert {len(group) for group in made.groups["ep"]} == {4}
    assert {len(group) for group in made.groups["edp"]} == {4}
    reduced = Counter[str]()
    for call in calls_of(made):
        if call.operation == "reduce_scatter" and call.dtype == "float32":
            reduced[call.group] += (call.size_bytes or 0) // 4
    experts = 32 * 8 * 3 * 4096 * 14336
    assert reduced["edp"] == experts // 4
    whole = find_model("mixtral-8x7b").elements
    assert reduced["dp"] == pytest.approx((whole - experts) / 2, rel=1e-3)
    assert is_readable(made)


@pytest.mark.parametrize("is_sharded", [True, False])
def test_gradients_are_reduced_in_buckets_over_dp_and_cp(is_sharded: bool) -> None:
    training = Training(distributed_optimizer=is_sharded)
    made = megatron_workload(LLAMA, training, mesh="tp=2,cp=2,dp=2")
    name = "reduce_scatter" if is_sharded else "all_reduce"
    found = [c for c in calls_of(made) if c.group == "dp+cp"]
    reduced = [c for c in found if c.operation == name]
    elements = sum((c.size_bytes or 0) // 4 for c in reduced)
    assert elements == pytest.approx(find_model("llama-3-8b").elements / 2, rel=1e-3)
    assert all((c.size_bytes or 0) >= 4 * 40e6 for c in reduced[:-1])
    gathered = [c for c in found if c.operation == "all_gather"]
    assert sum((c.size_bytes or 0) // 2 for c in gathered) == (elements if is_sharded else 0)


@pytest.mark.parametrize(
    ("mesh", "options", "message"),
    [("pp=5", {}, "32 layers cannot be divided by pp = 5"),
     ("tp=3", {}, "32 heads cannot be divided by tp = 3"),
     ("tp=2", {"sequence": 33}, "33 tokens of a sequence cannot be divided by tp x cp = 2"),
     ("dp=-1", {}, "leaves the number of ranks open"), ("tp=2,ep=2,dp=2", {}, "has no experts"),
     ("tp=2,etp=2", {}, "not generated"), ("edp=2", {}, "edp is none of tp, cp, dp, pp and ep")],
)  # fmt: skip
def test_a_layout_that_does_not_fit_the_model_is_refused(
    mesh: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        megatron_workload(LLAMA, Training(**options), mesh=mesh)


DENSE = Transformer("dense", 4, 64, 4, 4, 128, 300, gated=False, tied=True, positions=32)
GATED = Transformer("gated", 4, 64, 4, 2, 192, 300)
EXPERTS = Transformer("experts", 4, 64, 4, 4, 128, 300, experts=4, top_k=2)


def with_calls(workload: Workload, change: Callable[[int, Call], Call]) -> Workload:
    """The workload of one step with each call changed, by its number in its program."""
    (step,) = workload.steps
    programs = tuple(
        program._replace(calls=tuple(change(n, call) for n, call in enumerate(program.calls)))
        for program in step.programs
    )
    return workload._replace(steps=(step._replace(programs=programs),))


def seconds_of(workload: Workload) -> float | None:
    """How long the step takes where each call takes a second, and those of a stream follow one
    another; UsageError where ranks make other calls or wait forever, None where streams do."""
    timed = with_calls(workload, lambda _, call: call._replace(time_s=1.0))
    fitted, changes = prepare_replay(timed, None)
    assert changes == ()
    return calls_only_s(fitted, fitted.steps[0])


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
        (DENSE, "tp=2,pp=2,dp=2", 4, True, True), (DENSE, "tp=2,pp=4", 3, False, False),
        (DENSE, "pp=4,dp=2", 1, True, False), (DENSE, "pp=4", 8, True, True),
        (GATED, "tp=2,cp=2,pp=2,dp=2", 3, True, True), (GATED, "cp=4", 2, True, False),
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
    with pytest.raises(UsageError, match=r"would never end: call \d+ of rank \d, send"):
        seconds_of(with_calls(made, lambda number, call: call._replace(waited_after=number)))


def test_messages_of_a_batch_are_awaited_after_its_last_one() -> None:
    made = megatron_workload(LLAMA, Training(micro_batches=4), mesh="pp=2")
    for stage, (first, last) in enumerate(((SEND, RECV), (RECV, SEND))):
        messages = [(n, c) for n, c in enumerate(calls_of(made, stage)) if c.peer is not None]
        found = [(c.operation, (c.waited_after or 0) - n) for n, c in messages]
        assert found == [(first, 0), *3 * [(SEND, 1), (RECV, 0)], (last, 0)]
        assert all(c.asynchronous for _, c in messages)

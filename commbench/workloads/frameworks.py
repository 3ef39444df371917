"""The calls of a training step with DistributedDataParallel, with FSDP2 (fully_shard), and with
Megatron-LM.

DistributedDataParallel: gradients are cut into buckets in the order in which the backward pass
finishes them. A bucket is complete as soon as it has at least its limit: 1 MiB for the first one,
then `bucket_cap_mb`. Each complete bucket is all-reduced asynchronously; all are awaited at the end
of the backward pass. Before each forward pass, rank 0 broadcasts the buffers, two pieces at a time
(broadcast_coalesced). Source: torch, torch/csrc/distributed/c10d/reducer.cpp
(compute_bucket_assignment_by_size, rebuild_buckets) and torch/nn/parallel/distributed.py.

FSDP2, and its hybrid form (HSDP): each block and the rest of the model, the root, are units. Every
parameter is cut along its first dimension into as many shards as there are ranks, padded to equal
size. Forward: one all_gather for each unit. Backward: each block is gathered again, unless it was
kept, while the block before it computes; then its gradients are reduced and scattered, after the
reduce_scatter of the block before was awaited. With replicas, each shard of gradients is
all-reduced over them. The rest is awaited at the end of the backward pass. Source: torch,
torch/distributed/fsdp/_fully_shard (_fsdp_param_group.py, _fsdp_collectives.py, _fsdp_param.py);
order of calls as observed in a real step.

Megatron-LM's parallel dimensions:

* Tensor parallel: a layer's attention and its feed-forward network each end with an all_reduce in
  the forward pass, and begin with one in the backward pass. With sequence parallelism an all_gather
  and a reduce_scatter take its place; the backward pass gathers the input once more.
* Pipeline: the output of a stage is sent to the next one, its gradient back.
* Context parallel: keys and values go once around the ring in the forward pass; in the backward
  pass once more, with their gradients.
* Expert parallel: all_to_all to the experts and back, in both passes.
* Data parallel: gradients are reduced in buckets during the last backward pass of the step, as with
  --overlap-grad-reduce; the distributed optimizer then gathers the parameters.
* After the passes: gradients of norms over tensor parallel ranks (with sequence parallelism), those
  of a tied embedding over the first and the last stage, the norm of all gradients, and what is
  collected for the log. Not generated: loss terms of experts, and numbers of tokens.

Sources: Shoeybi et al.: Megatron-LM, arXiv 1909.08053; Korthikanti et al.: Reducing Activation
Recomputation in Large Transformer Models, arXiv 2205.05198; Narayanan et al.: Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM, arXiv 2104.04473; Liu et al.: Ring
Attention with Blockwise Transformers, arXiv 2310.01889; Megatron-LM, as megatron_calls.py says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from commbench.errors import UsageError
from commbench.plan.call_forms import DDP_BUCKET, DDP_FIRST_BUCKET
from commbench.plan.dtypes import DTYPES
from commbench.plan.groups import WORLD, Layout, every_group, group_sets, parse_mesh
from commbench.plan.workload import Call, Program, Step, Workload
from commbench.units import format_about, format_bytes, format_count
from commbench.validation import require_within
from commbench.workloads.megatron_calls import EMBEDDING, EXPERT_DATA, Sizes, StageCalls, Training
from commbench.workloads.models import ROOT, Model, Tensor, Transformer, bytes_of, cut_buckets

BROADCAST_BYTES = 250 << 20
"""Buffers are broadcast in pieces of so many bytes (broadcast_bucket_size)."""


def ddp_workload(
    model: Model,
    *,
    ranks: int,
    ranks_per_node: int | None = None,
    bucket_bytes: int | None = None,
    broadcast_buffers: bool = True,
) -> Workload:
    """The calls of a step, as from the second one on: in the first, DDP has one bucket.

    `bucket_bytes` is `bucket_cap_mb` in bytes; None is torch's default of 25 MiB, with a first
    bucket of 1 MiB.
    """
    limits = [DDP_FIRST_BUCKET, DDP_BUCKET] if bucket_bytes is None else [bucket_bytes]
    pieces = cut_buckets(model.buffers, [BROADCAST_BYTES]) if broadcast_buffers else []
    buckets = cut_buckets(model.gradients(), limits)
    last = len(pieces) + len(buckets) - 1
    calls = [
        _whole_call("broadcast", piece, root=0, waited_after=min(n + 1, len(pieces) - 1))
        for n, piece in enumerate(pieces)
    ] + [_whole_call("all_reduce", b, reduce_op="sum", waited_after=last) for b in buckets]
    first = f", the first one at {format_bytes(limits[0])}" if bucket_bytes is None else ""
    order = "the reverse of the order in which the parameters are registered"
    if model.ready:
        order = "as the backward pass finishes the gradients"
    formulas = (
        f"gradients: {format_about(bytes_of(model.parameters))} of {model.elements:,} "
        f"parameters, in {len(buckets)} buckets",
        f"a bucket is complete at {format_bytes(limits[-1])} or more{first}",
        f"order: {order}",
    )
    everyone = tuple(range(ranks))
    programs = [Program(everyone, tuple(calls))]
    made_for = f"ddp {model.name}", "DistributedDataParallel"
    return generated(*made_for, {WORLD: (everyone,)}, programs, formulas, ranks_per_node)


def _whole_call(operation: str, tensors: Sequence[Tensor], **more: Any) -> Call:
    return _call(operation, WORLD, tensors[0].dtype, sum(t.elements for t in tensors), **more)


def generated(
    name: str, framework: str, groups: dict[str, tuple[tuple[int, ...], ...]],
    programs: Sequence[Program], formulas: Iterable[str], ranks_per_node: int | None,
) -> Workload:  # fmt: skip
    """The workload of a step that follows from the rules of a framework; all ranks make calls.
    UsageError where they do not fill the hosts."""
    ranks = sum(len(program.ranks) for program in programs)
    require_within("--ranks-per-node", ranks_per_node, 1, 1e7)
    if ranks % min(ranks_per_node or 1, ranks):
        why = f"--ranks-per-node {ranks_per_node} does not divide {ranks} ranks"
        raise UsageError(why, "leave it out")
    return Workload(
        name, f"generated for {framework}", ranks, groups,
        (Step("step", tuple(programs)),), ranks_per_node, formulas=tuple(formulas),
    )  # fmt: skip


# FSDP2.

SHARD, REPLICATE = "dp_shard", "dp_replicate"
"""Names of the dimensions, as torchtitan has them."""


def fsdp_workload(
    model: Model,
    *,
    ranks: int,
    replicas: int = 1,
    ranks_per_node: int | None = None,
    dtype: str | None = None,
    reduce_dtype: str | None = None,
    reshard: bool = True,
) -> Workload:
    """The calls of a step.

    `ranks` shard the model together, in each of `replicas`. `dtype` is MixedPrecisionPolicy's
    param_dtype, `reduce_dtype` its reduce_dtype; None: that of the parameters, and that of the
    gradients. `reshard` is reshard_after_forward of the blocks. Raises UsageError for a model
    whose units have more than one dtype after casting.
    """
    gathered: dict[str, Call] = {}
    scattered: dict[str, list[Call]] = {}
    for unit in (ROOT, *model.blocks):
        if tensors := model.unit(unit):
            own, padded = _one_dtype(tensors, dtype), _padded(tensors, ranks)
            gathered[unit] = _call("all_gather", SHARD, own, padded)
            scattered[unit] = _scatter(reduce_dtype or own, padded, ranks, replicas)
    world = ranks * replicas
    groups = {SHARD: every_group(ranks, 1, world)}
    if replicas > 1:
        groups[REPLICATE] = every_group(replicas, ranks, world)
    programs = [Program(tuple(range(world)), tuple(_fsdp_step(gathered, scattered, reshard)))]
    formulas = _fsdp_formulas(model, gathered, scattered, ranks)
    made_for = f"fsdp {model.name}", "FSDP2 (fully_shard)"
    return generated(*made_for, groups, programs, formulas, ranks_per_node)


def _fsdp_step(
    gathered: dict[str, Call], scattered: dict[str, list[Call]], reshard: bool
) -> Iterator[Call]:
    """The calls in order, each with when it is waited for: a reduce_scatter before the next one,
    what is reduced over replicas at the end."""
    calls = [call._replace(waited_after=at) for at, call in enumerate(gathered.values())]
    backward = [unit for unit in reversed(gathered) if unit != ROOT]
    if reshard and backward:
        calls.append(gathered[backward[0]]._replace(waited_after=len(calls)))
    for index, unit in enumerate(backward, 1):
        if reshard and index < len(backward):
            following = gathered[backward[index]]
            calls.append(following._replace(waited_after=len(calls) + len(scattered[unit])))
        calls += scattered[unit]
    calls += scattered.get(ROOT, [])
    scatters = [at for at, call in enumerate(calls) if call.operation == "reduce_scatter"]
    ends = dict(pairwise([*scatters, len(calls)]))
    for at, call in enumerate(calls):
        is_known = call.waited_after is not None
        yield call if is_known else call._replace(waited_after=ends.get(at, len(calls)) - 1)


def _fsdp_formulas(
    model: Model, gathered: dict[str, Call], scattered: dict[str, list[Call]], ranks: int
) -> Iterator[str]:
    """How the sizes follow from the model."""
    first = next(iter(model.blocks), ROOT)
    elements = sum(t.elements for t in model.unit(first))
    what = "block" if model.blocks else "model"
    scatter, *more = scattered[first]
    for noun, call in (("parameters", gathered[first]), ("gradients", scatter)):
        width, size = DTYPES[call.dtype].size_bytes, format_about(call.size_bytes or 0)
        yield f"{call.operation} of a {what}: {elements:,} {noun} x {width} B = {size}"
    yield "Each tensor is padded so that its first dimension is a multiple of the ranks"
    for call in more:
        reduced = format_about((scatter.size_bytes or 0) / ranks)
        yield f"{call.operation} over replicas: 1/{ranks} of that = {reduced}"


def _padded(tensors: Iterable[Tensor], ranks: int) -> int:
    """Elements of tensors whose first dimensions are padded to multiples of the ranks. A scalar
    counts as a row."""
    return sum(-(-(t.shape or (1,))[0] // ranks) * ranks * prod(t.shape[1:]) for t in tensors)


def _one_dtype(tensors: tuple[Tensor, ...], dtype: str | None) -> str:
    found = {dtype or t.dtype for t in tensors}
    if len(found) > 1:
        why = f"a unit has parameters of {' and '.join(sorted(found))}"
        raise UsageError(why, "FSDP gathers one dtype at a time: give --dtype")
    return found.pop()


def _call(operation: str, group: str, dtype: str, elements: int, **more: Any) -> Call:
    size = elements * DTYPES[dtype].size_bytes
    return Call(operation, group, dtype, size, asynchronous=True, **more)


def _scatter(dtype: str, elements: int, ranks: int, replicas: int) -> list[Call]:
    """The gradients of a unit, reduced over the ranks and over the replicas."""
    op = "avg" if dtype in ("float32", "bfloat16") else "sum"
    calls = [_call("reduce_scatter", SHARD, dtype, elements, reduce_op=op, stream=1)]
    if replicas > 1:
        own = elements // ranks
        calls.append(_call("all_reduce", REPLICATE, dtype, own, reduce_op=op, stream=2))
    return calls


# Megatron-LM.

ORDER = "megatron"
MOST_TOKENS = 1 << 30
"""Also of a micro-batch, and of micro-batches."""


def megatron_workload(
    model: Transformer, training: Training, *, mesh: str, ranks_per_node: int | None = None
) -> Workload:
    """The calls of one step. `mesh` has sizes of tp, cp, dp, pp and ep, as --mesh takes them.

    Raises UsageError for sizes that do not divide the model.
    """
    found = parse_mesh(mesh)
    if found.pop("etp", 1) != 1:
        raise UsageError("tensor parallel experts are not generated", "leave out etp")
    if unknown := [name for name in found if name not in Sizes._fields]:
        why = f"--mesh {mesh}: {unknown[0]} is none of tp, cp, dp, pp and ep"
        hint = "write for example --mesh tp=4,dp=8; other groups follow from these sizes"
        raise UsageError(why, hint)
    layout = Layout(mesh=mesh, mesh_order=ORDER)
    if (ranks := layout.needed_ranks()) is None:
        raise UsageError(f"--mesh {mesh} leaves the number of ranks open", "give dp=2, not dp=-1")
    sizes = Sizes(**found)
    _require_possible(model, training, sizes)
    over = ["tp", "pp", "cp", sizes.over("dp", "cp"), sizes.over("pp", "tp")]
    if model.is_moe:
        over += ["ep", EXPERT_DATA, "pp+ep"]
        given = [f"{name}=1" for name in ("ep", "etp") if name not in parse_mesh(mesh)]
        layout = layout._replace(mesh=",".join([mesh, *given]))
    used = group_sets(layout._replace(over=tuple(dict.fromkeys(over))), ranks)
    groups = {s.name: s.groups for s in used if any(len(group) > 1 for group in s.groups)}
    stages = [tuple(range(ranks))]
    if pipelines := groups.get("pp"):
        if model.tied:
            groups[EMBEDDING] = tuple((group[0], group[-1]) for group in pipelines)
        stages = [tuple(sorted(members)) for members in zip(*pipelines, strict=True)]
    if ranks > 1:
        groups[WORLD] = (tuple(range(ranks)),)
    calls = StageCalls(model, training, sizes, frozenset(groups))
    programs = [Program(members, tuple(calls.step(stage))) for stage, members in enumerate(stages)]
    used_names = {call.group for program in programs for call in program.calls}
    groups = {name: found for name, found in groups.items() if name in used_names}
    made_for = f"megatron {model.name}", f"Megatron-LM, {mesh}"
    return generated(*made_for, groups, programs, _formulas(calls), ranks_per_node)


def _require_possible(model: Transformer, training: Training, sizes: Sizes) -> None:
    for name in ("sequence", "micro_batch", "micro_batches"):
        require_within(name, getattr(training, name), 1, MOST_TOKENS)
    if sizes.ep > 1 and not model.is_moe:
        raise UsageError(f"{model.name} has no experts", "leave out ep")
    parts = sizes.cp * (sizes.tp if training.sequence_parallel else 1)
    for whole, noun, name, part in (
        (model.layers, "layers", "pp", sizes.pp),
        (model.heads, "heads", "tp", sizes.tp),
        (training.sequence, "tokens of a sequence", "tp x cp", parts),
        (max(1, model.experts), "experts", "ep", sizes.ep),
    ):
        if whole % part:
            why = f"{whole} {noun} cannot be divided by {name} = {part}"
            raise UsageError(why, f"the {noun} must be a multiple of {name}")
    if model.is_moe and sizes.tp > 1 and not training.sequence_parallel:
        why = "Megatron-LM trains experts with tp only with sequence parallelism"
        raise UsageError(why, "leave out --no-sequence-parallel")


def _formulas(calls: StageCalls) -> Iterator[str]:
    """How the sizes follow from the model, with the figures put in."""
    training, model, sizes, groups = calls.training, calls.model, calls.sizes, calls.groups
    width = DTYPES[training.dtype].size_bytes
    over_cp = f" / {sizes.cp} ranks of cp" if sizes.cp > 1 else ""
    tokens = f"{training.sequence} x {training.micro_batch} tokens{over_cp}"
    over_tp = f" / {sizes.tp} ranks of tp" if sizes.tp > 1 else ""
    if "tp" in groups:
        kinds = "all_gather and 2 reduce_scatter" if training.sequence_parallel else "all_reduce"
        yield (
            f"tp: 2 {kinds} per layer and forward pass, {tokens} x {model.hidden} x {width} B "
            f"= {format_about(calls.activation)}"
        )
    if "pp" in groups:
        yield (
            f"pp: per boundary and micro-batch, {tokens} x {model.hidden} x {width} B"
            f"{over_tp if training.sequence_parallel else ''} = {format_about(calls.sent)} each way"
        )
    if "cp" in groups:
        yield (
            f"cp: {format_count(sizes.cp - 1, 'shift')} per layer, keys and values, 2 x {tokens} "
            f"x {model.kv_hidden} x {width} B{over_tp} = {format_about(calls.keys)}; backward "
            "with their gradients"
        )
    if "ep" in groups:
        yield (
            f"ep: all_to_all to the experts and back, tokens of a rank x {model.top_k} x "
            f"{model.hidden} x {width} B = {format_about(calls.routed)}, evenly distributed"
        )
    limit = f"max(40e6, 1e6 x {sizes.dp * sizes.cp}) parameters"
    if training.bucket_bytes:
        limit = format_about(training.bucket_bytes)
    others = ", one bucket in other stages" if sizes.pp > 1 else ""
    for group, whose in ((calls.data, ""), (EXPERT_DATA, " of experts")):
        elements = sum(bucket.elements for bucket in calls.buckets(0) if bucket.group == group)
        if group in groups and elements:
            yield (
                f"{group}: {elements:,} gradients{whose} of a rank of the first stage, in "
                f"{training.gradient_dtype}, buckets of {limit}{others}"
            )

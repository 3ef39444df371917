"""The calls of a training step with DistributedDataParallel, and with FSDP2 (fully_shard).

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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from commbench.errors import UsageError
from commbench.plan.call_forms import DDP_BUCKET, DDP_FIRST_BUCKET
from commbench.plan.dtypes import DTYPES
from commbench.plan.groups import WORLD
from commbench.plan.workload import Call, Program, Step, Workload
from commbench.units import format_about, format_bytes
from commbench.workloads.models import ROOT, Model, Tensor

BROADCAST_BYTES = 250 << 20
"""Buffers are broadcast in pieces of so many bytes (broadcast_bucket_size)."""


def cut_buckets(tensors: Iterable[Tensor], limits: Sequence[int]) -> list[list[Tensor]]:
    """Buckets of tensors of one dtype. The first bucket has the first limit in bytes, and so on;
    the last limit is that of all further buckets. Buckets are in the order of their completion,
    and incomplete ones follow."""
    open_buckets: dict[str, list[Tensor]] = {}
    used: dict[str, int] = {}
    done: list[list[Tensor]] = []
    for tensor in tensors:
        bucket = open_buckets.setdefault(tensor.dtype, [])
        bucket.append(tensor)
        limit = limits[min(used.get(tensor.dtype, 0), len(limits) - 1)]
        if _bytes(bucket) >= limit:
            done.append(open_buckets.pop(tensor.dtype))
            used[tensor.dtype] = used.get(tensor.dtype, 0) + 1
    return done + list(open_buckets.values())


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.elements * DTYPES[t.dtype].size_bytes for t in tensors)


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
    made: list[tuple[list[Tensor], dict[str, Any]]] = [
        (piece, {"operation": "broadcast", "root": 0, "waited_after": min(n + 1, len(pieces) - 1)})
        for n, piece in enumerate(pieces)
    ]
    last = len(pieces) + len(buckets) - 1
    reduce = {"operation": "all_reduce", "reduce_op": "sum", "waited_after": last}
    calls = [
        Call(dtype=tensors[0].dtype, size_bytes=_bytes(tensors), asynchronous=True, **fields)
        for tensors, fields in (*made, *((bucket, reduce) for bucket in buckets))
    ]
    first = f", the first one at {format_bytes(limits[0])}" if bucket_bytes is None else ""
    order = "the reverse of the order in which the parameters are registered"
    if model.ready:
        order = "as the backward pass finishes the gradients"
    formulas = (
        f"gradients: {format_about(_bytes(model.parameters))} of {model.elements:,} "
        f"parameters, in {len(buckets)} buckets",
        f"a bucket is complete at {format_bytes(limits[-1])} or more{first}",
        f"order: {order}",
    )
    everyone = tuple(range(ranks))
    programs = [Program(everyone, tuple(calls))]
    made_for = f"ddp {model.name}", "DistributedDataParallel"
    return generated(*made_for, {WORLD: (everyone,)}, programs, formulas, ranks_per_node)


def generated(
    name: str, framework: str, groups: dict[str, tuple[tuple[int, ...], ...]],
    programs: Sequence[Program], formulas: Iterable[str], ranks_per_node: int | None,
) -> Workload:  # fmt: skip
    """The workload of a step that follows from the rules of a framework; all ranks make calls."""
    return Workload(
        name, f"generated for {framework}", sum(len(program.ranks) for program in programs), groups,
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
            own = _one_dtype(tensors, dtype)
            gathered[unit] = _call("all_gather", SHARD, own, _padded(tensors, ranks))
            scattered[unit] = _scatter(
                reduce_dtype or own, _padded(tensors, ranks), ranks, replicas
            )
    world = ranks * replicas
    groups = {SHARD: tuple(tuple(range(i, i + ranks)) for i in range(0, world, ranks))}
    if replicas > 1:
        groups[REPLICATE] = tuple(tuple(range(i, world, ranks)) for i in range(ranks))
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
    yield "each tensor is padded so that its first dimension is a multiple of the ranks"
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
        raise UsageError(
            f"a unit has parameters of {' and '.join(sorted(found))}",
            "FSDP gathers one dtype at a time: give --dtype",
        )
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

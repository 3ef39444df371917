"""The calls of a training step with FSDP2 (fully_shard), and with its hybrid form (HSDP).

Each block and the rest of the model, the root, are units. Every parameter is cut along its first
dimension into as many shards as there are ranks, padded to equal size. Forward: one all_gather for
each unit. Backward: each block is gathered again, unless it was kept, while the block before it
computes; then its gradients are reduced and scattered, after the reduce_scatter of the block before
was awaited. With replicas, each shard of gradients is all-reduced over them. The rest is awaited at
the end of the backward pass.

Source: torch, torch/distributed/fsdp/_fully_shard (_fsdp_param_group.py, _fsdp_collectives.py,
_fsdp_param.py); order of calls as observed in a real step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from commbench.errors import UsageError
from commbench.spec.dtypes import DTYPES
from commbench.spec.workload import Call, Program, Step, Workload
from commbench.training.models import ROOT, Model, Tensor
from commbench.units import format_about

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
    units = [unit for unit in (ROOT, *model.blocks) if model.unit(unit)]
    gathered = {unit: _gather(model.unit(unit), ranks, dtype) for unit in units}
    scattered = {
        unit: _scatter(model.unit(unit), ranks, dtype, reduce_dtype, replicas) for unit in units
    }
    world = ranks * replicas
    groups = {SHARD: tuple(tuple(range(i, i + ranks)) for i in range(0, world, ranks))}
    if replicas > 1:
        groups[REPLICATE] = tuple(tuple(range(i, world, ranks)) for i in range(ranks))
    calls = tuple(_step(units, gathered, scattered, reshard))
    return Workload(
        name=f"fsdp {model.name}",
        source="generated for FSDP2 (fully_shard)",
        world_size=world,
        ranks_per_node=ranks_per_node,
        groups=groups,
        steps=(Step("step", (Program(tuple(range(world)), calls),)),),
        formulas=tuple(_formulas(model, ranks, replicas, gathered, scattered)),
    )


def _step(
    units: Sequence[str], gathered: dict[str, Call], scattered: dict[str, list[Call]], reshard: bool
) -> list[Call]:
    """The calls in order, each with when it is waited for."""
    calls: list[Call] = []
    for unit in units:
        calls.append(gathered[unit]._replace(waited_after=len(calls)))
    backward = [unit for unit in reversed(units) if unit != ROOT]
    if reshard and backward:
        calls.append(gathered[backward[0]]._replace(waited_after=len(calls)))
    for index, unit in enumerate(backward, 1):
        if reshard and index < len(backward):
            following = gathered[backward[index]]
            calls.append(following._replace(waited_after=len(calls) + len(scattered[unit])))
        calls += scattered[unit]
    calls += scattered.get(ROOT, [])
    end = len(calls)
    for index in range(len(calls) - 1, -1, -1):
        if calls[index].waited_after is None:
            is_scatter = calls[index].operation == "reduce_scatter"
            at = (end if is_scatter else len(calls)) - 1
            calls[index] = calls[index]._replace(waited_after=at)
            end = index if is_scatter else end
    return calls


def _formulas(
    model: Model,
    ranks: int,
    replicas: int,
    gathered: dict[str, Call],
    scattered: dict[str, list[Call]],
) -> Iterator[str]:
    """How the sizes follow from the model."""
    first = next(iter(model.blocks), ROOT)
    elements = sum(t.elements for t in model.unit(first))
    what = "block" if model.blocks else "model"
    for noun, call in (("parameters", gathered[first]), ("gradients", scattered[first][0])):
        width, size = DTYPES[call.dtype].size_bytes, format_about(call.size_bytes or 0)
        yield f"{call.operation} of a {what}: {elements:,} {noun} x {width} B = {size}"
    yield "each tensor is padded so that its first dimension is a multiple of the ranks"
    if replicas > 1:
        reduced = format_about((scattered[first][0].size_bytes or 0) / ranks)
        yield f"all_reduce over replicas: 1/{ranks} of that = {reduced}"


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


def _gather(tensors: tuple[Tensor, ...], ranks: int, dtype: str | None) -> Call:
    name = _one_dtype(tensors, dtype)
    size = _padded(tensors, ranks) * DTYPES[name].size_bytes
    return Call("all_gather", SHARD, name, size, asynchronous=True)


def _scatter(
    tensors: tuple[Tensor, ...],
    ranks: int,
    dtype: str | None,
    reduce_dtype: str | None,
    replicas: int,
) -> list[Call]:
    name = reduce_dtype or _one_dtype(tensors, dtype)
    size = _padded(tensors, ranks) * DTYPES[name].size_bytes
    op = "avg" if name in ("float32", "bfloat16") else "sum"
    calls = [Call("reduce_scatter", SHARD, name, size, reduce_op=op, asynchronous=True, stream=1)]
    if replicas > 1:
        calls.append(
            Call(
                "all_reduce", REPLICATE, name, size // ranks, reduce_op=op, asynchronous=True,
                stream=2,
            )
        )  # fmt: skip
    return calls

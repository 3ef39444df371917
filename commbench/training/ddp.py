"""The calls of a training step with DistributedDataParallel.

Gradients are cut into buckets in the order in which the backward pass finishes them. A bucket is
complete as soon as it has at least its limit: 1 MiB for the first one, then `bucket_cap_mb`. Each
complete bucket is all-reduced asynchronously; all are awaited at the end of the backward pass.
Before each forward pass, rank 0 broadcasts the buffers, two pieces at a time (broadcast_coalesced).

Source: torch, torch/csrc/distributed/c10d/reducer.cpp (compute_bucket_assignment_by_size,
rebuild_buckets) and torch/nn/parallel/distributed.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commbench.spec.call_forms import DDP_BUCKET, DDP_FIRST_BUCKET
from commbench.spec.dtypes import DTYPES
from commbench.spec.groups import WORLD
from commbench.spec.workload import Call, Program, Step, Workload
from commbench.training.models import Model, Tensor
from commbench.units import format_about, format_bytes

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
        if count_bytes(bucket) >= limit:
            done.append(open_buckets.pop(tensor.dtype))
            used[tensor.dtype] = used.get(tensor.dtype, 0) + 1
    return done + list(open_buckets.values())


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes of tensors."""
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
    calls = []
    if broadcast_buffers:
        pieces = cut_buckets(model.buffers, [BROADCAST_BYTES])
        for index, buffers in enumerate(pieces):
            calls.append(
                Call(
                    "broadcast", dtype=buffers[0].dtype, size_bytes=count_bytes(buffers), root=0,
                    asynchronous=True, waited_after=min(index + 1, len(pieces) - 1),
                )
            )  # fmt: skip
    buckets = cut_buckets(model.gradients(), limits)
    last = len(calls) + len(buckets) - 1
    for bucket in buckets:
        calls.append(
            Call(
                "all_reduce", dtype=bucket[0].dtype, size_bytes=count_bytes(bucket),
                reduce_op="sum", asynchronous=True, waited_after=last,
            )
        )  # fmt: skip
    first, cap = format_bytes(limits[0]), format_bytes(limits[-1])
    rules = [
        f"gradients: {format_about(count_bytes(model.parameters))} of {model.elements:,} "
        f"parameters, in {len(buckets)} buckets",
        f"a bucket is complete at {cap} or more" + (f", the first one at {first}" if bucket_bytes is
        None else ""),
        "order: " + ("as the backward pass finishes the gradients" if model.ready else
        "the reverse of the order in which the parameters are registered"),
    ]  # fmt: skip
    return Workload(
        name=f"ddp {model.name}",
        source="generated for DistributedDataParallel",
        world_size=ranks,
        ranks_per_node=ranks_per_node,
        groups={WORLD: (tuple(range(ranks)),)},
        steps=(Step("step", (Program(tuple(range(ranks)), tuple(calls)),)),),
        formulas=tuple(rules),
    )

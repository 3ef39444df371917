"""The calls that each stage of a pipeline makes in a step with Megatron-LM.

A micro-batch passes through the stages in the order of the schedule 1F1B. Sizes are in bytes.

Source: Megatron-LM, megatron/core: pipeline_parallel/schedules.py and p2p_communication.py,
tensor_parallel/layers.py, transformer/moe/token_dispatcher.py, distributed/param_and_grad_buffer.py
and finalize_model_grads.py, optimizer/clip_grads.py; megatron/training/training.py (train_step).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import lcm
from typing import Any, NamedTuple

from commbench.spec.dtypes import DTYPES
from commbench.spec.groups import WORLD
from commbench.spec.workload import RECV, SEND, Call
from commbench.training.ddp import cut_buckets
from commbench.training.models import Tensor, Transformer

BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK = 40_000_000, 1_000_000
"""A bucket has max(40e6, 1e6 d) parameters (DistributedDataParallelConfig). Only the first stage
cuts its gradients: those of the others are one bucket (DistributedDataParallel)."""
PARAMETER_ALIGNMENT, BUCKET_ALIGNMENT = 64, 128
"""With the distributed optimizer a parameter begins at a multiple of so many numbers, and a bucket
ends at a multiple of both BUCKET_ALIGNMENT and the ranks (optimizer/param_layout.py)."""
EMBEDDING, EXPERT_DATA = "embd", "edp"
"""The groups of the first and the last stage, and of the ranks with the same experts."""
_AFTER_PASSES = -1
"""`waited_after` of a reduction of gradients: the last call of the forward and backward passes."""
_REPLICATED = re.compile(r"norm|^moe\.gate$|^positions$|\.(?:proj|w2)\.bias$")
"""Tensors that tensor parallel ranks have whole. With sequence parallelism each rank has the
gradients of its own tokens, so these are summed up; not those of positions."""


class Training(NamedTuple):
    """How a step is trained."""

    sequence: int = 4096
    micro_batch: int = 1
    """b: sequences of a micro-batch."""
    micro_batches: int = 1
    """Of a step, on each data parallel rank."""
    dtype: str = "bfloat16"
    """Of activations and parameters."""
    gradient_dtype: str = "float32"
    """In which gradients are reduced."""
    sequence_parallel: bool = True
    distributed_optimizer: bool = True
    """Whether gradients are reduce-scattered and parameters gathered, instead of all-reduced."""
    bucket_bytes: int | None = None
    """Bytes of gradients in a bucket; None: Megatron-LM's default."""


class Sizes(NamedTuple):
    """The dimensions of the layout."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1


class Bucket(NamedTuple):
    """Gradients that are reduced together."""

    group: str
    elements: int
    """With the padding."""
    unit: int
    """It is complete after the backward pass of this unit; see StageCalls.units."""


class StageCalls:
    """Makes the calls of each stage.

    `groups` are the names of the groups with several ranks. `data` and `model_parallel` name the
    groups over which dense gradients are reduced, and that have the ranks of one copy of the model.
    """

    def __init__(
        self,
        model: Transformer,
        training: Training,
        sizes: Sizes,
        groups: frozenset[str],
        data: str,
        model_parallel: str,
    ) -> None:
        self.model, self.training, self.sizes = model, training, sizes
        self.groups, self.data, self._model_parallel = groups, data, model_parallel
        self._layers = model.layers // sizes.pp
        width = DTYPES[training.dtype].size_bytes
        tokens = training.sequence * training.micro_batch // sizes.cp
        self._tokens = tokens
        self.activation = tokens * model.hidden * width
        """The activations of a micro-batch, whole over the tensor parallel ranks: s b h B / c."""
        self.sent = self.activation // (sizes.tp if training.sequence_parallel else 1)
        self.keys = 2 * tokens * (model.kv_hidden // min(sizes.tp, model.kv_heads)) * width
        own_tokens = tokens // (sizes.tp if training.sequence_parallel else 1)
        self.routed = own_tokens * max(1, model.top_k) * model.hidden * width

    def step(self, stage: int) -> Iterator[Call]:
        """The calls of a stage: micro-batches in the order of 1F1B, with the gradients reduced in
        the last backward pass; then the optimizer's."""
        passes = list(self._passes(stage))
        for index, call in enumerate([*passes, *self._update(stage)]):
            wait = call.waited_after or 0
            at = len(passes) - 1 if wait == _AFTER_PASSES else index + wait
            yield call._replace(waited_after=at)

    def _passes(self, stage: int) -> Iterator[Call]:
        batches, stages = self.training.micro_batches, self.sizes.pp
        ahead = min(stages - stage - 1, batches)
        for _ in range(ahead):
            yield from self._batch((RECV, stage - 1))
            yield from self._forward(stage)
            yield from self._batch((SEND, stage + 1))
        if ahead < batches:
            yield from self._batch((RECV, stage - 1))
        for index in range(ahead, batches):
            yield from self._forward(stage)
            yield from self._batch((SEND, stage + 1), (RECV, stage + 1))
            yield from self._backward(stage, is_last=not ahead and index == batches - 1)
            more = [(RECV, stage - 1)] if index < batches - 1 else []
            yield from self._batch((SEND, stage - 1), *more)
        for left in reversed(range(ahead)):
            yield from self._batch((RECV, stage + 1))
            yield from self._backward(stage, is_last=not left)
            yield from self._batch((SEND, stage - 1))

    def _in(self, group: str, operation: str, size: int, **fields: Any) -> Iterator[Call]:
        """One call; none where the group has one rank. `waited_after` counts from the call."""
        if group in self.groups:
            base = Call(operation, group, self.training.dtype, size, asynchronous=False)
            yield base._replace(**fields)

    def _batch(self, *messages: tuple[str, int]) -> Iterator[Call]:
        """Messages from and to other stages that are under way together (batch_isend_irecv)."""
        real = [(name, peer) for name, peer in messages if 0 <= peer < self.sizes.pp]
        for left, (name, peer) in zip(range(len(real))[::-1], real, strict=True):
            yield from self._in(
                "pp", name, self.sent, peer=peer, asynchronous=True, waited_after=left
            )

    def _forward(self, stage: int) -> Iterator[Call]:
        if not stage:
            yield from self._sum()
        for _ in range(self._layers):
            yield from self._gather()
            for _ in range(self.sizes.cp - 1):
                yield from self._shift(self.keys)
            yield from self._sum()
            if self.model.is_moe:
                yield from self._route()
            else:
                yield from self._gather()
                yield from self._sum()
        if stage == self.sizes.pp - 1:
            yield from self._gather()
            for op in ("max", "sum", "sum"):  # of the cross entropy over parts of the vocabulary
                yield from self._small("tp", op, self._tokens)

    def _backward(self, stage: int, is_last: bool) -> Iterator[Call]:
        """With the reduction of the gradients, if it is the last one of the step."""
        buckets = self.buckets(stage) if is_last else []
        for unit in range(self._layers + 2):
            if not unit and stage == self.sizes.pp - 1:
                yield from self._gather_input()
            elif 0 < unit <= self._layers:
                yield from self._backward_layer()
            elif unit and not stage:
                yield from self._gather()
            for bucket in buckets:
                if bucket.unit == unit:
                    yield from self._reduce(bucket)

    def _backward_layer(self) -> Iterator[Call]:
        if self.model.is_moe:
            yield from self._route()
        else:
            yield from self._gather()
            yield from self._gather_input()
        yield from self._gather()
        for step in range(self.sizes.cp):
            yield from self._shift((2 if step < self.sizes.cp - 1 else 1) * self.keys)
        yield from self._gather_input()

    def _gather(self, **fields: Any) -> Iterator[Call]:
        if self.training.sequence_parallel:
            yield from self._in("tp", "all_gather", self.activation, **fields)

    def _sum(self, **fields: Any) -> Iterator[Call]:
        """The sum of the partial outputs."""
        operation = "reduce_scatter" if self.training.sequence_parallel else "all_reduce"
        yield from self._in("tp", operation, self.activation, reduce_op="sum", **fields)

    def _gather_input(self) -> Iterator[Call]:
        """In the backward pass of a matrix that is cut by columns: its input again, then the sum of
        the gradients of the input. Each is under way during a multiplication."""
        yield from self._gather(asynchronous=True)
        yield from self._sum(asynchronous=True)

    def _shift(self, size: int) -> Iterator[Call]:
        """To the next context parallel rank, during the attention to what came before."""
        yield from self._in("cp", "send_recv", size, asynchronous=True)

    def _route(self) -> Iterator[Call]:
        for _ in ("to the experts", "back"):
            yield from self._in("ep", "all_to_all", self.routed)

    def _reduce(self, bucket: Bucket) -> Iterator[Call]:
        operation = "reduce_scatter" if self.training.distributed_optimizer else "all_reduce"
        dtype = self.training.gradient_dtype
        yield from self._in(
            bucket.group, operation, bucket.elements * DTYPES[dtype].size_bytes, dtype=dtype,
            reduce_op="sum", asynchronous=True, stream=1, waited_after=_AFTER_PASSES,
        )  # fmt: skip

    def _small(
        self, group: str, reduce_op: str, elements: int = 1, dtype: str = "float32"
    ) -> Iterator[Call]:
        """An all_reduce of a few numbers."""
        size = elements * DTYPES[dtype].size_bytes
        yield from self._in(group, "all_reduce", size, dtype=dtype, reduce_op=reduce_op)

    def _update(self, stage: int) -> Iterator[Call]:
        """The calls after the passes: finalize_model_grads, the optimizer's step, and what
        train_step collects for the log."""
        training, dtype = self.training, self.training.gradient_dtype
        if elements := self.replicated_elements(stage):
            yield from self._small("tp", "sum", elements, dtype)
        if self._has_tied_copy(stage):
            yield from self._small(EMBEDDING, "sum", self.embedding_elements(), dtype)
        for group in self.norm_groups():
            if training.dtype == "float16":  # whether a gradient is infinite
                yield from self._small(group, "max")
            yield from self._small(group, "sum")
        if training.distributed_optimizer:
            for bucket in self.buckets(stage):
                size = bucket.elements * DTYPES[training.dtype].size_bytes
                yield from self._in(bucket.group, "all_gather", size)
        yield from self._small(self._model_parallel, "min", dtype="int32")
        yield from self._small(self._model_parallel, "max")
        if stage == self.sizes.pp - 1:
            yield from self._small(self.data, "sum", 2)

    def norm_groups(self) -> tuple[str, ...]:
        """The groups over which the square of the gradients' norm is summed up, one after another:
        those of get_grad_stats_parallel_group of the optimizers."""
        if self.training.distributed_optimizer:
            return (WORLD,)
        return (self._model_parallel,) + (("pp+ep",) if self.model.is_moe else ())

    def _has_tied_copy(self, stage: int) -> bool:
        """Whether it has one of two copies of the embedding."""
        return self.model.tied and self.sizes.pp > 1 and stage in (0, self.sizes.pp - 1)

    def embedding_elements(self) -> int:
        """The part of the embedding that a rank has."""
        return _cut(self.model.outer()[0][0], self.sizes.tp).elements

    def replicated_elements(self, stage: int) -> int:
        """The numbers of a stage whose gradients are summed over tensor parallel ranks."""
        if not self.training.sequence_parallel:
            return 0
        return sum(
            t.elements
            for tensors, _ in self.units(stage)
            for t in tensors
            if _REPLICATED.search(t.name) and t.name != "positions"
        )

    def units(self, stage: int) -> list[tuple[list[Tensor], list[Tensor]]]:
        """The tensors of a rank of a stage, without and with those of experts, in the order in
        which their gradients are finished: what follows the layers, each layer, what precedes."""
        before, after = self.model.outer()
        is_last = stage == self.sizes.pp - 1
        experts = self.model.expert()
        block = [t for t in self.model.block() if t not in {*experts}]
        layer = (block[::-1], list(experts[: len(experts) // self.sizes.ep][::-1]))
        tied = before[:1] if self._has_tied_copy(stage) and stage else ()
        found = [
            ([*tied, *after[::-1]] if is_last else [], []),
            *(layer for _ in range(self._layers)),
            ([] if stage else list(before[::-1]), []),
        ]
        dtype = self.training.gradient_dtype
        return [
            (
                [_cut(t._replace(dtype=dtype), self.sizes.tp) for t in dense],
                [t._replace(dtype=dtype) for t in own],
            )
            for dense, own in found
        ]

    def buckets(self, stage: int) -> list[Bucket]:
        """The buckets of a stage, in the order in which they are complete."""
        training, units = self.training, self.units(stage)
        default = DTYPES[training.gradient_dtype].size_bytes * max(
            BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * self.sizes.dp * self.sizes.cp
        )
        limit = 1 << 62 if stage else training.bucket_bytes or default
        found = []
        for kind, group in enumerate((self.data, EXPERT_DATA)):
            owners = [unit for unit, tensors in enumerate(units) for _ in tensors[kind]]
            done = 0
            for bucket in cut_buckets((t for unit in units for t in unit[kind]), [limit]):
                done += len(bucket)
                found.append(Bucket(group, self._padded(bucket, group), owners[done - 1]))
        return sorted(found, key=lambda bucket: bucket.unit)

    def _padded(self, tensors: Sequence[Tensor], group: str) -> int:
        """The numbers of a bucket of these tensors."""
        if not self.training.distributed_optimizer:
            return sum(t.elements for t in tensors)
        sizes = self.sizes
        ranks = sizes.dp * sizes.cp
        if group == EXPERT_DATA:
            ranks = ranks * sizes.tp // sizes.ep
        end = 0
        for tensor in tensors:
            end = _round_up(end, PARAMETER_ALIGNMENT) + tensor.elements
        return _round_up(end, lcm(ranks, BUCKET_ALIGNMENT))


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _cut(tensor: Tensor, parts: int) -> Tensor:
    """The part of a tensor that a tensor parallel rank has."""
    if _REPLICATED.search(tensor.name):
        return tensor
    return tensor._replace(shape=(-(-tensor.shape[0] // parts), *tensor.shape[1:]))

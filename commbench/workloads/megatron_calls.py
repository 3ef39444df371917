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

from commbench.plan.dtypes import DTYPES
from commbench.plan.groups import WORLD
from commbench.plan.workload import RECV, SEND, Call
from commbench.workloads.models import Tensor, Transformer, cut_buckets

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

    def over(self, *names: str) -> str:
        """The name of the groups over those of these dimensions that have several ranks."""
        return "+".join(name for name in names if getattr(self, name) > 1) or names[0]


class Bucket(NamedTuple):
    """Gradients that are reduced together."""

    group: str
    elements: int
    """With the padding."""
    unit: int
    """It is complete after the backward pass of this unit; see StageCalls.units."""


class StageCalls:
    """Makes the calls of each stage.

    `groups` are the names of the groups with several ranks. A call says how many calls after it it
    is waited for, until `step` counts from the first one.
    """

    def __init__(
        self, model: Transformer, training: Training, sizes: Sizes, groups: frozenset[str]
    ) -> None:
        self.model, self.training, self.sizes, self.groups = model, training, sizes, groups
        self.data, self._model_parallel = sizes.over("dp", "cp"), sizes.over("pp", "tp")
        """The groups over which dense gradients are reduced, and those of one copy of the model."""
        self._layers, self._last = model.layers // sizes.pp, sizes.pp - 1
        width = DTYPES[training.dtype].size_bytes
        self._tokens = training.sequence * training.micro_batch // sizes.cp
        self.activation = self._tokens * model.hidden * width
        """The activations of a micro-batch, whole over the tensor parallel ranks: s b h B / c."""
        parts = sizes.tp if training.sequence_parallel else 1
        self.sent = self.activation // parts
        self.keys = 2 * self._tokens * (model.kv_hidden // min(sizes.tp, model.kv_heads)) * width
        self.routed = self._tokens // parts * max(1, model.top_k) * model.hidden * width

    def step(self, stage: int) -> Iterator[Call]:
        """The calls of a stage: micro-batches in the order of 1F1B, with the gradients reduced in
        the last backward pass; then the optimizer's."""
        passes = self._passes(stage)
        for index, call in enumerate([*passes, *self._update(stage)]):
            wait = call.waited_after or 0
            at = len(passes) - 1 if wait == _AFTER_PASSES else index + wait
            yield call._replace(waited_after=at)

    def _passes(self, stage: int) -> list[Call]:
        batches = self.training.micro_batches
        ahead = min(self._last - stage, batches)
        before, after = stage - 1, stage + 1
        forward = self._forward(stage)
        receive, send = self._messages((RECV, before)), self._messages((SEND, after))
        found = ahead * [*receive, *forward, *send] + (receive if ahead < batches else [])
        for index in range(ahead, batches):
            is_last = index == batches - 1
            found += [*forward, *self._messages((SEND, after), (RECV, after))]
            found += self._backward(stage, is_last=is_last and not ahead)
            found += self._messages((SEND, before), *([] if is_last else [(RECV, before)]))
        for left in reversed(range(ahead)):
            found += self._messages((RECV, after))
            found += self._backward(stage, is_last=not left)
            found += self._messages((SEND, before))
        return found

    def _in(self, group: str, operation: str, size: int, **fields: Any) -> list[Call]:
        """One call; none where the group has one rank."""
        base = Call(operation, group, self.training.dtype, size, asynchronous=False)
        return [base._replace(**fields)] if group in self.groups else []

    def _messages(self, *messages: tuple[str, int]) -> list[Call]:
        """Messages from and to other stages that are under way together (batch_isend_irecv)."""
        real = [(name, peer) for name, peer in messages if 0 <= peer <= self._last]
        return [
            call
            for left, (name, peer) in zip(range(len(real))[::-1], real, strict=True)
            for call in self._in(
                "pp", name, self.sent, peer=peer, asynchronous=True, waited_after=left
            )
        ]

    def _forward(self, stage: int) -> list[Call]:
        gather, reduce = self._gather(), self._sum()
        layer = [*gather, *(self.sizes.cp - 1) * self._shift(self.keys), *reduce]
        layer += self._route() if self.model.is_moe else [*gather, *reduce]
        found = [*([] if stage else reduce), *self._layers * layer]
        if stage == self._last:
            found += gather
            for op in ("max", "sum", "sum"):  # of the cross entropy over parts of the vocabulary
                found += self._small("tp", op, self._tokens)
        return found

    def _backward(self, stage: int, is_last: bool) -> Iterator[Call]:
        """With the reduction of the gradients, if it is the last one of the step."""
        # The input of a matrix that is cut by columns again, then the sum of its gradients: each is
        # under way during a multiplication.
        gather, input_ = self._gather(), self._gather(is_async=True) + self._sum(is_async=True)
        layer = self._route() if self.model.is_moe else [*gather, *input_]
        shifts = [*(self.sizes.cp - 1) * self._shift(2 * self.keys), *self._shift(self.keys)]
        layer = [*layer, *gather, *shifts, *input_]
        ends = (input_ if stage == self._last else []), ([] if stage else gather)
        buckets = self.buckets(stage) if is_last else []
        for unit, calls in enumerate([ends[0], *self._layers * [layer], ends[1]]):
            yield from calls
            for bucket in buckets:
                yield from self._reduce(bucket) if bucket.unit == unit else ()

    def _gather(self, is_async: bool = False) -> list[Call]:
        if not self.training.sequence_parallel:
            return []
        return self._in("tp", "all_gather", self.activation, asynchronous=is_async)

    def _sum(self, is_async: bool = False) -> list[Call]:
        """The sum of the partial outputs."""
        operation = "reduce_scatter" if self.training.sequence_parallel else "all_reduce"
        return self._in("tp", operation, self.activation, reduce_op="sum", asynchronous=is_async)

    def _shift(self, size: int) -> list[Call]:
        """To the next context parallel rank, during the attention to what came before."""
        return self._in("cp", "send_recv", size, asynchronous=True)

    def _route(self) -> list[Call]:
        """To the experts, and back."""
        return 2 * self._in("ep", "all_to_all", self.routed)

    def _reduce(self, bucket: Bucket) -> list[Call]:
        operation = "reduce_scatter" if self.training.distributed_optimizer else "all_reduce"
        dtype = self.training.gradient_dtype
        return self._in(
            bucket.group, operation, bucket.elements * DTYPES[dtype].size_bytes, dtype=dtype,
            reduce_op="sum", asynchronous=True, stream=1, waited_after=_AFTER_PASSES,
        )  # fmt: skip

    def _small(
        self, group: str, reduce_op: str, elements: int = 1, dtype: str = "float32"
    ) -> list[Call]:
        """An all_reduce of a few numbers; none of no number."""
        size = elements * DTYPES[dtype].size_bytes
        found = self._in(group, "all_reduce", size, dtype=dtype, reduce_op=reduce_op)
        return found if elements else []

    def _update(self, stage: int) -> list[Call]:
        """The calls after the passes: finalize_model_grads, the optimizer's step, and what
        train_step collects for the log."""
        training, dtype = self.training, self.training.gradient_dtype
        found = self._small("tp", "sum", self.replicated_elements(stage), dtype)
        if self._has_tied_copy(stage):
            embedding = _cut(self.model.outer()[0][0], self.sizes.tp)
            found += self._small(EMBEDDING, "sum", embedding.elements, dtype)
        for group in self.norm_groups():
            if training.dtype == "float16":  # whether a gradient is infinite
                found += self._small(group, "max")
            found += self._small(group, "sum")
        if training.distributed_optimizer:
            for bucket in self.buckets(stage):
                size = bucket.elements * DTYPES[training.dtype].size_bytes
                found += self._in(bucket.group, "all_gather", size)
        found += self._small(self._model_parallel, "min", dtype="int32")
        found += self._small(self._model_parallel, "max")
        return found + (self._small(self.data, "sum", 2) if stage == self._last else [])

    def norm_groups(self) -> tuple[str, ...]:
        """The groups over which the square of the gradients' norm is summed up, one after another:
        those of get_grad_stats_parallel_group of the optimizers."""
        if self.training.distributed_optimizer:
            return (WORLD,)
        return (self._model_parallel,) + (("pp+ep",) if self.model.is_moe else ())

    def _has_tied_copy(self, stage: int) -> bool:
        """Whether it has one of two copies of the embedding."""
        return self.model.tied and self._last > 0 and stage in (0, self._last)

    def replicated_elements(self, stage: int) -> int:
        """The numbers of a stage whose gradients are summed over tensor parallel ranks."""
        if not self.training.sequence_parallel:
            return 0
        tensors = [t for own, _ in self.units(stage) for t in own if _REPLICATED.search(t.name)]
        return sum(t.elements for t in tensors if t.name != "positions")

    def units(self, stage: int) -> list[tuple[list[Tensor], list[Tensor]]]:
        """The tensors of a rank of a stage, without and with those of experts, in the order in
        which their gradients are finished: what follows the layers, each layer, what precedes."""
        before, after = self.model.outer()
        experts = self.model.expert()
        dense = [t for t in self.model.block() if t not in {*experts}]
        own = experts[: len(experts) // self.sizes.ep]
        tied = before[:1] if self._has_tied_copy(stage) and stage else ()
        found: list[tuple[Sequence[Tensor], Sequence[Tensor]]] = [
            ((*tied, *after[::-1]) if stage == self._last else (), ()),
            *self._layers * [(dense[::-1], own[::-1])],
            (() if stage else before[::-1], ()),
        ]
        dtype, parts = self.training.gradient_dtype, self.sizes.tp
        return [
            (
                [_cut(t._replace(dtype=dtype), parts) for t in tensors],
                [t._replace(dtype=dtype) for t in of_experts],
            )
            for tensors, of_experts in found
        ]

    def buckets(self, stage: int) -> list[Bucket]:
        """The buckets of a stage, in the order in which they are complete."""
        training, units = self.training, self.units(stage)
        of_ranks = BUCKET_PARAMETERS_PER_RANK * self.sizes.dp * self.sizes.cp
        default = DTYPES[training.gradient_dtype].size_bytes * max(BUCKET_PARAMETERS, of_ranks)
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
        tp, cp, ep, dp, _ = self.sizes
        ranks = dp * cp * tp // ep if group == EXPERT_DATA else dp * cp
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

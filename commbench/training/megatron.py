"""The calls of a training step with Megatron-LM's parallel dimensions.

Letters: s tokens of a sequence, b sequences of a micro-batch, h hidden size, B bytes of a number,
t, c, e, d ranks of tensor, context, expert and data parallel groups, v the size of all keys of a
token. A micro-batch passes through the stages of the pipeline in the order of the schedule 1F1B.

* Tensor parallel: a layer's attention and its feed-forward network each end with an all_reduce in
  the forward pass, and begin with one in the backward pass. With sequence parallelism an all_gather
  and a reduce_scatter take its place; the backward pass gathers the input once more.
* Pipeline: the output of a stage is sent to the next one, its gradient back.
* Context parallel: keys and values go once around the ring in the forward pass; in the backward
  pass once more, with their gradients.
* Expert parallel: all_to_all to the experts and back, in both passes.
* Data parallel: gradients are reduced in buckets at the end of the step.

Sources: Shoeybi et al.: Megatron-LM, arXiv 1909.08053; Korthikanti et al.: Reducing Activation
Recomputation in Large Transformer Models, arXiv 2205.05198; Narayanan et al.: Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM, arXiv 2104.04473; Liu et al.: Ring
Attention with Blockwise Transformers, arXiv 2310.01889; Megatron-LM, megatron/core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from commbench.errors import UsageError
from commbench.spec.dtypes import DTYPES
from commbench.spec.groups import Layout, group_sets, parse_mesh
from commbench.spec.workload import RECV, SEND, Call, Program, Step, Workload
from commbench.training.ddp import cut_buckets
from commbench.training.models import Tensor, Transformer
from commbench.units import format_about, format_count
from commbench.validation import require_within

ORDER = "megatron"
MOST_TOKENS = 1 << 30
"""Also of a micro-batch, and of micro-batches."""
BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK = 40_000_000, 1_000_000
"""A bucket has max(40e6, 1e6 d) parameters (DistributedDataParallelConfig)."""


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


class _Sizes(NamedTuple):
    """The dimensions of the layout."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1


def megatron_workload(
    model: Transformer, training: Training, *, mesh: str, ranks_per_node: int | None = None
) -> Workload:
    """The calls of one step. `mesh` has sizes of tp, cp, dp, pp and ep, as --mesh takes them.

    Raises UsageError for sizes that do not divide the model.
    """
    layout = Layout(mesh=mesh, mesh_order=ORDER)
    if layout.needed_ranks() is None:
        raise UsageError(f"--mesh {mesh} leaves the number of ranks open", "give dp=2, not dp=-1")
    found = parse_mesh(mesh)
    if unknown := set(found) - {*_Sizes._fields, "etp"}:
        raise UsageError(
            f"dimension {unknown.pop()!r} is none of Megatron-LM's", "write --mesh dp=8,tp=4"
        )
    if found.pop("etp", 1) != 1:
        raise UsageError("tensor parallel experts are not generated", "leave out etp")
    sizes = _Sizes(**found)
    for name in ("sequence", "micro_batch", "micro_batches"):
        require_within(name, getattr(training, name), 1, MOST_TOKENS)
    if sizes.ep > 1 and not model.is_moe:
        raise UsageError(f"{model.name} has no experts", "leave out ep")
    if "ep" in found:
        layout = layout._replace(mesh=f"{mesh},etp=1" if "etp" not in mesh else mesh)
    ranks = layout.needed_ranks() or 1
    _require_possible(model, training, sizes)
    wanted = ["tp", "pp"] + ["cp"] * (sizes.cp > 1) + ["ep", "edp"] * model.is_moe
    names = [name for name in wanted if name in found or (name == "edp" and "ep" in found)]
    data = "dp+cp" if sizes.cp > 1 and "dp" in found else "cp" if sizes.cp > 1 else "dp"
    if data.partition("+")[0] in found:
        names.append(data)
    over = tuple(dict.fromkeys(names))
    groups = {
        s.name: s.groups
        for s in group_sets(layout._replace(over=over), ranks)
        if any(len(group) > 1 for group in s.groups)
    }
    stages = _stage_ranks(groups.get("pp"), ranks)
    calls = _Calls(model, training, sizes, frozenset(groups), data)
    programs = [
        Program(members, tuple(_numbered(calls.step(stage))))
        for stage, members in enumerate(stages)
    ]
    return Workload(
        name=f"megatron {model.name}",
        source=f"generated for Megatron-LM, {mesh}",
        world_size=ranks,
        ranks_per_node=ranks_per_node,
        groups=groups,
        steps=(Step("step", tuple(programs)),),
        formulas=tuple(calls.formulas()),
    )


def _require_possible(model: Transformer, training: Training, sizes: _Sizes) -> None:
    parts = sizes.cp * (sizes.tp if training.sequence_parallel else 1)
    for whole, part, hint in (
        (model.layers, sizes.pp, "layers must be a multiple of pp"),
        (model.heads, sizes.tp, "heads must be a multiple of tp"),
        (training.sequence, parts, "the tokens of a sequence must be a multiple of tp x cp"),
        (max(1, model.experts), sizes.ep, "experts must be a multiple of ep"),
    ):
        if whole % part:
            raise UsageError(f"{whole} cannot be divided by {part}", hint)
    if sizes.ep > 1 and sizes.tp > 1 and not training.sequence_parallel:
        raise UsageError(
            "Megatron-LM has ep with tp only with sequence parallelism",
            "leave out --no-sequence-parallel",
        )


def _stage_ranks(groups: tuple[tuple[int, ...], ...] | None, ranks: int) -> list[tuple[int, ...]]:
    """The ranks of each stage of the pipeline."""
    if groups is None:
        return [tuple(range(ranks))]
    return [tuple(sorted(members)) for members in zip(*groups, strict=True)]


def _numbered(calls: Iterator[Call]) -> Iterator[Call]:
    """The calls, each with the index of the call after which it is awaited: `waited_after` counts
    from the call itself."""
    for index, call in enumerate(calls):
        yield call._replace(waited_after=index + (call.waited_after or 0))


class _Calls:
    """Makes the calls of each stage."""

    def __init__(
        self,
        model: Transformer,
        training: Training,
        sizes: _Sizes,
        groups: frozenset[str],
        data: str,
    ) -> None:
        self._model, self._training, self._sizes = model, training, sizes
        self._groups, self._data = groups, data
        self._layers = model.layers // sizes.pp
        width = DTYPES[training.dtype].size_bytes
        tokens = training.sequence * training.micro_batch // sizes.cp
        self._tokens = tokens
        self._activation = tokens * model.hidden * width
        """The activations of a micro-batch, whole over the tensor parallel ranks: s b h B / c."""
        self._sent = self._activation // (sizes.tp if training.sequence_parallel else 1)
        self._keys = 2 * tokens * (model.kv_hidden // min(sizes.tp, model.kv_heads)) * width
        own_tokens = tokens // (sizes.tp if training.sequence_parallel else 1)
        self._routed = own_tokens * max(1, model.top_k) * model.hidden * width

    def step(self, stage: int) -> Iterator[Call]:
        """The calls of a stage: micro-batches in the order of 1F1B, then the gradients."""
        batches, stages = self._training.micro_batches, self._sizes.pp
        ahead = min(stages - stage - 1, batches)
        for _ in range(ahead):
            yield from self._receive(stage - 1)
            yield from self._forward(stage)
            yield from self._send(stage + 1)
        if ahead < batches:
            yield from self._receive(stage - 1)
        for index in range(ahead, batches):
            yield from self._forward(stage)
            yield from self._both(stage + 1)
            yield from self._backward(stage)
            if index < batches - 1:
                yield from self._both(stage - 1)
            else:
                yield from self._send(stage - 1)
        for _ in range(ahead):
            yield from self._receive(stage + 1)
            yield from self._backward(stage)
            yield from self._send(stage - 1)
        yield from self._gradients(stage)

    def _in(self, group: str, operation: str, size: int, **fields: Any) -> Iterator[Call]:
        """One call; none where the dimension has one rank."""
        if group in self._groups:
            base = Call(operation, group, self._training.dtype, size, asynchronous=False)
            yield base._replace(**fields)

    def _forward(self, stage: int) -> Iterator[Call]:
        if not stage:
            yield from self._scatter_sums()
        for _ in range(self._layers):
            yield from self._gather()
            for _ in range(self._sizes.cp - 1):
                yield from self._in("cp", "send_recv", self._keys)
            yield from self._scatter_sums()
            yield from self._feed_forward()
        if stage == self._sizes.pp - 1:
            yield from self._gather()
            for op in ("max", "sum", "sum"):
                yield from self._in(
                    "tp", "all_reduce", 4 * self._tokens, dtype="float32", reduce_op=op
                )

    def _backward(self, stage: int) -> Iterator[Call]:
        if stage == self._sizes.pp - 1:
            yield from self._gather()
            yield from self._input_gradient()
        for _ in range(self._layers):
            yield from self._feed_forward(is_backward=True)
            yield from self._gather()
            for step in range(self._sizes.cp):
                parts = 2 if step < self._sizes.cp - 1 else 1
                yield from self._in("cp", "send_recv", parts * self._keys)
            yield from self._gather()
            yield from self._input_gradient()
        if not stage:
            yield from self._gather()

    def _feed_forward(self, is_backward: bool = False) -> Iterator[Call]:
        if self._model.is_moe:
            for _ in ("to the experts", "back"):
                yield from self._in("ep", "all_to_all", self._routed)
        elif is_backward:
            yield from self._gather()
            yield from self._gather()
            yield from self._input_gradient()
        else:
            yield from self._gather()
            yield from self._scatter_sums()

    def _gather(self) -> Iterator[Call]:
        if self._training.sequence_parallel:
            yield from self._in("tp", "all_gather", self._activation)

    def _scatter_sums(self) -> Iterator[Call]:
        """The sum of the partial outputs."""
        is_cut = self._training.sequence_parallel
        operation = "reduce_scatter" if is_cut else "all_reduce"
        yield from self._in("tp", operation, self._activation, reduce_op="sum")

    _input_gradient = _scatter_sums

    def _peer(self, operation: str, stage: int, **fields: Any) -> Iterator[Call]:
        if 0 <= stage < self._sizes.pp:
            yield from self._in("pp", operation, self._sent, peer=stage, **fields)

    def _send(self, stage: int) -> Iterator[Call]:
        yield from self._peer(SEND, stage)

    def _receive(self, stage: int) -> Iterator[Call]:
        yield from self._peer(RECV, stage)

    def _both(self, stage: int) -> Iterator[Call]:
        """Sends and receives at once, as the schedule does between a forward and a backward."""
        yield from self._peer(SEND, stage, asynchronous=True, waited_after=1)
        yield from self._peer(RECV, stage, asynchronous=True)

    def _gradients(self, stage: int) -> Iterator[Call]:
        dense, experts = self._parameters(stage)
        expert_group = "edp" if "edp" in self._groups else self._data
        if self._sizes.ep == 1:
            dense, experts = dense + experts, []
        for group, tensors in ((self._data, dense), (expert_group, experts)):
            if self._sizes.ep > 1 and tensors is experts and "edp" not in self._groups:
                continue
            yield from self._reduce(group, tensors)

    def _reduce(self, group: str, tensors: list[Tensor]) -> Iterator[Call]:
        training = self._training
        width = DTYPES[training.gradient_dtype].size_bytes
        default = width * max(
            BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * self._sizes.dp * self._sizes.cp
        )
        buckets = cut_buckets(reversed(tensors), [training.bucket_bytes or default])
        sizes = [sum(t.elements for t in bucket) for bucket in buckets]
        operation = "reduce_scatter" if training.distributed_optimizer else "all_reduce"
        for left, elements in zip(range(len(sizes))[::-1], sizes, strict=True):
            yield from self._in(
                group, operation, elements * width, dtype=training.gradient_dtype,
                reduce_op="sum", asynchronous=True, waited_after=left,
            )  # fmt: skip
        if training.distributed_optimizer:
            for elements in reversed(sizes):
                size = elements * DTYPES[training.dtype].size_bytes
                yield from self._in(group, "all_gather", size)

    def _parameters(self, stage: int) -> tuple[list[Tensor], list[Tensor]]:
        """The tensors of a rank of a stage, without and with those of experts."""
        model, sizes = self._model, self._sizes
        before, after = model.outer()
        dense: list[Tensor] = []
        experts: list[Tensor] = []
        dense += before if not stage else ()
        for _ in range(self._layers):
            dense += model.attention()
            if model.is_moe:
                own = set(model.expert())
                dense += [t for t in model.feed_forward() if t not in own]
                experts += model.expert()
            else:
                dense += model.feed_forward()
        dense += after if stage == sizes.pp - 1 else ()
        if model.tied and stage == sizes.pp - 1 and stage:
            dense += before[:1]
        dtype = self._training.gradient_dtype
        return (
            [_cut(t._replace(dtype=dtype), sizes.tp) for t in dense],
            [_share(t._replace(dtype=dtype), sizes.ep) for t in experts],
        )

    def formulas(self) -> Iterator[str]:
        """How the sizes follow from the model, with the figures put in."""
        training, model, sizes = self._training, self._model, self._sizes
        width = DTYPES[training.dtype].size_bytes
        s, b, h = training.sequence, training.micro_batch, model.hidden
        over = f" / {sizes.cp}" if sizes.cp > 1 else ""
        letters = " / c" if over else ""
        if self._groups:
            yield (
                "letters: s tokens of a sequence, b sequences of a micro-batch, h hidden size, B "
                "bytes of a number, v size of the keys; t, c, d ranks of tp, cp, dp"
            )
        if "tp" in self._groups:
            per = "2 all_gather and 2 reduce_scatter" if training.sequence_parallel else (
                "2 all_reduce"
            )  # fmt: skip
            yield (
                f"tp: {per} per layer and forward pass, s b h B{letters} = "
                f"{s} x {b} x {h} x {width} B{over} = {format_about(self._activation)}"
            )
        if "pp" in self._groups:
            cut = training.sequence_parallel and sizes.tp > 1
            yield (
                f"pp: per boundary and micro-batch, s b h B{letters}{' / t' if cut else ''} = "
                f"{format_about(self._sent)} each way"
            )
        if "cp" in self._groups:
            yield (
                f"cp: {format_count(sizes.cp - 1, 'shift')} per layer, keys and values, "
                f"2 s b v B / c{' / t' if sizes.tp > 1 else ''} = {format_about(self._keys)}; "
                "backward with their gradients"
            )
        if "ep" in self._groups:
            yield (
                f"ep: all_to_all to the experts and back, tokens of a rank x {model.top_k} x h B "
                f"= {format_about(self._routed)}, evenly distributed"
            )
        if self._data in self._groups:
            elements = sum(t.elements for tensors in self._parameters(0) for t in tensors)
            bucket = training.bucket_bytes
            yield (
                f"{self._data}: {elements:,} gradients of a rank of the first stage, in "
                f"{training.gradient_dtype}, buckets of "
                + (f"{format_about(bucket)}" if bucket else "max(40e6, 1e6 d) parameters")
            )


def _cut(tensor: Tensor, parts: int) -> Tensor:
    """The part of a matrix that a tensor parallel rank has; vectors are not cut."""
    return _share(tensor, parts) if len(tensor.shape) > 1 else tensor


def _share(tensor: Tensor, parts: int) -> Tensor:
    """One of so many equal parts. An expert parallel rank has whole experts: on average as much."""
    return tensor._replace(shape=(-(-tensor.shape[0] // parts), *tensor.shape[1:]))

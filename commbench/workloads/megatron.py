"""The workload of a training step with Megatron-LM's parallel dimensions.

Letters: s tokens of a sequence, b sequences of a micro-batch, h hidden size, B bytes of a number,
t, c ranks of tensor and context parallel groups, v the size of all keys of a token.

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

import re
from collections.abc import Iterator, Sequence

from commbench.errors import UsageError
from commbench.plan.dtypes import DTYPES
from commbench.plan.groups import WORLD, Layout, group_sets, parse_mesh
from commbench.plan.workload import Program, Step, Workload
from commbench.units import format_about, format_count
from commbench.validation import require_within
from commbench.workloads.megatron_calls import EMBEDDING, EXPERT_DATA, Sizes, StageCalls, Training
from commbench.workloads.models import Transformer

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
        raise UsageError(
            f"--mesh {mesh}: {unknown[0]} is none of tp, cp, dp, pp and ep",
            "write for example --mesh tp=4,dp=8; other groups follow from these sizes",
        )
    layout = Layout(mesh=mesh, mesh_order=ORDER)
    if (ranks := layout.needed_ranks()) is None:
        raise UsageError(f"--mesh {mesh} leaves the number of ranks open", "give dp=2, not dp=-1")
    sizes = Sizes(**found)
    _require_possible(model, training, sizes)
    data = "dp+cp" if sizes.dp > 1 and sizes.cp > 1 else "cp" if sizes.cp > 1 else "dp"
    both = sizes.tp > 1 and sizes.pp > 1
    model_parallel = "pp+tp" if both else "tp" if sizes.tp > 1 else "pp"
    over = ["tp", "pp", "cp", data, model_parallel]
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
    calls = StageCalls(model, training, sizes, frozenset(groups), data, model_parallel)
    programs = [Program(members, tuple(calls.step(stage))) for stage, members in enumerate(stages)]
    used_names = {call.group for program in programs for call in program.calls}
    return Workload(
        name=f"megatron {model.name}",
        source=f"generated for Megatron-LM, {mesh}",
        world_size=ranks,
        ranks_per_node=ranks_per_node,
        groups={name: found for name, found in groups.items() if name in used_names},
        steps=(Step("step", tuple(programs)),),
        formulas=tuple(_with_letters([*_formulas(calls)])),
    )


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
            raise UsageError(
                f"{whole} {noun} cannot be divided by {name} = {part}",
                f"the {noun} must be a multiple of {name}",
            )
    if model.is_moe and sizes.tp > 1 and not training.sequence_parallel:
        raise UsageError(
            "Megatron-LM trains experts with tp only with sequence parallelism",
            "leave out --no-sequence-parallel",
        )


_LETTERS = {
    "s": "tokens of a sequence", "b": "sequences of a micro-batch", "h": "hidden size",
    "v": "size of the keys", "B": "bytes of a number", "t": "ranks of tp", "c": "ranks of cp",
}  # fmt: skip


def _with_letters(formulas: Sequence[str]) -> Iterator[str]:
    """The formulas, after what the letters in them mean. B is also a unit, but not before `=`."""
    words = {word for text in formulas for word in re.findall(r"\b[a-z]\b|\bB(?= [=/])", text)}
    used = [f"{letter} {meaning}" for letter, meaning in _LETTERS.items() if letter in words]
    yield from [f"letters: {', '.join(used)}"] if used else ()
    yield from formulas


def _formulas(calls: StageCalls) -> Iterator[str]:
    """How the sizes follow from the model, with the figures put in."""
    training, model, sizes, groups = calls.training, calls.model, calls.sizes, calls.groups
    width = DTYPES[training.dtype].size_bytes
    s, b, h = training.sequence, training.micro_batch, model.hidden
    over = f" / {sizes.cp}" if sizes.cp > 1 else ""
    letters = " / c" if over else ""
    if "tp" in groups:
        per = "2 all_gather and 2 reduce_scatter" if training.sequence_parallel else (
            "2 all_reduce"
        )  # fmt: skip
        yield (
            f"tp: {per} per layer and forward pass, s b h B{letters} = "
            f"{s} x {b} x {h} x {width} B{over} = {format_about(calls.activation)}"
        )
    if "pp" in groups:
        cut = training.sequence_parallel and sizes.tp > 1
        yield (
            f"pp: per boundary and micro-batch, s b h B{letters}{' / t' if cut else ''} = "
            f"{format_about(calls.sent)} each way"
        )
    if "cp" in groups:
        yield (
            f"cp: {format_count(sizes.cp - 1, 'shift')} per layer, keys and values, "
            f"2 s b v B / c{' / t' if sizes.tp > 1 else ''} = {format_about(calls.keys)}; "
            "backward with their gradients"
        )
    if "ep" in groups:
        yield (
            f"ep: all_to_all to the experts and back, tokens of a rank x {model.top_k} x h B "
            f"= {format_about(calls.routed)}, evenly distributed"
        )
    first = calls.buckets(0)
    limit = f"max(40e6, 1e6 x {sizes.dp * sizes.cp}) parameters"
    if training.bucket_bytes:
        limit = format_about(training.bucket_bytes)
    for group, whose in ((calls.data, ""), (EXPERT_DATA, " of experts")):
        own = [bucket for bucket in first if bucket.group == group]
        if group in groups and own:
            yield (
                f"{group}: {sum(bucket.elements for bucket in own):,} gradients{whose} of a rank "
                f"of the first stage, in {training.gradient_dtype}, buckets of {limit}"
                + (", one bucket in other stages" if sizes.pp > 1 else "")
            )
    width = DTYPES[training.gradient_dtype].size_bytes
    small = []
    if "tp" in groups and (elements := calls.replicated_elements(0)):
        size = format_about(elements * width)
        small.append(f"gradients of tensors that are not cut, over tp, {size}")
    if EMBEDDING in groups:
        size = format_about(calls.embedding_elements() * width)
        small.append(f"those of the tied embedding, over {EMBEDDING}, {size}")
    if shown := [group for group in calls.norm_groups() if group in groups]:
        small.append(f"the norm of all gradients, over {' and '.join(shown)}, 4 B")
    if small:
        yield f"all_reduce after the passes: {'; '.join(small)}"

"""The workload of a training step with Megatron-LM's parallel dimensions.

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

from collections.abc import Iterator

from commbench.errors import UsageError
from commbench.plan.dtypes import DTYPES
from commbench.plan.groups import WORLD, Layout, group_sets, parse_mesh
from commbench.plan.workload import Program, Workload
from commbench.units import format_about, format_count
from commbench.validation import require_within
from commbench.workloads.data_parallel import generated
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
            raise UsageError(
                f"{whole} {noun} cannot be divided by {name} = {part}",
                f"the {noun} must be a multiple of {name}",
            )
    if model.is_moe and sizes.tp > 1 and not training.sequence_parallel:
        raise UsageError(
            "Megatron-LM trains experts with tp only with sequence parallelism",
            "leave out --no-sequence-parallel",
        )


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
    width = DTYPES[training.gradient_dtype].size_bytes
    whole = format_about(calls.replicated_elements(0) * width)
    tied = format_about(calls.embedding_elements() * width)
    after = {"tp": f"of tensors that are not cut, {whole}", EMBEDDING: f"of the embedding, {tied}"}
    if made := [f"{what}, over {group}" for group, what in after.items() if group in groups]:
        yield f"all_reduce after the passes: gradients {' and '.join(made)}"

"""What is missing for advice, and the commands that measure it or make the advice surer."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from commbench.advise.buckets import BucketAdvice
from commbench.advise.choices import Choice
from commbench.advise.fsdp import Blocks
from commbench.advise.measured import Measured
from commbench.advise.moe import Routing
from commbench.advise.time_table import ESTIMATED
from commbench.analysis.advice import more_precisely
from commbench.output.paragraphs import join_words
from commbench.results.schema import RunHeader
from commbench.spec.replay import replayed_workload
from commbench.spec.variables import find_unread, suggest_variable
from commbench.spec.workload_fit import SHRINK, was_shrunk
from commbench.spec.workload_variants import AS_TRACED, EVERY_VARIANT, expand_variants
from commbench.stats.verdict import UNDECIDED
from commbench.units import format_about, format_size, format_sizes, parse_sizes

WIDE_SIZES = "64K-256M"
STEP_FILE = "STEP.json"
"""A file of a workload: a run has its content, but not its path."""
TOGETHER = 8
"""Calls that are started together, to see what a bucket takes after others."""
Needs = tuple[str, str]
"""What is missing, and the command that measures it, which may be empty."""


def surer_buckets(found: BucketAdvice, verdict: str, header: RunHeader) -> tuple[str, ...]:
    """Commands that make the advice about buckets surer."""
    commands = [] if found.is_guess else list(surer(verdict, header))
    if found.beyond:
        commands.append(run_command(header, ["all_reduce"], "", WIDE_SIZES))
    power = max(1 << 12, 1 << (found.recommended.bucket_bytes.bit_length() - 1))
    measures = []
    if found.table.busy is None or found.table.busy.kind == ESTIMATED:
        measures.append((f"--tensors {TOGETHER} --form async", TOGETHER * power))
    if not found.slowdown.source:
        measures.append(("--overlap matmul", power))
    for options, size in measures:
        sizes = f"{format_size(size // 4)}-{format_size(4 * size)}:x4"
        commands.append(run_command(header, ["all_reduce"], options, sizes))
    return tuple(commands)


def _power_from(size: float) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, int(size) - 1).bit_length()


def surer(verdict: str, header: RunHeader) -> tuple[str, ...]:
    """What decides what is undecided: options for the same run."""
    return (f"the same run with {more_precisely(header)}",) if verdict == UNDECIDED else ()


def run_command(header: RunHeader, operations: Sequence[str], options: str, sizes: str = "") -> str:
    """The `commbench run` of the ranks of a run; its sizes are those of the run, if not given."""
    plan = header.plan
    wanted = sizes or format_sizes(plan.sizes)
    if len(parse_sizes(wanted)) < 2 and plan.sizes:
        wanted = WIDE_SIZES
    begin = f"commbench run --op {','.join(operations)} --sizes {wanted}"
    return _with_ranks(header, [begin, options])


def _with_ranks(header: RunHeader, words: Sequence[str]) -> str:
    ranks = f"--nproc-per-node {header.plan.world_size}" if header.num_nodes == 1 else ""
    return " ".join(filter(None, [*words, ranks]))


def _replay_command(header: RunHeader, begin: str, *options: str) -> str:
    """A command on the workload of a replay, whose file is not known."""
    fit = [f"--fit {SHRINK}"] if was_shrunk(replayed_workload(header.plan)) else []
    return _with_ranks(header, [begin, STEP_FILE, *options, *fit])


def _variant_needs(choice: Choice, header: RunHeader) -> Needs:
    """What advice about the variants of a step needs."""
    steps = replayed_workload(header.plan).steps
    measured = {v for step in steps for v in expand_variants(header.plan.variants, step)}
    if measured & set(AS_TRACED) and measured - set(AS_TRACED):
        return "no two variants of a step have a valid time", ""
    others = {v for step in steps for v in expand_variants((EVERY_VARIANT,), step)}
    if not others - set(AS_TRACED):
        return "the step has no other variants: no all_reduce of 1 MiB or more", ""
    several = ["--step all"] if len(steps) > 1 else []
    return "no alternatives are measured", _replay_command(
        header, "commbench replay", *several, choice.measure
    )


def choice_needs(choice: Choice, header: RunHeader) -> Needs:
    """What a choice without rows needs."""
    if not choice.option:
        return (
            f"no two runs differ in a variable that {header.plan.backend} reads",
            _sweep_command(header, "NCCL_ALGO", ("RING", "TREE")),
        )
    if choice.is_of_steps:
        return _variant_needs(choice, header)
    known = [name for name in header.plan.operations if name in choice.operations]
    operations = known or choice.operations or header.plan.operations
    return "no alternatives are measured", run_command(header, operations, choice.measure)


def ignored_needs(name: str, values: Sequence[str], measured: Measured) -> Needs:
    """Why the runs are not compared by a variable in which they differ, and what compares them."""
    header, backend = measured.header, measured.header.plan.backend
    differ = "the runs differ in it, but"
    if find_unread([name], backend):
        return f"{differ} {backend} does not read it", ""
    suggestion = suggest_variable(name, backend)
    if suggestion is None:
        command = " ".join(["commbench compare", *map(quote, dict.fromkeys(measured.runs))])
        return f"{differ} only variables of {backend} itself are compared here", command
    unknown = f"{differ} {backend} is not known to read it"
    if not suggestion:
        return unknown, ""
    return f"{unknown}; did you mean {suggestion}?", _sweep_command(header, suggestion, values)


def _sweep_command(header: RunHeader, name: str, values: Sequence[str]) -> str:
    """The `commbench sweep` of a variable, of the calls and ranks of a run."""
    variable = f"{name}={','.join(values)}"
    begin = f"commbench sweep --env {quote(variable)}"
    if header.plan.workload:
        return _replay_command(header, f"{begin} --workload")
    own = format_sizes(header.plan.sizes)
    command = run_command(header, header.plan.operations, "", own)
    return command.replace("commbench run", begin, 1)


def rows_needs(header: RunHeader, operations: Sequence[str]) -> Needs:
    """What a simulation without rows needs."""
    are = "are not all" if len(operations) > 1 else "is not"
    needs = f"{join_words(operations)} {are} measured at two sizes or more"
    return needs, run_command(header, operations, "", WIDE_SIZES)


def grouping_needs(header: RunHeader, step: Blocks) -> Needs:
    """What FSDP needs where its sizes were not measured."""
    block, gradients = (total / step.blocks for total in (step.gathered_bytes, step.reduced_bytes))
    least = min(block, gradients)
    sizes = f"{format_size(_power_from(least / 2))}-{format_size(_power_from(8 * block))}"
    needs = f"blocks have {format_about(least)} and more, which is not among the measured sizes"
    return needs, run_command(header, ("all_gather", "reduce_scatter"), "", sizes)


def moe_needs(header: RunHeader, ranks: int, routing: Routing) -> Needs:
    """What experts need where their sizes were not measured."""
    tokens = routing.tokens or 1
    gathered = routing.gathered_bytes(ranks, tokens)
    exchanged = routing.exchanged_bytes(ranks, tokens)
    sizes = f"1K-{format_size(max(1 << 30, _power_from(max(gathered, exchanged))))}"
    needs = (
        f"{tokens} tokens are {format_about(gathered)} of all_gather and "
        f"{format_about(exchanged)} of all_to_all, which are not among the measured sizes"
    )
    operations = ("all_gather", "reduce_scatter", "all_to_all")
    return needs, run_command(header, operations, "", sizes)

"""What is missing for advice, and the commands that measure it or make the advice surer."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from commbench.advise.buckets import BucketAdvice
from commbench.advise.choices import UNDECIDED, Choice
from commbench.advise.fsdp import Blocks
from commbench.advise.measured import Measured
from commbench.advise.moe import Routing
from commbench.advise.time_table import ESTIMATED
from commbench.analysis.advice import more_precisely
from commbench.results.schema import RunHeader
from commbench.spec.replay import replayed_workload
from commbench.spec.variables import find_unread, suggest_variable
from commbench.spec.workload_fit import SHRINK, was_shrunk
from commbench.spec.workload_variants import AS_TRACED, EVERY_VARIANT, expand_variants
from commbench.units import format_about, format_size, format_sizes, parse_sizes

NEEDS_MODEL = (
    "give the model: --params or --model-bytes, and --backward, the time of a backward pass "
    "without communication"
)
NEEDS_BLOCKS = "give the model: --params, --blocks (such as its layers) and --backward"
NEEDS_ROUTING = "give the routing of tokens: --topk, --experts and --hidden"
WIDE_SIZES = "64K-256M"
STEP_FILE = "STEP.json"
"""A file of a workload: a run has its content, but not its path."""


def surer_buckets(found: BucketAdvice, verdict: str, header: RunHeader) -> tuple[str, ...]:
    """Commands that make the advice about buckets surer."""
    commands = [] if found.is_guess else list(surer(verdict, header))
    if found.beyond:
        commands.append(run_command(header, "all_reduce", "", WIDE_SIZES))
    power = max(1 << 12, 1 << (found.recommended.bucket_bytes.bit_length() - 1))
    if found.table.busy is None or found.table.busy.kind == ESTIMATED:
        options = f"--tensors {TOGETHER} --form async"
        commands.append(run_command(header, "all_reduce", options, _around(TOGETHER * power)))
    if not found.slowdown.source:
        commands.append(run_command(header, "all_reduce", "--overlap matmul", _around(power)))
    return tuple(commands)


TOGETHER = 8
"""Calls that are started together, to see what a bucket takes after others."""


def _around(power: int) -> str:
    """Sizes around a power of two, as `--sizes` takes them."""
    return f"{format_size(power // 4)}-{format_size(4 * power)}:x4"


def surer(verdict: str, header: RunHeader) -> tuple[str, ...]:
    """What decides what is undecided: options for the same run."""
    if verdict != UNDECIDED:
        return ()
    return (f"the same run with {more_precisely(header)}",)


def run_command(header: RunHeader, operations: str, options: str, sizes: str = "") -> str:
    """The `commbench run` of the ranks of a run; its sizes are those of the run, if not given."""
    plan = header.plan
    wanted = sizes or format_sizes(plan.sizes)
    if len(parse_sizes(wanted)) < 2 and plan.sizes:
        wanted = WIDE_SIZES
    words = ["commbench run --op", operations, "--sizes", wanted, options]
    if header.num_nodes == 1:
        words.append(f"--nproc-per-node {plan.world_size}")
    return " ".join(filter(None, words))


def _replay_command(header: RunHeader, begin: str, *options: str) -> str:
    """A command on the workload of a replay, whose file is not known."""
    words = [begin, STEP_FILE, *options]
    if was_shrunk(replayed_workload(header.plan)):
        words.append(f"--fit {SHRINK}")
    if header.num_nodes == 1:
        words.append(f"--nproc-per-node {header.plan.world_size}")
    return " ".join(words)


def _variant_needs(choice: Choice, header: RunHeader) -> tuple[str, str]:
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


def choice_needs(choice: Choice, header: RunHeader) -> tuple[str, str]:
    """What a choice without rows needs, and the command that measures it."""
    if not choice.option:
        return (
            f"no two runs differ in a variable that {header.plan.backend} reads",
            _sweep_command(header, "NCCL_ALGO", ("RING", "TREE")),
        )
    if choice.is_of_steps:
        return _variant_needs(choice, header)
    known = [name for name in header.plan.operations if name in choice.operations]
    operations = ",".join(known or choice.operations or header.plan.operations)
    return "no alternatives are measured", run_command(header, operations, choice.measure)


def ignored_needs(name: str, values: Sequence[str], measured: Measured) -> tuple[str, str]:
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
    variable = quote(f"{name}={','.join(values)}")
    if header.plan.workload:
        return _replay_command(header, f"commbench sweep --env {variable} --workload")
    own = format_sizes(header.plan.sizes)
    command = run_command(header, ",".join(header.plan.operations), "", own)
    return command.replace("commbench run", f"commbench sweep --env {variable}", 1)


def bucket_needs(header: RunHeader, operations: str) -> tuple[str, str]:
    """What a simulation without rows needs."""
    *others, last = operations.split(",")
    words = f"{', '.join(others)} and {last} are not all" if others else f"{last} is not"
    needs = f"{words} measured at two sizes or more"
    return needs, run_command(header, operations, "", WIDE_SIZES)


def grouping_needs(header: RunHeader, step: Blocks) -> tuple[str, str]:
    """What FSDP needs where its sizes were not measured."""
    block, of_gradients = (
        total / step.blocks for total in (step.gathered_bytes, step.reduced_bytes)
    )
    sizes = f"{format_about(min(block, of_gradients))} and more"
    low, high = (
        1 << (int(value) - 1).bit_length() for value in (min(block, of_gradients) / 2, 8 * block)
    )
    return (
        f"blocks have {sizes}, which is not among the measured sizes",
        run_command(
            header, "all_gather,reduce_scatter", "",
            format_sizes(tuple(sorted({max(1, low), max(1, high)}))).replace(",", "-"),
        ),
    )  # fmt: skip


def moe_needs(header: RunHeader, ranks: int, routing: Routing) -> tuple[str, str]:
    """What experts need where their sizes were not measured."""
    tokens = routing.tokens or 1
    gathered = routing.gathered_bytes(ranks, tokens)
    exchanged = routing.exchanged_bytes(ranks, tokens)
    most = max(1 << 30, 1 << (int(max(gathered, exchanged)) - 1).bit_length())
    return (
        f"{tokens} tokens are {format_about(gathered)} of all_gather and "
        f"{format_about(exchanged)} of all_to_all, which are not among the measured sizes",
        run_command(
            header, "all_gather,reduce_scatter,all_to_all", "", f"1K-{format_size(most)}"
        ),
    )  # fmt: skip

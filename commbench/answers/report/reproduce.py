"""The commands that measure the same again, made of what a journal records."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from commbench.analysis.environment_diff import chosen_variables
from commbench.answers.sweep.runner import Sweep
from commbench.errors import UsageError
from commbench.launch.launchers import NodeConfig, torchrun_line
from commbench.results.schema import RunHeader, is_in_process
from commbench.runner.option import as_label
from commbench.runner.run_options import RunOptions
from commbench.runner.session import with_recorded_plan
from commbench.views.document import Block, Code, Text

_WIDTH = 76
"""Columns of a line of a command, so that it fits a page and a ticket."""

_WORKLOAD = (
    "Write the file of the workload that was replayed instead of {}, which is made of its name. "
    "The first line of run.jsonl has its content, too."
)
_IN_PROCESS = (
    "A program measured this on its process group, with commbench.measure. These commands measure "
    "the same on ranks of their own."
)


def reproduce(header: RunHeader) -> tuple[Block, ...]:
    """How to measure a recorded run again: with commbench alone, and with torchrun."""
    if not header.ranks:
        tool = header.environment.get("tool")
        return (Text(f"{tool} measured this; its file does not contain its command."),)
    try:
        options = _recorded_options(header)
    except UsageError as error:
        return (Text(f"This commbench cannot repeat the run: {error.message}."),)
    where = NodeConfig(
        count=options.nnodes,
        master_addr=options.master_addr or "127.0.0.1",
        ranks_per_node=options.ranks_per_node or 1,
    )
    each = ""
    if options.nnodes > 1:
        each = f" on each of {options.nnodes} nodes, with --node-rank 0 to {options.nnodes - 1}"
    before = _with_variables(chosen_variables(header))
    return (
        *([Text(_IN_PROCESS)] if is_in_process(header) else []),
        *([Text(_WORKLOAD.format(options.workload))] if options.workload else []),
        Code(f"Measure the same again{each}:", shell_lines([*before, *options.command()])),
        Code(
            f"The same ranks under torchrun{each}:",
            shell_lines([*before, *torchrun_line(where), *options.arguments()]),
        ),
    )


def reproduce_sweep(sweep: Sweep, header: RunHeader) -> tuple[Block, ...]:
    """How to measure a sweep again, of which the header begins a run."""
    try:
        options = _recorded_options(header)
    except UsageError:
        return ()
    words = ["commbench", "sweep"]
    swept: list[str] = []
    for flag, each in (("env", [s.variables for s in sweep.settings]),
                       ("vary", [s.options for s in sweep.settings])):  # fmt: skip
        values: dict[str, dict[str, None]] = {}
        for pairs in each:
            for name, value in pairs:
                values.setdefault(name, {})[value] = None
        for name, found in values.items():
            swept.append(name)
            if any("," in value for value in found):
                words += [f"--{flag}={name}:={value}" for value in found]
            else:
                words.append(f"--{flag}={name}={','.join(found)}")
    left_out = tuple(f"--{name}=" for name in (*swept, "label"))
    words += [f"--rounds={sweep.rounds}"]
    words += [word for word in options.command()[2:] if not word.startswith(left_out)]
    others = {k: v for k, v in chosen_variables(header).items() if k not in swept}
    return (Code("Measure the sweep again:", shell_lines([*_with_variables(others), *words])),)


def _with_variables(variables: Mapping[str, str]) -> list[str]:
    """The words before a command that is to have these variables."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def _recorded_options(header: RunHeader) -> RunOptions:
    """The options of the run that the header begins. Raises UsageError for what is refused now."""
    # The runs of a sweep are called by their settings, which no --label may hold.
    renamed = header._replace(label=as_label(header.label))
    options = with_recorded_plan(RunOptions(), renamed)
    options = replace(options, peak=header.plan.peak or None)
    if workload := header.plan.workload:
        file = Path(f"{as_label(str(workload['name']))}.json")
        options = replace(options, workload=file, step=tuple(s["name"] for s in workload["steps"]))
    if header.launched_nodes == 1:
        return options
    return replace(options, nnodes=header.launched_nodes, master_addr=header.hosts[0])


def shell_lines(words: Sequence[str]) -> str:
    """A command for a shell, on several lines where it is long."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > _WIDTH:
            lines.append(f"{line} \\")
            line = "   "
        line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])

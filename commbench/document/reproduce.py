"""The commands that measure the same again, made of what a journal records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from commbench.analysis.environment_diff import environment_variables
from commbench.document.blocks import Block, Code, Text
from commbench.errors import UsageError
from commbench.launch.torchrun_command import NodeConfig, torchrun_line
from commbench.results.schema import RunHeader
from commbench.runner.resume import with_recorded_plan
from commbench.runner.run_options import RunOptions

_WIDTH = 76
"""Columns of a line of a command, so that it fits a page and a ticket."""


def reproduce(header: RunHeader) -> tuple[Block, ...]:
    """How to measure a recorded run again: with commbench alone, and with torchrun."""
    if not header.ranks:
        return (Text(f"{header.launcher} measured this; its file does not hold its command."),)
    try:
        options = _recorded_options(header)
    except UsageError as error:
        return (Text(f"This commbench cannot repeat the run: {error.message}."),)
    where = NodeConfig(
        count=options.nnodes,
        master_addr=options.master_addr or "127.0.0.1",
        ranks_per_node=options.nproc_per_node or 1,
    )
    each = ""
    if options.nnodes > 1:
        each = f" on each of {options.nnodes} nodes, with --node-rank 0 to {options.nnodes - 1}"
    variables = [f"{name}={value}" for name, value in environment_variables(header).items()]
    before = ["env", *variables] if variables else []
    return (
        Code(f"Measure the same again{each}:", shell_lines([*before, *options.command()])),
        Code(
            f"The same ranks under torchrun{each}:",
            shell_lines([*before, *torchrun_line(where), *options.arguments()]),
        ),
    )


def _recorded_options(header: RunHeader) -> RunOptions:
    """The options of the run that the header begins. Raises UsageError for what is refused now."""
    options = with_recorded_plan(RunOptions(), header)
    options = replace(options, peak=header.plan.peak or None)
    if header.num_nodes == 1:
        return options
    return replace(options, nnodes=header.num_nodes, master_addr=header.hosts[0])


def shell_lines(words: Sequence[str]) -> str:
    """A command for a shell, on several lines where it is long."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > _WIDTH:
            lines.append(f"{line} \\")
            line = "   "
        line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])

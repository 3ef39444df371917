"""What is said of a command line that no command takes: Typer's error, with a hint that helps."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from commbench.errors import closest


def told_of(error: Any) -> tuple[str, str]:
    """What is wrong, and what to do about it, of a usage error of Typer's Click."""
    path = _path(error)
    listed = f"`{path} --help` lists the options"
    option = getattr(error, "option_name", "")
    if guess := _closest(option, getattr(error, "possibilities", None) or ()):
        listed = f"did you mean {guess}? {listed}"
    error.possibilities = None  # the message would list them all
    message = str(getattr(error, "format_message", error.__str__)())
    if path.startswith("commbench job ") and _is_of_run(option):
        example = f"{path} --nodes 2 --nproc-per-node 8 -- {option} …"
        return message, f"options of `commbench run` go after two dashes: {example}"
    example = _example(error) if message.startswith("Missing ") else ""
    return message, f"write for example: {example}; {listed}" if example else listed


def _path(error: Any) -> str:
    """The command that the error is about: `commbench job slurm`."""
    from commbench.cli.lazy_group import COMMANDS

    if error.ctx:
        return str(error.ctx.command_path)
    # Click's parser tells only of some errors where they come from.
    return f"commbench {sys.argv[1]}" if sys.argv[1:] and sys.argv[1] in COMMANDS else "commbench"


def _closest(option: str, possibilities: Sequence[str]) -> str:
    """The one that is meant, if any: Click counts the dashes as alike too."""
    names = {name.lstrip("-"): name for name in possibilities}
    close = closest(option.lstrip("-"), names, similarity=0.6)
    return names[close[0]] if close else ""


def _is_of_run(option: str) -> bool:
    """Whether `commbench run` has an option of that name."""
    from commbench.cli.lazy_group import command

    return any(option in (*p.opts, *p.secondary_opts) for p in command("run").params)


def _example(error: Any) -> str:
    """The first line of a command's help that shows how to call it; empty where none does."""
    text = (error.ctx.command.help or "") if error.ctx else ""
    lines = (line.strip() for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines())
    found = next((line for line in lines if line.startswith("commbench ")), "")
    return re.split(r" {3,}", found)[0]  # what follows explains it

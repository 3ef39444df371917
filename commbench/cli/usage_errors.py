"""Makes the message and the hint for a command line that Typer rejects."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from commbench.errors import closest

REMOVED_OPTIONS = {
    "commbench doctor": {"--json": "--format json"},
}
"""By command: options that it had, and what to use instead."""


def describe_usage_error(error: Any) -> tuple[str, str]:
    """The message and the hint of a usage error of Typer's Click."""
    path = _path(error)
    listed = f"`{path} --help` lists the options"
    option = getattr(error, "option_name", "")
    if instead := REMOVED_OPTIONS.get(path, {}).get(option):
        return f"{option} is gone", f"use {instead}"
    if guess := _closest(option, getattr(error, "possibilities", None) or ()):
        listed = f"did you mean {guess}? {listed}"
    error.possibilities = None  # the message would list them all
    message = _message(error)
    if path.startswith("commbench job ") and _is_run_option(option):
        example = f"{path} --nodes 2 --nproc-per-node 8 -- {option} …"
        return message, f"options of `commbench run` go after two dashes: {example}"
    if path == "commbench run" and (extra := _EXTRA_FILE.search(message)):
        return message, f"write --workload before the file of a workload: --workload {extra[1]}"
    example = _example(error) if _kind(error) == "MissingParameter" else ""
    return message, f"write for example: {example}; {listed}" if example else listed


_EXTRA_FILE = re.compile(r"too many: (\S+\.json)$")


def _message(error: Any) -> str:
    """What is wrong, in the words of commbench's own messages; Click's words where it is none of
    the usual errors."""
    text = str(getattr(error, "format_message", error.__str__)())
    found = re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", text)
    if found:
        return f"there is one argument too many: {found[1]}"
    if found := re.match(r"'(.*)' is not a valid (int|float)", getattr(error, "message", "")):
        number = "a whole number" if found[2] == "int" else "a number"
        return f"{_parameter(error)} {found[1]!r} is not {number}"
    if _kind(error) == "MissingParameter":
        return f"{_parameter(error)} is missing"
    if found := re.match(r"Option '(.*)' (requires an argument|does not take a value)", text):
        wants = "needs a value" if found[2].startswith("requires") else "takes no value"
        return f"{found[1]} {wants}"
    if _kind(error) == "NoSuchOption":
        return f"there is no option {error.option_name}"
    return f"{text[:1].lower()}{text[1:]}".removesuffix(".")


def _kind(error: Any) -> str:
    return type(error).__name__


def _parameter(error: Any) -> str:
    """The option or argument that an error is about: `--iters`, `RUN`."""
    if not error.param:
        return "a value"
    if error.param.param_type_name == "option":
        return str(error.param.opts[0])
    return str(error.param.make_metavar(error.ctx)).strip("[]").removesuffix("...")


def _path(error: Any) -> str:
    """The command that the error is about: `commbench job slurm`."""
    from commbench.cli.lazy_group import COMMANDS

    if error.ctx:
        return str(error.ctx.command_path)
    # Some errors of Click's parser do not name their command.
    return f"commbench {sys.argv[1]}" if sys.argv[1:] and sys.argv[1] in COMMANDS else "commbench"


def _closest(option: str, possibilities: Sequence[str]) -> str:
    """The most similar option, compared without dashes; empty if none is similar."""
    names = {name.lstrip("-"): name for name in possibilities}
    return names.get(closest(option.lstrip("-"), names), "")


def _is_run_option(option: str) -> bool:
    """Whether `commbench run` has an option of that name."""
    from commbench.runner.run_options import RUN_OPTIONS

    flags = (flag for each in RUN_OPTIONS.values() for flag in each.flags)
    return any(option in flag.split("/") for flag in flags)


def _example(error: Any) -> str:
    """The first example in the help of the command; empty if there is none."""
    text = (error.ctx.command.help or "") if error.ctx else ""
    lines = (line.strip() for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines())
    found = next((line for line in lines if line.startswith("commbench ")), "")
    return re.split(r" {3,}", found)[0]  # what follows explains it

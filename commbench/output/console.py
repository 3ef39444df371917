"""Printing: results on standard output, everything else on standard error.

Nothing else in the package prints, so all text passes through `text.safe`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import typer

from commbench.output.text import NARROWEST, fill, is_terminal, safe

LONGEST_LINE = 4000
"""Most characters of an error's message or hint."""


class OutputClosedError(Exception):
    """The reader of standard output has gone, as `| head` does. This is no OSError: for that one
    Typer exits with 1, the code of a gate that says no."""


def print_result(text: object, end: str = "\n") -> None:
    """Print a result on standard output."""
    _print(safe(str(text)) + end)


def print_status(text: object) -> None:
    """Print lines about progress, or a warning, on standard error, as wide as the terminal; nothing
    where its reader has gone."""
    lines = map(wrap_on_terminal, str(text).split("\n"))
    try:
        typer.echo(safe("\n".join(lines)), err=True, color=True)
    except BrokenPipeError:
        drop_status()


def drop_status() -> None:
    """Let standard error, whose reader has gone, lead nowhere: so a run goes on without it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def print_workflow_commands(*lines: str) -> None:
    """Print commands for GitHub's runner; the caller has escaped text from files."""
    _print("".join(f"{line}\n" for line in lines))


def _print(text: str) -> None:
    try:
        typer.echo(text, nl=False, color=True)  # `safe` has removed styles where there are none
    except BrokenPipeError as error:
        raise OutputClosedError from error


def print_error(message: str, hint: str, details: str = "") -> None:
    """Print details if any, a line `error: ...` and a line `hint: ...` on standard error."""
    with suppress(OSError):  # standard error may be closed
        if details:
            print_status(details)
        if message:
            print_status(wrap_on_terminal(f"error: {_one_line(message)}", "       "))
        if hint:
            print_status(wrap_on_terminal(f"hint: {_one_line(hint)}", "      "))


def wrap_on_terminal(line: str, margin: str = "") -> str:
    """A line for standard error, in lines as wide as the terminal where it is one, or as the
    variable COLUMNS says. The lines after the first begin with the margin. Elsewhere, such as in a
    log, it stays one line."""
    if not (is_terminal(sys.stderr) or os.environ.get("COLUMNS", "").isdecimal()):
        return line
    return fill(line, rest=margin, least=NARROWEST, break_long_words=False)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"

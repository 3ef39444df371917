"""How commands speak: results on standard output, everything else on standard error. Nothing else
prints, so that nothing from a file reaches a terminal unseen."""

from __future__ import annotations

from contextlib import suppress

import typer

from commbench.output.sanitize import safe


def print_result(text: object, end: str = "\n") -> None:
    """Print a result."""
    typer.echo(safe(str(text)) + end, nl=False)


def print_status(text: object) -> None:
    """Print something about what is going on."""
    typer.echo(safe(str(text)), err=True)


def print_workflow_command(line: str) -> None:
    """Print a command to GitHub's runner, which has escaped what comes from files."""
    typer.echo(line)


LONGEST_LINE = 4000
"""Characters of what is said of an error."""


def print_error(message: str, hint: str, details: str = "") -> None:
    """Print what is wrong and what to do about it, a line each, on standard error; before them
    details, if any."""
    with suppress(OSError):  # nobody hears it
        if details:
            print_status(details)
        if message:
            print_status(f"error: {_one_line(message)}")
        if hint:
            print_status(f"hint: {_one_line(hint)}")


def _one_line(text: str) -> str:
    """Text from outside may hold anything, and be of any length; printed, it is one line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"

"""How commands speak: results on standard output, everything else on standard error. Nothing else
prints, so that nothing from a file reaches a terminal unseen."""

from __future__ import annotations

import typer

from commbench.report.terminal import safe


def say(text: object, end: str = "\n") -> None:
    """Print a result."""
    typer.echo(safe(str(text)) + end, nl=False)


def tell(text: object) -> None:
    """Print something about what is going on."""
    typer.echo(safe(str(text)), err=True)


def command(line: str) -> None:
    """Print a command to GitHub's runner, which has escaped what comes from files."""
    typer.echo(line)

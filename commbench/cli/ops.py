"""`commbench ops`: the table of operations."""

from __future__ import annotations

import typer


def ops() -> None:
    """Print the operations: what each does, what its size means, how bus bandwidth follows.

    \b
    commbench ops
    """
    from commbench.report.tables import operations_text

    typer.echo(operations_text())

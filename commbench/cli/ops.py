"""`commbench ops`: the table of operations."""

from __future__ import annotations


def ops() -> None:
    """Print the operations: what each does, what its size means, how bus bandwidth follows.

    \b
    commbench ops
    """
    from commbench.cli.speak import say
    from commbench.report.tables import operations_text

    say(operations_text())

"""`commbench ops`: the table of operations."""

from __future__ import annotations


def ops() -> None:
    """Print the operations: the torch call, what it does, its size and its bus bandwidth.

    \b
    commbench ops
    """
    from commbench.output.console import print_result
    from commbench.report.plan_table import operations_text

    print_result(operations_text())

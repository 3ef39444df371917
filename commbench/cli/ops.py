"""`commbench ops`: the table of operations."""

from __future__ import annotations


def ops() -> None:
    """Print the operations: what each does, what its size means, how bus bandwidth follows.

    \b
    commbench ops
    """
    from commbench.output.console import print_result
    from commbench.report.plan_table import operations_text

    print_result(operations_text())

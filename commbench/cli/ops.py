"""`commbench ops`: the table of operations."""

from __future__ import annotations

from commbench.cli.options import AnyFormat, OutputFile


def ops(format_: AnyFormat = None, output: OutputFile = None) -> None:
    """Print the operations: the torch call, what it does, its size and its bus bandwidth.

    \b
    commbench ops
    """
    from commbench.report.operations import VIEW, operation_table
    from commbench.views.formats import show

    show(VIEW, operation_table(), format_, output)

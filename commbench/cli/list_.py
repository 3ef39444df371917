"""`commbench list`: the runs under results/."""

from __future__ import annotations

from commbench.cli.options import AnyFormat, OutputFile


def list_(format_: AnyFormat = None, output: OutputFile = None) -> None:
    """List the runs and sweeps in the folder `results`, the newest first.

    Other commands take the label of a run or the name of its folder.

    \b
    commbench list
    """
    from commbench import api
    from commbench.report.run_list import VIEW, RunList
    from commbench.results.run_folder import list_sweeps
    from commbench.views.formats import show

    show(VIEW, RunList(api.list_runs(), list_sweeps()), format_, output)

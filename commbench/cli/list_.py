"""`commbench list`: the runs under results/."""

from __future__ import annotations


def list_() -> None:
    """List the runs in the folder `results`, the newest first.

    Other commands take the label or the folder of a run.

    \b
    commbench list
    """
    from commbench import api
    from commbench.output.console import print_result, print_status
    from commbench.report.run_list import run_list_text

    runs = api.list_runs()
    if runs:
        print_result(run_list_text(runs))
    else:
        print_status("there are no runs in the folder results")

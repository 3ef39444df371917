"""`commbench list`: the runs under results/."""

from __future__ import annotations


def list_() -> None:
    """List the runs and sweeps in the folder `results`, the newest first.

    Other commands take the label of a run or the name of its folder.

    \b
    commbench list
    """
    from commbench import api
    from commbench.output.console import print_result, print_status
    from commbench.report.run_list import run_list_text, sweep_list_text
    from commbench.results.run_folder import list_sweeps

    runs, sweeps = api.list_runs(), list_sweeps()
    if runs or sweeps:
        print_result("\n\n".join(filter(None, (run_list_text(runs), sweep_list_text(sweeps)))))
    else:
        print_status("there are no runs in the folder results")

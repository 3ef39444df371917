"""`commbench smoke`: does every collective work on this machine? For continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commbench.cli.command import Show


def smoke(show: Show, junit: Path | None, **given: Any) -> None:
    """Run every operation with three dtypes and three sizes, and check its results, in seconds.

    Of each case, as many calls are checked as take 20 ms, and at least two. Prints a row per
    operation. Exit code 0: all work. 3: an operation cannot be run here. 4: a rank died or hung.
    5: wrong results.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    commbench smoke --mesh dp=2,tp=2                  groups of ranks, on 4 ranks
    """
    from commbench import api
    from commbench.output.console import print_status, print_workflow_command
    from commbench.output.github import add_to_summary
    from commbench.output.table import runs_in_actions
    from commbench.results.files import require_new, write_new
    from commbench.runner.smoke_document import VIEW, smoke_annotation, smoke_junit
    from commbench.views.formats import MARKDOWN

    if junit:
        require_new(junit)  # before the measurement, which takes seconds
    result = api.smoke(**given, notify=print_status)
    show(result)
    if junit:
        write_new(junit, smoke_junit(result))
    if runs_in_actions():
        print_workflow_command(smoke_annotation(result))
        add_to_summary(VIEW.write(result, MARKDOWN))
    if result.error:
        raise result.error

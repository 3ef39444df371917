"""`commbench smoke`: does every collective work on this machine? For continuous integration."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from commbench import api
from commbench.cli.run_parameters import make_parameter, make_signature
from commbench.output.console import print_result, print_workflow_command
from commbench.output.github import add_to_summary
from commbench.output.table import runs_in_actions
from commbench.results.files import require_new, write_new
from commbench.runner.smoke_text import (
    operation_outcome,
    smoke_annotation,
    smoke_junit,
    smoke_markdown,
    smoke_verdict,
)


def smoke(context: typer.Context, **_: object) -> None:
    """Run every operation with three dtypes and three sizes, and check its results, in seconds.

    Of each case, as many calls are checked as take 20 ms, and at least two. Prints one line per
    operation. Exit code 0: all work. 3: an operation cannot be run here. 4: a rank died or hung.
    5: wrong results.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    commbench smoke --mesh dp=2,tp=2                  groups of ranks, on 4 ranks
    """
    given = dict(context.params)
    written = given.pop("junit")
    junit = None if written is None else Path(written)
    if junit:
        require_new(junit)  # before the measurement, which takes seconds
    result = api.smoke(**given, notify=print_result)
    print_result(smoke_verdict(result))
    for operation in result.operations:
        print_result(f"  {operation.name:<15} {operation_outcome(operation)}")
    if junit:
        write_new(junit, smoke_junit(result))
    if runs_in_actions():
        print_workflow_command(smoke_annotation(result))
        add_to_summary(smoke_markdown(result))
    if result.error:
        raise result.error


smoke.__signature__ = make_signature(  # type: ignore[attr-defined]
    make_parameter("backend", default="gloo"),
    make_parameter("device"),
    make_parameter(
        "nproc_per_node", help="Number of ranks.", default_text="one per GPU; 2 on the CPU"
    ),
    make_parameter("mesh", group="", help="Measure the groups of a mesh instead: dp=2,tp=2."),
    make_parameter("timeout", default=60.0, help="Seconds that one collective may take."),
    inspect.Parameter(
        "junit",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option(metavar="FILE.xml", help="Write JUnit XML to a file that does not exist."),
        ],
    ),
)

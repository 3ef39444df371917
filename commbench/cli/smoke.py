"""`commbench smoke`: does every collective work on this machine? For continuous integration."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from commbench import api
from commbench.cli.options import OUTPUT, AnyFormat, OutputFile
from commbench.cli.run_parameters import make_parameter, make_signature
from commbench.output.console import print_status, print_workflow_command
from commbench.output.github import add_to_summary
from commbench.output.table import runs_in_actions
from commbench.results.files import require_new, write_new
from commbench.runner.smoke_document import VIEW, smoke_annotation, smoke_junit
from commbench.views.formats import MARKDOWN, choose_format, show


def smoke(context: typer.Context, **_: object) -> None:
    """Run every operation with three dtypes and three sizes, and check its results, in seconds.

    Of each case, as many calls are checked as take 20 ms, and at least two. Prints a row per
    operation. Exit code 0: all work. 3: an operation cannot be run here. 4: a rank died or hung.
    5: wrong results.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    commbench smoke --mesh dp=2,tp=2                  groups of ranks, on 4 ranks
    """
    given = dict(context.params)
    format_, output, junit = (given.pop(name) for name in ("format_", "output", "junit"))
    VIEW.require(choose_format(format_, output))
    for file in filter(None, (junit, output)):
        require_new(Path(file))  # before the measurement, which takes seconds
    result = api.smoke(**given, notify=print_status)
    show(VIEW, result, format_, output and Path(output))
    if junit:
        write_new(Path(junit), smoke_junit(result))
    if runs_in_actions():
        print_workflow_command(smoke_annotation(result))
        add_to_summary(VIEW.write(result, MARKDOWN))
    if result.error:
        raise result.error


def _output(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


JUnitFile = Annotated[
    Path | None,
    typer.Option(
        "--junit", metavar="FILE.xml", help="Write JUnit XML to a new file.", rich_help_panel=OUTPUT
    ),
]
smoke.__signature__ = make_signature(  # type: ignore[attr-defined]
    make_parameter("backend", default="gloo"),
    make_parameter("device"),
    make_parameter(
        "nproc_per_node", help="Number of ranks.", default_text="one per GPU; 2 on the CPU"
    ),
    make_parameter("mesh", group="", help="Measure the groups of a mesh instead: dp=2,tp=2."),
    make_parameter("timeout", default=60.0, help="Seconds that one collective may take."),
    _output("junit", JUnitFile),
    _output("format_", AnyFormat),
    _output("output", OutputFile),
)

"""`commbench run`: measure collectives."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import typer

from commbench.cli.run_parameters import given_options, make_parameter, make_signature
from commbench.errors import CommbenchError
from commbench.output.console import (
    print_error,
    print_status,
    wrap_on_terminal,
)
from commbench.runner.run_options import RUN_OPTIONS, RunOptions, parse_options
from commbench.views.formats import TEXT, VIEW_OF_DOCUMENT, show

if TYPE_CHECKING:
    from commbench.results.schema import Run


def run(context: typer.Context, **_: object) -> None:
    """Measure collectives: a table here, and a folder with journal, CSV and plots.

    \b
    commbench run --op all_reduce --sizes 1K-1G
    commbench run --op all_gather,reduce_scatter --dtype bfloat16 --sizes 1M-64M
    commbench run --op all --sizes 64K --nproc-per-node 4 --backend gloo
    commbench run -b 8 -e 128M -f 2 -d half          (nccl-tests' flags)
    commbench run --resume results/20261121-120000-all_reduce
    """
    options = parse_options(given_options(context))
    if options.dry_run:
        print_plan(options)
    else:
        from commbench import api

        api.run_options(options, RunPrinter(options))


# Typer reads the options of a command from its signature.
run.__signature__ = make_signature(*map(make_parameter, RUN_OPTIONS))  # type: ignore[attr-defined]


class RunPrinter:
    """Prints the messages of a run: the table on standard output, the rest on standard error."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options

    def status(self, line: str) -> None:
        print_status(wrap_on_terminal(line))

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        if error is None or run.measurements:
            from commbench.report.run_document import VIEW, ShownRun

            if error:  # it follows, and gives the reason
                run = run._replace(end=run.end and run.end._replace(reason=""))
            options = self._options
            shown = ShownRun(run, options.peak, has_calls=options.verbose, is_brief=True)
            format_ = TEXT if error else options.format
            show(VIEW, shown, format_, is_verbose=options.verbose)

    def hung(self, error: CommbenchError) -> None:
        print_error(error.message, error.hint, error.details)


def print_plan(options: RunOptions) -> None:
    """Print what a run would do, and start nothing."""
    from commbench import api
    from commbench.host.cgroup import read_free_bytes
    from commbench.report.plan_table import HostMemory, plan_document
    from commbench.spec.refusals import require_ready_case

    planned = api.plan_options(options)
    line = shlex.join(planned.torchrun_line)
    own, plan = planned.nodes, planned.plan
    first = own.rank * own.ranks_per_node
    host = HostMemory(
        ranks=range(first, first + own.ranks_per_node),
        free_bytes=read_free_bytes() if plan.device == "cpu" else None,
        cores=len(os.sched_getaffinity(0)),
    )
    described = plan_document(plan, line, host, planned.summary)
    show(VIEW_OF_DOCUMENT, described, TEXT, is_verbose=options.verbose)
    require_ready_case(plan)

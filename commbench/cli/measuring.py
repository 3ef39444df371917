"""`commbench run`, `init`, `pairs` and `replay`: the commands that take the options of a run."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import typer

from commbench import api
from commbench.api.measuring import init_options, pairs_options, replay_options
from commbench.cli.run_parameters import given_options
from commbench.errors import CommbenchError
from commbench.output.console import print_error, print_status, wrap_on_terminal
from commbench.runner.run_options import RunOptions, parse_options
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
    _carry_out(parse_options(given_options(context)))


def init(context: typer.Context, **_: object) -> None:
    """Time what a job does before it trains: init_process_group, new groups, first calls.

    Measures how long the ranks take to join, to make a process group, and to make the first and the
    second call of each operation on a new group, and the memory of a group. Each number of --ranks
    is a run of its own, with a journal in results/.

    \b
    commbench init
    commbench init --ranks 2,4,8
    commbench init --open-groups 0,16,64              beside so many groups
    commbench init --mesh dp=2,tp=4                   new groups of each dimension
    commbench init --op new_group,all_reduce --iters 30
    commbench init --ranks 2,64 --dry-run             what would be measured
    """
    from commbench.report.start_up_table import VIEW, StartUps

    lists = {name: context.params.pop(name) for name in ("ranks", "open_groups")}
    format_ = context.params.get("format") or TEXT
    VIEW.require(format_)
    if context.params.get("dry_run"):
        for options in init_options(**lists, **given_options(context)):
            print_plan(options)
        return
    if runs := api.init(_InitPrinter, **lists, **given_options(context)):
        show(VIEW, StartUps(runs), format_)


def pairs(context: typer.Context, **_: object) -> None:
    """Find a slow rank, host or link: latency and bandwidth of every pair of ranks.

    The pairs are measured in rounds, in which each rank has one pair: n - 1 rounds of n ranks. All
    pairs of a round call at once, first from the lower rank to the higher one, then back. It is an
    ordinary run, and all commands read it. Its folder also has pairs.csv, the matrices
    latency.csv and bandwidth.csv, and heat maps.

    \b
    commbench pairs --nproc-per-node 8
    commbench pairs --nproc-per-node 8 --quick           some of the rounds
    commbench pairs --sizes 64M                          fast links: NVLink
    commbench pairs --groups 0-28:4 --nproc-per-node 32  one rank of each 4
    commbench pairs --pairs 0-5+1-7                      these pairs only
    commbench pairs --pairs 0-5,5-0                      one pair, both directions
    """
    is_quick = context.params.pop("quick")
    _carry_out(pairs_options(is_quick=is_quick, **given_options(context)))


def replay(context: typer.Context, **_: object) -> None:
    """Replay the collectives of your training step: what the network needs, what can be saved.

    Each different call is measured alone, and then the whole step, in order, with and without the
    gaps between its calls, with buckets of other sizes, and with reduce_scatter + all_gather. The
    result is compared with the trace. It is an ordinary run, and all commands read it.

    \b
    commbench workload import traces/ -o step.json   the step of your trace
    commbench replay step.json                       on as many ranks
    commbench replay step.json --variant calls,gaps,bucket:50M
    commbench replay step.json --fit shrink --nproc-per-node 2
    commbench replay step.json --peak 400Gbit/s      what the network allows
    """
    _carry_out(replay_options(**given_options(context)))


def _carry_out(options: RunOptions) -> None:
    """Measure, or print what would be measured."""
    if options.dry_run:
        print_plan(options)
    else:
        api.run_options(options, RunPrinter(options))


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


class _InitPrinter(RunPrinter):
    """Prints the messages of a run. One table of all runs follows the last one."""

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        if error:
            super().ended(run, error)

"""`commbench init`: how long ranks and process groups take to start."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from commbench import api
from commbench.api.measuring import INIT_DEFAULTS, init_options
from commbench.cli.run import RunPrinter, print_plan
from commbench.cli.run_parameters import given_options, make_parameter, make_signature

if TYPE_CHECKING:
    from commbench.errors import CommbenchError
    from commbench.results.schema import Run


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
    from commbench.views.formats import TEXT, show

    lists = {name: context.params.pop(name) for name in ("ranks", "open_groups")}
    format_ = context.params.get("format") or TEXT
    VIEW.require(format_)
    if context.params.get("dry_run"):
        for options in init_options(**lists, **given_options(context)):
            print_plan(options)
        return
    if runs := api.init(_InitPrinter, **lists, **given_options(context)):
        show(VIEW, StartUps(runs), format_)


class _InitPrinter(RunPrinter):
    """Prints the messages of a run. One table of all runs follows the last one."""

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        if error:
            super().ended(run, error)


_OTHERS = (
    "mesh", "mesh_order", "over", "groups", "group_size", "group_stride", "backend", "device",
    "nproc_per_node", "budget", "precision", "timeout", "cpu_mode", "label", "output", "format",
    "dry_run",
)  # fmt: skip


def _list_of_numbers(name: str, text: str) -> inspect.Parameter:
    option = typer.Option(metavar="N,N", help=text, rich_help_panel="What to measure")
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )


init.__signature__ = make_signature(  # type: ignore[attr-defined]
    _list_of_numbers(
        "ranks",
        "Numbers of ranks on this host; each is a run.  [default: that of --nproc-per-node]",
    ),
    _list_of_numbers(
        "open_groups",
        "Numbers of process groups of all ranks that are open already; each is a run.  "
        "[default: 0]",
    ),
    *(
        make_parameter(name, default=(), default_text=", ".join(value))
        if isinstance(value, tuple)
        else make_parameter(name, default=value)
        for name, value in INIT_DEFAULTS.items()
    ),
    *map(make_parameter, _OTHERS),
)

"""`commbench show`: the table of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commbench.cli.untold import Dtype, Op, Ranks


def show(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run folder, its run.jsonl, or another tool's file."),
    ],
    format_: Annotated[
        str,
        typer.Option("--format", metavar="HOW", help="table, or nccl-tests: as its scripts read."),
    ] = "table",
    peak: Annotated[
        str | None,
        typer.Option(
            metavar="SPEED",
            help="Show which part of a speed was reached: 450GB/s, 400Gbit/s, or a name of "
            "`commbench links`.",
        ),
    ] = None,
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Print the table of a run, finished or not.

    \b
    commbench show results/20261121-120000-all_reduce
    commbench show results/20261121-120000-all_reduce --peak nvlink4
    """
    from commbench.cli.look import refuse_unknown_look, text_of
    from commbench.cli.speak import say
    from commbench.records.opening import Untold, open_run

    refuse_unknown_look(format_, peak)
    say(text_of(open_run(path, Untold(ranks, op, dtype)), format_, peak))

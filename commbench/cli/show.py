"""`commbench show`: the table of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from commbench.cli.shown import Format, Peak
from commbench.cli.untold import Dtype, Op, Ranks


def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Run folder, its run.jsonl, label, another tool's file, or folder of a sweep.",
        ),
    ],
    format_: Format = "table",
    peak: Peak = None,
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Print the table of a run, finished or not; or what a sweep found.

    \b
    commbench show results/20261121-120000-all_reduce
    commbench show mine --peak nvlink4                   the newest of that label, under results/
    commbench show results/20261121-120000-sweep
    """
    from commbench.analysis.sources import find_source
    from commbench.cli import sweeping
    from commbench.cli.look import TABLE, refuse_unknown_look, text_of
    from commbench.cli.speak import say, tell
    from commbench.cli.unfinished import COMPLETE
    from commbench.errors import UsageError
    from commbench.records.opening import Untold, open_run

    refuse_unknown_look(format_, peak)
    if folder := sweeping.find_sweep(run):
        if format_ != TABLE or any(said is not None for said in (peak, ranks, op, dtype)):
            raise UsageError(
                f"{run} is a sweep, which is shown in one way", "leave out the options"
            )
        sweeping.show(folder)
        return
    path = find_source(run, tell)
    opened = open_run(path, Untold(ranks, op, dtype))
    say(text_of(opened, format_, peak))
    if (ended := opened.end) is None or ended.status != COMPLETE:
        if_cut_off = "" if ended else "if it was cut off, "
        tell(f"{if_cut_off}`commbench run --resume {opened.path}` goes on with it")

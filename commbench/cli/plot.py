"""`commbench plot`: curves of one or several runs."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks


def plot(
    runs: list[str] = Argument(
        metavar="RUN...", help="Run folders, labels, or other tools' files."
    ),
    output: Path | None = Option(
        None, metavar="DIR", help="Folder for the plots.  [default: the first run's]"
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Draw bus bandwidth and time against size; several runs share their axes.

    \b
    commbench plot results/ring results/tree --output plots
    commbench plot ring tree --output plots             runs by label, under results/
    """
    from commbench import api
    from commbench.output.console import print_result, print_status

    found = [api.load(run, ranks=ranks, op=op, dtype=dtype, notify=print_status) for run in runs]
    for file in api.plot(*found, output=output):
        print_result(file)

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
    from commbench.analysis.load import open_run
    from commbench.importers.hints import ImportHints
    from commbench.output.console import print_result, print_status
    from commbench.report.plots import draw
    from commbench.results.files import is_folder
    from commbench.results.run_folder import find_run

    paths = [find_run(text, print_status) for text in runs]
    found = [open_run(path, ImportHints(ranks, op, dtype)) for path in paths]
    first = Path(found[0].path)
    for file in draw(found, output or (first if is_folder(first) else first.parent)):
        print_result(file)

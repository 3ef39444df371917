"""`commbench compare`: which of several runs is faster, by how much, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks

if TYPE_CHECKING:
    from commbench.compare.comparison import Comparison


def compare(
    first: str = Argument(
        metavar="A", help="The run that others are compared with: a label, folder or file."
    ),
    others: list[str] = Argument(metavar="B...", help="The runs that are compared with A."),
    tolerance: str = Option("5%", metavar="PART", help="Differences up to this count as the same."),
    force: bool = Option(
        False, "--force", help="Compare runs although ranks, nodes, device or CPU mode differ."
    ),
    format_: str = Option(
        "text", "--format", metavar="FORMAT", help="text, markdown, html, json or csv."
    ),
    verbose: bool = Option(
        False, "--verbose", help="Print all rows, p-values of the rank test, and all warnings."
    ),
    plot: Path | None = Option(
        None,
        metavar="FILE",
        help="Draw the comparison into a new file: .png, .svg, .pdf. With several operations, "
        "dtypes or timings use --output.",
    ),
    output: Path | None = Option(
        None, metavar="DIR", help="Draw a picture of each operation into this folder."
    ),
    fail_if_slower: bool = Option(
        False, "--fail-if-slower", help="Exit with 1 if any row or range of sizes is slower."
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Compare runs: one sentence for each range of sizes, then the rows that differ.

    A ratio is the time of B over the time of A, with its 95 % interval. Above 1, B is slower.

    \b
    commbench compare ring tree      runs under results/, by label
    commbench compare results/old results/new --format markdown
    commbench compare old.csv new.csv --tolerance 10% --fail-if-slower
    commbench compare ring tree pat --plot algorithms.png
    """
    import gc

    from commbench import api
    from commbench.compare.document import VIEW, Comparisons
    from commbench.output.console import print_status
    from commbench.views.formats import show

    VIEW.require(format_)
    gc.disable()  # rows are tuples without cycles; looking for cycles takes a sixth of the time
    comparisons: list[Comparison] = []
    for other in others:
        baseline = comparisons[0].a if comparisons else first  # it is read once
        found = api.compare(
            baseline, other, tolerance=tolerance, force=force, ranks=ranks, op=op, dtype=dtype,
            notify=print_status,
        )  # fmt: skip
        comparisons.append(found)
    drawn: list[Path] = []
    if plot or output:
        from commbench.compare.plot import comparison_pictures, require_pictures
        from commbench.views.draw import require_ending, write_pictures

        if plot:
            require_ending(plot)
        pictures = require_pictures(comparison_pictures(comparisons))
        for place in filter(None, (plot, output)):
            drawn += write_pictures(pictures, place)
    show(VIEW, Comparisons(comparisons), format_, is_verbose=verbose)
    for file in drawn:
        print_status(file)
    if fail_if_slower and any(comparison.is_slower for comparison in comparisons):
        slower = sum(comparison.counts["slower"] for comparison in comparisons)
        rows = f"{slower} {'row is' if slower == 1 else 'rows are'}"
        print_status(f"{rows} slower than in {comparisons[0].a.name}")
        raise typer.Exit(1)

"""`commbench model`: cost models of a machine, and what they predict."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

model = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Fit cost models to measured times, and predict other sizes and numbers of ranks.",
)


@model.command()
def predict(
    machine: str = Argument(metavar="MACHINE", help="File that `commbench model fit` wrote."),
    ranks: str = Option(
        metavar="N", help="Numbers of ranks: 512, or 8,64,512, or 8-512 (doubles)."
    ),
    ranks_per_node: int | None = Option(
        None,
        "--ranks-per-node",
        metavar="N",
        help="Ranks on each host.  [default: as many as were measured]",
    ),
    op: str | None = Option(
        None, "--op", metavar="OP", help="Operations.  [default: all of the machine]"
    ),
    sizes: str = Option("1K-1G:x4", metavar="SIZES", help="Sizes, as for run: 1M-1G, 8,1K."),
    variant: str = Option(
        "",
        metavar="WORDS",
        help="What the calls have besides, such as bfloat16, where the machine has several models "
        "of an operation.",
        show_default=False,
    ),
    format_: str = Option(
        "table",
        "--format",
        metavar="FORMAT",
        help="table, csv, json, autoparallel or inductor (docs/models.md).",
    ),
    output: Path | None = Option(
        None,
        "--output",
        "-o",
        metavar="FILE",
        help="New file; a picture if it ends in .png, .svg or .pdf.  [default: print the text]",
    ),
) -> None:
    """Predict the times of collectives, with intervals, for ranks and sizes that were not measured.

    \b
    commbench model predict machine.json --op all_reduce --ranks 512 \\
        --ranks-per-node 8 --sizes 1M-1G
    commbench model predict machine.json --ranks 8-4096 --format csv -o predicted.csv
    commbench model predict machine.json --ranks 8-4096 -o predicted.png
    """
    from commbench import api
    from commbench.cli.options import print_or_write
    from commbench.output.console import print_result
    from commbench.output.plot_style import ENDINGS

    found = api.predict(
        machine, op=op, ranks=ranks, ranks_per_node=ranks_per_node, sizes=sizes, variant=variant
    )
    if output is not None and output.suffix.lower() in ENDINGS:
        print_result(found.plot(output))
    else:
        print_or_write(found.text(format_), output)

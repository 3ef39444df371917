"""`commbench model`: cost models of a machine, and what they predict."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from commbench.cli.options import FOREIGN

model = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Fit cost models to measured times, and predict other sizes and numbers of ranks.",
)


@model.command()
def fit(
    runs: list[str] = Argument(
        metavar="RUN...", help="Runs, other tools' files, or CSV of published figures."
    ),
    output: Path | None = Option(
        None,
        "--output",
        "-o",
        metavar="FILE.json",
        help="New machine file. The residuals are drawn into FILE.png.  [default: print only]",
    ),
    leave_out: list[str] = Option(
        [],
        "--leave-out",
        metavar="ranks=N|sizes=SIZES",
        help="Fit without these ranks or sizes, and say how well they are predicted: ranks=512-, "
        "sizes=1M-64M. Repeat it for several.",
        show_default=False,
    ),
    name: str = Option(
        "", metavar="NAME", help="Name of the machine.  [default: that of FILE]", show_default=False
    ),
    ranks_per_node: int | None = Option(
        None,
        "--ranks-per-node",
        metavar="N",
        help="Ranks on each host, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
    ranks: int | None = Option(
        None,
        metavar="N",
        help="Fit only groups of so many ranks. Needed for a file that does not say its ranks.",
    ),
    op: str | None = Option(
        None,
        metavar="OP",
        help="Fit only this operation. Needed for a file that does not say its operation.",
    ),
    dtype: str | None = Option(
        None,
        metavar="DTYPE",
        help="Fit only this element type. Needed for a file that does not say its type.",
    ),
) -> None:
    """Fit cost models to measured times, and choose one by the error of times left out.

    Prints, for each operation within a host and across hosts, the model, its parameters with 95 %
    intervals, its error, and the models that the data cannot tell from it.

    \b
    commbench model fit two four six -o machine.json
    commbench model fit published.csv -o h100.json --leave-out ranks=512-
    """
    from commbench import api
    from commbench.models.fit_text import machine_text
    from commbench.output.console import print_result, print_status

    made = api.fit_model(
        *runs, output=output, leave_out=leave_out, name=name, ranks_per_node=ranks_per_node,
        ranks=ranks, op=op, dtype=dtype, notify=print_status,
    )  # fmt: skip
    print_result(machine_text(made), end="")
    if output is not None:
        print_status(output)
        print_status(output.with_suffix(".png"))


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
        help="table, csv, json, autoparallel, inductor or nccl-tuner (docs/models.md).",
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
    commbench model predict machine.json --ranks 8-4096 --format csv -o p.csv
    commbench model predict machine.json --ranks 8-4096 -o predicted.png
    """
    from commbench import api
    from commbench.cli.options import print_or_write
    from commbench.output.console import print_result, print_status, wrap_on_terminal
    from commbench.views.draw import ENDINGS

    found = api.predict(
        machine, op=op, ranks=ranks, ranks_per_node=ranks_per_node, sizes=sizes, variant=variant
    )
    if output is not None and output.suffix.lower() in ENDINGS:
        print_result(found.plot(output))
        warnings = found.warnings()
    else:
        print_or_write(found.text(format_), output)
        warnings = found.warnings(format_)
    for warning in warnings:
        print_status(wrap_on_terminal(f"warning: {warning}"))

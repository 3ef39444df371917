"""Options that several commands share. Those of `commbench run` are in runner/run_options.py."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from commbench.report.formats import FORMAT_HELP, PEAK_HELP

Format = Annotated[str, Option("--format", metavar="HOW", help=FORMAT_HELP)]
Peak = Annotated[
    str | None, Option("--peak", metavar="SPEED", help=f"{PEAK_HELP}  [default: that of the run]")
]
FOREIGN = "Files of other tools"
Ranks = Annotated[
    int | None,
    Option(
        "--ranks", metavar="N", help="Number of ranks, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
]  # fmt: skip
Op = Annotated[
    str | None,
    Option(
        "--op", metavar="OP", help="Operation, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
]  # fmt: skip
Dtype = Annotated[
    str | None,
    Option(
        "--dtype", metavar="DTYPE", help="Element type, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
]  # fmt: skip

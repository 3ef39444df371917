"""Options that several commands share. Those of `commbench run` are in runner/run_options.py."""

from __future__ import annotations

from typing import Annotated

import typer

from commbench.report.formats import FORMAT_HELP, PEAK_HELP

Format = Annotated[
    str,
    typer.Option("--format", metavar="HOW", help=FORMAT_HELP),
]
Peak = Annotated[
    str | None,
    typer.Option("--peak", metavar="SPEED", help=PEAK_HELP),
]


Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", help="Of another tool's file: its ranks.")
]


Op = Annotated[
    str | None,
    typer.Option("--op", metavar="OP", help="Of another tool's file: what it measured."),
]


Dtype = Annotated[
    str | None, typer.Option("--dtype", metavar="DTYPE", help="Of another tool's file: elements.")
]

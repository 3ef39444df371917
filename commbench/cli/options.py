"""Options that say how a run is shown."""

from __future__ import annotations

from typing import Annotated

import typer

Format = Annotated[
    str,
    typer.Option("--format", metavar="HOW", help="table, or nccl-tests: as its scripts read."),
]
Peak = Annotated[
    str | None,
    typer.Option(
        "--peak",
        metavar="SPEED",
        help="Show which part of a speed was reached: 450GB/s, 400Gbit/s, or a name of "
        "`commbench links`.",
    ),
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

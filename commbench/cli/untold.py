"""Options that add what another tool's file does not tell."""

from __future__ import annotations

from typing import Annotated

import typer

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

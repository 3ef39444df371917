"""`commbench smoke`: does every collective work here? For continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def smoke(
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="gloo, nccl, or another that this torch has."),
    ] = "gloo",
    device: Annotated[str | None, typer.Option(metavar="TYPE", help="cpu or cuda.")] = None,
    nproc_per_node: Annotated[
        int | None, typer.Option(metavar="N", help="Ranks.  [default: 2; one per GPU]")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds one collective may take.")
    ] = 60.0,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a JUnit report there.")
    ] = None,
) -> None:
    """Run every operation with several dtypes and sizes, and check every result. A few seconds.

    Prints a line per operation. The exit code says what is wrong: see README.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    """
    from commbench.runner import smoke as smoking

    smoking.run(backend, device, nproc_per_node, timeout, junit)

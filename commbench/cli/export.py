"""`commbench export`: a run in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, run.jsonl, results.csv, or label.")
    ],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="csv, json, markdown, nccl-tests, parquet, openmetrics.",
        ),
    ] = "csv",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file that does not exist.  [default: print it]"),
    ] = None,
) -> None:
    """Write the rows of a run in another format.

    \b
    commbench export results/mine --format json --output mine.json
    commbench export mine --format openmetrics --output commbench.prom
    """
    from commbench.analysis.load import load
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status
    from commbench.report.exporters import EXPORTERS
    from commbench.results.files import write_new
    from commbench.results.run_folder import find_run
    from commbench.validation import choose

    exporter = choose("format", format_, EXPORTERS)
    source = load(find_run(run, print_status))
    if exporter.needs_run and source.run is None:
        raise UsageError(
            f"{format_} needs more than {source.path} holds", "give the run folder or its run.jsonl"
        )
    content = exporter.export(source)
    if output is not None:
        write_new(output, content)
        print_result(output)
    elif isinstance(content, str):
        print_result(content, end="")
    else:
        raise UsageError(f"{format_} is no text", "name a file: --output FILE")

"""`commbench export`: a run in another format."""

from __future__ import annotations

from typer import Argument, Option

from commbench.cli.options import Output


def export(
    run: str = Argument(metavar="RUN", help="Run folder, run.jsonl, results.csv, or label."),
    format_: str = Option(
        "csv",
        "--format",
        metavar="FORMAT",
        help="csv, json, markdown, nccl-tests, parquet or openmetrics.",
    ),
    output: Output = None,
) -> None:
    """Write the rows of a run in another format.

    \b
    commbench export results/mine --format json --output mine.json
    commbench export mine --format openmetrics --output commbench.prom
    """
    from commbench.api.runs import export_parts
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status
    from commbench.results.files import write_new

    parts = export_parts(run, format_, print_status)
    if output is not None:
        write_new(output, parts)
        print_result(output)
        return
    for part in parts:
        if isinstance(part, bytes):
            raise UsageError(f"{format_} is not text", "write it to a file: --output FILE")
        print_result(part, end="")

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
    from commbench import api
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status

    content = api.export(run, format_, output, notify=print_status)
    if output is not None:
        print_result(output)
    elif isinstance(content, bytes):
        raise UsageError(f"{format_} is not text", "write it to a file: --output FILE")
    else:
        print_result(content, end="")

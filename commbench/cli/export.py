"""`commbench export`: a run in another format."""

from __future__ import annotations

from typer import Argument, Option

from commbench.cli.options import Output, print_or_write


def export(
    run: str = Argument(metavar="RUN", help="Run folder, run.jsonl, results.csv, or label."),
    format_: str = Option(
        "csv",
        "--format",
        metavar="FORMAT",
        help="csv, json, markdown, nccl-tests, parquet, openmetrics.",
    ),
    output: Output = None,
) -> None:
    """Write the rows of a run in another format.

    \b
    commbench export results/mine --format json --output mine.json
    commbench export mine --format openmetrics --output commbench.prom
    """
    from commbench.analysis.load import load
    from commbench.errors import UsageError
    from commbench.output.console import print_status
    from commbench.report.exporters import EXPORTERS
    from commbench.results.run_folder import find_run
    from commbench.validation import choose

    exporter = choose("format", format_, EXPORTERS)
    source = load(find_run(run, print_status))
    if exporter.needs_run and source.run is None:
        raise UsageError(
            f"{format_} needs more than {source.path} holds", "give the run folder or its run.jsonl"
        )
    content = exporter.export(source)
    if output is None and isinstance(content, bytes):
        raise UsageError(f"{format_} is no text", "name a file: --output FILE")
    print_or_write(content, output)

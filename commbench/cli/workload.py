"""`commbench workload`: the collective calls of a training step, from its traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from typer import Argument, Option

workload = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Read the collective calls of a training step from its traces, and store them.",
)
TRACES = Argument(
    metavar="TRACE...",
    help="Traces of the ranks, or a folder of them: torch.profiler (.json, .json.gz), flight "
    "recorder (pickle, JSON), Chakra (JSON), NCCL Inspector. Or the file of a workload.",
)


@workload.command()
def show(
    traces: list[Path] = TRACES,
    format_: str = Option("table", "--format", metavar="FORMAT", help="table or json."),
) -> None:
    """Print what the calls of a step took and waited.

    For each group and operation: calls, bytes, time without and with waiting. Then which rank
    waited for whom, and how much communication was not hidden behind computation.

    \b
    commbench workload show traces/
    commbench workload show rank0.json.gz rank1.json.gz --format json
    commbench workload show step.json
    """
    from commbench.api import workload as api
    from commbench.output.console import print_result
    from commbench.report.workload_text import trace_json, trace_text, workload_text
    from commbench.results.workload_file import is_workload
    from commbench.spec.workload import workload_values
    from commbench.validation import choose

    as_json = choose("format", format_, {"table": False, "json": True})
    if len(traces) == 1 and is_workload(traces[0]):
        found = api.load(traces[0])
        print_result(json.dumps(workload_values(found)) if as_json else workload_text(found))
        return
    with _progress() as report:
        analysis = api.analyse(*traces, report=report)
    print_result(json.dumps(trace_json(analysis), indent=1) if as_json else trace_text(analysis))


@workload.command("import")
def import_(
    traces: list[Path] = TRACES,
    output: Path = Option(..., "--output", "-o", metavar="FILE", help="New file: step.json."),
    name: str | None = Option(
        None, metavar="NAME", help="Name of the workload.  [default: that of the file or folder]"
    ),
) -> None:
    """Write the calls of a step into a JSON file.

    It has their groups, sizes, order and gaps.

    \b
    commbench workload import traces/ -o step.json
    """
    from commbench.api import workload as api
    from commbench.output.console import print_result, print_status
    from commbench.report.workload_text import workload_text
    from commbench.results.files import require_new

    require_new(output)
    with _progress() as report:
        found = api.load(*traces, name=name, report=report)
    api.save(found, output)
    print_result(workload_text(found))
    print_status(f"the workload is in {output}")


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """What reports the reading of traces: nothing is shown for those that are read at once."""
    from commbench.output.progress import work_listener

    listener = work_listener(0, 1, has_cases=False, doing="reading")

    def report(name: str, done: float) -> None:
        listener.started(name)
        listener.advanced(done)

    try:
        yield report
    finally:
        listener.close()

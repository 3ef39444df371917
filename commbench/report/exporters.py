"""EXPORTERS: the table of formats in which `export` writes a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, NamedTuple

from commbench.analysis.columns import written_values
from commbench.analysis.csv_file import make_csv
from commbench.analysis.load import LoadedRun
from commbench.errors import UnavailableError, UsageError
from commbench.output.markdown import escape, table
from commbench.report.nccl_tests_table import nccl_tests_text
from commbench.report.openmetrics import openmetrics
from commbench.units import format_bytes
from commbench.validation import choose
from commbench.views.cells import bandwidth_text, time_interval_text, time_text

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""


class Exporter(NamedTuple):
    """One format."""

    name: str
    export: Callable[[LoadedRun], str | bytes | Iterable[str]]
    """The content of the file, or its parts. Bytes are not printed to a terminal."""
    needs_run: bool = False
    """Whether it needs data that only a journal holds."""


def csv_parts(source: LoadedRun) -> Iterator[str]:
    """The rows as in results.csv."""
    rows = (written_values(row, source.columns) for row in source.rows)
    lines = chain([source.columns], rows)
    while some := [*islice(lines, 1000)]:
        yield make_csv(some)


def json_facts(source: LoadedRun) -> dict[str, Any]:
    """The name, and plan and environment where a journal holds them."""
    if not (header := source.header):
        return {"name": source.name, "run": None}
    names = ("label", "started", "launcher", "num_nodes", "hosts", "plan", "environment")
    facts = {name: getattr(header, name) for name in names} | {"plan": header.plan.as_json()}
    return {"name": source.name, "run": facts}


def json_parts(source: LoadedRun) -> Iterator[str]:
    """The rows, and plan and environment where a journal holds them; null for unknown values.
    Samples are in the journal itself, which is JSON lines."""
    document: dict[str, Any] = {"schema": SCHEMA, **json_facts(source)}
    document["rows"] = []
    yield json.dumps(document, indent=1, allow_nan=False).removesuffix("]\n}")
    for number, row in enumerate(source.rows):
        written = dict(zip(source.columns, written_values(row, source.columns), strict=True))
        text = json.dumps(written, indent=1, allow_nan=False).replace("\n", "\n  ")
        yield f"{',' if number else ''}\n  {text}"
    yield "\n ]\n}\n" if source.rows else "]\n}\n"


def markdown_text(source: LoadedRun) -> str:
    """A table with a row per case, for an issue or a page."""
    rows = [_markdown_row(row) for row in source.rows]
    headings = ("case", "size", "time", "95 % interval", "n", "algbw GB/s", "busbw GB/s", "status")
    lines = table(headings, rows, left="case,status")
    return "\n".join([f"### {escape(source.name)}", "", *lines]) + "\n"


def _markdown_row(row: Any) -> tuple[str, ...]:
    case = row.case
    found = row.time
    return (
        case.title,
        format_bytes(case.size_bytes) if case.dtype else "",
        time_text(found) if found else "",
        time_interval_text(found) if found else "",
        "" if found is None or row.iterations is None else str(row.iterations),
        *("" if b is None else bandwidth_text(b) for b in (row.algbw, row.busbw)),
        row.status,
    )


def parquet_bytes(source: LoadedRun) -> bytes:
    """Apache Parquet, written by pandas and pyarrow."""
    if find_spec("pyarrow") is None:
        raise UnavailableError(
            "parquet needs pyarrow, which is not installed", "pip install 'pyarrow>=15'"
        )
    content: bytes = source.frame().to_parquet(index=False)
    return content


def nccl_tests_table(source: LoadedRun) -> str:
    """The tables that nccl-tests would print."""
    assert source.run
    return nccl_tests_text(source.run) + "\n"


EXPORTERS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter("csv", csv_parts),
        Exporter("json", json_parts),
        Exporter("markdown", markdown_text),
        Exporter("nccl-tests", nccl_tests_table, needs_run=True),
        Exporter("parquet", parquet_bytes),
        Exporter("openmetrics", openmetrics),
    )
}


def require_exporter(format_: str) -> None:
    """Raise UsageError for an unknown format."""
    choose("format", format_, EXPORTERS)


def export_run(source: LoadedRun, format_: str) -> Iterable[Any]:
    """The run in that format, in parts: texts, or one of bytes. UsageError where the format needs
    data that `source` lacks."""
    exporter = EXPORTERS[format_]
    if exporter.needs_run and source.run is None:
        raise UsageError(
            f"{format_} needs the samples of the run, and {source.path} has none",
            "give the run folder or its run.jsonl",
        )
    content = exporter.export(source)
    return [content] if isinstance(content, str | bytes) else content

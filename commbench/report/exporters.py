"""EXPORTERS: the table of formats a run can be written in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from commbench.analysis.columns import as_nullable, records
from commbench.analysis.load import LoadedRun
from commbench.analysis.row_matching import case_of
from commbench.errors import UnavailableError
from commbench.output.markdown import escape, table
from commbench.report.nccl_tests_table import nccl_tests_text
from commbench.report.openmetrics import openmetrics
from commbench.units import GB, MICRO, choose_decimals, format_bytes, format_GBps, format_time

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""


class Exporter(NamedTuple):
    """One format."""

    name: str
    export: Callable[[LoadedRun], str | bytes]
    """The whole file. Bytes are no text, and do not go to a terminal."""
    needs_run: bool = False
    """It needs what only a journal holds."""


def csv_text(source: LoadedRun) -> str:
    """results.csv, as the run folder has it."""
    text: str = as_nullable(source.frame).to_csv(index=False, lineterminator="\n")
    return text


def json_text(source: LoadedRun) -> str:
    """Rows, and what the journal tells of plan and environment; null stands for what is not known.
    Samples are in the journal itself, which is JSON too, line by line."""
    header = source.header
    told: dict[str, Any] = {"schema": SCHEMA, "name": source.name, "run": None}
    if header:
        told["run"] = {
            "label": header.label,
            "started": header.started,
            "launcher": header.launcher,
            "num_nodes": header.num_nodes,
            "hosts": header.hosts,
            "plan": header.plan.as_json(),
            "environment": header.environment,
        }
    told["rows"] = records(as_nullable(source.frame))
    return json.dumps(told, indent=1, allow_nan=False) + "\n"


def markdown_text(source: LoadedRun) -> str:
    """A table with a row per case, for an issue or a page."""
    decimals = [
        choose_decimals(b * GB for b in source.frame[column] if b == b)
        for column in ("algbw_GBps", "busbw_GBps")
    ]
    rows = [_markdown_row(row, decimals) for row in source.frame.itertuples()]
    headings = ("case", "size", "time", "95 % interval", "n", "algbw GB/s", "busbw GB/s", "status")
    lines = table(headings, rows, left="case,status")
    return "\n".join([f"### {escape(source.name)}", "", *lines]) + "\n"


def _markdown_row(row: Any, decimals: Sequence[int]) -> tuple[str, ...]:
    case, time = case_of(row), row.time_us * MICRO
    known = time == time  # NaN is not itself
    interval = ""
    if row.time_ci_low_us == row.time_ci_low_us:
        low, high = (
            format_time(t * MICRO, time) for t in (row.time_ci_low_us, row.time_ci_high_us)
        )
        interval = f"{low.split()[0]} … {high}"
    return (
        case.title,
        format_bytes(case.size_bytes) if case.dtype else "",
        format_time(time) if known else "",
        interval,
        f"{row.iterations:.0f}" if known and row.iterations == row.iterations else "",
        *(
            format_GBps(b * GB, each) if b == b else ""
            for b, each in zip((row.algbw_GBps, row.busbw_GBps), decimals, strict=True)
        ),
        row.status,
    )


def parquet_bytes(source: LoadedRun) -> bytes:
    """Apache Parquet, by pandas and pyarrow."""
    if find_spec("pyarrow") is None:
        raise UnavailableError(
            "parquet needs pyarrow, which is not installed", "pip install 'pyarrow>=15'"
        )
    content: bytes = as_nullable(source.frame).to_parquet(index=False)
    return content


def nccl_tests_table(source: LoadedRun) -> str:
    """As nccl-tests prints it."""
    assert source.run
    return nccl_tests_text(source.run) + "\n"


EXPORTERS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter("csv", csv_text),
        Exporter("json", json_text),
        Exporter("markdown", markdown_text),
        Exporter("nccl-tests", nccl_tests_table, needs_run=True),
        Exporter("parquet", parquet_bytes),
        Exporter("openmetrics", openmetrics),
    )
}

"""Rows as OpenMetrics text, for Prometheus and other readers of its format.

Source: OpenMetrics 1.0 (prometheus/OpenMetrics, specification/OpenMetrics.md). The lines of a
family are together. Names end in their unit. Labels escape backslash, quotation mark and line feed.
The text ends with `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from commbench.analysis.columns import KEY
from commbench.analysis.environment_diff import time_statistic
from commbench.analysis.load import LoadedRun, index_rows
from commbench.output.table import clean
from commbench.results.schema import OK


class MetricFamily(NamedTuple):
    """One metric: a gauge with a sample per row."""

    name: str
    unit: str
    field: str
    help: str


FAMILIES = (
    MetricFamily("time_seconds", "seconds", "time_s", "Time of a call: {statistic}"),
    MetricFamily("time_ci_low_seconds", "seconds", "time_ci_low_s",
           "Lower end of the 95 % interval of the median time"),
    MetricFamily("time_ci_high_seconds", "seconds", "time_ci_high_s",
           "Upper end of the 95 % interval of the median time"),
    MetricFamily("time_p95_seconds", "seconds", "time_p95_s", "95th percentile of the time"),
    MetricFamily("time_p99_seconds", "seconds", "time_p99_s", "99th percentile of the time"),
    MetricFamily("algbw_bytes_per_second", "bytes_per_second", "algbw_bytes_per_s",
           "Algorithm bandwidth: size over time"),
    MetricFamily("busbw_bytes_per_second", "bytes_per_second", "busbw_bytes_per_s",
           "Bus bandwidth: algorithm bandwidth times the operation's factor"),
    MetricFamily("iterations", "", "iterations", "Timed iterations"),
    MetricFamily("wrong_elements", "elements", "wrong", "Wrong elements over all ranks"),
)  # fmt: skip
"""Values that were not measured have no sample; a family without a sample is left out."""

_LABELS = (
    "label", *KEY[:-1], "cpu_mode", "backend", "device", "world_size", "num_nodes", "size_bytes",
)  # fmt: skip
"""Columns that become labels; empty ones are left out, which means the same."""


def openmetrics(source: LoadedRun) -> str:
    """The text. Raises RecordsError where two rows would be the same time series."""
    index_rows(source)
    rows = source.rows
    labels = [_labels(row) for row in rows]
    lines: list[str] = []
    for family in FAMILIES:
        if samples := [*_samples(family, rows, labels)]:
            lines += [*_head(family, time_statistic(source)), *samples]
    lines += [
        "# TYPE commbench_row_ok gauge",
        "# HELP commbench_row_ok 1: measured, with right results",
    ]
    oks = ("1" if row.status == OK else "0" for row in rows)
    lines += [f"commbench_row_ok{label} {ok}" for label, ok in zip(labels, oks, strict=True)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _head(family: MetricFamily, statistic: str) -> Iterator[str]:
    name = f"commbench_{family.name}"
    yield f"# TYPE {name} gauge"
    if family.unit:
        yield f"# UNIT {name} {family.unit}"
    yield f"# HELP {name} {_escaped(family.help.format(statistic=statistic))}"


def _samples(family: MetricFamily, rows: Sequence[Any], labels: list[str]) -> Iterator[str]:
    for row, label in zip(rows, labels, strict=True):
        value = getattr(row, family.field)
        if value is not None:
            yield f"commbench_{family.name}{label} {value:.10g}"


def _labels(row: Any) -> str:
    values = {name: _text(getattr(row, name)) for name in _LABELS}
    inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in values.items() if text)
    return f"{{{inner}}}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else f"{value:.0f}"


def _escaped(text: str) -> str:
    """A label's value: line feeds have an escape of their own, other control characters none."""
    text = "\n".join(map(clean, text.split("\n")))
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

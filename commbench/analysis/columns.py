"""COLUMNS: the table of the columns of results.csv, and their values for a row."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.diagnostics import diagnose_row
from commbench.analysis.rows import ResultRow
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.units import GB, MICRO

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT, INTEGER, NUMBER = "text", "integer", "number"


class Column(NamedTuple):
    """One column."""

    name: str
    value: Callable[[ResultRow], Any]
    """Its value for a row, in SI units; None for a number that was not measured."""
    kind: str = NUMBER
    """TEXT, which is empty where there is none; INTEGER; or NUMBER, written with seven digits."""
    unit: float = 1.0
    """What a number is divided by."""
    is_needed: bool = False
    """Whether a file without it is not results.csv. Others may be left out, or came later."""


def _of_time(name: str, field: str, is_needed: bool = False) -> Column:
    """A field of the row's Summary, in microseconds."""
    return Column(name, lambda row: getattr(row.time, field, None), NUMBER, MICRO, is_needed)


_DIMENSIONS = {
    dimension.field: Column(
        dimension.field,
        lambda row, field=dimension.field: getattr(row.measurement.case, field),  # type: ignore[misc]
        INTEGER if dimension.is_integer else TEXT,
        is_needed=dimension.field not in Case._field_defaults,
    )
    for dimension in DIMENSIONS
}

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("label", lambda row: row.header.label, TEXT),
        _DIMENSIONS["operation"],
        Column("backend", lambda row: row.header.plan.backend, TEXT),
        Column("device", lambda row: row.header.plan.device, TEXT),
        Column("world_size", lambda row: row.header.plan.world_size, INTEGER),
        Column("num_nodes", lambda row: row.header.num_nodes, INTEGER),
        _DIMENSIONS["dtype"],
        _DIMENSIONS["reduce_op"],
        _DIMENSIONS["root"],
        _DIMENSIONS["placement"],
        _DIMENSIONS["timing"],
        Column("cpu_mode", lambda row: row.header.plan.cpu_mode, TEXT),
        _DIMENSIONS["size_bytes"],
        Column("count", lambda row: row.measurement.case.count, INTEGER),
        Column("iterations", lambda row: row.time.iterations if row.time else 0, INTEGER),
        Column("stop_reason", lambda row: row.measurement.stop_reason, TEXT),
        _of_time("time_us", "median", is_needed=True),
        _of_time("time_ci_low_us", "low", is_needed=True),
        _of_time("time_ci_high_us", "high", is_needed=True),
        _of_time("time_min_us", "minimum"),
        _of_time("time_mean_us", "mean"),
        _of_time("time_p95_us", "p95"),
        _of_time("time_p99_us", "p99"),
        _of_time("time_max_us", "maximum"),
        Column("algbw_GBps", lambda row: row.algbw, unit=GB),
        Column("busbw_GBps", lambda row: row.busbw, unit=GB),
        Column("busbw_ci_low_GBps", lambda row: row.busbw_at(row.time and row.time.high), unit=GB),
        Column("busbw_ci_high_GBps", lambda row: row.busbw_at(row.time and row.time.low), unit=GB),
        Column("entry_skew_us", lambda row: row.interference.entry_skew_s, unit=MICRO),
        Column("slowest_rank", lambda row: row.slowest_rank, INTEGER),
        Column("wrong", lambda row: row.measurement.wrong, INTEGER),
        Column("status", lambda row: row.measurement.status, TEXT, is_needed=True),
        Column("gpu_shared", lambda row: int(row.header.gpu_shared), INTEGER),
        Column("calls", lambda row: row.interference.calls, INTEGER),
        Column("batches", lambda row: len(row.measurement.batches), INTEGER),
        Column("launches", lambda row: len(row.launch_medians), INTEGER),
        Column("launch_min_us", lambda row: min(row.launch_medians, default=None), unit=MICRO),
        Column("launch_max_us", lambda row: max(row.launch_medians, default=None), unit=MICRO),
        Column("operation_us", lambda row: row.interference.operation_s, unit=MICRO),
        Column("stalled_share", lambda row: row.interference.stalled_share),
        Column("queued_share", lambda row: row.interference.queued_share),
        Column("switches_per_iteration", lambda row: row.interference.switches_per_iteration),
        Column("warnings", lambda row: " ".join(d.name for d in diagnose_row(row)), TEXT),
        *_DIMENSIONS.values(),  # the place of a dimension without one above
    )
}
"""More columns may be appended; none is renamed without a new schema."""

TEXTS = frozenset(column.name for column in COLUMNS.values() if column.kind == TEXT)
INTEGERS = frozenset(column.name for column in COLUMNS.values() if column.kind == INTEGER)
NEEDED = tuple(column.name for column in COLUMNS.values() if column.is_needed)
KEY = tuple(_DIMENSIONS)
"""The columns in which two rows of two files agree if they measure the same case."""
DEFAULTS = {name: Case._field_defaults[name] for name in KEY if name in Case._field_defaults}
"""The values of those that an older file may lack."""
TIMES = ("time_us", "time_ci_low_us", "time_ci_high_us")


def columns_of(row: ResultRow) -> dict[str, Any]:
    """The values of a row by the names of COLUMNS."""
    return {name: _rounded(column, column.value(row)) for name, column in COLUMNS.items()}


def _rounded(column: Column, value: Any) -> Any:
    if column.kind != NUMBER or value is None:
        return value
    return float(f"{value / column.unit:.7g}")


def coerce(frame: DataFrame, columns: Collection[str] = COLUMNS) -> DataFrame:
    """The frame with these columns in this order and their types; those it lacks are empty."""
    if missing := {name: value for name, value in DEFAULTS.items() if name not in frame}:
        frame = frame.assign(**missing)
    settled: DataFrame = frame.reindex(columns=list(columns))
    for name in columns:
        settled[name] = _texts(settled[name]) if name in TEXTS else _numbers(settled[name], name)
    return settled


def _texts(values: Any) -> Any:
    """Categories of text, none of them missing."""
    if values.isna().any():
        values = values.astype("object").fillna("")
    found = values.astype("category")
    return found.cat.rename_categories(found.cat.categories.astype("str"))


def _numbers(values: Any, name: str) -> Any:
    """Whole numbers that may be missing are floats."""
    return values.astype("int64" if name == "size_bytes" else "float64")


def as_nullable(frame: DataFrame) -> DataFrame:
    """The frame as it is written: whole numbers as such (pandas' Int64, which may be missing),
    others with seven digits, plain text."""
    types = {name: "Int64" for name in INTEGERS if name in frame}
    types |= {name: "str" for name in TEXTS if name in frame}
    plain: DataFrame = frame.astype(types)
    for name in plain.select_dtypes("float64").columns:
        plain[name] = _seven_digits(plain[name].to_numpy())
    return plain


def _seven_digits(values: Any) -> Any:
    import numpy as np

    with np.errstate(all="ignore"):
        places = 6 - np.floor(np.log10(np.abs(values)))
    places = np.where(np.isfinite(places), np.clip(places, -300, 300), 0)
    # A power of ten below 1 is no float; its inverse is. Dividing by that rounds to the nearest.
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    return np.round(values * up / down) / up * down


def records(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as plain values; None where there is none, or it has no end."""
    from numpy import inf

    finite = frame.replace([inf, -inf], None)
    known = finite.astype("object").where(finite.notna(), None)
    found: list[dict[str, Any]] = known.to_dict("records")
    return found

"""The columns of results.csv: what each holds, of a row, and frames that say so by their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commbench.analysis.diagnostics import diagnose_row
from commbench.analysis.rows import ResultRow
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.units import GB, MICRO

if TYPE_CHECKING:
    from pandas import DataFrame


KEY = tuple(dimension.field for dimension in DIMENSIONS)
"""What makes two rows of two files speak of the same thing."""

_COLUMNS = (
    "label", "operation", "backend", "device", "world_size", "num_nodes", "dtype", "reduce_op",
    "root", "placement", "timing", "cpu_mode", "size_bytes", "count", "iterations", "stop_reason",
    "time_us", "time_ci_low_us", "time_ci_high_us", "time_min_us", "time_mean_us", "time_p95_us",
    "time_p99_us", "time_max_us", "algbw_GBps", "busbw_GBps", "busbw_ci_low_GBps",
    "busbw_ci_high_GBps", "entry_skew_us", "slowest_rank", "wrong", "status",
    "gpu_shared", "calls", "batches", "launches", "launch_min_us", "launch_max_us", "operation_us",
    "stalled_share", "queued_share", "switches_per_iteration", "warnings",
)  # fmt: skip
COLUMNS = tuple(dict.fromkeys((*_COLUMNS, *KEY)))
"""The columns of results.csv. More may be appended; none is renamed without a new schema."""

TEXTS = (
    "label", "backend", "device", "cpu_mode", "stop_reason", "status", "warnings",
    *(dimension.field for dimension in DIMENSIONS if not dimension.is_integer),
)  # fmt: skip
"""Empty text stands for nothing; all other columns are numbers, and may be missing."""

INTEGERS = (
    "world_size", "num_nodes", "count", "iterations", "slowest_rank",
    "wrong", "gpu_shared", "calls", "batches", "launches",
    *(dimension.field for dimension in DIMENSIONS if dimension.is_integer),
)  # fmt: skip

TIMES = ("time_us", "time_ci_low_us", "time_ci_high_us")
DEFAULTS = {name: Case._field_defaults[name] for name in KEY if name in Case._field_defaults}
"""What a file means that is older than these dimensions, and lacks their columns."""
NEEDED = (*(name for name in KEY if name not in DEFAULTS), *TIMES, "status")
"""Without these columns a file is not results.csv; others came later, or may be left out."""


def coerce(frame: DataFrame, columns: Sequence[str] = COLUMNS) -> DataFrame:
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


def columns_of(row: ResultRow) -> dict[str, Any]:
    """The row by the names of COLUMNS; None means not measured."""
    plan, case, time = row.header.plan, row.measurement.case, row.time
    strain, launches = row.interference, row.launch_medians
    values = {
        **dict(zip(KEY, case.key(), strict=True)),
        "label": row.header.label,
        "backend": plan.backend,
        "device": plan.device,
        "world_size": plan.world_size,
        "num_nodes": row.header.num_nodes,
        "cpu_mode": plan.cpu_mode,
        "count": case.count,
        "iterations": time.iterations if time else 0,
        "stop_reason": row.measurement.stop_reason,
        "time_us": _scaled(time and time.median, MICRO),
        "time_ci_low_us": _scaled(time and time.low, MICRO),
        "time_ci_high_us": _scaled(time and time.high, MICRO),
        "time_min_us": _scaled(time and time.minimum, MICRO),
        "time_mean_us": _scaled(time and time.mean, MICRO),
        "time_p95_us": _scaled(time and time.p95, MICRO),
        "time_p99_us": _scaled(time and time.p99, MICRO),
        "time_max_us": _scaled(time and time.maximum, MICRO),
        "algbw_GBps": _scaled(row.algbw, GB),
        "busbw_GBps": _scaled(row.busbw, GB),
        "busbw_ci_low_GBps": _scaled(row.busbw_at(time.high if time else None), GB),
        "busbw_ci_high_GBps": _scaled(row.busbw_at(time.low if time else None), GB),
        "entry_skew_us": _scaled(strain.entry_skew_s, MICRO),
        "slowest_rank": row.slowest_rank,
        "wrong": row.measurement.wrong,
        "status": row.measurement.status,
        "gpu_shared": int(row.header.gpu_shared),
        "calls": strain.calls,
        "batches": len(row.measurement.batches),
        "launches": len(launches),
        "launch_min_us": _scaled(min(launches, default=None), MICRO),
        "launch_max_us": _scaled(max(launches, default=None), MICRO),
        "operation_us": _scaled(strain.operation_s, MICRO),
        "stalled_share": _scaled(strain.stalled_share, 1),
        "queued_share": _scaled(strain.queued_share, 1),
        "switches_per_iteration": _scaled(strain.switches_per_iteration, 1),
        "warnings": " ".join(diagnostic.name for diagnostic in diagnose_row(row)),
    }
    return {name: values[name] for name in COLUMNS}


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else float(f"{value / unit:.7g}")


def records(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as plain values; None where there is none, or it has no end."""
    from numpy import inf

    finite = frame.replace([inf, -inf], None)
    known = finite.astype("object").where(finite.notna(), None)
    found: list[dict[str, Any]] = known.to_dict("records")
    return found

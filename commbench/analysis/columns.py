"""What each column of results.csv holds, and frames that say so by their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commbench.analysis.rows import COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame

TEXTS = (
    "label", "operation", "backend", "device", "dtype", "reduce_op", "placement", "timing",
    "cpu_mode", "stop_reason", "status", "warnings",
)  # fmt: skip
"""Empty text stands for nothing; all other columns are numbers, and may be missing."""

INTEGERS = (
    "world_size", "num_nodes", "root", "size_bytes", "count", "iterations", "slowest_rank",
    "wrong", "gpu_shared", "calls", "visits", "launches",
)  # fmt: skip

KEY = ("operation", "dtype", "reduce_op", "root", "placement", "timing", "size_bytes")
"""What makes two rows of two files speak of the same thing."""

TIMES = ("time_us", "time_ci_low_us", "time_ci_high_us")
NEEDED = (*KEY, *TIMES, "status")
"""Without these columns a file is not results.csv; others came later, or may be left out."""


def settle(frame: DataFrame, columns: Sequence[str] = COLUMNS) -> DataFrame:
    """The frame with these columns in this order and their types; those it lacks are empty."""
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


def whole(frame: DataFrame) -> DataFrame:
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

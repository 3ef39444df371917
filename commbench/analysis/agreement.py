"""Whether the values of a row can be those of one measurement: the check of rows from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isclose
from typing import Any

from commbench.analysis.columns import COLUMNS, KEY, row_type
from commbench.results.schema import contradiction
from commbench.spec.dimensions import require_known
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.units import GB

_BETWEEN = (
    *((n.replace("_ci_low", ""), n, n.replace("_low", "_high")) for n in COLUMNS if "_ci_low" in n),
    ("time_us", "time_min_us", "time_max_us"),
    ("time_mean_us", "time_min_us", "time_max_us"),
    ("time_p99_us", "time_p95_us", "time_max_us"),
    ("batches", "launches", "iterations"),
    ("world_size", "group_size", "world_size"),
)
"""Columns of figures, each with the columns of the least and the most that it can be."""
RELATED = tuple(
    {*KEY, *chain(*_BETWEEN), "label", "status", "wrong", "count", "algbw_GBps", "busbw_GBps"}
)
"""Columns that are checked with others."""
_ROUNDING = 2e-6
"""The largest relative error of the product of two numbers of seven digits."""


def require_agreement(values: Mapping[str, Sequence[Any]]) -> None:
    """Raise ValueError where values of a row are unknown, or contradict each other. `values` has
    the columns of RELATED in SI units, with None for a number that is not known."""
    for name in KEY:
        for value in {*values[name]}:
            require_known(name, value)
    for name, least, most in _BETWEEN:
        for low, value, high in zip(values[least], values[name], values[most], strict=True):
            if value is None:
                continue
            if not (value if low is None else low) <= value <= (value if high is None else high):
                written = COLUMNS[name].as_written(value)
                raise ValueError(f"{name} {written:g} is not between {least} and {most}")
    for row in map(row_type(RELATED), *(values[name] for name in RELATED)):
        if why := contradiction(row.status, row.wrong):
            raise ValueError(why)
        _require_factors(row)


def _require_factors(row: Any) -> None:
    """Raise ValueError where size, count, time and bandwidths of a row are not those of its
    operation and ranks."""
    entry, size = OPERATIONS[row.operation], row.size_bytes
    algbw, busbw = row.algbw_bytes_per_s, row.busbw_bytes_per_s
    for name, has in (("reduce_op", entry.reduces), ("root", entry.rooted)):
        if not has and getattr(row, name) not in ("", None):
            raise ValueError(f"{row.operation} has no {name}")
    world, ranks = row.world_size, row.group_size or row.world_size
    if ranks and world and not row.group and ranks != world:
        raise ValueError(f"group_size {ranks} is not world_size {world}, without a group")
    blocks = ranks if entry.blocks else 1
    each = (row.count or 0) * DTYPES[row.dtype].size_bytes if row.dtype else 0
    if each and blocks and size != each * blocks:
        raise ValueError(f"size_bytes {size} is not that of {row.count} {row.dtype} times {blocks}")
    if algbw and row.time_s and not isclose(algbw * row.time_s, size, rel_tol=_ROUNDING):
        raise ValueError(f"algbw_GBps {algbw / GB:g} is not size_bytes over time_us")
    if algbw and busbw is not None and ranks and entry.busbw_factor and not entry.block_counts:
        factor = entry.busbw_factor(ranks)
        if not isclose(busbw, algbw * factor, rel_tol=_ROUNDING):
            raise ValueError(f"busbw_GBps {busbw / GB:g} is not algbw_GBps times {factor:g}")

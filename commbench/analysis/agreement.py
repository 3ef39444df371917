"""Whether the values of a row can be those of one measurement: the check of rows from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isclose
from typing import Any

from commbench.analysis.columns import COLUMNS, KEY
from commbench.results.schema import contradiction
from commbench.spec.dimensions import require_known
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS

_BETWEEN = (
    *((n.replace("_ci_low", ""), n, n.replace("_low", "_high")) for n in COLUMNS if "_ci_low" in n),
    ("time_us", "time_min_us", "time_max_us"),
    ("time_mean_us", "time_min_us", "time_max_us"),
    ("time_p99_us", "time_p95_us", "time_max_us"),
)
"""Columns of figures, each with the columns of the least and the most that it can be."""
_AT_MOST = (
    ("launches", "batches"), ("batches", "iterations"), ("group_size", "world_size"),
    ("num_nodes", "world_size"),
)  # fmt: skip
"""Columns of numbers, each with that of the most that it can be."""
_FACTORS = (
    "operation", "dtype", "reduce_op", "root", "size_bytes", "count", "world_size", "group_size",
    "group", "time_us", "algbw_GBps", "busbw_GBps",
)  # fmt: skip
RELATED = dict.fromkeys(("label", "status", "wrong", *KEY, *chain(*_BETWEEN, *_AT_MOST), *_FACTORS))
"""Columns that are checked with others."""
_ROUNDING = 2e-6
"""The largest relative error of the product of two numbers of seven digits."""


def require_agreement(values: Mapping[str, Sequence[Any]]) -> None:
    """Raise ValueError where values of a row are unknown, or contradict each other. `values` has
    the columns of RELATED, with None for a number that is not known."""
    for name in KEY:
        for value in {*values[name]}:
            require_known(name, value)
    for name, least, most in _BETWEEN:
        for row in zip(values[least], values[name], values[most], strict=True):
            known = [number for number in row if number is not None]
            if row[1] is not None and sorted(known) != known:
                raise ValueError(f"{name} {row[1]:g} is not between {least} and {most}")
    for name, most in _AT_MOST:
        for value, high in {*zip(values[name], values[most], strict=True)}:
            if value and high is not None and value > high:
                raise ValueError(f"{name} {value} is more than {most} {high}")
    for row in zip(*(values[name] for name in _FACTORS), strict=True):
        _require_factors(*row)
    for status, wrong in {*zip(values["status"], values["wrong"], strict=True)}:
        if why := contradiction(status, wrong):
            raise ValueError(why)


def _require_factors(
    operation: str, dtype: str, reduce_op: str, root: int | None, size: int, count: int | None,
    world: int | None, group_size: int | None, group: str, time: float | None, algbw: float | None,
    busbw: float | None,
) -> None:  # fmt: skip
    """Raise ValueError where operation, size, count, time and bandwidths of a row, which are the
    columns of _FACTORS, do not follow from each other."""
    entry, ranks = OPERATIONS[operation], group_size or world
    if (reduce_op and not entry.reduces) or (root is not None and not entry.rooted):
        raise ValueError(f"{operation} has no {'reduce_op' if reduce_op else 'root'}")
    if ranks and world and not group and ranks != world:
        raise ValueError(f"group_size {ranks} is not world_size {world}, without a group")
    blocks = ranks if entry.blocks else 1
    if dtype and count and blocks and size != count * blocks * DTYPES[dtype].size_bytes:
        raise ValueError(f"size_bytes {size} is not count {count} of {dtype}, times {blocks}")
    if algbw and time and not isclose(algbw * time, size / 1e3, rel_tol=_ROUNDING):
        raise ValueError(f"algbw_GBps {algbw:g} is not size_bytes over time_us")
    if algbw and busbw is not None and ranks and entry.busbw_factor and not entry.block_counts:
        factor = entry.busbw_factor(ranks)
        if not isclose(busbw, algbw * factor, rel_tol=_ROUNDING):
            raise ValueError(f"busbw_GBps {busbw:g} is not algbw_GBps times {factor:g}")

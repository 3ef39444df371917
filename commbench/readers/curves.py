"""Curves in a CSV file: system, nccl_version, operation, dtype, world_size, size_bytes, time_us,
and perhaps timing; or aiconfigurator's table nccl_perf, with elements and milliseconds.

Sizes are nccl-tests', times by default those of calls back to back. One system, version of NCCL and
number of ranks is a run; `commbench expect --save-curve` writes such files.
"""

from __future__ import annotations

import csv
from typing import NamedTuple

from commbench.errors import RecordsError, UsageError
from commbench.plan.dtypes import DTYPES, find_dtype
from commbench.plan.fabrics import find_gpu, load_gpus
from commbench.plan.operations import OPERATIONS, find_operation
from commbench.plan.timing_modes import PIPELINED, TIMING_MODES
from commbench.readers import base
from commbench.readers.base import ImportedFile, RowCollector
from commbench.readers.source import NCCL_TESTS, NO_HINTS, ImportHints, Line, SourceText

COLUMNS = ("system", "nccl_version", "operation", "dtype", "world_size", "size_bytes", "time_us")
TIMING = "timing"
NCCL_PERF = {
    "device": "system", "version": "nccl_version", "op_name": "operation", "nccl_dtype": "dtype",
    "num_gpus": "world_size", "message_size": "elements", "latency": "time_ms",
}  # fmt: skip
"""The columns of nccl_perf, by ours. Its elements are nccl-tests' size over the dtype's width."""
_INSTEAD = {"size_bytes": "elements", "time_us": "time_ms"}
_FIRST = ({"system", "operation"}, {"op_name", "num_gpus"})


class Point(NamedTuple):
    """A line: the time of one size."""

    line: int
    system: str
    nccl: str
    operation: str
    dtype: str
    ranks: int
    size_bytes: int
    time_s: float
    timing: str = PIPELINED


def is_curves(source: SourceText) -> bool:
    """Whether the first line names a system and an operation."""
    columns = {*_cells(lines[0])} if (lines := _lines(source)) else set()
    return any(columns >= first for first in _FIRST)


def _lines(source: SourceText) -> list[Line]:
    """The lines that are no comments."""
    return [line for line in source.lines if line.text and not line.text.startswith("#")]


def _cells(line: Line) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line.text]), [])]


def read_points(source: SourceText, collector: RowCollector | None = None) -> list[Point]:
    """Every line; a line in which the file ends is left out. RecordsError for one that is damaged,
    UsageError for a system that is not known."""
    head, *lines = _lines(source) or [Line(1, "")]
    columns = [NCCL_PERF.get(name, name) for name in _cells(head)]
    if missing := [n for n in COLUMNS if n not in columns and _INSTEAD.get(n) not in columns]:
        raise RecordsError(
            f"{source.path} has no column {' and no column '.join(missing)}",
            f"the columns of curves are {','.join(COLUMNS)}",
        )
    points: dict[tuple[object, ...], Point] = {}

    def add(line: Line, row: list[str]) -> None:
        point = _point(line.number, base.name_cells(columns, row))
        first = points.setdefault(point[1:7] + point[8:], point)
        if first is not point:
            raise ValueError(f"line {first.line} has the same size")

    rows = [(line, _cells(line)) for line in lines]
    (collector or RowCollector(source, NO_HINTS)).read_rows(rows, add)
    if not points:
        raise RecordsError(f"{source.path} has no line below the first", "give a file of curves")
    for system in {point.system for point in points.values()}:
        if not find_gpu(system):
            names = ", ".join(gpu.name for gpu in load_gpus())
            raise UsageError(f"the accelerator of {system!r:.40} is not known", f"known: {names}")
    return [*points.values()]


def _point(line: int, row: dict[str, str]) -> Point:
    timing = row.get(TIMING) or PIPELINED
    if timing not in TIMING_MODES:
        raise ValueError(f"the timing {timing!r:.40} is unknown")
    unit = base.MILLISECONDS if "time_ms" in row else base.MICROSECONDS
    time = row.get("time_ms") or row["time_us"]
    if time.startswith("-") or not (time_s := base.parse_seconds(time, unit)):
        raise ValueError(f"its time is {time!r:.20}, not above 0")
    try:
        operation = find_operation(NCCL_TESTS.get(row["operation"], row["operation"])).name
        dtype = DTYPES[find_dtype(row["dtype"]).name]
    except UsageError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None
    ranks, is_elements = base.parse_whole(row["world_size"]), "elements" in row
    size = base.parse_size(row["elements" if is_elements else "size_bytes"])
    return Point(
        line, row["system"], row["nccl_version"], operation, dtype.name, ranks,
        size * (dtype.size_bytes if is_elements else 1), time_s, timing,
    )  # fmt: skip


def read_curves(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The curves of one system, one version of NCCL and one number of ranks."""
    collector = RowCollector(source, hints)
    points = read_points(source, collector)
    for name, field, wanted in (
        ("system", "system", hints.system),
        ("nccl-version", "nccl", hints.nccl_version),
        (TIMING, TIMING, None),
    ):
        known = sorted({getattr(point, field) for point in points})
        if wanted is not None and wanted not in known:
            listed = ", ".join(known)
            raise UsageError(f"{source.path} has no --{name} {wanted!r:.40}", f"it has {listed}")
        if wanted is None and len(known) > 1:
            raise UsageError(f"{source.path} has {len(known)} values of {name}",
                             f"choose with --{name}: {', '.join(known)}")  # fmt: skip
        points = [point for point in points if wanted in (None, getattr(point, field))]
    collector.choose_ranks(point.ranks for point in points)
    for point in points:
        operation = OPERATIONS[point.operation]
        if point.ranks == collector.ranks:
            collector.add(
                point.line, point.operation, point.dtype, point.size_bytes,
                {"time": f"{point.time_s:.12g}"}, "mean", exponent=0,
                reduce_op="sum" if operation.reduces else "", placement=operation.placements[0],
            )  # fmt: skip
    first = points[0]
    return collector.make_file(
        tool="curves", timing=first.timing, backend="nccl", devices=(first.system,),
        environment={"nccl": first.nccl},
    )  # fmt: skip

"""Curves in a CSV file: system, nccl_version, operation, dtype, world_size, size_bytes, time_us,
and perhaps timing; or aiconfigurator's table nccl_perf, with elements and milliseconds.

Sizes are nccl-tests', times by default those of calls back to back. One system, version of NCCL and
number of ranks is a run; `commbench expect --save-curve` writes such files.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import NamedTuple

from commbench.errors import RecordsError, UsageError
from commbench.plan.dtypes import DTYPES, find_dtype
from commbench.plan.fabrics import find_gpu, load_gpus
from commbench.plan.operations import OPERATIONS, find_operation
from commbench.plan.timing_modes import PIPELINED, TIMING_MODES
from commbench.readers import base
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
from commbench.readers.source import NCCL_TESTS, NO_HINTS, ImportHints, Line, SourceText

COLUMNS = ("system", "nccl_version", "operation", "dtype", "world_size", "size_bytes", "time_us")
TIMING = "timing"
NCCL_PERF = {
    "device": "system", "version": "nccl_version", "op_name": "operation", "nccl_dtype": "dtype",
    "num_gpus": "world_size", "message_size": "size_bytes", "latency": "time_us",
}  # fmt: skip
"""The columns of nccl_perf, by ours. Its sizes are elements, and its times are in ms."""


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
    columns = {*_cells(_lines(source)[:1])}
    return {"system", "operation"} <= columns or {"op_name", "num_gpus"} <= columns


def _lines(source: SourceText) -> list[Line]:
    """The lines that are no comments."""
    return [line for line in source.lines if line.text and not line.text.startswith("#")]


def _cells(lines: Sequence[Line]) -> list[str]:
    """The cells of one line; none without one."""
    return [cell.strip() for cell in next(csv.reader(line.text for line in lines), [])]


def read_points(source: SourceText, collector: RowCollector | None = None) -> list[Point]:
    """Every line; a line in which the file ends is left out. Of two lines of one size the first
    counts in nccl_perf, as for aiconfigurator. RecordsError for a line that is damaged, UsageError
    for a system that is not known."""
    collector = collector or RowCollector(source, NO_HINTS)
    lines = _lines(source)
    head = _cells(lines[:1])
    columns = [NCCL_PERF.get(name, name) for name in head]
    is_perf, hints = "op_name" in head, collector.hints
    given = {"system": hints.system, "nccl_version": hints.nccl_version}  # old tables have none
    given = {name: value for name, value in given.items() if is_perf and name not in columns}
    if missing := [name for name in COLUMNS if name not in columns and not given.get(name)]:
        raise RecordsError(
            f"{source.path} has no column {' and no column '.join(missing)}",
            f"the columns of curves are {','.join(COLUMNS)}",
        )
    points: dict[tuple[object, ...], Point] = {}

    def add(line: Line, row: list[str]) -> None:
        named = {**base.name_cells(columns, row), **{k: v or "" for k, v in given.items()}}
        point = _point(line.number, named, is_perf)
        first = points.setdefault(point[1:7] + point[8:], point)
        if first is not point and is_perf:
            raise LeftOut("a line above has the same size")
        if first is not point:
            raise ValueError(f"line {first.line} has the same size")

    rows = [(line, _cells([line])) for line in lines[1:]]
    collector.read_rows(rows, add)
    if not points:
        raise RecordsError(f"{source.path} has no line below the first", "give a file of curves")
    for system in {point.system for point in points.values()}:
        if not find_gpu(system):
            names = ", ".join(gpu.name for gpu in load_gpus())
            raise UsageError(f"the accelerator of {system!r:.40} is not known", f"known: {names}")
    return [*points.values()]


def _point(line: int, row: dict[str, str], is_perf: bool) -> Point:
    """The point of a line of nccl_perf, or of curves."""
    timing, time = row.get(TIMING) or PIPELINED, row["time_us"]
    if timing not in TIMING_MODES:
        raise ValueError(f"the timing {timing!r:.40} is unknown")
    time_s = base.parse_seconds(time, base.MILLISECONDS if is_perf else base.MICROSECONDS)
    if time.startswith("-") or not time_s:
        raise ValueError(f"its time {time!r:.20} is not above 0")
    try:
        operation = find_operation(NCCL_TESTS.get(row["operation"], row["operation"])).name
        dtype = DTYPES[find_dtype(row["dtype"]).name]
    except UsageError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None
    size = base.parse_size(row["size_bytes"]) * (dtype.size_bytes if is_perf else 1)
    return Point(line, row["system"], row["nccl_version"], operation, dtype.name,
                 base.parse_whole(row["world_size"]), size, time_s, timing)  # fmt: skip


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
            how = f"`commbench import FILE --{name} NAME` chooses"
            hint = f"{'keep the lines of one' if name == TIMING else how}: {', '.join(known)}"
            raise UsageError(f"{source.path} has {len(known)} values of {name}", hint)
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
    return collector.make_file(
        tool="curves", timing=points[0].timing if points else PIPELINED, backend="nccl",
        devices=tuple({point.system: None for point in points}),
        environment={"nccl": points[0].nccl if points else ""},
    )  # fmt: skip

"""Curves in a CSV file: system, nccl_version, operation, dtype, world_size, size_bytes, time_us.

Sizes are nccl-tests', times those of calls back to back. One system, version and number of ranks
is a run; `commbench expect --save-curve` writes such files.
"""

from __future__ import annotations

import csv
from typing import Any

from commbench.errors import RecordsError, UsageError
from commbench.plan.dtypes import find_dtype
from commbench.plan.fabrics import find_gpu, load_gpus
from commbench.plan.operations import OPERATIONS, find_operation
from commbench.plan.timing_modes import PIPELINED
from commbench.readers import cells
from commbench.readers.base import ImportedFile, RowCollector
from commbench.readers.source import ImportHints, Line, SourceText

COLUMNS = (
    "system", "nccl_version", "operation", "dtype", "world_size", "size_bytes", "time_us"
)  # fmt: skip
_FIRST = {"system", "operation"}


def is_curves(source: SourceText) -> bool:
    """Whether the first line names a system and an operation."""
    return {*_cells(source.lines[0])} >= _FIRST if source.lines else False


def _cells(line: Line) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line.text]), [])]


def read_curves(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The curves of one system, one version of NCCL and one number of ranks."""
    columns = _cells(source.lines[0])
    if missing := [name for name in COLUMNS if name not in columns]:
        raise RecordsError(
            f"{source.path} lacks the columns {', '.join(missing)}",
            f"the columns of curves are {','.join(COLUMNS)}",
        )
    collector = RowCollector(source, hints)
    rows: list[tuple[Line, dict[str, str]]] = []

    def keep(line: Line, found: list[str]) -> None:
        rows.append((line, cells.name_cells(columns, found)))

    collector.read_rows([(line, _cells(line)) for line in source.lines[1:] if line.text], keep)
    system = _choose(rows, source, "system", "--system", hints.system)
    version = _choose(rows, source, "nccl_version", "--nccl-version", hints.nccl_version)
    if not find_gpu(system):
        names = ", ".join(gpu.name for gpu in load_gpus())
        raise UsageError(f"the accelerator of {system!r:.40} is not known", f"known are {names}")
    of_system = [(line, row) for line, row in rows
                 if (row["system"], row["nccl_version"]) == (system, version)]  # fmt: skip
    collector.choose_ranks(cells.parse_whole(row["world_size"]) for _, row in of_system)
    seen: dict[tuple[str, ...], int] = {}

    def add(line: Line, row: dict[str, Any]) -> None:
        if cells.parse_whole(row["world_size"]) != collector.ranks:
            return
        key = (row["operation"], row["dtype"], row["size_bytes"])
        if key in seen:
            raise ValueError(f"line {seen[key]} has the same size")
        seen[key] = line.number
        operation = OPERATIONS[find_operation(row["operation"]).name]
        dtype = find_dtype(row["dtype"]).name
        if not cells.parse_seconds(row["time_us"]):
            raise ValueError(f"its time is {row['time_us']}")
        collector.add(
            line.number, operation.name, dtype, cells.parse_size(row["size_bytes"]),
            {"time": row["time_us"]}, "mean", reduce_op="sum" if operation.reduces else "",
            placement=operation.placements[0],
        )  # fmt: skip

    collector.read_rows(of_system, add)
    return collector.make_file(
        tool="curves", timing=PIPELINED, backend="nccl", devices=(system,), hosts=(),
        environment={"nccl": version},
    )  # fmt: skip


def _choose(
    rows: list[tuple[Line, dict[str, str]]], source: SourceText, column: str, option: str,
    given: str | None,
) -> str:  # fmt: skip
    """The one value of a column, or the one that is asked for."""
    known = sorted({row[column] for _, row in rows})
    listed = ", ".join(known)
    if given is not None and given not in known:
        raise UsageError(f"{source.path} has no {column} {given!r:.40}", f"it has {listed}")
    if given is None and len(known) != 1:
        raise UsageError(f"{source.path} has several values of {column}",
                         f"choose with {option}: {listed}")  # fmt: skip
    return given or known[0]

"""The tables of MPI benchmarks: what OSU's and Intel's have in common.

Each has one table per benchmark, with a row per size. Element types and reduce operations have the
names of MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from commbench.importers import cells
from commbench.importers.base import ImportedRow, RowCollector
from commbench.importers.names import MpiBenchmark
from commbench.importers.text_source import Line
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.units import LARGEST_SIZE

DTYPE_NAMES = {
    "MPI_CHAR": "int8",
    "MPI_SIGNED_CHAR": "int8",
    "MPI_INT8_T": "int8",
    "MPI_BYTE": "uint8",
    "MPI_UNSIGNED_CHAR": "uint8",
    "MPI_UINT8_T": "uint8",
    "MPI_SHORT": "int16",
    "MPI_INT": "int32",
    "MPI_INT32_T": "int32",
    "MPI_INT64_T": "int64",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
}

REDUCE_NAMES = {
    "MPI_SUM": "sum",
    "MPI_PROD": "prod",
    "MPI_MIN": "min",
    "MPI_MAX": "max",
    "MPI_BAND": "band",
    "MPI_BOR": "bor",
    "MPI_BXOR": "bxor",
}


@dataclass(kw_only=True)
class MpiTable:
    """One benchmark's table in a file."""

    name: str
    """The tool's name of the benchmark."""
    line: int
    columns: tuple[str, ...] = ()
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)

    @property
    def benchmark(self) -> MpiBenchmark | None:
        """What the name means; None where commbench has no such operation."""
        raise NotImplementedError

    @property
    def unusable_because(self) -> str:
        """Why the table cannot be used; empty where it can."""
        raise NotImplementedError

    def name_cells(self, row: list[str], time_column: str) -> dict[str, str]:
        """The cells of a row by column; ValueError where they do not fit the header."""
        has_size = bool(self.benchmark and OPERATIONS[self.benchmark.operation].has_data)
        if time_column not in self.columns or ("size" in self.columns) != has_size:
            raise ValueError("no header before it names its columns")
        return cells.name_cells(self.columns, row)


Table = TypeVar("Table", bound=MpiTable)


def select_usable(tables: Sequence[Table], collector: RowCollector) -> list[Table]:
    """The tables that can be used; the rows of the others are left out."""
    for table in tables:
        for line, _ in table.rows or [(Line(table.line, ""), [])]:
            if table.unusable_because:
                collector.leave_out(table.unusable_because, line.number)
    return [table for table in tables if not table.unusable_because]


class TableKind(NamedTuple):
    """What all rows of a table share."""

    benchmark: MpiBenchmark
    dtype: str
    reduce_op: str
    ranks: int
    time_column: str
    """The column with the tool's main time; times are in microseconds."""
    statistic: str
    """What that time is, with `{}` for the number of iterations."""
    statistics: tuple[str, ...]
    """Columns with other times, named by fields of ImportedRow."""
    spread: str
    """What those times are taken over."""


def add_row(collector: RowCollector, kind: TableKind, line: int, row: dict[str, str]) -> None:
    """Add the row with these cells, or note why not; ValueError for a cell that is invalid."""
    operation = OPERATIONS[kind.benchmark.operation]
    printed_size, printed_time = row.get("size", "0"), row[kind.time_column]
    dtype = kind.dtype if operation.has_data else ""
    size = cells.parse_size(printed_size) if operation.has_data else 0
    size *= kind.ranks if kind.benchmark.of_block else 1
    blocks = kind.ranks if operation.blocks else 1
    count = size // blocks // DTYPES[dtype].size_bytes if operation.has_data else 0
    time_s = cells.parse_seconds(printed_time)
    iterations = cells.parse_whole(row["iterations"]) if row.get("iterations") else None
    statistics = {n: cells.parse_seconds(row[n]) for n in kind.statistics if n in row}
    if size > LARGEST_SIZE:
        raise ValueError(f"size {printed_size} on each of {kind.ranks} ranks is out of range")
    if operation.has_data and not count:
        why = "nothing was moved (size 0)" if not size else f"less than one {dtype} per rank"
        collector.leave_out(why, line)
    elif time_s is None:
        collector.leave_out(f"its time is {printed_time!r:.20}", line)
    elif collector.is_requested(line, operation.name, dtype):
        collector.rows.append(
            ImportedRow(
                operation=operation.name,
                dtype=dtype,
                reduce_op=kind.reduce_op if operation.reduces else "",
                root=None,
                placement=kind.benchmark.placement,
                size_bytes=size,
                count=count,
                time_s=time_s,
                statistic=kind.statistic.format(f"{iterations} " if iterations else ""),
                line=line,
                iterations=iterations,
            ).with_statistics(statistics, kind.spread)
        )

"""What OSU's and Intel's MPI benchmarks have in common: names of MPI, and what a size means."""

from __future__ import annotations

from typing import NamedTuple

from commbench.importers import cells
from commbench.importers.base import ImportedRow
from commbench.importers.collector import RowCollector
from commbench.importers.names import MpiBenchmark
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


class TableKind(NamedTuple):
    """What all rows of a table share."""

    benchmark: MpiBenchmark
    dtype: str
    reduce_op: str
    ranks: int


class RowCells(NamedTuple):
    """The cells of one row; times in microseconds, empty where there is no column."""

    line: int
    size: str
    time: str
    statistic: str
    """With `{}` for the number of iterations."""
    iterations: str
    statistics: dict[str, str]
    """Cells by field of ImportedRow."""
    spread: str


def add_row(collection: RowCollector, kind: TableKind, row: RowCells) -> None:
    """Add a row, or note why not; ValueError where a cell cannot be what it is."""
    operation = OPERATIONS[kind.benchmark.operation]
    dtype = kind.dtype if operation.has_data else ""
    size = cells.size(row.size) if operation.has_data else 0
    size *= kind.ranks if kind.benchmark.of_block else 1
    blocks = kind.ranks if operation.blocks else 1
    count = size // blocks // DTYPES[dtype].size_bytes if operation.has_data else 0
    time_s = cells.seconds(row.time)
    iterations = cells.whole(row.iterations) if row.iterations else None
    statistics = {name: cells.seconds(cell) for name, cell in row.statistics.items()}
    if size > LARGEST_SIZE:
        raise ValueError(f"size {row.size} on each of {kind.ranks} ranks is out of range")
    if operation.has_data and not count:
        why = "nothing was moved (size 0)" if not size else f"less than one {dtype} per rank"
        collection.leave_out(why, row.line)
    elif time_s is None:
        collection.leave_out(f"its time is {row.time!r:.20}", row.line)
    elif collection.wanted(row.line, operation.name, dtype):
        collection.rows.append(
            ImportedRow(
                operation=operation.name,
                dtype=dtype,
                reduce_op=kind.reduce_op if operation.reduces else "",
                root=None,
                placement=kind.benchmark.placement,
                size_bytes=size,
                count=count,
                time_s=time_s,
                statistic=row.statistic.format(f"{iterations} " if iterations else ""),
                line=row.line,
                iterations=iterations,
            ).with_statistics(statistics, row.spread)
        )

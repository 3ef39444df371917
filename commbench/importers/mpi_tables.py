"""The tables of OSU's and Intel's MPI benchmarks: one per benchmark, with a row per size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from commbench.importers import cells
from commbench.importers.base import ImportedRow, RowCollector
from commbench.importers.names import MpiBenchmark
from commbench.importers.text_source import Line
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.spec.pairs import DEFAULT_PAIRS
from commbench.units import LARGEST_SIZE

DTYPE_NAMES = {
    "MPI_CHAR": "int8", "MPI_SIGNED_CHAR": "int8", "MPI_INT8_T": "int8",
    "MPI_BYTE": "uint8", "MPI_UNSIGNED_CHAR": "uint8", "MPI_UINT8_T": "uint8",
    "MPI_SHORT": "int16", "MPI_INT": "int32", "MPI_INT32_T": "int32", "MPI_INT64_T": "int64",
    "MPI_FLOAT": "float32", "MPI_DOUBLE": "float64",
}  # fmt: skip
REDUCE_NAMES = {
    f"MPI_{name.upper()}": name for name in ("sum", "prod", "min", "max", "band", "bor", "bxor")
}


class Format(NamedTuple):
    """How a tool writes its tables."""

    columns: tuple[tuple[str, str], ...]
    """Regular expressions of column headings with names; names that end in `_s` are those of fields
    of ImportedRow. Times are in microseconds."""
    header: re.Pattern[str]
    """Matches what precedes the columns in their line."""
    title: str
    """The lines before each table."""
    time_column: str
    """The column with the tool's main time."""
    statistic: str
    """What that time is, with `{}` for the number of iterations."""
    spread: str
    """What the other times are taken over."""
    is_row: Callable[[list[str], int], bool]
    """Whether words below a header of so many columns are meant as a row, damaged or not."""


@dataclass
class Table:
    """One benchmark's table in a file."""

    name: str
    """The tool's name of the benchmark."""
    line: int
    benchmark: MpiBenchmark | None
    """What the name means; None where commbench has no such operation."""
    facts: dict[str, str]
    """What the file says of it, under names of the tool's importer."""
    ranks: int | None = None
    columns: tuple[str, ...] = ()
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)


def read_line(layout: Format, collector: RowCollector, tables: list[Table], line: Line) -> None:
    """Add a line, a header or a row, to the last table."""
    table, row = tables[-1], line.text.split()
    if table.benchmark and (header := layout.header.match(line.text)):
        try:
            if table.rows:
                raise ValueError(f"a table without a {layout.title} before it")
            table.columns = tuple(cells.parse_columns(line.text[header.end() :], layout.columns))
        except ValueError as error:
            sound = sum(len(table.rows) for table in tables)
            raise collector.source.damaged(line.number, error, sound) from None
    elif row and not row[0].startswith("#") and layout.is_row(row, len(table.columns)):
        table.rows.append((line, row))
    else:
        collector.note_lost_row(line)


def select_usable(
    tables: list[Table], collector: RowCollector, find_reason: Callable[[Table], str]
) -> list[Table]:
    """The tables that can be used; the rows of those that have a reason against it are left out."""
    for table in tables:
        if reason := find_reason(table):
            for number in [line.number for line, _ in table.rows] or [table.line]:
                collector.leave_out(reason, number)
    return [table for table in tables if not find_reason(table)]


def name_cells(layout: Format, table: Table, row: list[str]) -> dict[str, str]:
    """The cells of a row by column; ValueError where they do not fit the header."""
    has_size = bool(table.benchmark and OPERATIONS[table.benchmark.operation].has_data)
    if layout.time_column not in table.columns or ("size" in table.columns) != has_size:
        raise ValueError("no header before it names its columns")
    return cells.name_cells(table.columns, row)


class TableKind(NamedTuple):
    """What all rows of a table share."""

    layout: Format
    benchmark: MpiBenchmark
    dtype: str
    reduce_op: str
    ranks: int
    window: int | None = None


def add_row(collector: RowCollector, kind: TableKind, line: int, row: dict[str, str]) -> None:
    """Add the row with these cells, or note why not; ValueError for a cell that is invalid."""
    operation = OPERATIONS[kind.benchmark.operation]
    printed_size, printed_time = row.get("size", "0"), row[kind.layout.time_column]
    dtype = kind.dtype if operation.has_data else ""
    size = cells.parse_size(printed_size) if operation.has_data else 0
    size *= kind.ranks if kind.benchmark.of_block else 1
    blocks = kind.ranks if operation.blocks else 1
    count = size // blocks // DTYPES[dtype].size_bytes if operation.has_data else 0
    time_s = cells.parse_seconds(printed_time)
    iterations = cells.parse_whole(row["iterations"]) if row.get("iterations") else None
    if size > LARGEST_SIZE:
        raise ValueError(f"size {printed_size} on each of {kind.ranks} ranks is out of range")
    if operation.has_data and not count:
        why = "nothing was moved (size 0)" if not size else f"less than one {dtype} per rank"
        collector.leave_out(why, line)
    elif time_s is None:
        collector.leave_out(f"its time is {printed_time!r:.20}", line, is_fault=True)
    elif collector.is_requested(line, operation.name, dtype):
        collector.rows.append(
            ImportedRow(
                operation=operation.name,
                dtype=dtype,
                reduce_op=kind.reduce_op if operation.reduces else "",
                placement=kind.benchmark.placement,
                size_bytes=size,
                count=count,
                time_s=time_s,
                statistic=kind.layout.statistic.format(f"{iterations} " if iterations else ""),
                line=line,
                iterations=iterations,
                p2p_call=kind.benchmark.p2p_call,
                pairs=DEFAULT_PAIRS[0] if kind.benchmark.p2p_call else "",
                window=kind.window,
                wrong=0 if row.keys() & {"validation", "defects"} else None,  # others are left out
            ).with_statistics(row, kind.layout.spread)
        )

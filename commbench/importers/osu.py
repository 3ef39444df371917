"""OSU Micro-Benchmarks' blocking collectives.

Each operation is timed by itself, with a barrier after it. The time is the mean over iterations,
then over ranks; minimum and maximum are over ranks. Sizes are one rank's block for allgather,
alltoall, gather and scatter. Source: OMB's c/mpi/collective and c/util, 5.3 to 7.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from commbench.importers import cells
from commbench.importers.base import ImportedFile, RowCollector, unique
from commbench.importers.hints import ImportHints
from commbench.importers.mpi_tables import (
    DTYPE_NAMES,
    MpiTable,
    TableKind,
    add_row,
    select_usable,
)
from commbench.importers.names import OSU, MpiBenchmark
from commbench.importers.text_source import Line, SourceText
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import ISOLATED

NAME = "osu"

_OLD_DTYPES = {True: "float32", False: "int8"}
"""Element types of versions that do not print them, by whether the operation reduces: MPI_FLOAT and
MPI_CHAR."""
_COLUMNS = (
    ("Size", "size"),
    (r"Avg Latency ?\(us\)", "time"),
    (r"Latency ?\(us\)", "time"),
    (r"Min Latency ?\(us\)", "minimum_s"),
    (r"Max Latency ?\(us\)", "maximum_s"),
    ("Iterations", "iterations"),
    (r"P50 Tail Lat\(us\)", "p50_s"),
    (r"P95 Tail Lat\(us\)", "p95_s"),
    (r"P99 Tail Lat\(us\)", "p99_s"),
    (r"P\d{1,2} Tail Lat\(us\)", "percentile"),
    ("Validation", "validation"),
)
_TITLE = re.compile(
    r"#?\s*(?:OSU|OMB-Py) (?:(?P<library>MPI|NCCL)(?P<device>-\w{1,20}(?: MANAGED)?)? )?"
    r"(?P<name>[^#]{1,60}?) ?(?:Latency )?Test(?: v(?P<version>[\w.]{1,20}))?\s*$"
)
_DATATYPE = re.compile(r"#?\s*Datatype:\s*(\w{1,40})\.?\s*$")
_HEADER = re.compile(r"#?\s*(?=Size\s|Avg Latency)")


def recognises(source: SourceText) -> bool:
    """Whether a file has the title of an OSU benchmark."""
    return any(_TITLE.match(line.text) for line in source.lines)


def read(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    collector = RowCollector(source, hints)
    tables = select_usable(_find_tables(source, collector), collector)
    ranks = hints.choose_ranks(source.path, [None]) if tables else 0
    for table in tables:
        _read_table(table, ranks, collector)
    return collector.make_file(
        tool="osu",
        tool_version=", ".join(unique(table.version for table in tables)),
        format=NAME,
        timing=ISOLATED,
        ranks=ranks,
        hosts=(),
        devices=unique(table.device for table in tables),
        backend=", ".join(unique((table.library or "MPI").lower() for table in tables)),
    )


@dataclass(kw_only=True)
class OsuTable(MpiTable):
    """One benchmark's table of one element type."""

    version: str
    library: str
    device: str
    """Such as `cuda`; empty for the host."""
    datatype: str | None = None

    @property
    def benchmark(self) -> MpiBenchmark | None:
        """What its name means; None where commbench has no such operation."""
        return OSU.get(self.name)

    @property
    def unusable_because(self) -> str:
        """Why the table cannot be used; empty where it can."""
        if self.name not in OSU:
            return f"{self.name + ' Test'!r:.60} is no blocking collective that commbench has"
        if self.datatype is not None and self.datatype not in DTYPE_NAMES:
            return f"commbench has no element type {self.datatype!r:.40}"
        return ""


def _read_table(table: OsuTable, ranks: int, collector: RowCollector) -> None:
    kind = TableKind(
        benchmark=OSU[table.name],
        dtype=_find_dtype(table, collector),
        reduce_op="sum",
        ranks=ranks,
        time_column="time",
        statistic="mean over {}iterations, mean over ranks",
        statistics=("minimum_s", "maximum_s", "p50_s", "p95_s", "p99_s"),
        spread="minimum and maximum over ranks, percentiles over iterations",
    )

    def add(line: Line, row: list[str]) -> None:
        named = table.name_cells(row, kind.time_column)
        if named.get("validation", "Pass") != "Pass":
            collector.leave_out("its result was wrong (Validation)", line.number)
        else:
            add_row(collector, kind, line.number, named)

    collector.read_rows(table.rows, add)


def _find_dtype(table: OsuTable, collector: RowCollector) -> str:
    if table.datatype is not None:
        return DTYPE_NAMES[table.datatype]
    if collector.hints.dtype is not None:
        return collector.hints.dtype
    operation = OPERATIONS[OSU[table.name].operation]
    dtype = _OLD_DTYPES[operation.reduces] if operation.has_data else ""
    if dtype:
        collector.note(f"no element type is printed: versions that do so send {dtype} here")
    return dtype


def _find_tables(source: SourceText, collector: RowCollector) -> list[OsuTable]:
    """All tables of a file, of any benchmark."""
    tables: list[OsuTable] = []
    for line in source.lines:
        if title := _TITLE.match(line.text):
            found = title.groupdict(default="")
            tables.append(
                OsuTable(
                    name=found["name"],
                    line=line.number,
                    version=found["version"],
                    library=found["library"],
                    device=found["device"].lstrip("-").lower(),
                )
            )
        elif tables:
            _read_line(collector, tables, line)
        elif len(row := line.text.split()) > 1 and all(map(cells.is_number, row)):
            raise source.damaged(line.number, "a row without a title before it", 0)
    return tables


def _read_line(collector: RowCollector, tables: list[OsuTable], line: Line) -> None:
    """Add a line to the last table, or begin the next one of several types in one run."""
    table = tables[-1]
    row = line.text.split()
    if datatype := _DATATYPE.match(line.text):
        if table.rows:
            table = replace(table, line=line.number, columns=(), rows=[])
            tables.append(table)
        table.datatype = datatype[1]
    elif table.name in OSU and (header := _HEADER.match(line.text)):
        try:
            if table.rows:
                raise ValueError("a table without a title before it")
            table.columns = tuple(cells.parse_columns(line.text[header.end() :], _COLUMNS))
        except ValueError as error:
            sound = sum(len(table.rows) for table in tables)
            raise collector.source.damaged(line.number, error, sound) from None
    elif _is_row(row, len(table.columns)):
        table.rows.append((line, row))
    else:
        collector.note_lost_row(line)


def _is_row(row: list[str], width: int) -> bool:
    """Whether a line is meant as a row, damaged or not; other lines are seldom all numbers."""
    if not row or row[0].startswith("#"):
        return False
    if all(cells.is_number(cell) for cell in row[:2]):
        return True
    return len(row) == width and row[0][0].isdigit()

"""OSU Micro-Benchmarks' blocking collectives.

Each operation is timed by itself, and a barrier follows it; the time is the mean over iterations,
then over ranks; minimum and maximum are over ranks. Sizes are one rank's block for allgather,
alltoall, gather and scatter. Source: OMB's c/mpi/collective and c/util, 5.3 to 7.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from commbench.importers import cells
from commbench.importers.base import ImportedFile, each
from commbench.importers.collector import RowCollector
from commbench.importers.hints import ImportHints
from commbench.importers.mpi_common import DTYPE_NAMES, RowCells, TableKind, add_row
from commbench.importers.names import OSU
from commbench.importers.text_source import Line, SourceText
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import ISOLATED

NAME = "osu"

_OLD_DTYPES = {True: "float32", False: "int8"}
"""By whether the operation reduces: MPI_FLOAT and MPI_CHAR, until the type could be chosen and
was printed."""
_STATISTICS = ("minimum_s", "maximum_s", "p50_s", "p95_s", "p99_s")
_STATISTIC = "mean over {}iterations, mean over ranks"
_SPREAD = "minimum and maximum over ranks, percentiles over iterations"


def sniff(source: SourceText) -> bool:
    """Whether there is a title of an OSU benchmark."""
    return is_osu(source)


def read(source: SourceText, asked: ImportHints) -> ImportedFile:
    """The file's rows."""
    collection = RowCollector(source, asked)
    usable = [table for table in tables_of(source, collection) if _is_usable(table, collection)]
    ranks = asked.settle_ranks([None]) if usable else 0
    for table in usable:
        _read_table(table, ranks, collection)
    return collection.file(
        tool="osu",
        tool_version=", ".join(each(table.version for table in usable)),
        format=NAME,
        timing=ISOLATED,
        ranks=ranks,
        hosts=(),
        devices=each(table.device for table in usable),
        backend=", ".join(each((table.library or "MPI").lower() for table in usable)),
    )


def _is_usable(table: OsuTable, collection: RowCollector) -> bool:
    for line, _ in table.rows or [(Line(table.line, ""), [])]:
        if table.reason:
            collection.leave_out(table.reason, line.number)
    return not table.reason


def _read_table(table: OsuTable, ranks: int, collection: RowCollector) -> None:
    source = collection.source
    kind = TableKind(OSU[table.name], _dtype(table, collection), "sum", ranks)
    for line, row in table.rows:
        if source.is_cut(line):
            collection.leave_out("the file ends within the line", line.number)
            continue
        try:
            _add(collection, kind, line, table.named(row))
        except ValueError as error:
            raise source.damaged(line.number, error, len(collection.rows)) from None


def _dtype(table: OsuTable, collection: RowCollector) -> str:
    if table.datatype is not None:
        return DTYPE_NAMES[table.datatype]
    if collection.asked.dtype is not None:
        return collection.asked.dtype
    operation = OPERATIONS[OSU[table.name].operation]
    dtype = _OLD_DTYPES[operation.reduces] if operation.has_data else ""
    if dtype:
        collection.note(f"no element type is printed: versions that do so send {dtype} here")
    return dtype


def _add(collection: RowCollector, kind: TableKind, line: Line, row: dict[str, str]) -> None:
    if row.get("validation", "Pass") != "Pass":
        collection.leave_out("its result was wrong (Validation)", line.number)
        return
    add_row(
        collection,
        kind,
        RowCells(
            line=line.number,
            size=row.get("size", "0"),
            time=row["time"],
            statistic=_STATISTIC,
            iterations=row.get("iterations", ""),
            statistics={name: row[name] for name in _STATISTICS if name in row},
            spread=_SPREAD,
        ),
    )


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


@dataclass
class OsuTable:
    """One benchmark's table of one element type."""

    name: str
    version: str
    library: str
    device: str
    """Such as `cuda`; empty for the host."""
    line: int
    datatype: str | None = None
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """Why it cannot be used; empty where it can."""
        if self.name not in OSU:
            return f"{self.name + ' Test'!r:.60} is no blocking collective that commbench has"
        if self.datatype is not None and self.datatype not in DTYPE_NAMES:
            return f"commbench has no element type {self.datatype!r:.40}"
        return ""

    def named(self, row: list[str]) -> dict[str, str]:
        """The cells of a row by column; ValueError where they do not fit."""
        has_size = OPERATIONS[OSU[self.name].operation].has_data
        if "time" not in self.columns or ("size" in self.columns) != has_size:
            raise ValueError("no header before it names its columns")
        if len(row) != len(self.columns):
            raise ValueError(f"it has {len(row)} cells, and the header {len(self.columns)} columns")
        return dict(zip(self.columns, row, strict=True))


def is_osu(source: SourceText) -> bool:
    """Whether there is a title of an OSU benchmark."""
    return any(_TITLE.match(line.text) for line in source.lines)


def tables_of(source: SourceText, collection: RowCollector) -> list[OsuTable]:
    """All tables of a file, of whatever benchmark."""
    tables: list[OsuTable] = []
    for line in source.lines:
        if title := _TITLE.match(line.text):
            found = title.groupdict(default="")
            device = found["device"].lstrip("-").lower()
            tables.append(
                OsuTable(found["name"], found["version"], found["library"], device, line.number)
            )
        elif tables:
            _take(collection, tables, line)
        elif len(row := line.text.split()) > 1 and all(map(cells.is_number, row)):
            raise source.damaged(line.number, "a row without a title before it", 0)
    return tables


def _take(collection: RowCollector, tables: list[OsuTable], line: Line) -> None:
    table = tables[-1]
    if datatype := _DATATYPE.match(line.text):
        if table.rows:  # the next of several types in one run
            table = OsuTable(table.name, table.version, table.library, table.device, line.number)
            tables.append(table)
        table.datatype = datatype[1]
    elif table.name in OSU and (header := _HEADER.match(line.text)):
        try:
            if table.rows:
                raise ValueError("a table without a title before it")
            table.columns = cells.columns(line.text[header.end() :], _COLUMNS)
        except ValueError as error:
            sound = sum(len(table.rows) for table in tables)
            raise collection.source.damaged(line.number, error, sound) from None
    elif _is_row(row := line.text.split(), len(table.columns)):
        table.rows.append((line, row))
    else:
        collection.see_noise(line)


def _is_row(row: list[str], width: int) -> bool:
    """Whether a line is meant as a row, sound or not: noise is seldom all numbers."""
    if not row or row[0].startswith("#"):
        return False
    if all(cells.is_number(cell) for cell in row[:2]):
        return True
    return len(row) == width and row[0][0].isdigit()

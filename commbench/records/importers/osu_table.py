"""The tables of OSU Micro-Benchmarks as printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from commbench.operations import OPERATIONS
from commbench.records.importers import cells
from commbench.records.importers.collect import Collection
from commbench.records.importers.mpi import DTYPE_NAMES
from commbench.records.importers.names import OSU
from commbench.records.importers.source import Line, Source

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
class Table:
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


def is_osu(source: Source) -> bool:
    """Whether there is a title of an OSU benchmark."""
    return any(_TITLE.match(line.text) for line in source.lines)


def tables_of(source: Source, collection: Collection) -> list[Table]:
    """All tables of a file, of whatever benchmark."""
    tables: list[Table] = []
    for line in source.lines:
        if title := _TITLE.match(line.text):
            found = title.groupdict(default="")
            device = found["device"].lstrip("-").lower()
            tables.append(
                Table(found["name"], found["version"], found["library"], device, line.number)
            )
        elif tables:
            _take(collection, tables, line)
        elif len(row := line.text.split()) > 1 and all(map(cells.is_number, row)):
            raise source.damaged(line.number, "a row without a title before it", 0)
    return tables


def _take(collection: Collection, tables: list[Table], line: Line) -> None:
    table = tables[-1]
    if datatype := _DATATYPE.match(line.text):
        if table.rows:  # the next of several types in one run
            table = Table(table.name, table.version, table.library, table.device, line.number)
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

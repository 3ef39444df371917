"""nccl-tests' text output, of any version: tables with other lines around them.

The columns changed with versions and options. Cells are split at blanks, never by position, because
widths changed often. Source: nccl-tests' src/util.cu.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from commbench.errors import RecordsError
from commbench.plan.operation import IN_PLACE, OUT_OF_PLACE
from commbench.readers import base, nccl_tests
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
from commbench.readers.source import ImportHints, Line, SourceText

_FOOT = ("# Out of bounds", "# Avg bus bandwidth", "# Collective test concluded")
_BEGINNINGS: dict[tuple[str, ...], int] = {
    ("size", "count", "type"): base.MICROSECONDS,
    ("bytes", "N", "type"): base.MILLISECONDS,
}
"""The first columns of a header, with its unit of time: milliseconds in the first versions."""
_NAMES = {
    "bytes": "size", "N": "count", "op": "redop", "#wrong": "wrong", "error": "deviation",
    "res": "deviation", "i_min": "minimum_s", "i_max": "maximum_s", "i_p99": "p99_s",
}  # fmt: skip
"""Columns by the names that commbench.readers.nccl_tests gives them."""
_TITLES = {"out-of-place": OUT_OF_PLACE, "in-place": IN_PLACE}
_TITLE = re.compile("|".join(_TITLES))


@dataclass
class _Section:
    """One table in the file, with the lines of and after it."""

    table: nccl_tests.NcclTestsTable
    columns: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    """Of each group of columns, in their order; empty where its numbers cannot be used."""
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)
    others: list[Line] = field(default_factory=list)
    """Lines between and after its rows."""

    def read_header(self, text: str, title: str) -> None:
        """Take a header with the title line before it; ValueError where a necessary column is
        missing."""
        printed = _words(text)
        self.table.exponent = _BEGINNINGS[printed[:3]]
        self.columns = tuple(_NAMES.get(name, name) for name in printed)
        if "cputime" in self.columns:
            return
        _, *groups = self._groups(self.columns)
        self.placements = tuple(_TITLES[name] for name in _TITLE.findall(title))
        if not self.placements and len(groups) == 2:
            self.placements = (OUT_OF_PLACE, IN_PLACE)  # the order of every version
        if not groups or not len({*self.placements}) == len(self.placements) == len(groups):
            raise ValueError("the header does not contain which times are in place")
        if any(len({*names}) != len(names) or not {"algbw", "busbw"} <= {*names}
               for names in groups):  # fmt: skip
            raise ValueError("a column is missing in the header, or is there twice")

    def _groups(self, cells: tuple[str, ...] | list[str]) -> list[list[str]]:
        """The cells before the first time, and those of each placement."""
        starts = [index for index, name in enumerate(self.columns) if name == "time"]
        return [[*cells[start:end]] for start, end in pairwise([0, *starts, len(self.columns)])]

    def read_line(self, line: Line) -> None:
        """Take a line that follows the header. Rows of the first versions may begin with `#`."""
        is_legacy = self.table.exponent != base.MICROSECONDS
        row = (line.text.lstrip("# ") if is_legacy else line.text).split()
        is_damaged_row = len(row) == len(self.columns) and base.is_whole(row[0])
        if _looks_like_row(row) or (self.placements and is_damaged_row):
            self.rows.append((line, row))
        else:
            self.others.append(line)

    def split(self, row: list[str]) -> tuple[dict[str, str], list[nccl_tests.PlacementCells]]:
        """The cells that begin a row, and those of each placement that was measured; ValueError if
        not one per column.

        A reduce op may be blank, and a timestamp is two words.
        """
        if "redop" in self.columns and len(row) > (blank := self.columns.index("redop")):
            row = row if row[blank][0].isalpha() else [*row[:blank], "", *row[blank:]]
        last = len(self.columns) - 1
        if self.columns[-1] == "timestamp" and len(row) == last + 2:
            row = [*row[:last], " ".join(row[last:])]
        base.name_cells(self.columns, row)
        key, *groups = map(dict, map(zip, self._groups(self.columns), self._groups(row)))
        cells = map(nccl_tests.PlacementCells, self.placements, groups)
        return key, [each for each in cells if {*each.row.values()} != {"nan", "N/A"}]


def is_text(source: SourceText) -> bool:
    """Whether a file has a header of nccl-tests' table, or what comes before it."""
    return any(
        _is_header(line.text) or line.text.startswith(nccl_tests.BEGINS) for line in source.lines
    )


def read_text(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    sections = _find_sections(source)
    tables = [section.table for section in sections]
    if not any(section.rows for section in sections):
        why = f"{source.path} is the output of nccl-tests, but it ends before its first row"
        raise RecordsError(why, "give the whole output, or measure again")
    collector = RowCollector(source, hints)
    collector.choose_ranks(table.known_ranks for table in tables)
    for section in sections:
        _read_section(section, collector)
    if len({table.timing for table in tables}) > 1:
        why = f"{source.path} has runs with option -z and without it, which time different things"
        raise RecordsError(why, "write the results of each tool into a file of its own")
    for section in sections:
        _note_section(section, collector)
    libraries = base.unique(table.library for table in tables)
    nccl = ", ".join(map(nccl_tests.parse_library_version, libraries))
    warmups = {table.options.get("warmup iters") for table in tables}
    return nccl_tests.make_file(
        collector, tables,
        tool_version=", ".join(base.unique(table.version for table in tables)),
        warmup=warmups.pop() if len(warmups) == 1 else None,
        environment={"nccl": nccl} if libraries else {},
    )  # fmt: skip


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.lstrip("# \t").split())


def _looks_like_row(row: list[str]) -> bool:
    """Whether cells begin like a row, whatever the columns of the table are."""
    if len(row) < 3:
        return False
    if base.is_whole(row[0]) and base.is_whole(row[1]):
        return True
    try:
        return bool(base.require_dtype(row[2]))
    except LeftOut:
        return False


def _is_header(text: str) -> bool:
    """Whether a line names the columns of a table."""
    return _words(text)[:3] in _BEGINNINGS


def _find_sections(source: SourceText) -> list[_Section]:
    sections: list[_Section] = []
    table, title, section = nccl_tests.NcclTestsTable(), "", None
    for line in source.lines:
        is_title = line.text.startswith("#") and _TITLE.search(line.text) is not None
        is_header = _is_header(line.text)
        begins = line.text.startswith(nccl_tests.BEGINS) or is_title or is_header
        if begins and section is not None:
            table, title = nccl_tests.NcclTestsTable(), ""
            for other in section.others:
                table.read_command(other.text)
            section = None
        if is_title:
            title = line.text
        elif is_header:
            section = _Section(table)
            try:
                section.read_header(line.text, title)
            except ValueError as error:
                sound = sum(len(earlier.rows) for earlier in sections)
                raise source.damaged(line.number, error, sound) from None
            sections.append(section)
        elif section is None:
            table.read_line(line.text)
            if _looks_like_row(line.text.split()) and not line.text.startswith("#"):
                raise source.damaged(line.number, "a row without a header before it", 0)
        else:
            section.read_line(line)
    if sections and section is None:  # the file ends before the last table has begun
        sections.append(_Section(sections[-1].table))
    return sections


def _read_section(section: _Section, collector: RowCollector) -> None:
    """Add its rows, or note why they cannot be used."""
    table, lines = section.table, [line.number for line, _ in section.rows]
    if not lines:
        return
    table.line = lines[0]
    try:
        if not section.placements:
            raise LeftOut(nccl_tests.CPU_TIME)
        if table.known_ranks not in (None, collector.ranks):
            raise LeftOut(f"measured on {table.known_ranks} ranks")
        table.operation(collector)
    except LeftOut as left_out:
        collector.leave_out(left_out.reason, *lines)
    else:
        collector.read_rows(
            section.rows, lambda line, row: table.add(collector, line.number, *section.split(row))
        )


def _note_section(section: _Section, collector: RowCollector) -> None:
    for line in section.others:
        collector.note_lost_row(line)
        if line.text.startswith(_FOOT[0]) and "FAIL" in line.text:
            collector.note(f"nccl-tests says: {line.text[2:]}", is_fault=True)
    if not any(line.text.startswith(_FOOT) for line in section.others):
        at = f"at line {section.rows[-1][0].number}" if section.rows else "without a row"
        collector.note(f"the table that ends {at} was cut off, or is not complete", True)
    if section.table.blocking:
        collector.note(f"nccl-tests says: {section.table.blocking}")
    if section.rows:
        nccl_tests.note_launch_mode(section.table, collector)

"""nccl-tests' text output, of any version: tables with other lines around them.

The columns changed with versions and options. Cells are split at blanks, never by position, because
widths changed often. Source: nccl-tests' src/util.cu.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from commbench.errors import RecordsError
from commbench.importers import cells
from commbench.importers.base import ImportedFile, RowCollector, unique
from commbench.importers.hints import ImportHints
from commbench.importers.nccl_tests import rows
from commbench.importers.nccl_tests.preamble import (
    BEGINS,
    Preamble,
    parse_library_version,
)
from commbench.importers.text_source import Line, SourceText
from commbench.spec.dimensions import ROTATING
from commbench.spec.operations import IN_PLACE, OUT_OF_PLACE

NAME = "nccl-tests-text"

_FOOT = ("# Out of bounds", "# Avg bus bandwidth", "# Collective test concluded")
_BEGINNINGS: dict[tuple[str, ...], int] = {
    ("size", "count", "type"): cells.MICROSECONDS,
    ("bytes", "N", "type"): cells.MILLISECONDS,
}
"""The first columns of a header, with its unit of time: milliseconds in the first versions."""
_OLD_NAMES = {"bytes": "size", "N": "count", "op": "redop"}
"""Columns of the first versions by their names in later ones."""
_TITLES = {"out-of-place": OUT_OF_PLACE, "in-place": IN_PLACE}
_TITLE = re.compile("|".join(_TITLES))
_TIMES = ("time", "cputime")
_STATISTICS = {"i_min": "minimum_s", "i_max": "maximum_s", "i_p99": "p99_s"}
_LAST = "timestamp"


def recognises(source: SourceText) -> bool:
    """Whether a file has a header of nccl-tests' table, or what comes before it."""
    return any(_is_header(line.text) or line.text.startswith(BEGINS) for line in source.lines)


def read(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    sections = _find_sections(source)
    if not any(section.rows for section in sections):
        raise RecordsError(
            f"{source.path} is the output of nccl-tests, but it ends before its first row",
            "give the whole output, or measure again",
        )
    collector = RowCollector(source, hints)
    ranks = hints.choose_ranks(source.path, (each.preamble.known_ranks for each in sections))
    builder = rows.RowBuilder(collector)
    for section in sections:
        _read_section(section, ranks, builder)
    timings = {section.preamble.timing for section in sections}
    if len(timings) > 1:
        raise RecordsError(
            f"{source.path} has runs with option -z and without it, which time different things",
            "write the results of each tool into a file of its own",
        )
    _add_notes(sections, collector)
    builder.add_notes()
    devices = [device for section in sections for device in section.preamble.devices]
    libraries = unique(section.preamble.library for section in sections)
    nccl = ", ".join(map(parse_library_version, libraries))
    warmups = {section.preamble.integers.get("warmup") for section in sections}
    return collector.make_file(
        tool="nccl-tests",
        tool_version=", ".join(unique(section.preamble.version for section in sections)),
        format=NAME,
        timing=timings.pop(),
        ranks=ranks,
        hosts=unique(device.host for device in devices),
        devices=unique(device.name for device in devices),
        backend="nccl",
        buffers=ROTATING,
        warmup=warmups.pop() if len(warmups) == 1 else None,
        environment={"nccl": nccl} if libraries else {},
    )


class NcclTestsTable(NamedTuple):
    """The columns of one table."""

    columns: tuple[str, ...]
    exponent: int
    """The unit of time is ten to this power of a second."""
    placements: tuple[str, ...]
    """Of each group of columns, in their order."""

    @property
    def is_legacy(self) -> bool:
        """Whether it is of the first versions, whose rows may begin with `#`."""
        return self.exponent != cells.MICROSECONDS

    def is_row(self, row: list[str]) -> bool:
        """Whether a line is meant as a row, damaged or not."""
        return _looks_like_row(row) or (len(row) == len(self.columns) and cells.is_whole(row[0]))

    def split(self, row: list[str]) -> tuple[dict[str, str], list[rows.PlacementCells]]:
        """The cells that begin a row, and each placement's; ValueError if not one per column."""
        named = list(zip(self.columns, self._align(row), strict=True))
        starts = [0, *_find_groups(self.columns), len(self.columns)]
        key, *groups = (dict(named[start:end]) for start, end in pairwise(starts))
        return key, list(map(_make_cells, self.placements, groups))

    def _align(self, row: list[str]) -> list[str]:
        """The cells in their columns: a reduce op may be blank, and a timestamp is two words."""
        if "redop" in self.columns and len(row) > (blank := self.columns.index("redop")):
            row = row if row[blank][0].isalpha() else [*row[:blank], "", *row[blank:]]
        last = len(self.columns) - 1
        if self.columns[-1] == _LAST and len(row) == last + 2:
            row = [*row[:last], " ".join(row[last:])]
        cells.name_cells(self.columns, row)
        return row


def _make_cells(placement: str, group: dict[str, str]) -> rows.PlacementCells:
    wrong = group.get("#wrong") or group.get("error") or group.get("res") or "N/A"
    return rows.PlacementCells(
        placement,
        group["time"],
        group["algbw"],
        group["busbw"],
        rows.parse_wrong(wrong, is_count="#wrong" in group),
        {field: group[name] for name, field in _STATISTICS.items() if name in group},
    )


def _looks_like_row(row: list[str]) -> bool:
    """Whether cells begin like a row, whatever the columns of the table are."""
    if len(row) < 3 or (cells.is_whole(row[0]) and cells.is_whole(row[1])):
        return len(row) > 2
    try:
        return bool(rows.translate_dtype(row[2]))
    except LookupError:
        return False


def _find_groups(columns: tuple[str, ...]) -> list[int]:
    """The index at which the columns of each placement begin."""
    return [index for index, name in enumerate(columns) if name in _TIMES]


def _is_header(text: str) -> bool:
    """Whether a line names the columns of a table."""
    return tuple(text.lstrip("# \t").split()[:3]) in _BEGINNINGS


def _is_title(text: str) -> bool:
    """Whether a line names the placements of the columns below it."""
    return text.startswith("#") and _TITLE.search(text) is not None


def _parse_header(text: str, title: str) -> NcclTestsTable:
    """The table below a header, with the title line before it; ValueError where a necessary column
    is missing, LookupError for numbers that commbench cannot use."""
    printed = tuple(text.lstrip("# \t").split())
    columns = tuple(_OLD_NAMES.get(name, name) for name in printed)
    groups = _find_groups(columns)
    placements = tuple(_TITLES[name] for name in _TITLE.findall(title))
    if not placements and len(groups) == 2:
        placements = (OUT_OF_PLACE, IN_PLACE)  # the order of every version
    if "cputime" in columns:
        raise LookupError(rows.CPU_TIME)
    if not groups or len(set(placements)) != len(groups) or len(placements) != len(groups):
        raise ValueError("the header does not contain which times are in place")
    for start, end in zip(groups, [*groups[1:], len(columns)], strict=True):
        group = columns[start:end]
        if not {"algbw", "busbw"} <= set(group) or len(set(group)) != len(group):
            raise ValueError("a column is missing in the header, or is there twice")
    return NcclTestsTable(columns, _BEGINNINGS[printed[:3]], placements)


class _Section(NamedTuple):
    """One table in the file, with the lines before and after it."""

    preamble: Preamble
    table: NcclTestsTable | None
    """None where its numbers cannot be used."""
    unusable_because: str
    rows: list[tuple[Line, list[str]]]
    others: list[Line]
    """Lines between and after its rows."""

    def read_line(self, line: Line) -> None:
        """Take a line that follows the header."""
        is_legacy = self.table is not None and self.table.is_legacy
        row = (line.text.lstrip("# ") if is_legacy else line.text).split()
        if self.table.is_row(row) if self.table else _looks_like_row(row):
            self.rows.append((line, row))
        else:
            self.others.append(line)


def _find_sections(source: SourceText) -> list[_Section]:
    sections: list[_Section] = []
    preamble, title, section = Preamble(), "", None
    for line in source.lines:
        begins = line.text.startswith(BEGINS) or _is_title(line.text) or _is_header(line.text)
        if begins and section is not None:
            others = [other.text for other in section.others]
            preamble, title, section = Preamble(), "", None
            for other in others:
                preamble.read_command(other)
        if _is_title(line.text):
            title = line.text
        elif _is_header(line.text):
            sound = sum(len(earlier.rows) for earlier in sections)
            section = _begin_section(source, line, title, preamble, sound)
            sections.append(section)
        elif section is None:
            preamble.read_line(line.text)
            if _looks_like_row(line.text.split()) and not line.text.startswith("#"):
                raise source.damaged(line.number, "a row without a header before it", 0)
        else:
            section.read_line(line)
    if sections and section is None:  # the file ends before the last table has begun
        sections.append(_Section(sections[-1].preamble, None, "", [], []))
    return sections


def _begin_section(
    source: SourceText, line: Line, title: str, preamble: Preamble, sound: int
) -> _Section:
    try:
        return _Section(preamble, _parse_header(line.text, title), "", [], [])
    except LookupError as reason:
        return _Section(preamble, None, str(reason), [], [])
    except ValueError as error:
        raise source.damaged(line.number, error, sound) from None


def _read_section(section: _Section, ranks: int, builder: rows.RowBuilder) -> None:
    collector, preamble, table = builder.collector, section.preamble, section.table
    if not section.rows:
        return
    first = section.rows[0][0].number
    try:
        if table is None:
            raise LookupError(section.unusable_because)
        if preamble.known_ranks not in (None, ranks):
            raise LookupError(f"measured on {preamble.known_ranks} ranks")
        run = rows.make_run(collector, preamble, ranks, first, table.exponent)
    except LookupError as reason:
        for line, _ in section.rows:
            collector.leave_out(str(reason), line.number)
        return
    collector.read_rows(
        section.rows, lambda line, row: builder.add(run, line.number, *table.split(row))
    )


def _add_notes(sections: list[_Section], collector: RowCollector) -> None:
    for section in sections:
        preamble = section.preamble
        for line in section.others:
            collector.note_lost_row(line)
            if line.text.startswith(_FOOT[0]) and "FAIL" in line.text:
                collector.note(f"nccl-tests says: {line.text[2:]}", is_fault=True)
        if not any(line.text.startswith(_FOOT) for line in section.others):
            at = f"at line {section.rows[-1][0].number}" if section.rows else "without a row"
            collector.note(f"the table that ends {at} was cut off, or is not complete", True)
        if preamble.blocking:
            collector.note(f"nccl-tests says: {preamble.blocking}")
        if section.rows:
            preamble.note_launch_mode(collector.note)

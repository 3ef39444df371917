"""nccl-tests' text output, of any version: tables with whatever is printed around them.

Cells are split at blanks, never by position: widths changed often. Source: nccl-tests' src/util.cu.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.errors import RecordsError
from commbench.importers.base import ImportedFile, each
from commbench.importers.collector import RowCollector
from commbench.importers.hints import ImportHints
from commbench.importers.nccl_tests.names import library_version, operation_of
from commbench.importers.nccl_tests.preamble import BEGINS, Preamble
from commbench.importers.nccl_tests.rows import RowBuilder, TableRun
from commbench.importers.nccl_tests.table import (
    NcclTestsTable,
    is_header,
    is_title,
    looks_like_row,
    table_of,
)
from commbench.importers.text_source import Line, SourceText

NAME = "nccl-tests-text"
_FOOT = ("# Out of bounds", "# Avg bus bandwidth", "# Collective test concluded")


class _Part(NamedTuple):
    """One table as found in the file."""

    preamble: Preamble
    table: NcclTestsTable | None
    """None: its numbers are of no use, for `reason`."""
    reason: str
    rows: list[tuple[Line, list[str]]]
    others: list[Line]
    """Lines among and after its rows."""


def sniff(source: SourceText) -> bool:
    """Whether there is a header of nccl-tests' table."""
    return any(is_header(line.text) for line in source.lines)


def read(source: SourceText, asked: ImportHints) -> ImportedFile:
    """The file's rows."""
    parts = _parts(source)
    collection = RowCollector(source, asked)
    ranks = asked.settle_ranks(part.preamble.told_ranks for part in parts)
    rows = RowBuilder(collection)
    for part in parts:
        _read_part(part, ranks, rows)
    kinds = {part.preamble.timing for part in parts}
    if len(kinds) > 1:
        raise RecordsError(
            f"{source.path} holds runs with option -z and without, which time different things",
            "make a file of each",
        )
    _note(parts, collection)
    rows.note()
    devices = [device for part in parts for device in part.preamble.devices]
    libraries = each(part.preamble.library for part in parts)
    return collection.file(
        tool="nccl-tests",
        tool_version=", ".join(each(part.preamble.version for part in parts)),
        format=NAME,
        timing=kinds.pop(),
        ranks=ranks,
        hosts=each(device.host for device in devices),
        devices=each(device.name for device in devices),
        backend="nccl",
        environment={"nccl": ", ".join(map(library_version, libraries))} if libraries else {},
    )


def _parts(source: SourceText) -> list[_Part]:
    parts: list[_Part] = []
    preamble, title, part = Preamble(), "", None
    for line in source.lines:
        begins = line.text.startswith(BEGINS) or is_title(line.text) or is_header(line.text)
        if begins and part is not None:
            preamble, title, part = Preamble(commands=_after(part)), "", None
        if is_title(line.text):
            title = line.text
        elif is_header(line.text):
            part = _part(source, line, title, preamble, sum(len(p.rows) for p in parts))
            parts.append(part)
        elif part is None:
            preamble.take(line.text)
            if looks_like_row(line.text.split()) and not line.text.startswith("#"):
                raise source.damaged(line.number, "a row without a header before it", 0)
        else:
            _take_row(part, line)
    return parts


def _after(part: _Part) -> set[str]:
    """Programs that were named after a table: the next one's."""
    following = Preamble()
    for line in part.others:
        following.take(line.text)
    return following.commands


def _part(source: SourceText, line: Line, title: str, preamble: Preamble, sound: int) -> _Part:
    try:
        return _Part(preamble, table_of(line.number, line.text, title), "", [], [])
    except LookupError as reason:
        return _Part(preamble, None, str(reason), [], [])
    except ValueError as error:
        raise source.damaged(line.number, error, sound) from None


def _take_row(part: _Part, line: Line) -> None:
    legacy = part.table is not None and part.table.is_legacy
    row = (line.text.lstrip("# ") if legacy else line.text).split()
    if part.table.is_row(row) if part.table else looks_like_row(row):
        part.rows.append((line, row))
    else:
        part.others.append(line)


def _read_part(part: _Part, ranks: int, rows: RowBuilder) -> None:
    collection, preamble = rows.collection, part.preamble
    source, first = collection.source, part.rows[0][0].number if part.rows else 0
    reason = part.reason
    if part.table and part.rows and preamble.told_ranks not in (None, ranks):
        reason = f"measured on {preamble.told_ranks} ranks"
    try:
        program = preamble.told_program
        told = operation_of(program) if program is not None else None
    except LookupError as error:
        told, reason = "", reason or str(error)
    if reason or part.table is None:
        for line, _ in part.rows:
            collection.leave_out(reason, line.number)
        return
    if not part.rows:
        return
    operation = collection.asked.settle_operation(told, first)
    run = TableRun(
        operation,
        ranks,
        preamble.statistic,
        preamble.integers.get("iterations"),
        None in (told, preamble.told_ranks),
        part.table.exponent,
    )
    for line, row in part.rows:
        if source.is_cut(line):
            collection.leave_out("the file ends within the line", line.number)
            continue
        try:
            key, timed = part.table.split(row)
            rows.add(run, line.number, key, timed)
        except ValueError as error:
            raise source.damaged(line.number, error, len(collection.rows)) from None


def _note(parts: list[_Part], collection: RowCollector) -> None:
    for part in parts:
        preamble = part.preamble
        for line in part.others:
            collection.see_noise(line)
        if part.rows and not any(line.text.startswith(_FOOT) for line in part.others):
            at = part.rows[-1][0].number
            collection.note(f"the table that ends at line {at} was cut off, or is not finished")
        if preamble.blocking:
            collection.note(f"nccl-tests says: {preamble.blocking}")
        if preamble.integers.get("graphs"):
            collection.note("operations were launched by CUDA graphs (option -G)")

"""results.csv: written by a run, read back as rows; a damaged line is refused with its number."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import getitem, itemgetter
from pathlib import Path
from typing import Any, TextIO

from commbench.analysis.columns import (
    COLUMNS,
    INTEGERS,
    NEEDED,
    TEXTS,
    TIMES,
    columns_of,
    row_type,
)
from commbench.analysis.rows import ResultRow
from commbench.errors import RecordsError
from commbench.results.files import why_unreadable
from commbench.validation import LONGEST_TEXT, brief

OLD_NAMES = {"visits": "batches"}
"""Column names of older files, and today's."""
_NUMBER = re.compile(r" *[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})? *", re.ASCII)
_FILLED = ("operation", "size_bytes", "status")
"""Columns that are never empty."""
_LARGEST = 1 << 53
"""Whole numbers up to this are exact as floats."""
_LONGEST_HEAD = 1 << 16
_LARGEST_BYTES = 1 << 31
_MOST_REMEMBERED = 1 << 12


def read_results(path: Path, columns: Sequence[str] = COLUMNS) -> list[Any]:
    """The rows of a results.csv: named tuples of these columns. Numbers that are empty are None;
    columns that an older file lacks are empty.

    Raises RecordsError for a file that is no results.csv, and names the line that is damaged.
    """
    if why := why_unreadable(path, _LARGEST_BYTES):
        raise _unreadable(path, why)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = _read_names(path, file)
            return list(_read_rows(path, file, names, tuple(columns)))
    except UnicodeDecodeError:
        raise RecordsError(f"{path} is not text", "give a run folder or its results.csv") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or error) from None


def _read_names(path: Path, file: TextIO) -> list[str]:
    """The names in the first line; each stands there once."""
    try:
        names = next(csv.reader([file.readline(_LONGEST_HEAD)]), [])
    except csv.Error as error:
        raise _unreadable(path, error) from None
    names = [OLD_NAMES.get(name, name) for name in names]
    if missing := [name for name in NEEDED if name not in names]:
        raise RecordsError(
            f"{path} is no results.csv: it has no column {', '.join(missing)}",
            "give a run folder, its run.jsonl or its results.csv",
        )
    if len(set(names)) < len(names):
        raise RecordsError(f"{path} has two columns of one name", "remove one of them")
    return names


def _read_rows(
    path: Path, file: TextIO, names: Sequence[str], columns: tuple[str, ...]
) -> Iterator[Any]:
    """A row for each line after the first. The loop runs once per row of files with a million
    rows, so it parses each text of a column once where texts repeat."""
    checked = tuple(dict.fromkeys((*columns, *NEEDED)))
    parsers = [_ColumnParser(name) for name in checked]
    absent = len(names)  # the index of an empty field that is put at the end of each line
    pick = itemgetter(*(names.index(n) if n in names else absent for n in checked))
    pick_times = itemgetter(*map(checked.index, TIMES))
    make_row = row_type(columns)._make
    lines = csv.reader(file, strict=True)
    try:
        for fields in lines:
            if len(fields) != len(names):
                raise ValueError(f"it has {len(fields)} fields, the first line {len(names)}")
            fields.append("")
            values = tuple(map(getitem, parsers, pick(fields)))
            time, low, high = pick_times(values)
            if time is not None and not (low or 0) <= time <= (time if high is None else high):
                text = fields[names.index("time_us")]
                raise ValueError(f"time_us {text:.40} lies outside its interval")
            yield make_row(values[: len(columns)])
    except UnicodeDecodeError:
        raise
    except (ValueError, csv.Error) as error:
        raise RecordsError(
            f"{path}, line {lines.line_num + 1}, is damaged: {error}",
            "mend or remove the line; `commbench export` writes the file anew from run.jsonl",
        ) from None


class _ColumnParser(dict[str, Any]):
    """The values of a column by their texts; parses a text that is not yet there, and remembers
    the first of them. Raises ValueError for a text that no run writes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._parse = _parse_text if name in TEXTS else _parse_number

    def __missing__(self, text: str) -> Any:
        if not text and self._name in _FILLED:
            raise ValueError(f"{self._name} is empty")
        value = self._parse(self._name, text)
        if len(self) < _MOST_REMEMBERED:
            self[text] = value
        return value


def _parse_text(name: str, text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{name} is longer than {LONGEST_TEXT} characters")
    return text


def _parse_number(name: str, text: str) -> float | int | None:
    """A finite number, not below zero; None for an empty text."""
    if not text:
        return None
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= value <= _LARGEST or (name in INTEGERS and not value.is_integer()):
        raise ValueError(f"{name} is {brief(text)}")
    return int(value) if name in INTEGERS else value


def _unreadable(path: Path, why: object) -> RecordsError:
    return RecordsError(f"cannot read {path}: {why}", "give a run folder or its results.csv")


def make_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, with a first line of names; None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


RESULTS = "results.csv"


class ResultsCsv:
    """The results.csv of a run folder; whoever reads it finds a complete file at any time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        self._lines: dict[int, str] = {}

    def add(self, *rows: ResultRow) -> None:
        """Add rows, or put them in the place of those of the same cases, and replace the file."""
        for row in rows:
            self._lines[row.measurement.case.index] = _line(row)
        self.write()

    def write(self) -> None:
        """Replace the file with the rows so far, in the order of the plan."""
        head = ",".join(COLUMNS) + "\n"
        text = head + "".join(self._lines[index] for index in sorted(self._lines))
        new = self._path.with_suffix(".csv.new")
        try:
            new.write_text(text, encoding="utf-8", errors="replace")
            os.replace(new, self._path)  # noqa: PTH105 - atomic, and says so
        except OSError as error:
            with suppress(OSError):
                new.unlink()  # half of a file helps nobody
            gone = not self._path.parent.exists()
            raise RecordsError(
                f"cannot write {self._path}: {error.strerror}",
                "the folder was removed or moved while the run went on"
                if gone
                else "every finished case is in run.jsonl beside it",
            ) from None


def _line(row: ResultRow) -> str:
    line = io.StringIO()
    csv.DictWriter(line, COLUMNS, lineterminator="\n").writerow(columns_of(row))
    return line.getvalue()

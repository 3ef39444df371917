"""Writes and reads results.csv. A damaged line is refused with its number.

pandas reads a million rows in a third of the time. But its import takes as long as reading 30,000
rows, and a run has hundreds.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from sys import intern
from typing import Any, TextIO

from commbench.analysis.agreement import RELATED, require_agreement
from commbench.analysis.columns import (
    COLUMNS,
    DEFAULTS,
    INTEGER,
    KEY,
    NEEDED,
    TEXTS,
    Column,
    row_values,
    written_values,
)
from commbench.analysis.packed_rows import BLOCK, PackedRows
from commbench.analysis.rows import ResultRow, make_rows
from commbench.errors import RecordsError
from commbench.results.files import why_unreadable
from commbench.results.journal import write_run
from commbench.results.run_folder import RESULTS_CSV
from commbench.results.schema import Run
from commbench.validation import LARGEST_INTEGER, LONGEST_TEXT, brief

OLD_NAMES = {"visits": "batches"}
"""Column names of older files, and their names now."""
_NUMBER_CHARACTERS = b"0123456789.+-eE "
_FILLED = ("operation", "size_bytes", "status")
"""Columns that are never empty."""
_LONGEST_HEAD = 1 << 16
_LARGEST_BYTES = 1 << 31


def read_results(path: Path, columns: Collection[str] = COLUMNS) -> PackedRows:
    """The rows of a results.csv: named tuples of these columns, in SI units. Numbers that are empty
    are None; columns that an older file lacks are empty.

    Raises RecordsError for a file that is not a results.csv, and for a damaged line.
    """
    if why := why_unreadable(path, _LARGEST_BYTES):
        raise _unreadable(path, why)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = _read_names(path, file)
            blocks = _read_blocks(path, file, names, tuple(columns))
            return PackedRows(tuple(columns), blocks)
    except UnicodeDecodeError:
        raise RecordsError(f"{path} is not text", "give a run folder or its results.csv") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or error) from None


def _read_names(path: Path, file: TextIO) -> list[str]:
    """The names in the first line. RecordsError where a name is missing or is there twice."""
    try:
        names = next(csv.reader([file.readline(_LONGEST_HEAD)]), [])
    except csv.Error as error:
        raise _unreadable(path, error) from None
    names = [OLD_NAMES.get(name, name) for name in names]
    if missing := [name for name in NEEDED if name not in names]:
        raise RecordsError(
            f"{path} is not a results.csv: it has no column {', '.join(missing)}",
            "give a run folder, its run.jsonl or its results.csv",
        )
    if len(set(names)) < len(names):
        raise RecordsError(f"{path} has two columns of one name", "remove one of them")
    return names


def _read_blocks(
    path: Path, file: TextIO, names: Sequence[str], columns: tuple[str, ...]
) -> Iterator[list[Sequence[Any]]]:
    """The columns of each block of lines after the first. Many lines are parsed together, column by
    column, because that is fast. If that fails, each line is parsed alone to find the damaged one.
    """
    lines, seen = csv.reader(file, strict=True), set[int]()
    try:
        while numbered := [(lines.line_num + 1, line) for line in islice(lines, BLOCK)]:
            try:
                yield _parse_lines(names, columns, [line for _, line in numbered], seen)
            except ValueError:
                for number, line in numbered:
                    _parse_line(path, number, names, line, seen)
                raise
    except csv.Error as error:
        raise _damaged(path, lines.line_num + 1, error) from None


def _parse_line(
    path: Path, number: int, names: Sequence[str], line: Sequence[str], seen: set[int]
) -> None:
    try:
        _parse_lines(names, tuple(COLUMNS), [line], seen)
    except ValueError as error:
        raise _damaged(path, number, error) from None


def _parse_lines(
    names: Sequence[str],
    columns: tuple[str, ...],
    lines: Sequence[Sequence[str]],
    seen: set[int],
) -> list[Sequence[Any]]:
    """The columns of these lines. Raises ValueError where a value cannot come from a run. `seen`
    are the hashes of the cases of the lines before; those of these are added."""
    for number in {len(line) for line in lines} - {len(names)}:
        raise ValueError(f"it has {number} fields, the first line {len(names)}")
    texts = dict(zip(names, zip(*lines, strict=True), strict=True))
    checked = dict.fromkeys((*columns, *NEEDED, *RELATED))
    for name in checked.keys() - texts.keys():
        default = DEFAULTS.get(name)
        texts[name] = ("" if default is None else str(default),) * len(lines)
    values = {name: _parse_column(name, texts[name]) for name in checked}
    require_agreement(values)
    keys = zip(*(values[name] for name in ("label", *KEY)), strict=True)
    hashes = [*map(hash, keys)]
    if len({*hashes}) < len(lines) or not seen.isdisjoint(hashes):
        raise ValueError("an earlier line has the same case")
    seen.update(hashes)
    return [values[name] for name in columns]


def _parse_column(name: str, texts: Sequence[str]) -> Sequence[Any]:
    """The values of a column. Raises ValueError where a value cannot come from a run."""
    if name in _FILLED and not all(texts):
        raise ValueError(f"{name} is empty")
    if name in TEXTS:
        if max(map(len, texts)) > LONGEST_TEXT:
            raise ValueError(f"{name} is longer than {LONGEST_TEXT} characters")
        return [*map(intern, texts)]
    try:
        return _parse_numbers(texts, COLUMNS[name])
    except ValueError:
        raise ValueError(f"{name} is {brief(texts[0])}") from None


def _parse_numbers(texts: Sequence[str], column: Column) -> Sequence[float | None]:
    """Finite numbers, not below zero where the column has no sign; None for an empty text."""
    # float() also accepts nan, inf, 1_0 and digits of other scripts.
    if "".join(texts).encode().translate(None, delete=_NUMBER_CHARACTERS):
        raise ValueError
    values = [float(text) if text else None for text in texts]
    known = [value for value in values if value is not None]
    least = -LARGEST_INTEGER if column.is_signed else 0
    if known and not least <= min(known) <= max(known) <= LARGEST_INTEGER:
        raise ValueError
    if column.kind != INTEGER:
        unit = column.unit
        return values if unit == 1 else [None if v is None else v * unit for v in values]
    if not all(map(float.is_integer, known)):
        raise ValueError
    return [None if value is None else int(value) for value in values]


def _damaged(path: Path, line: int, why: object) -> RecordsError:
    return RecordsError(
        f"{path}, line {line}, is damaged: {why}",
        "repair or remove the line; `commbench export` writes the file again from run.jsonl",
    )


def _unreadable(path: Path, why: object) -> RecordsError:
    return RecordsError(f"cannot read {path}: {why}", "give a run folder or its results.csv")


def make_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines of CSV; None is an empty field."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_run_folder(folder: Path, run: Run) -> None:
    """Write the journal and results.csv of a complete run into a folder that exists."""
    write_run(folder, run)
    ResultsCsv(folder).add(*make_rows(run))


class ResultsCsv:
    """The results.csv of a run folder. Who reads it during a run finds complete lines."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS_CSV
        self._lines: dict[int, str] = {}

    def add(self, *rows: ResultRow) -> None:
        """Add rows, or replace those of the same cases, and write the file again."""
        for row in rows:
            line = make_csv([written_values(row_values(row))])
            self._lines[row.measurement.case.index] = line
        self.write()

    def write(self) -> None:
        """Write the rows so far, in the order of the plan, and replace the file."""
        head = ",".join(COLUMNS) + "\n"
        text = head + "".join(self._lines[index] for index in sorted(self._lines))
        new = self._path.with_suffix(".csv.new")
        try:
            new.write_text(text, encoding="utf-8", errors="replace")
            os.replace(new, self._path)  # noqa: PTH105 - atomic, and says so
        except OSError as error:
            with suppress(OSError):
                new.unlink()  # it is incomplete
            hint = "the folder was removed or moved during the run"
            if self._path.parent.exists():
                hint = "every finished case is in run.jsonl of the same folder"
            raise RecordsError(f"cannot write {self._path}: {error.strerror}", hint) from None

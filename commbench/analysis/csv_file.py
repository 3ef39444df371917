"""Writes and reads results.csv. A damaged line, or one whose values contradict each other, is
refused with its number.

pandas reads a million rows in a third of the time. But its import takes as long as reading 30,000
rows, and a run has hundreds.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from math import isclose, nan
from pathlib import Path
from sys import intern
from typing import Any, TextIO

from commbench.analysis.columns import (
    COLUMNS,
    DEFAULTS,
    INTEGER,
    INTEGERS,
    KEY,
    NEEDED,
    TEXTS,
    Column,
    row_type,
    row_values,
    written_values,
)
from commbench.analysis.rows import ResultRow, make_rows
from commbench.errors import RecordsError
from commbench.plan import dimensions, dtypes, operations
from commbench.results import files, journal, run_folder, schema
from commbench.units import GB
from commbench.validation import LARGEST_INTEGER, LONGEST_TEXT, brief

OLD_NAMES = {"visits": "batches"}
"""Column names of older files, and their names now."""
_NUMBER_CHARACTERS = b"0123456789.+-eE "
_FILLED = ("operation", "size_bytes", "status")
"""Columns that are never empty."""
_LONGEST_HEAD = 1 << 16
_HINT = "give a run folder or its results.csv"
_LARGEST_BYTES = 1 << 31
_BETWEEN = (
    *((n.replace("_ci_low", ""), n, n.replace("_low", "_high")) for n in COLUMNS if "_ci_low" in n),
    ("time_us", "time_min_us", "time_max_us"),
    ("time_mean_us", "time_min_us", "time_max_us"),
    ("time_p99_us", "time_p95_us", "time_max_us"),
    ("batches", "launches", "iterations"),
    ("world_size", "group_size", "world_size"),
)
"""Columns of figures, each with the columns of the least and the most that it can be."""
RELATED = tuple(
    {*KEY, *chain(*_BETWEEN), "label", "status", "wrong", "count", "algbw_GBps", "busbw_GBps"}
)
"""Columns that are checked with others."""
ROUNDING = 2e-6
"""The largest relative error of the product of two numbers of seven digits."""
BLOCK = 128
"""Rows that are packed together. More take longer to parse: their fields do not fit into the
processor's caches."""
BLOCKS_KEPT = 64
"""Blocks that stay unpacked: rows of so many kinds of cases in turn, of each in the order of its
sizes, are unpacked once."""


class PackedRows(Sequence[Any]):
    """Rows without a Python object for each number, which are made when they are asked for: a named
    tuple of the columns for each.

    Of each block of rows, a column with one value is that value, and a column of numbers an array,
    with NaN for None. They are equal to any sequence of the same rows.
    """

    def __init__(self, columns: tuple[str, ...], blocks: Iterable[Sequence[Sequence[Any]]]) -> None:
        """Each of the blocks has BLOCK rows, but for the last."""
        self._make = row_type(columns)._make
        self._columns = columns
        self._blocks: list[tuple[Any, ...]] = []
        self._length = 0
        self._kept = lru_cache(BLOCKS_KEPT)(lambda block: [*self._unpacked(block)])
        for block in blocks:
            self._length += len(block[0])
            self._blocks.append(tuple(map(_pack, columns, block)))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        block, at = divmod(range(self._length)[index], BLOCK)
        return self._kept(block)[at]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(self._unpacked, range(len(self._blocks))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def _unpacked(self, block: int) -> Iterator[Any]:
        """The rows of a block."""
        length = min(BLOCK, self._length - block * BLOCK)
        packed = zip(self._columns, self._blocks[block], strict=True)
        values = (_unpack(name, values, length) for name, values in packed)
        return map(self._make, zip(*values, strict=True))


class PackedRow:
    """A row of PackedRows that is unpacked whenever a field of it is asked for."""

    __slots__ = ("_index", "_rows")

    def __init__(self, rows: PackedRows, index: int) -> None:
        self._rows, self._index = rows, index

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._rows[self._index], name)


def row_at(rows: Sequence[Any], index: int) -> Any:
    """One of the rows, which takes little memory if they are packed."""
    return PackedRow(rows, index) if isinstance(rows, PackedRows) else rows[index]


def _pack(name: str, values: Sequence[Any]) -> Any:
    if len({*values}) == 1:
        return values[0]
    if name in TEXTS:
        return tuple(values)
    return array("d", [nan if value is None else value for value in values])


def _unpack(name: str, packed: Any, length: int) -> Sequence[Any]:
    """The values of a packed column."""
    if not isinstance(packed, array):
        return packed if isinstance(packed, tuple) else [packed] * length
    make = int if name in INTEGERS else float
    return [make(n) if n == n else None for n in packed]


def read_results(path: Path, columns: Collection[str] = COLUMNS) -> PackedRows:
    """The rows of a results.csv: named tuples of these columns, in SI units. Numbers that are empty
    are None; columns that an older file lacks are empty.

    Raises RecordsError for a file that is not a results.csv, and for a damaged line.
    """
    try:
        with files.reading(path, _HINT, _LARGEST_BYTES) as raw:
            file = io.TextIOWrapper(raw, "utf-8-sig", newline="")
            blocks = _read_blocks(path, file, _read_names(path, file), tuple(columns))
            return PackedRows(tuple(columns), blocks)
    except UnicodeDecodeError:
        raise RecordsError(f"{path} is not text", _HINT) from None


def _read_names(path: Path, file: TextIO) -> list[str]:
    """The names in the first line. RecordsError where a name is missing or is there twice."""
    try:
        names = next(csv.reader([file.readline(_LONGEST_HEAD)]), [])
    except csv.Error as error:
        raise files.unreadable_error(path, str(error), _HINT) from None
    names = [OLD_NAMES.get(name, name) for name in names]
    if missing := [name for name in NEEDED if name not in names]:
        why = f"{path} is not a results.csv: it has no column {', '.join(missing)}"
        raise RecordsError(why, "give a run folder, its run.jsonl or its results.csv")
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
                    try:
                        _parse_lines(names, tuple(COLUMNS), [line], seen)
                    except ValueError as error:
                        raise _damaged(path, number, error) from None
                raise
    except csv.Error as error:
        raise _damaged(path, lines.line_num + 1, error) from None


def _parse_lines(
    names: Sequence[str], columns: tuple[str, ...], lines: Sequence[Sequence[str]], seen: set[int]
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
    hashes = [*map(hash, zip(*(values[name] for name in ("label", *KEY)), strict=True))]
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


def require_agreement(values: Mapping[str, Sequence[Any]]) -> None:
    """Raise ValueError where values of a row are unknown, or contradict each other. `values` has
    the columns of RELATED in SI units, with None for a number that is not known."""
    for name in KEY:
        for value in {*values[name]}:
            dimensions.require_known(name, value)
    for name, least, most in _BETWEEN:
        for low, value, high in zip(values[least], values[name], values[most], strict=True):
            if value is None:
                continue
            if not (value if low is None else low) <= value <= (value if high is None else high):
                written = COLUMNS[name].as_written(value)
                raise ValueError(f"{name} {written:g} is not between {least} and {most}")
    for row in map(row_type(RELATED), *(values[name] for name in RELATED)):
        if why := schema.contradiction(row.status, row.wrong) or _wrong_factor(row):
            raise ValueError(why)


def _wrong_factor(row: Any) -> str:
    """Why size, count, time and bandwidths of a row are not those of its operation and ranks; empty
    where they are."""
    entry, size = operations.OPERATIONS[row.operation], row.size_bytes
    algbw, busbw = row.algbw_bytes_per_s, row.busbw_bytes_per_s
    for name, has in (("reduce_op", entry.reduces), ("root", entry.rooted)):
        if not has and getattr(row, name) not in ("", None):
            return f"{row.operation} has no {name}"
    world, ranks = row.world_size, row.group_size or row.world_size
    if ranks and world and not row.group and ranks != world:
        return f"group_size {ranks} is not world_size {world}, without a group"
    blocks = ranks if entry.blocks else 1
    each = (row.count or 0) * dtypes.DTYPES[row.dtype].size_bytes if row.dtype else 0
    if each and blocks and size != each * blocks:
        return f"size_bytes {size} is not that of {row.count} {row.dtype} times {blocks}"
    if algbw and row.time_s and not isclose(algbw * row.time_s, size, rel_tol=ROUNDING):
        return f"algbw_GBps {algbw / GB:g} is not size_bytes over time_us"
    has_own = entry.block_counts or row.call  # an own call may have a factor of its own
    if algbw and busbw is not None and ranks and entry.busbw_factor and not has_own:
        factor = entry.busbw_factor(ranks)
        if not isclose(busbw, algbw * factor, rel_tol=ROUNDING):
            return f"busbw_GBps {busbw / GB:g} is not algbw_GBps times {factor:g}"
    return ""


def _damaged(path: Path, line: int, why: object) -> RecordsError:
    return RecordsError(
        f"{path}, line {line}, is damaged: {why}",
        "repair or remove the line; `commbench export` writes the file again from run.jsonl",
    )


def make_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines of CSV; None is an empty field. NULs, which csv refuses before Python 3.11, are
    left out."""
    text = io.StringIO()
    cells = ([c.replace("\0", "") if isinstance(c, str) else c for c in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def write_run_folder(folder: Path, run: schema.Run) -> None:
    """Write the journal and results.csv of a complete run into a folder that exists."""
    journal.write_run(folder, run)
    ResultsCsv(folder).add(*make_rows(run))


class ResultsCsv:
    """The results.csv of a run folder. Who reads it during a run finds complete lines."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / run_folder.RESULTS_CSV
        self._lines: dict[int, str] = {}

    def add(self, *rows: ResultRow) -> None:
        """Add rows, or replace those of the same cases, and write the file again with all rows so
        far, in the order of the plan."""
        for row in rows:
            self._lines[row.case.index] = make_csv([written_values(row_values(row))])
        head = ",".join(COLUMNS) + "\n"
        text = head + "".join(self._lines[index] for index in sorted(self._lines))
        try:
            files.replace_file(self._path, text)
        except OSError as error:
            hint = "the folder was removed or moved during the run"
            if self._path.parent.exists():
                hint = "every finished case is in run.jsonl of the same folder"
            raise RecordsError(f"cannot write {self._path}: {error.strerror}", hint) from None

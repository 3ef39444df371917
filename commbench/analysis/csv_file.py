"""results.csv as a frame; a damaged file is refused with the line that is.

Reading is pandas' own, at its full speed. Only a file that cannot be right is read again, line by
line, to say where.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.analysis.columns import COLUMNS, INTEGERS, NEEDED, TEXTS, TIMES, coerce, columns_of
from commbench.analysis.rows import ResultRow
from commbench.errors import RecordsError
from commbench.results.files import why_unreadable
from commbench.validation import LONGEST_TEXT, brief

if TYPE_CHECKING:
    from pandas import DataFrame

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
_FILLED = ("operation", "size_bytes", "status")
"""Columns that are never empty; `status` comes after all times, so that a short line shows."""
_LARGEST = 1 << 53
"""Whole numbers up to this are exact as floats."""
_BLOCK_BYTES = 1 << 20
_LONGEST_HEAD = 1 << 16
_LARGEST_BYTES = 1 << 31


def read_results(path: Path, columns: Collection[str] = COLUMNS) -> DataFrame:
    """These columns of a results.csv; those that an older file lacks are empty.

    Raises RecordsError for what is no such file, with the line where one is damaged.
    """
    import pandas

    names = _names(path)
    present = [name for name in dict.fromkeys((*columns, *NEEDED)) if name in names]
    numbers = [name for name in present if name not in TEXTS]
    try:
        frame = pandas.read_csv(
            path,
            usecols=present,
            dtype={name: "category" if name in TEXTS else "float64" for name in present},
            keep_default_na=False,
            na_values={name: [""] for name in numbers},
            skip_blank_lines=False,
            compression=None,
        )
    except UnicodeDecodeError:
        raise _not_text(path) from None
    except (ValueError, OverflowError) as error:  # a ParserError is a ValueError
        raise _located(path, str(error)) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if not (_sound(frame) and _plain(path, len(names))):
        _refuse_damaged(path)
    return coerce(frame, columns)


def _names(path: Path) -> list[str]:
    """The names in the first line, once each."""
    if why := why_unreadable(path, _LARGEST_BYTES):
        raise _unreadable(path, why)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader([file.readline(_LONGEST_HEAD)]), [])
    except UnicodeDecodeError:
        raise _not_text(path) from None
    except (OSError, csv.Error) as error:
        raise _unreadable(path, error) from None
    if missing := [name for name in NEEDED if name not in names]:
        raise RecordsError(
            f"{path} is no results.csv: it has no column {', '.join(missing)}",
            "give a run folder, its run.jsonl or its results.csv",
        )
    if len(set(names)) < len(names):
        raise RecordsError(f"{path} has two columns of one name", "remove one of them")
    return names


def _sound(frame: DataFrame) -> bool:
    """Whether every row can be what a run has written."""
    import numpy as np

    filled = (frame[name] for name in _FILLED)
    if any((values.isna() | (values == "")).any() for values in filled):
        return False
    texts = (text for name in frame if name in TEXTS for text in frame[name].cat.categories)
    if any(len(str(text)) > LONGEST_TEXT for text in texts):
        return False
    for name in (name for name in frame if name not in TEXTS):
        numbers = frame[name].to_numpy()
        if (numbers < 0).any() or (numbers > _LARGEST).any():
            return False
        if name in INTEGERS and (numbers != np.floor(numbers))[~np.isnan(numbers)].any():
            return False
    time, low, high = (frame[name].to_numpy() for name in TIMES)
    return not ((low > time) | (time > high)).any()


def _plain(path: Path, columns: int) -> bool:
    """Whether there are as many commas as so many columns make, and nothing that says NaN: pandas
    lets too many of the former pass, and takes the latter for an empty field."""
    commas = lines = 0
    last = b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            commas, lines = commas + block.count(b","), lines + block.count(b"\n")
            if b"nan" in (last + block).lower():
                return False
            last = block[-2:]
    return commas == (lines + (last[-1:] != b"\n")) * (columns - 1)


def _located(path: Path, why: str) -> RecordsError:
    """The error for a file that pandas refused: with the line, where reading line by line finds
    it."""
    try:
        _refuse_damaged(path)
    except RecordsError as error:
        return error
    first = (why.strip() or "damaged").splitlines()[0]
    return RecordsError(f"{path} cannot be read: {first}", "write it again from run.jsonl")


def _refuse_damaged(path: Path) -> None:
    """Read line by line, and raise RecordsError for the first line that cannot be right."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            names = next(lines)
            for values in lines:
                if fault := _fault(names, values):
                    raise _damaged(path, lines.line_num, fault)
    except UnicodeDecodeError:
        raise _not_text(path) from None
    except csv.Error as error:
        raise _damaged(path, lines.line_num, error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _fault(names: Sequence[str], values: Sequence[str]) -> str:
    """What is wrong with one line; empty for nothing."""
    if len(values) != len(names):
        return f"it has {len(values)} fields, the first line {len(names)}"
    row = dict(zip(names, values, strict=True))
    for name in _FILLED:
        if not row[name]:
            return f"{name} is empty"
    for name in (name for name in TEXTS if len(row.get(name, "")) > LONGEST_TEXT):
        return f"{name} is longer than {LONGEST_TEXT} characters"
    known = {name: row[name] for name in COLUMNS if name in row and name not in TEXTS}
    for name, text in known.items():
        if text and not (_is_amount(text) and (name not in INTEGERS or _is_whole(text))):
            return f"{name} is {brief(text)}"
    time, low, high = (float(row[name]) if row[name] else None for name in TIMES)
    if time is not None and not (low or 0) <= time <= (time if high is None else high):
        return f"time_us {row['time_us']:.40} lies outside its interval"
    return ""


def _is_amount(text: str) -> bool:
    """Whether this is a number of something: finite, and not below zero."""
    return bool(_NUMBER.fullmatch(text.strip(" "))) and 0 <= float(text) <= _LARGEST


def _is_whole(text: str) -> bool:
    return float(text).is_integer()


def _damaged(path: Path, line: int, why: object) -> RecordsError:
    return RecordsError(
        f"{path}, line {line}, is damaged: {why}",
        "mend or remove the line; `commbench export` writes the file anew from run.jsonl",
    )


def _not_text(path: Path) -> RecordsError:
    return RecordsError(f"{path} is not text", "give a run folder or its results.csv")


def _unreadable(path: Path, error: object) -> RecordsError:
    why = getattr(error, "strerror", None) or error
    return RecordsError(f"cannot read {path}: {why}", "give a run folder or its results.csv")


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

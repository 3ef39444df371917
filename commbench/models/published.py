"""Reads tables of published figures: CSV with a line for each measured call.

    operation,world_size,ranks_per_node,size_bytes,busbw_GBps
    all_reduce,32,8,1048576,16

The time is `time_us`, or follows from `busbw_GBps` (1e9 bytes/s). Its 95 % interval may be given as
`time_low_us` and `time_high_us`. Lines that begin with # are comments, and other columns are
ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from commbench.errors import CommbenchError, RecordsError
from commbench.models.machine import Point
from commbench.models.observations import Observation, uncertainty
from commbench.results.files import is_file, why_unreadable
from commbench.spec.operations import find_operation
from commbench.units import GB, LARGEST_SIZE, MICRO
from commbench.validation import brief

NEEDED = ("operation", "world_size", "ranks_per_node", "size_bytes")
FIGURES = ("time_us", "busbw_GBps")
INTERVAL = ("time_low_us", "time_high_us")
PREDICTED = {"model", "doublings_of_ranks"}
"""Columns that only a table of predictions has."""
_LARGEST_BYTES = 1 << 26
_MOST_RANKS = 1 << 24
_HINT = f"its first line names the columns {', '.join(NEEDED)} and {' or '.join(FIGURES)}"
_HEAD_BYTES = 1 << 16
ROUNDED = 1.001
"""A time may lie outside its interval by this factor: both are rounded."""


def is_published(path: Path) -> bool:
    """Whether a file looks like such a table, and not like the results.csv of a run."""
    names = _read_names(path)
    is_of_run = {"status", "dtype"} <= set(names)
    return not is_of_run and len(names) > 2 and len({*NEEDED, *FIGURES} & set(names)) > 1


def is_predicted(path: Path) -> bool:
    """Whether a table has predictions of `commbench model predict`."""
    return set(_read_names(path)) >= PREDICTED


def _read_names(path: Path) -> list[str]:
    """The names of the columns of a file; none where it cannot be read."""
    if not is_file(path) or why_unreadable(path):
        return []
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            lines = file.read(_HEAD_BYTES).splitlines()
    except OSError:
        return []
    return _split(next((line for line in lines if line.strip() and line[0] != "#"), ""))


def read_published(path: Path) -> list[Observation]:
    """The figures in a table. RecordsError names the column that is missing, or the line that is
    wrong."""
    if why := why_unreadable(path, _LARGEST_BYTES):
        raise RecordsError(f"cannot read {path}: {why}", _HINT)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}", _HINT) from None
    except UnicodeDecodeError:
        raise RecordsError(f"{path} is not text", _HINT) from None
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines:
        raise RecordsError(f"{path} is empty", _HINT)
    names = _split(lines[0][1])
    if missing := [name for name in NEEDED if name not in names]:
        raise RecordsError(f"{path} has no column {', '.join(missing)}", _HINT)
    if not any(name in names for name in FIGURES):
        raise RecordsError(f"{path} has no column {' or '.join(FIGURES)}", _HINT)
    if len(set(names)) < len(names):
        raise RecordsError(f"{path} has two columns of one name", "remove one of them")
    found = list(_read_lines(path, names, lines[1:]))
    if not found:
        raise RecordsError(f"{path} has no figures", "give at least one line below the first")
    return found


def _split(line: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([line]), [])]


def _read_lines(
    path: Path, names: list[str], lines: list[tuple[int, str]]
) -> Iterator[Observation]:
    for number, line in lines:
        fields = _split(line)
        try:
            if len(fields) != len(names):
                raise ValueError(f"it has {len(fields)} fields, the first line {len(names)}")
            yield _read_row(dict(zip(names, fields, strict=True)))
        except ValueError as error:
            raise RecordsError(f"{path}, line {number}: {error}", "correct the line") from None
        except CommbenchError as error:
            raise RecordsError(f"{path}, line {number}: {error.message}", error.hint) from None


def _read_row(row: dict[str, str]) -> Observation:
    operation = find_operation(row["operation"])
    ranks = _integer(row, "world_size", 2, _MOST_RANKS)
    per_node = _integer(row, "ranks_per_node", 1, _MOST_RANKS)
    size = _integer(row, "size_bytes", int(operation.has_data), LARGEST_SIZE)
    if row.get("time_us"):
        time_s = _number(row, "time_us") * MICRO
    elif row.get("busbw_GBps") and operation.busbw_factor:
        time_s = size * operation.busbw_factor(ranks) / (_number(row, "busbw_GBps") * GB)
    else:
        raise ValueError(f"{operation.name} has no time")
    return Observation(
        operation.name,
        Point(ranks, per_node, size, time_s, uncertainty=_uncertainty(row, time_s / MICRO)),
    )


def _uncertainty(row: dict[str, str], time_us: float) -> float:
    if not all(row.get(name) for name in INTERVAL):
        return 0.0
    low, high = (_number(row, name) for name in INTERVAL)
    if not low / ROUNDED <= time_us <= high * ROUNDED:
        raise ValueError(f"the time {time_us:g} us is not in its interval {low:g} to {high:g} us")
    return uncertainty(time_us, low, high)


def _integer(row: dict[str, str], name: str, least: int, most: int) -> int:
    text = row[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise ValueError(f"{name} is {brief(text)}, not a whole number from {least} to {most}")
    return int(text)


def _number(row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = 0.0
    if not (isfinite(value) and 1e-9 <= value <= 1e13):
        raise ValueError(f"{name} is {brief(row[name])}, not a number above 0")
    return value

"""Cells of other tools' tables: numbers as printed, bandwidths that follow from times, columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isinf

from commbench.units import GB, LARGEST_SIZE

MICROSECONDS, MILLISECONDS, GIGABYTES = -6, -3, 9
"""Powers of ten of a second, and that of commbench.units.GB."""
LONGEST_S = 1e7

_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_MISSING = re.compile(r"-|n/a|[+-]?nan(?:\([a-z0-9]{0,20}\))?|[+-]?inf(?:inity)?", re.IGNORECASE)


def is_whole(cell: str) -> bool:
    """Whether a cell is a whole number."""
    return _WHOLE.fullmatch(cell) is not None


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    return _NUMBER.fullmatch(cell) is not None


def are_numbers(row: Sequence[str]) -> bool:
    """Whether a line has several words, all of them numbers."""
    return len(row) > 1 and all(map(is_number, row))


def parse_whole(cell: str) -> int:
    """The whole number in a cell; ValueError for anything else."""
    if not is_whole(cell):
        raise ValueError(f"{cell!r:.40} is no whole number")
    return int(cell)


def parse_size(cell: str) -> int:
    """The bytes in a cell; ValueError beyond the largest size that commbench accepts."""
    if parse_whole(cell) > LARGEST_SIZE:
        raise ValueError(f"size {cell} is out of range")
    return int(cell)


def parse_number(cell: str, exponent: int = 0) -> float | None:
    """The number in a cell times ten to the power of `exponent`, exactly as printed.

    None for `N/A`, `nan`, `inf`; ValueError for anything else.
    """
    if _MISSING.fullmatch(cell):
        return None
    if not is_number(cell):
        raise ValueError(f"{cell!r:.40} is no number")
    mantissa, _, power = cell.lower().partition("e")
    value = float(f"{mantissa}e{int(power or 0) + exponent}")
    if isinf(value):
        raise ValueError(f"{cell} is out of range")
    return value


def parse_seconds(cell: str, exponent: int = MICROSECONDS) -> float | None:
    """The seconds of a time in a cell, which by default is in microseconds.

    None where there is none, and for 0, since nothing takes no time.
    """
    value = parse_number(cell, exponent)
    if value is not None and value > LONGEST_S:
        raise ValueError(f"time {cell} is out of range")
    return value or None


def parse_range(cell: str) -> tuple[float, float]:
    """The lowest and highest number printed as `cell`: half a unit of its last digit from it."""
    mantissa, _, exponent = cell.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    half = 0.5 * 10.0 ** (int(exponent or 0) - decimals)
    return float(cell) - half, float(cell) + half


def is_consistent(moved_bytes: float, exponent: int, time_cell: str, bandwidth_cell: str) -> bool:
    """Whether `bandwidth_cell` (GB/s) can be `moved_bytes` over `time_cell`, both rounded to their
    last printed digit. The unit of time is ten to the power of `exponent` seconds."""
    shortest, longest = (edge * 10.0**exponent for edge in parse_range(time_cell))
    low, high = parse_range(bandwidth_cell)
    slack = 1e-9 * (1 + high)
    if moved_bytes / longest / GB > high + slack:
        return False
    return shortest <= 0 or moved_bytes / shortest / GB >= low - slack


def is_multiple(algbw_cell: str, factor: float, busbw_cell: str) -> bool:
    """Whether `busbw_cell` can be the factor times `algbw_cell`, both rounded."""
    (least, most), (low, high) = parse_range(algbw_cell), parse_range(busbw_cell)
    slack = 1e-9 * (1 + high)
    return least * factor <= high + slack and most * factor >= low - slack


def parse_columns(header: str, known: Sequence[tuple[str, str]]) -> list[str]:
    """The names of a header's columns, in order.

    `known` pairs regular expressions of column headings with names. Raises ValueError for text that
    none of them matches.
    """
    names: list[str] = []
    rest = header.strip()
    while rest:
        for pattern, name in known:
            match = re.match(rf"{pattern}(?=\s|$)", rest)
            if match:
                names.append(name)
                rest = rest[match.end() :].lstrip()
                break
        else:
            raise ValueError(f"the column {rest.split()[0]!r:.40} is unknown")
    return names


def name_cells(columns: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """The cells of a row by column; ValueError where they are not as many as the columns."""
    if len(row) != len(columns):
        raise ValueError(f"it has {len(row)} cells, and the header {len(columns)} columns")
    return dict(zip(columns, row, strict=True))

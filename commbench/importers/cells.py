"""Cells of other tools' tables: numbers as they were printed, and the names of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isinf

from commbench.units import LARGEST_SIZE

MICROSECONDS, MILLISECONDS, GIGABYTES = -6, -3, 9
"""Powers of ten of a second, and that of commbench.units.GB."""
LONGEST_S = 1e7

_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?")
_MISSING = re.compile(r"-|n/a|[+-]?nan(?:\([a-z0-9]{0,20}\))?|[+-]?inf(?:inity)?", re.IGNORECASE)


def is_whole(cell: str) -> bool:
    """Whether a cell is a whole number."""
    return _WHOLE.fullmatch(cell) is not None


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    return _NUMBER.fullmatch(cell) is not None


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

"""Cells of foreign tables: numbers as printed, columns as named by a header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isinf

from commbench.units import LARGEST_SIZE

MICROSECONDS = -6
"""Powers of ten of a second."""
MILLISECONDS = -3
GIGABYTES = 9
"""The power of ten of commbench.units.GB."""
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


def looks_lost(row: list[str]) -> bool:
    """Whether a line that is no row has so many numbers that it may have been one."""
    numbers = sum(is_number(cell) for cell in row)
    return len(row) > 1 and numbers * 2 >= len(row) and not row[0].startswith("#")


def whole(cell: str) -> int:
    """The whole number of a cell; ValueError for anything else."""
    if not is_whole(cell):
        raise ValueError(f"{cell!r:.40} is no whole number")
    return int(cell)


def size(cell: str) -> int:
    """The bytes of a cell; ValueError beyond what any machine holds."""
    if whole(cell) > LARGEST_SIZE:
        raise ValueError(f"size {cell} is out of range")
    return int(cell)


def number(cell: str, exponent: int = 0) -> float | None:
    """The number of a cell times ten to the power of `exponent`, exactly as printed.

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


def seconds(cell: str, exponent: int = MICROSECONDS) -> float | None:
    """The time of a cell, by default in microseconds.

    None where there is none, or 0 stands: nothing takes no time.
    """
    value = number(cell, exponent)
    if value is not None and value > LONGEST_S:
        raise ValueError(f"time {cell} is out of range")
    return value or None


def bandwidth(cell: str) -> float | None:
    """The bytes/s of a cell in GB/s."""
    return number(cell, GIGABYTES)


def columns(header: str, known: Sequence[tuple[str, str]]) -> list[str]:
    """The names of a header's columns, in order.

    `known` pairs regular expressions of what headers print with names; ValueError for text that
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

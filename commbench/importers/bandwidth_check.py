"""Whether a printed bandwidth follows from the printed time and the size."""

from __future__ import annotations

from typing import NamedTuple

from commbench.errors import UsageError
from commbench.importers.base import ImportedRow, join_numbers
from commbench.importers.cells import is_number
from commbench.spec.operations import OPERATIONS
from commbench.units import GB

_COARSEST = 0.02
"""A bandwidth whose last printed digit is a larger fraction of it is too coarse to check by."""


def recomputed_busbw(row: ImportedRow, ranks: int) -> float | None:
    """Bus bandwidth in bytes/s by commbench's convention (see commbench.spec.operations)."""
    factor = OPERATIONS[row.operation].busbw_factor
    return row.size_bytes / row.time_s * factor(ranks) if factor else None


def parse_range(cell: str) -> tuple[float, float]:
    """The lowest and the highest number that is printed as `cell`, half a unit of its last digit
    away from it."""
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


class _Checked(NamedTuple):
    line: int
    is_consistent: bool
    is_precise: bool
    """Whether it is printed finely enough to tell a wrong number of ranks."""


class BandwidthCheck:
    """Collects over a file whether printed bandwidths follow from time and size."""

    def __init__(self) -> None:
        self._checked: list[_Checked] = []

    def add(self, row: ImportedRow, ranks: int, exponent: int, time: str, busbw: str) -> None:
        """Check one row by its cells of time and bus bandwidth (GB/s)."""
        factor = OPERATIONS[row.operation].busbw_factor
        if factor is None or not (is_number(time) and is_number(busbw)):
            return
        low, high = parse_range(busbw)
        consistent = is_consistent(row.size_bytes * factor(ranks), exponent, time, busbw)
        self._checked.append(_Checked(row.line, consistent, high - low < _COARSEST * high))

    def make_note(self, path: str, hinted: str) -> str:
        """A note on rows whose bandwidth does not follow; empty where all do.

        `hinted` is the operation and the ranks where they are hints, not the file's own words:
        `all_reduce on 8 ranks`. Then a UsageError is raised where most rows do not follow.
        """
        wrong = [row.line for row in self._checked if not row.is_consistent]
        precise = [row for row in self._checked if row.is_precise]
        if hinted and sum(not row.is_consistent for row in precise) * 2 > len(precise):
            raise UsageError(
                f"{path} prints other bus bandwidths than {hinted} would have "
                f"({join_numbers('row', wrong)})",
                "check --op and --ranks",
            )
        if not wrong:
            return ""
        return (
            f"in {len(wrong)} rows the printed bus bandwidth does not follow from size and time "
            f"({join_numbers('row', wrong)})"
        )

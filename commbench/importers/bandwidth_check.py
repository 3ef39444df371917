"""Whether a printed bandwidth follows from the printed time and the size."""

from __future__ import annotations

from typing import NamedTuple

from commbench.errors import UsageError
from commbench.importers.base import ImportedRow
from commbench.importers.cells import is_number
from commbench.importers.collector import listed
from commbench.spec.operations import OPERATIONS
from commbench.units import GB

_TELLING = 0.02
"""A bandwidth printed more coarsely than this fraction of itself tells nothing."""


def recomputed_busbw(row: ImportedRow, ranks: int) -> float | None:
    """Bus bandwidth in bytes/s by commbench's convention (see commbench.spec.operations)."""
    factor = OPERATIONS[row.operation].busbw_factor
    return row.size_bytes / row.time_s * factor(ranks) if factor else None


def printed_range(cell: str) -> tuple[float, float]:
    """The lowest and the highest number that is printed as `cell`: half a unit of its last
    digit."""
    mantissa, _, exponent = cell.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    half = 0.5 * 10.0 ** (int(exponent or 0) - decimals)
    return float(cell) - half, float(cell) + half


def follows(moved_bytes: float, exponent: int, time_cell: str, bandwidth_cell: str) -> bool:
    """Whether `bandwidth_cell` (GB/s) can be `moved_bytes` over `time_cell`, both rounded to
    their last printed digit; the time's unit is ten to the power of
    `exponent` seconds."""
    shortest, longest = (edge * 10.0**exponent for edge in printed_range(time_cell))
    low, high = printed_range(bandwidth_cell)
    slack = 1e-9 * (1 + high)
    if moved_bytes / longest / GB > high + slack:
        return False
    return shortest <= 0 or moved_bytes / shortest / GB >= low - slack


class _Seen(NamedTuple):
    line: int
    agrees: bool
    telling: bool


class BandwidthCheck:
    """Collects over a file which printed bandwidths follow from time and size."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []

    def see(self, row: ImportedRow, ranks: int, exponent: int, time: str, busbw: str) -> None:
        """Look at one row and at its cells of time and bus bandwidth (GB/s)."""
        factor = OPERATIONS[row.operation].busbw_factor
        if factor is None or not (is_number(time) and is_number(busbw)):
            return
        low, high = printed_range(busbw)
        agrees = follows(row.size_bytes * factor(ranks), exponent, time, busbw)
        self._seen.append(_Seen(row.line, agrees, high - low < _TELLING * high))

    def verdict(self, path: str, asked: str) -> str:
        """A note on rows whose bandwidth does not follow; empty where all do.

        UsageError where most do not, and the file does not tell its operation or its ranks but
        `asked` was said: `all_reduce on 8 ranks`.
        """
        wrong = [seen.line for seen in self._seen if not seen.agrees]
        telling = [seen for seen in self._seen if seen.telling]
        if asked and sum(not seen.agrees for seen in telling) * 2 > len(telling):
            raise UsageError(
                f"{path} prints other bus bandwidths than {asked} would have "
                f"({listed('row', wrong)})",
                "check --op and --ranks",
            )
        if not wrong:
            return ""
        return (
            f"in {len(wrong)} rows the printed bus bandwidth does not follow from size and time "
            f"({listed('row', wrong)})"
        )

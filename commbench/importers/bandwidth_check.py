"""Whether printed bandwidths follow from the printed time and the size."""

from __future__ import annotations

from commbench.errors import UsageError
from commbench.importers.base import ImportedRow, RowCollector, join_numbers
from commbench.importers.cells import is_number
from commbench.spec.operations import OPERATIONS
from commbench.units import GB, format_count

_COARSEST = 0.02
"""A bandwidth whose last printed digit is a larger fraction of it is too coarse to check by."""


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


class BandwidthCheck:
    """Collects over a file whether printed bandwidths follow from time and size."""

    def __init__(self) -> None:
        self._wrong: list[int] = []  # lines of the rows whose bandwidth does not follow
        # Whether it follows, of rows printed finely enough to tell a wrong number of ranks.
        self._precise: list[bool] = []

    def add(
        self, row: ImportedRow, ranks: int, exponent: int, time: str, algbw: str, busbw: str
    ) -> None:
        """Check one row by its cells of time and bandwidths (GB/s)."""
        factor = OPERATIONS[row.operation].busbw_factor
        if factor is None or not all(map(is_number, (time, algbw, busbw))):
            return
        size, by = row.size_bytes, factor(ranks)
        low, high = parse_range(busbw)
        consistent = is_consistent(size * by, exponent, time, busbw)
        if high - low < _COARSEST * high:
            self._precise.append(consistent)
        consistent &= is_consistent(size, exponent, time, algbw)
        if not (consistent and is_multiple(algbw, by, busbw)):
            self._wrong.append(row.line)

    def add_note(self, collector: RowCollector, hinted: str) -> None:
        """Note the rows whose bandwidth does not follow.

        `hinted` is the operation and the ranks where they are hints, not the file's own words:
        `all_reduce on 8 ranks`. Then a UsageError is raised where most rows do not follow.
        """
        rows = join_numbers("row", self._wrong)
        if hinted and self._precise.count(False) * 2 > len(self._precise):
            raise UsageError(
                f"the bus bandwidths in {collector.source.path} are not those of {hinted} ({rows})",
                "check --op and --ranks",
            )
        if self._wrong:
            collector.note(
                f"in {format_count(len(self._wrong), 'row')} the printed bandwidth does not "
                f"follow from size and time ({rows})",
                is_fault=True,
            )

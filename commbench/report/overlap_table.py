"""The tables of overlaps: what a computation and a communication cost each other when they run at
once."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.overlap import Overlap
from commbench.analysis.rows import ResultRow
from commbench.output.paragraphs import fill
from commbench.output.table import BOLD, TableColumn, clean, fitting_table, style
from commbench.stats.estimate import Estimate
from commbench.units import format_bytes, format_known_time, format_share

SMALL = 0.5
"""Percent points: figures whose interval is narrower on either side have a decimal."""
MEANINGS = {
    "hidden": "The part of the shorter time, alone, that is saved when both run at once: "
    "(communication + computation - both) / min(communication, computation).",
    "slower by": "How much longer the computation, or the communication, takes than alone.",
    "gain": "The time of one after the other over that of both at once.",
    "IMB, OSU": "Overlap by the formulas of the source of IMB-NBC and of OSU's benchmarks.",
}
"""What the columns mean."""


def without_overlaps(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows without the parts of overlaps that overlap_text shows."""
    shown = {row.measurement.case.key("part") for row in rows if row.overlap}
    return [row for row in rows if row.measurement.case.key("part") not in shown]


def overlap_text(rows: Sequence[ResultRow]) -> str:
    """Two tables for each kind of overlap, each with a row per size: the four figures with their
    95 % intervals, and the times. Empty where nothing was measured at once."""
    texts = [
        "\n".join(
            [
                style(clean(title), BOLD),
                *fitting_table(FIGURES, found),
                *fitting_table(TIMES, found),
                fill(clean(_works_text(found)), "  ", "  "),
            ]
        )
        for title, found in overlap_kinds(rows).items()
    ]
    return "\n\n".join(texts)


def overlap_kinds(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    """The rows of both at once whose figures are known, by the title of their case without it."""
    kinds: dict[str, list[ResultRow]] = {}
    for row in rows:
        if row.overlap:
            kinds.setdefault(row.measurement.case.title_without("part"), []).append(row)
    return kinds


def _works_text(rows: Sequence[ResultRow]) -> str:
    """What the computations are: `12 to 96 x matmul 128x128x128 float32`."""
    works = [row.measurement.batches[-1].work.partition(" x ") for row in rows]
    units = [int(number) for number, _, _ in works if number.isdigit()]
    if not units:
        return ""
    least, most = min(units), max(units)
    number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"The computation is {number} x {works[0][2]}; intervals are of 95 %."


def _overlap(row: ResultRow) -> Overlap:
    assert row.overlap is not None
    return row.overlap


def _percent(estimate: Estimate | None) -> str:
    """A fraction in percent with its interval: `52 (48 … 55)`; empty where it is unknown."""
    if estimate is None:
        return ""
    value, low, high = estimate
    if low is None or high is None:
        return f"{100 * value:.0f}"
    decimals = int(0 < high - low < 2 * SMALL / 100)
    value, low, high = (round(100 * number, decimals) + 0.0 for number in (value, low, high))
    return f"{value:.{decimals}f} ({low:.{decimals}f} … {high:.{decimals}f})"


def _gain(row: ResultRow) -> str:
    value, low, high = _overlap(row).gain
    interval = "" if low is None or high is None else f" ({low:.2f} … {high:.2f})"
    return f"{value:.2f}{interval}"


def _size(row: ResultRow) -> str:
    return format_bytes(row.measurement.case.size_bytes)


def _time(estimate: Estimate | None) -> str:
    return format_known_time(*estimate)[0] if estimate else ""


def _alone(row: ResultRow, part: int) -> str:
    time = row.parts and row.parts[part].time
    return format_known_time(time.median, time.low, time.high)[0] if time else ""


def _both(row: ResultRow) -> str:
    return format_known_time(row.time.median, row.time.low, row.time.high)[0] if row.time else ""


FIGURES = (
    TableColumn("size", _size, 9),
    TableColumn("hidden\n%", lambda row: _percent(_overlap(row).hidden), 9),
    TableColumn(
        "computation\nslower by %", lambda row: _percent(_overlap(row).computation_slowdown), 8
    ),
    TableColumn(
        "communication\nslower by %", lambda row: _percent(_overlap(row).communication_slowdown), 8
    ),
    TableColumn("gain", _gain, 7),
)
"""The four figures of an overlap, each with its interval."""
TIMES = (
    TableColumn("size", _size, 9),
    TableColumn("communi-\ncation\nalone", lambda row: _alone(row, 0), 9),
    TableColumn("at once", lambda row: _time(_overlap(row).communication_s), 6),
    TableColumn("compu-\ntation\nalone", lambda row: _alone(row, 1), 9),
    TableColumn("at once", lambda row: _time(_overlap(row).computation_s), 6),
    TableColumn("both\nended", _both, 9),
    TableColumn("overlap\nof IMB", lambda row: format_share(_overlap(row).imb_hidden), 2),
    TableColumn("overlap\nof OSU", lambda row: format_share(_overlap(row).osu_hidden), 2),
)
"""The times from which they are computed, and the formulas of other tools."""


def overlap_tables(
    rows: Sequence[ResultRow],
) -> list[tuple[str, Sequence[TableColumn], list[ResultRow]]]:
    """The same tables for a document: of each its title, its columns, and the rows it is of."""
    return [
        (f"{title}: {name}", columns, found)
        for title, found in overlap_kinds(rows).items()
        for name, columns in (("at once", FIGURES), ("times", TIMES))
    ]


def meanings(rows: Sequence[ResultRow]) -> dict[str, str]:
    """What the columns of these tables mean; empty where there are none."""
    return MEANINGS if overlap_kinds(rows) else {}

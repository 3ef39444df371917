"""The tables of overlaps: what a computation and a communication cost each other when they run at
once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from commbench.analysis.rows import ResultRow
from commbench.report.run_table import time_of
from commbench.views.cells import (
    BYTES,
    RATIO_WITH_INTERVAL,
    SHARE,
    SHARE_WITH_INTERVAL,
    TIME,
    Column,
)
from commbench.views.document import Block, Table, Text

MEANINGS = {
    "hidden": "The part of the shorter time, alone, that is saved when both run at once: "
    "(communication + computation - both) / min(communication, computation).",
    "slower by": "How much longer the computation, or the communication, takes than alone.",
    "gain": "The time of one after the other over that of both at once.",
    "IMB, OSU": "Overlap by the formulas of the source of IMB-NBC and of OSU's benchmarks.",
}
"""What the columns mean."""


def _of(name: str) -> Callable[[ResultRow], Any]:
    return attrgetter(f"overlap.{name}")


def _alone(part: int) -> Callable[[ResultRow], Any]:
    return lambda row: time_of(row.parts[part]) if row.parts else None


SIZE = Column("size", attrgetter("measurement.case.size_bytes"), BYTES)
FIGURES = (
    SIZE,
    Column("hidden\n%", _of("hidden"), SHARE_WITH_INTERVAL),
    Column("computation\nslower by %", _of("computation_slowdown"), SHARE_WITH_INTERVAL, 8),
    Column("communication\nslower by %", _of("communication_slowdown"), SHARE_WITH_INTERVAL, 8),
    Column("gain", _of("gain"), RATIO_WITH_INTERVAL, 7),
)
"""The four figures of an overlap, each with its interval."""
TIMES = (
    SIZE,
    Column("communi-\ncation\nalone", _alone(0), TIME),
    Column("at once", _of("communication_s"), TIME, 6),
    Column("compu-\ntation\nalone", _alone(1), TIME),
    Column("at once ", _of("computation_s"), TIME, 6),
    Column("both\nended", time_of, TIME),
    Column("overlap\nof IMB", _of("imb_hidden"), SHARE, 2),
    Column("overlap\nof OSU", _of("osu_hidden"), SHARE, 2),
)
"""The times from which they are computed, and the formulas of other tools."""


def without_overlaps(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows without the parts of overlaps, which have tables of their own."""
    shown = {row.measurement.case.key("part") for row in rows if row.overlap}
    return [row for row in rows if row.measurement.case.key("part") not in shown]


def overlap_blocks(rows: Sequence[ResultRow]) -> Iterator[Block]:
    """Two tables with a row for each kind of overlap and size: the four figures with their 95 %
    intervals, and the times; then what the computations are. None where nothing was measured at
    once."""
    kinds: dict[str, list[ResultRow]] = {}
    for row in rows:
        if row.overlap:
            kinds.setdefault(row.measurement.case.title_without("part"), []).append(row)
    for title, found in kinds.items():
        yield Table(f"{title}: at once, with 95 % intervals", FIGURES, found)
        yield Table(f"{title}: times", TIMES, found)
        if work := _work(found):
            yield Text(f"The computation is {work}.")


def _work(rows: Sequence[ResultRow]) -> str:
    """What the computations are: `12 to 96 x matmul 128x128x128 float32`."""
    works = [row.measurement.batches[-1].work.partition(" x ") for row in rows]
    units = [int(number) for number, _, _ in works if number.isdigit()]
    if not units:
        return ""
    least, most = min(units), max(units)
    number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{number} x {works[0][2]}"

"""The rows of a run as tables: every row, a summary of each kind of call, and both timings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.curve import CurveSummary, summarise_curve
from commbench.analysis.pair_values import outside_matrix
from commbench.analysis.peak import find_peak_fraction
from commbench.analysis.row_names import short_titles
from commbench.analysis.rows import ResultRow, worst_alone
from commbench.output.paragraphs import list_some
from commbench.report.run_notes import expectation_lines
from commbench.report.shape_text import describe_shape
from commbench.results.schema import CUT_OFF, OK
from commbench.spec.timing_modes import BOTH, TIMING_MODES, expand_timing
from commbench.stats.estimate import Estimate, known, ratio
from commbench.units import format_about, format_bytes
from commbench.views.cells import (
    BANDWIDTH,
    BYTES,
    NUMBER,
    RATIO,
    RATIO_INTERVAL,
    SHARE,
    TEXT,
    TIME,
    TIME_INTERVAL,
    Column,
    bandwidth_text,
)
from commbench.views.document import BAD, Table

if TYPE_CHECKING:
    from commbench.spec.case import Case
    from commbench.spec.links import Peak

Kinds = dict[str, list[ResultRow]]
"""The rows that were timed, by the title of their case."""
MOST_ROWS = 60
"""After a run, more rows of several kinds are left out: there is a summary."""
LARGEST_LATENCY = 8 << 10
"""Bytes up to which the time of a call is called its latency; beyond, bandwidth is a part of it."""


def timed_kinds(rows: Sequence[ResultRow]) -> Kinds:
    """The rows that were timed, by the title of their case; of groups that were measured alone, the
    slowest of each dimension."""
    kinds: Kinds = {}
    for row in worst_alone(outside_matrix(rows)):
        if row.time:
            kinds.setdefault(row.measurement.case.title_without("group_ranks"), []).append(row)
    return kinds


def size_of(case: Case) -> int | None:
    """The size of a case in bytes; None for an operation without data."""
    return case.size_bytes if case.dtype else None


def time_of(row: ResultRow | None) -> Estimate | None:
    """The median time of a row; None where it was not timed."""
    return row.time.estimate if row and row.time else None


def _at_time(bandwidth: Callable[[float], float | None], row: ResultRow) -> Estimate | None:
    """A bandwidth of a row, with the interval that follows from that of its time."""
    if not row.time:
        return None
    ends = (None if end is None else bandwidth(end) for end in (row.time.high, row.time.low))
    return known(bandwidth(row.time.median), *ends)


def busbw_of(row: ResultRow | None) -> Estimate | None:
    """The bus bandwidth of a row; None where it has none."""
    return _at_time(row.busbw_at, row) if row else None


def _p5(row: ResultRow) -> Estimate | None:
    """The time of undisturbed calls, the 5th percentile."""
    return row.time and known(row.time.p5, row.time.p5_low, row.time.p5_high)


def _over(row: ResultRow) -> Estimate | None:
    """The time over that of the direct call of the same bytes."""
    return ratio(time_of(row), time_of(row.reference))


def _status(row: ResultRow) -> str:
    """A word on a row that is not as the others: `cut off`, `wrong`."""
    if row.measurement.status != OK:
        return row.measurement.status
    return CUT_OFF if row.stop_reason == CUT_OFF else ""


def _row_columns(peak: Peak | None, rows: Sequence[ResultRow]) -> tuple[Column, ...]:
    """The columns of rows; with a peak, one has the fraction of it that the bandwidth reached."""

    def share(row: ResultRow) -> float | None:
        found = find_peak_fraction(row, peak) if peak else None
        return found and found.fraction

    forms = sorted({row.reference.measurement.case.form for row in rows if row.reference})
    return (
        Column("size", lambda row: size_of(row.measurement.case), BYTES),
        Column("status", _status, TEXT),
        Column("count", lambda row: row.measurement.case.dtype and row.measurement.case.count,
               NUMBER, 1),
        Column("time", time_of, TIME),
        Column("95 % interval", time_of, TIME_INTERVAL, 8),
        Column("p5", _p5, TIME, 6),
        Column("NCCL", lambda row: " ".join(row.nccl_selection[:2]).strip(), TEXT, 5),
        Column("n", lambda row: row.time.iterations, NUMBER, 4),
        Column("algbw\nGB/s", lambda row: _at_time(row.algbw_at, row), BANDWIDTH, 3),
        Column("busbw\nGB/s", busbw_of, BANDWIDTH, 8),
        Column(f"over\n{'/'.join(forms)}", _over, RATIO, 7),
        Column("slowest\ngroup", attrgetter("worst_group"), TEXT, 8),
        Column("inter-\nference", lambda row: row.group_interference.get(row.worst_group),
               RATIO, 8),
        Column("largest\ninter-\nference", _largest_interference, RATIO, 7),
        Column("of\npeak", share, SHARE, 6),
        Column("messages\nper s", _messages, NUMBER, 2),
        Column("all pairs\nGB/s", attrgetter("aggregate_bandwidth"), BANDWIDTH, 3),
        Column("logical\nGB/s", attrgetter("logical_bandwidth"), BANDWIDTH, 2),
        Column("wire\nGB/s", attrgetter("wire_bandwidth"), BANDWIDTH, 3),
        Column("wrong", lambda row: row.measurement.wrong, NUMBER, 7),
    )  # fmt: skip


def _largest_interference(row: ResultRow) -> Estimate | None:
    """That of the group with the largest, where it is not the slowest one."""
    found = row.group_interference
    largest = max(found, key=lambda ranks: found[ranks].value, default="")
    return found[largest] if largest != row.worst_group and row.worst_group in found else None


def _messages(row: ResultRow) -> str:
    return f"{row.messages_per_s:,.0f}" if row.messages_per_s else ""


def rows_table(kinds: Kinds, peak: Peak | None, brief: Sequence[ResultRow] | None) -> Table:
    """The rows of all kinds, of which a terminal shows the brief ones."""
    rows = [row for own in kinds.values() for row in own]
    titles = {id(row): title for title, own in kinds.items() for row in own}
    columns = _row_columns(peak, rows)
    table = Table("", columns, rows, tone=_tone, brief=brief)
    if len(kinds) == 1:
        return table._replace(title=next(iter(kinds)))
    return table._replace(title="Every row", label=lambda row: titles[id(row)])


def _tone(row: ResultRow) -> str:
    return BAD if row.measurement.status != OK else ""


class Kind(NamedTuple):
    """A kind of call, and the figures of its rows."""

    title: str
    rows: Sequence[ResultRow]
    curve: CurveSummary

    @property
    def wrong(self) -> int | None:
        """Its wrong elements; None where results were not checked."""
        known = [row.measurement.wrong for row in self.rows if row.measurement.wrong is not None]
        return sum(known) if known else None

    @property
    def has_latency(self) -> bool:
        """Whether the smallest size is so small that its time is a latency."""
        small = self.curve.smallest
        return small is None or small.measurement.case.size_bytes <= LARGEST_LATENCY


def summarise_kinds(kinds: Kinds) -> list[Kind]:
    """The figures of each kind."""
    cases = {title: rows[0].measurement.case for title, rows in kinds.items()}
    titles = short_titles(cases, ("group_ranks",))
    return [Kind(titles[title], rows, summarise_curve(rows)) for title, rows in kinds.items()]


def _size(row: ResultRow | None) -> int | None:
    return size_of(row.measurement.case) if row else None


def _half(kind: Kind) -> str:
    """The half-bandwidth size, without its fraction."""
    if (half := kind.curve.half_bytes) is None:
        return ""
    return f"below {format_bytes(round(half))}" if kind.curve.is_below else format_about(half)


def summary_table(kinds: Sequence[Kind]) -> Table:
    """A row for each kind: latency, peak bus bandwidth, half-bandwidth size."""
    smallest = "latency" if all(kind.has_latency for kind in kinds) else "smallest size"
    columns = (
        Column(smallest, lambda kind: time_of(kind.curve.smallest), TIME),
        Column("peak busbw\nGB/s", lambda kind: busbw_of(kind.curve.peak), BANDWIDTH),
        Column("at size", lambda kind: _size(kind.curve.peak), BYTES),
        Column("half of\npeak at", _half, NUMBER),
        Column("wrong", attrgetter("wrong"), NUMBER, 7),
    )
    title = "Summary: one row for each kind of call"
    return Table(title, columns, kinds, attrgetter("title"))


SUMMARY_MEANINGS = {
    "latency, smallest size": "The time of the smallest size.",
    "peak busbw": "The highest bus bandwidth of all sizes, and its size.",
    "half of peak at": "The size that reaches half of the peak. If the peak is at the largest "
    "size, larger sizes may have a higher peak, and then this size is larger, too.",
}
"""What the figures of a summary mean."""


def highest_sentence(kinds: Sequence[Kind]) -> str:
    """The highest bus bandwidth of all kinds; empty where none has a bandwidth."""
    peaks = [(kind.curve.peak, kind.title) for kind in kinds if kind.curve.peak]
    if not peaks:
        return ""
    row, title = max(peaks, key=lambda found: found[0].busbw or 0.0)
    busbw, size = bandwidth_text(busbw_of(row)), format_bytes(_size(row) or 0)
    return f"The highest bus bandwidth is {busbw} GB/s: {title} at {size}."


def kind_notes(kinds: Sequence[Kind]) -> list[str]:
    """What the numbers of a kind mean where it is not one call of all ranks, and whether they are
    plausible; a sentence that is about several kinds once."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        case = kind.rows[-1].measurement.case
        for line in (*describe_shape(case), *expectation_lines(kind.rows)):
            found.setdefault(line, []).append(kind.title)
    lines = [
        line if len(titles) == len(kinds) else f"{list_some(titles, 4)}: {line}"
        for line, titles in found.items()
    ]
    if any(row.group_interference for kind in kinds for row in kind.rows):
        lines.append("Interference is that of the slowest group; --groups prints each group.")
    return lines


class TwoTimings(NamedTuple):
    """A case that was timed in both modes."""

    title: str
    """Its kind, without the mode."""
    case: Case
    alone: Estimate
    back_to_back: Estimate

    @property
    def ratio(self) -> Estimate | None:
        """The first over the second."""
        return ratio(self.alone, self.back_to_back)


def timings_table(rows: Sequence[ResultRow]) -> Table:
    """The cases that were timed in both modes."""
    modes = expand_timing(BOTH)
    times: dict[tuple[str, int], dict[str, ResultRow]] = {}
    for row in rows:
        if row.time:
            case = row.measurement.case
            found = times.setdefault((case.title_without("timing"), case.size_bytes), {})
            found[case.timing] = row
    twice = [
        TwoTimings(
            title, both[0].measurement.case, *(row.time.estimate for row in both if row.time)
        )
        for (title, _), found in times.items()
        if len(both := [found[mode] for mode in modes if mode in found]) == len(modes)
    ]
    alone, back_to_back = (TIMING_MODES[name].heading for name in modes)
    columns = (
        Column("size", lambda row: size_of(row.case), BYTES),
        Column(alone, attrgetter("alone"), TIME),
        Column(back_to_back, attrgetter("back_to_back"), TIME),
        Column("ratio", attrgetter("ratio"), RATIO),
        Column("95 %\ninterval", attrgetter("ratio"), RATIO_INTERVAL, 8),
    )
    title = f"Time {alone} over time {back_to_back}"
    return Table(title, columns, twice, attrgetter("title"))

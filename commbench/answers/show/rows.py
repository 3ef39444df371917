"""The rows of a run as tables: every row, a summary of each kind of call, both timings, and what a
computation and a communication cost each other when they run at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from commbench.analysis.diagnostics import WAITED, has_waited, waited_hint
from commbench.analysis.figures import CurveSummary, find_peak_fraction, summarise_curve
from commbench.analysis.row_names import LONGEST, name_rows, short_titles
from commbench.analysis.rows import ALONE_OR_NOT, ResultRow, right_rows, worst_alone
from commbench.analysis.statistics import ENOUGH, UNTESTED
from commbench.answers.pairs.matrix import outside_matrix
from commbench.answers.show.formats import texts
from commbench.answers.show.plan import describe_shape
from commbench.answers.show.run_notes import expectation_lines
from commbench.output.text import list_some, span
from commbench.plan.case import Case
from commbench.plan.dimensions import TIMING_MODES
from commbench.plan.groups import TOGETHER
from commbench.plan.links import Peak
from commbench.results.schema import CUT_OFF, OK, WRONG
from commbench.stats import Estimate, collect, ratio
from commbench.units import format_about, format_bytes, format_count, format_share, format_sizes
from commbench.views import cells
from commbench.views.cells import Column, Unit
from commbench.views.document import BAD, Block, Table, Text

Kinds = dict[str, list[ResultRow]]
"""The rows that were timed, by the title of their case."""
LATENCY_BOUND = 64 << 10
"""Below so many bytes, latency is most of a call's time, and its bandwidth says little."""
FEW_CALLS = f"Intervals of fewer than {ENOUGH} calls are rough."
ONE_CALL = (
    f"One call does not show how calls differ: its interval is assumed, a factor of {UNTESTED:g}."
)
BELOW_P5 = (
    "An interval may begin below p5: it also allows for faster launches, and p5 is of these calls."
)
MOST_ROWS = 60
"""After a run, more rows of several kinds are left out: there is a summary."""


def timed_kinds(rows: Sequence[ResultRow]) -> Kinds:
    """The rows that were timed or have wrong results, by the title of their case; of groups that
    were measured alone, the slowest of each dimension."""
    shown = worst_alone(outside_matrix(rows))
    timed = (row for row in shown if row.time or row.measurement.status == WRONG)
    return collect((row.case.title_without("group_ranks"), row) for row in timed)


def size_of(case: Case) -> int | None:
    """The size of a case in bytes; None for an operation without data."""
    return case.size_bytes if case.dtype else None


def time_of(row: ResultRow | None) -> Estimate | None:
    """The median time of a row; None where it was not timed."""
    return row.time.estimate if row and row.time else None


SLOWDOWN = Unit(lambda found: cells.RATIO_WITH_INTERVAL.write(found.map(lambda more: 1 + more)))
"""How many times as long it takes: 1 and the slowdown."""


def _status(row: ResultRow) -> str:
    """A word on a row that is not as the others: `cut off`, `wrong`."""
    if row.measurement.status != OK:
        return row.measurement.status
    return CUT_OFF if row.stop_reason == CUT_OFF else ""


def _mark(row: ResultRow) -> str:
    """Marks a row whose ranks waited for a core."""
    return "*" if has_waited(row.queued_share) else ""


def _counts(row: ResultRow) -> bool:
    """Whether the figures of a row count: its ranks did not wait for a core, and it was not cut off
    with fewer samples than asked."""
    return not _mark(row) and row.stop_reason != CUT_OFF


def _row_columns(peak: Peak | None, rows: Sequence[ResultRow]) -> tuple[Column, ...]:
    """The columns of rows; with a peak, one has the fraction of it that the bandwidth reached."""

    def share(row: ResultRow) -> float | None:
        found = find_peak_fraction(row, peak) if peak else None
        return found and found.fraction

    forms = sorted({row.reference.case.form for row in rows if row.reference})
    return (
        cells.SIZE,
        Column("", _mark, cells.TEXT),
        Column("status", _status, cells.TEXT),
        Column("count", lambda row: row.case.dtype and row.case.count, cells.NUMBER, 1),
        Column("time", time_of, cells.TIME),
        Column("95 % interval", time_of, cells.TIME_INTERVAL, 8),
        Column("p5", lambda row: row.time and row.time.p5, cells.TIME, 6),
        Column("NCCL", lambda row: " ".join(row.nccl_selection[:2]).strip(), cells.TEXT, 5),
        Column("n", lambda row: row.time and (row.time.iterations or None), cells.NUMBER, 4),
        Column("algbw\nGB/s", lambda row: row.at_time(row.algbw), cells.BANDWIDTH, 3),
        Column("busbw\nGB/s", attrgetter("known_busbw"), cells.BANDWIDTH, 8),
        Column(f"over\n{'/'.join(forms)}", attrgetter("form_ratio"), cells.RATIO_WITH_INTERVAL, 7),
        Column("slowest\ngroup", attrgetter("worst_group"), cells.TEXT, 8),
        Column("of\npeak", share, cells.SHARE, 6),
        Column("messages\nper s", attrgetter("messages_per_s"), Unit("{:,.0f}".format), 2),
        Column("all pairs\nGB/s", lambda row: row.at_time(row.aggregate_bandwidth),
               cells.BANDWIDTH, 3),
        Column("logical\nGB/s", lambda row: row.at_time(row.logical_bandwidth), cells.BANDWIDTH, 2),
        Column("wrong", attrgetter("measurement.wrong"), cells.NUMBER, 7),
    )  # fmt: skip


def rows_table(kinds: Kinds, peak: Peak | None, brief: Sequence[ResultRow] | None) -> Table:
    """The rows of all kinds, of which a terminal shows the brief ones."""
    titles = {id(row): title for title, own in kinds.items() for row in own}
    rows = [row for own in kinds.values() for row in own]
    is_one = len(kinds) == 1
    return Table(
        next(iter(kinds)) if is_one else "Every row",
        _row_columns(peak, rows),
        rows,
        label=None if is_one else lambda row: titles[id(row)],
        tone=lambda row: BAD if row.measurement.status != OK else "",
        brief=brief,
    )


class Kind(NamedTuple):
    """A kind of call, and the figures of its rows."""

    title: str
    rows: Sequence[ResultRow]
    curve: CurveSummary
    """Of the rows that count; of all with right results where none does."""
    mark: str
    """Says that none counts."""

    @property
    def wrong(self) -> str:
        """Its wrong elements, and in how many rows where not all results were checked; empty where
        none was."""
        known = [row.measurement.wrong for row in self.rows if row.measurement.wrong is not None]
        of_rows = f" in {format_count(len(known), 'row')}" * (len(known) < len(self.rows))
        return f"{sum(known)}{of_rows}" if known else ""


def summarise_kinds(kinds: Kinds) -> Iterator[Kind]:
    """The figures of each kind."""
    titles = short_titles({title: rows[0].case for title, rows in kinds.items()}, ("group_ranks",))
    for title, rows in kinds.items():
        right = [row for row in right_rows(rows) if row.time]
        counted = [row for row in right if _counts(row)]
        mark = "" if counted else max(map(_mark, rows))
        yield Kind(titles[title], rows, summarise_curve(counted or right), mark)


def _half(kind: Kind) -> str:
    """The interval of the half-bandwidth size, or that size where none is known."""
    if (half := kind.curve.half) is None:
        return ""
    if kind.curve.is_below:
        return f"below {format_bytes(round(half.value))}"
    if not half.has_interval:
        return format_about(half.value)
    sizes = [row.case.size_bytes for row in kind.rows]
    if half.ends[0] <= min(sizes) and half.ends[1] >= max(sizes):
        return ""  # it says nothing
    (first, unit), (_, same) = (format_about(end).split() for end in half.ends)
    return f"{first}{f' {unit}' * (unit != same)} … {format_about(half.ends[1])}"


def summary_table(kinds: Sequence[Kind]) -> Table:
    """A row for each kind: latency, peak bus bandwidth, half-bandwidth size."""
    columns = (
        Column("", attrgetter("mark"), cells.TEXT),
        Column("least time\nup to 8 KiB", lambda kind: time_of(kind.curve.latency),
               cells.TIME_WITH_INTERVAL),
        Column("peak\nbusbw\nGB/s", lambda k: k.curve.peak and k.curve.peak.known_busbw,
               cells.BANDWIDTH),
        Column("at size", lambda k: k.curve.peak and size_of(k.curve.peak.case), cells.BYTES),
        Column("half of\npeak at", _half, cells.NUMBER, 6),
        Column("wrong", attrgetter("wrong"), cells.NUMBER, 7),
    )  # fmt: skip
    return Table("Summary: one row for each kind of call", columns, kinds, attrgetter("title"))


def peak_of(rows: Sequence[ResultRow]) -> ResultRow | None:
    """The row of the highest bus bandwidth; of those that count, with right results."""
    known = (row for row in right_rows(rows) if row.busbw and _counts(row))
    return max(known, key=lambda row: row.busbw or 0.0, default=None)


def waited_rows_sentence(rows: Iterable[ResultRow], run: str = "") -> str:
    """The rows whose ranks waited for a core, where a sentence has a figure of the others; `run` is
    named where it is one of several."""
    timed = [row for row in rows if row.time]
    waited = [row.case for row in timed if has_waited(row.queued_share)]
    names = name_rows(waited, [row.case for row in timed], LONGEST)
    which = f"rows of {run}" if run else "rows"
    return f"{WAITED.capitalize()}, so these {which} do not count: {names}." if waited else ""


WAITS = 0.3
"""Two ranks bound to the cores of an idle host wait for a core up to so much of the time."""


def waiting_sentence(rows: Iterable[ResultRow]) -> str:
    """That ranks waited for a core more than on an idle host, where they did in most rows."""
    timed = [row for row in rows if row.time]
    shares = [share for row in timed if (share := row.queued_share or 0.0) > WAITS]
    if 2 * len(shares) <= len(timed):
        return ""
    which = f"In {len(shares)} of {len(timed)} rows, ranks" if len(shares) < len(timed) else "Ranks"
    waited = f"{which} waited for a core {span(format_share, shares)} of the time"
    return f"{waited}: their times may be far too long. {waited_hint([timed[0].header])}"


def highest_sentence(kinds: Sequence[Kind]) -> str:
    """The highest bus bandwidth of all kinds, or of one small size the least time; empty where none
    has a bandwidth."""
    peaks = [(peak, kind.title) for kind in kinds if (peak := peak_of(kind.rows))]
    if not peaks:
        return ""
    row, title = max(peaks, key=lambda found: found[0].busbw or 0.0)
    size = format_bytes(row.case.size_bytes)
    sizes = {each.case.size_bytes for kind in kinds for each in kind.rows if each.busbw}
    if row.case.size_bytes < LATENCY_BOUND and len(sizes) == 1:
        row, title = min(peaks, key=lambda found: found[0].time.median if found[0].time else inf)
        time = cells.time_with_interval_text(time_of(row))
        if len(peaks) == 1:
            return f"{title} of {size} takes {time}."
        return f"The least time of {size} is {time}: {title}."
    return f"The highest bus bandwidth is {highest_text(row)}: {title} at {size}."


def highest_text(row: ResultRow) -> str:
    """Its bus bandwidth with the interval, and whether that is too wide to rely on."""
    text = cells.bandwidth_with_interval_text(row.known_busbw)
    return text + f", {cells.UNSURE}" * is_unsure(row)


def is_unsure(row: ResultRow) -> bool:
    """Whether the interval of its bus bandwidth is too wide to rely on."""
    return bool(row.known_busbw and row.known_busbw.is_wider(cells.WIDE))


def kind_notes(kinds: Sequence[Kind], every: Kinds) -> list[str]:
    """What the mark of every row means, and the numbers of a kind where it is not one call of all
    ranks, and whether they are plausible; a sentence that is about several kinds once."""
    found = collect(
        (line, kind.title)
        for kind in kinds
        for line in (*describe_shape(kind.rows[-1].case), *expectation_lines(kind.rows))
    )
    shared = [row for kind in kinds for row in kind.rows if row.case.concurrency == TOGETHER]
    together = [*texts("together") * any(len(row.group_times) > 1 for row in shared)]
    rows = [row for own in every.values() for row in own]
    marked = any(map(_mark, rows))
    few = {row.time.iterations for row in rows if row.time and not row.measurement.reported}
    rough = [FEW_CALLS] * any(0 < number < ENOUGH for number in few)
    rough += [ONE_CALL] * (1 in few)
    times = [row.time for row in rows if row.time]
    rough += [BELOW_P5] * any(t.p5 and t.low and t.low < t.p5.value for t in times)
    every_line = [
        line if len(titles) == len(kinds) else f"{list_some(titles, 4)}: {line}"
        for line, titles in found.items()
    ]
    return [*[f"*: {WAITED}."] * marked, *rough, *together, *every_line]


def timings_table(rows: Sequence[ResultRow]) -> Table:
    """The cases that were timed in both modes."""
    timed = (row for row in rows if row.time)
    kinds = collect(((r.case.title_without("timing"), r.case.size_bytes), r) for r in timed)
    times = [{row.case.timing: row for row in own} for own in kinds.values()]
    twice = [[own[mode] for mode in TIMING_MODES] for own in times if {*TIMING_MODES} <= own.keys()]
    alone, back_to_back = (mode.heading for mode in TIMING_MODES.values())

    def over(both: Sequence[ResultRow]) -> Estimate | None:
        return ratio(*map(time_of, both))

    columns = (
        Column("size", lambda both: size_of(both[0].case), cells.BYTES),
        Column(alone, lambda both: time_of(both[0]), cells.TIME),
        Column(back_to_back, lambda both: time_of(both[1]), cells.TIME),
        Column("ratio", over, cells.RATIO),
        Column("95 %\ninterval", over, cells.RATIO_INTERVAL, 8),
    )
    title = f"Time {alone} over time {back_to_back}"
    return Table(title, columns, twice, lambda both: both[0].case.title_without("timing"))


FIGURES = (
    cells.SIZE,
    Column("", lambda row: max(map(_mark, (row, *(row.parts or ())))), cells.TEXT),
    Column("hidden\n%", attrgetter("overlap.hidden"), cells.SHARE_WITH_INTERVAL),
    Column("computation\nover alone", attrgetter("overlap.computation_slowdown"), SLOWDOWN, 8),
    Column("communication\nover alone", attrgetter("overlap.communication_slowdown"), SLOWDOWN, 8),
    Column("gain", attrgetter("overlap.gain"), cells.RATIO_WITH_INTERVAL, 7),
)
"""The four figures of an overlap, each with its interval."""
TIMES = (
    cells.SIZE,
    Column("communi-\ncation\nalone", lambda row: time_of(row.parts[0]), cells.TIME),
    Column("at once", attrgetter("overlap.communication_s"), cells.TIME, 6),
    Column("compu-\ntation\nalone", lambda row: time_of(row.parts[1]), cells.TIME),
    Column("at once ", attrgetter("overlap.computation_s"), cells.TIME, 6),
    Column("both\nended", time_of, cells.TIME),
)
"""The times from which they are computed."""


def without_parts(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows without the parts of overlaps, and without groups alone that also called together:
    these have tables of their own."""
    overlaps = {row.case.key("part") for row in rows if row.overlap}
    groups = {row.case.key(*ALONE_OR_NOT) for row in rows if row.group_interference}
    whole = [row for row in rows if row.case.key("part") not in overlaps]
    return [r for r in whole if not (r.case.group_ranks and r.case.key(*ALONE_OR_NOT) in groups)]


def overlap_blocks(rows: Sequence[ResultRow]) -> Iterator[Block]:
    """Two tables with a row for each kind of overlap and size: the four figures with their 95 %
    intervals, and the times; then what the computations are. None where nothing was measured at
    once."""
    kinds = collect((row.case.title_without("part"), row) for row in rows if row.overlap)
    for title, found in kinds.items():
        yield Table(f"{title}: at once, with 95 % intervals", FIGURES, found)
        yield Table(f"{title}: times", TIMES, found)
        works = collect((row.measurement.batches[-1].work, row.case.size_bytes) for row in found)
        sizes = {work: format_sizes(tuple(own)) for work, own in works.items() if work}
        if known := [f"{work} beside {own}" for work, own in sizes.items()]:
            yield Text(f"The computation is {list_some(known, 3)}.")

"""What a document of a soak says: right or wrong, steady or not, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from commbench.analysis.statistics import median
from commbench.answers.soak.soak import RARE, Point, SoakResult, SoakRow, analyse_soak
from commbench.output.paragraphs import list_some
from commbench.results.schema import Run
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import SLOWER, UNDECIDED
from commbench.units import format_count, format_percent
from commbench.views.cells import (
    BYTES,
    NUMBER,
    RATIO_WITH_INTERVAL,
    TEXT,
    TIME,
    Column,
    ratio_with_interval_text,
    time_text,
)
from commbench.views.document import BAD, GOOD, Block, Document, Items, Pictures, Table
from commbench.views.formats import View
from commbench.views.pictures import (
    COLOURS,
    LIMIT,
    RATIOS,
    Axis,
    Curves,
    Look,
    Mark,
    Picture,
    Series,
    number_label,
)

SOAK = "soak"
MOST_ROWS, MOST_MINUTES, MOST_CURVES, MOST_POINTS = 20, 20, 8, 120
"""How much a terminal and a picture show; the last is of a curve."""


def soak_answer(result: SoakResult) -> list[str]:
    """The verdict, in sentences: data, drift, slow minutes."""
    calls = f"{result.checked_calls:,} checked calls"
    if result.wrong:
        total = sum(each.elements for each in result.wrong)
        first = min(result.wrong, key=lambda each: each.first_clock)
        cases = list_some([*dict.fromkeys(each.case for each in result.wrong)], 2)
        since = f" The first one was found at {_clock(first.first_clock)}."
        answer = [f"Results are wrong: {result.quorum}.{since}"]
        answer.append(f"{format_count(total, 'element')} of {calls} are wrong, of {cases}.")
    elif result.checked_calls:
        answer = [f"The results of all {calls} are right. {_seen(result)}"]
    else:
        answer = ["No result was checked."]
    return [*answer, _drift_sentence(result), *_minutes_sentence(result), *_speeds(result)]


def _seen(result: SoakResult) -> str:
    share = format_percent(result.seen_probability)
    rare = f"1 call in {1 / RARE:,.0f}"
    return f"A fault of {rare} would have been seen with a probability of {share}."


def _drift_sentence(result: SoakResult) -> str:
    known = [row for row in result.rows if row.drift]
    if not known:
        return f"{format_count(result.cycles, 'cycle')} are too few to see a drift."
    ends = "from the first tenth of the cycles to the last"
    if not (drifting := result.drifting):
        within = f"{100 * result.tolerance:g} %"
        open_ = sum(row.drift_verdict == UNDECIDED for row in known)
        cases = format_count(len(result.rows), "case")
        if open_:
            return f"No drift beyond {within} shows, but of {open_} of {cases} it is undecided."
        return f"No time rose by more than {within} {ends}."
    names = [f"{row.case.name} {ratio_with_interval_text(row.drift)} times" for row in drifting]
    return f"Times rose {ends}: {list_some(names, 2)}."


def _minutes_sentence(result: SoakResult) -> Iterator[str]:
    if slow := result.slow_minutes:
        worst = max(slow, key=lambda each: each.ratio.value)
        yield (
            f"{format_count(len(slow), 'minute')} {'was' if len(slow) == 1 else 'were'} slow; the "
            f"worst began at {_clock(worst.clock)}: {ratio_with_interval_text(worst.ratio)} times "
            "the usual times."
        )


def _speeds(result: SoakResult) -> Iterator[str]:
    names = [row.case.name for row in result.rows if row.two_speeds_s]
    if names:
        yield f"The cycles form two groups of different speed: {list_some(names, 2)}."


def _clock(text: str) -> str:
    """A time of ISO 8601 in UTC without the date: `14:03:00 UTC`."""
    return f"{text[11:19]} UTC" if len(text) > 18 else "an unknown time"


def soak_blocks(result: SoakResult) -> Iterator[Block]:
    """Wrong elements by rank, slow minutes, and every case, the worst first."""
    yield Table("Wrong elements by rank", _WRONG, result.wrong, tone=lambda _: BAD)
    minutes = sorted(result.slow_minutes, key=lambda each: -each.ratio.value)
    yield Table("Slow minutes", _MINUTES, result.slow_minutes, brief=minutes[:MOST_MINUTES])
    rows = _worst_first(result)
    yield Table(
        "From the first tenth of the cycles to the last", _CASES, rows, tone=_tone,
        label=lambda row: row.case.title, label_heading="case", brief=rows[:MOST_ROWS],
    )  # fmt: skip
    yield Items([
        f"{result.cycles:,} cycles in {result.elapsed_s:,.0f} s; checks took "
        f"{format_percent(result.check_share)} of the time.",
    ])  # fmt: skip


def _worst_first(result: SoakResult) -> list[SoakRow]:
    return sorted(result.rows, key=lambda row: (-row.wrong, -row.drift.value if row.drift else 0.0))


def _tone(row: SoakRow) -> str:
    return BAD if row.wrong or row.drift_verdict == SLOWER else ""


def _two_speeds(row: SoakRow) -> str:
    return " / ".join(map(time_text, row.two_speeds_s)) if row.two_speeds_s else ""


_WRONG = (
    Column("rank", lambda each: each.rank, NUMBER),
    Column("host", lambda each: each.host, TEXT, 2),
    Column("case", lambda each: each.case, TEXT, 8, is_wrapped=True),
    Column("elements", lambda each: each.elements, NUMBER),
    Column("in checks", lambda each: each.checks, NUMBER, 7),
    Column("first at", lambda each: _clock(each.first_clock), TEXT, 6),
    Column("expected", lambda each: each.first and each.first.expected, TEXT, 3),
    Column("got", lambda each: each.first and each.first.got, TEXT, 3),
)
_MINUTES = (
    Column("began at", lambda each: _clock(each.clock), TEXT),
    Column("after", lambda each: each.start_s, TIME, 5),
    Column("times the usual", lambda each: each.ratio, RATIO_WITH_INTERVAL),
    Column("batches", lambda each: each.batches, NUMBER, 4),
)
_CASES = (
    Column("size", lambda row: row.case.size_bytes if row.case.dtype else None, BYTES),
    Column("cycles", lambda row: len(row.points), NUMBER, 3),
    Column("median", lambda row: row.time_s, TIME),
    Column("first", lambda row: row.first, TIME, 6),
    Column("last", lambda row: row.last, TIME, 6),
    Column("last / first", lambda row: row.drift, RATIO_WITH_INTERVAL),
    Column("two speeds", _two_speeds, TEXT, 4),
    Column("checked", lambda row: row.checked_calls or None, NUMBER, 5),
    Column("wrong", lambda row: row.wrong if row.checked_calls else None, NUMBER),
)


def document(result: SoakResult) -> Document:
    """The whole result."""
    planned = f" of {result.planned_s:,.0f} s" if result.planned_s else ""
    lasted = f"{result.elapsed_s:,.0f} s{planned}, {format_count(result.cycles, 'cycle')}"
    ended = [f"This soak is incomplete: {result.incomplete}."] if result.incomplete else []
    pictures = Pictures(lambda: [*filter(None, [soak_picture(result)])])
    return Document(
        f"{SOAK} {result.name}", [lasted], [*soak_answer(result), *ended],
        [*soak_blocks(result), pictures], tone=BAD if result.exit_code else GOOD,
    )  # fmt: skip


VIEW = View(document, schema=1)

# The picture: the time of each case over its median, against the time of the soak.

_SHORT_S, _MINUTE_S = 300.0, 60.0


def soak_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each run that is a soak."""
    found = (soak_picture(analyse_soak(run)) for run in runs if run.header.plan.is_soak)
    return [*filter(None, found)]


def soak_picture(result: SoakResult) -> Picture | None:
    """The worst cases over the cycles; None for too few of them."""
    drawn = [row for row in _worst_first(result) if len(row.points) > 1][:MOST_CURVES]
    if not drawn:
        return None
    series = [
        Series(row.case.name, Look(COLOURS[number], width=1.2), _curve(row), has_band=False)
        for number, row in enumerate(drawn)
    ]
    is_short, slow = result.elapsed_s < _SHORT_S, Look(LIMIT, fill=0.12)
    name = f"{'seconds' if is_short else 'minutes'} since the soak began"
    unit_s = 1.0 if is_short else _MINUTE_S
    across = Axis(lambda place: number_label(place / unit_s), name, is_log=False)
    marks = [
        Mark(slow, each.start_s, each.start_s + _MINUTE_S, "a slow minute", is_upright=True)
        for each in result.slow_minutes
    ]
    panel = Curves("Time over the median of the case", series, RATIOS, across, marks, inches=3.2)
    notes = [f"{more} more cases are not drawn"] if (more := len(result.rows) - len(drawn)) else []
    answer = " ".join(soak_answer(result))
    return Picture(SOAK, f"Soak {result.name}", answer, [panel], notes)


def _curve(row: SoakRow) -> list[tuple[float, Estimate | None]]:
    """The points of a case; of many, the medians of as many cycles in a row as give MOST_POINTS."""
    size = -(-len(row.points) // MOST_POINTS)
    points, curve = iter(row.points), []
    while part := list[Point](islice(points, size)):
        middle = median(sorted(point.time_s for point in part)) / (row.time_s or 1.0)
        start_s = median(sorted(point.start_s for point in part))
        curve.append((start_s, Estimate(middle)))
    return curve

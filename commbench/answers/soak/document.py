"""What a document of a soak says: right or wrong, steady or not, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from commbench.analysis.statistics import median
from commbench.answers.soak.soak import MINUTE_S, RARE, SoakResult, SoakRow, analyse_soak
from commbench.output.text import list_some
from commbench.results.schema import Run
from commbench.stats import SLOWER, UNDECIDED, Estimate
from commbench.units import format_count, format_percent
from commbench.views import cells, pictures
from commbench.views.cells import NUMBER, TEXT, TIME, Column, ratio_with_interval_text
from commbench.views.document import BAD, GOOD, Block, Document, Items, Pictures, Table
from commbench.views.formats import View
from commbench.views.pictures import Look, Picture

MOST_ROWS, MOST_CURVES, MOST_POINTS = 20, 8, 120
"""How many rows a terminal shows of a table, and a picture curves, each of so many points."""
SHORT_S = 300.0
"""A picture of a shorter soak counts seconds, not minutes."""


def soak_answer(result: SoakResult) -> list[str]:
    """The verdict, in sentences: data, drift, slow minutes, two speeds."""
    calls, minutes = f"{result.checked_calls:,} checked calls", len(result.slow_minutes)
    answer = ["No result was checked."]
    if result.wrong:
        first = min(each.clock for each in result.wrong)
        total = format_count(sum(each.elements for each in result.wrong), "element")
        cases = list_some([*dict.fromkeys(each.case for each in result.wrong)], 2)
        answer = [
            f"Results are wrong: {result.quorum}.",
            f"The first was found at {_clock(first)}.",
        ]
        answer.append(f"{total} of {calls} are wrong, in {cases}.")
    elif result.checked_calls:
        rare, seen = f"1 call in {1 / RARE:,.0f}", result.seen_probability
        share = format_percent(seen) if seen < 0.9999 else "more than 99.99 %"
        answer = [f"The results of all {calls} are right."]
        answer.append(f"A fault of {rare} would have been seen with a probability of {share}.")
    answer.append(_drift_sentence(result))
    if minutes:
        worst = max(result.slow_minutes, key=lambda each: each.ratio.value)
        slow = f"{format_count(minutes, 'minute')} {'was' if minutes == 1 else 'were'} slow"
        times = f"{ratio_with_interval_text(worst.ratio)} times the usual times"
        answer.append(f"{slow}; the worst began at {_clock(worst.clock)}: {times}.")
    if double := [row.case.name for row in result.rows if row.two_speeds_s]:
        answer.append(f"Cycles form two groups of different speed: {list_some(double, 2)}.")
    return answer


def _drift_sentence(result: SoakResult) -> str:
    known, within = [row for row in result.rows if row.drift], f"{100 * result.tolerance:g} %"
    if not known:
        return f"{format_count(result.cycles, 'cycle')} are too few to see a drift."
    if drifting := result.drifting:
        names = [f"{row.case.name} {ratio_with_interval_text(row.drift)} times" for row in drifting]
        return f"Times rose from the first tenth of the cycles to the last: {list_some(names, 2)}."
    if unsure := sum(row.drift_verdict == UNDECIDED for row in known):
        cases = format_count(len(result.rows), "case")
        return f"No drift above {within} shows; of {unsure} of {cases} it is undecided."
    return f"No time rose by more than {within} from the first tenth of the cycles to the last."


def _clock(text: str) -> str:
    """The clock of a time of ISO 8601 in UTC: `14:03:00 UTC`."""
    return f"{text[11:19]} UTC"


def _worst_first(result: SoakResult) -> list[SoakRow]:
    return sorted(result.rows, key=lambda row: (-row.wrong, -row.drift.value if row.drift else 0.0))


def soak_blocks(result: SoakResult) -> Iterator[Block]:
    """Wrong elements by rank, slow minutes, and every case, the worst first."""
    yield Table("Wrong elements by rank", _WRONG, result.wrong, tone=lambda _: BAD)
    minutes = sorted(result.slow_minutes, key=lambda each: -each.ratio.value)
    yield Table("Slow minutes", _MINUTES, result.slow_minutes, brief=minutes[:MOST_ROWS])
    rows = _worst_first(result)
    yield Table(
        "From the first tenth of the cycles to the last", _CASES, rows, attrgetter("case.title"),
        "case", lambda row: BAD if row.wrong or row.drift_verdict == SLOWER else "",
        rows[:MOST_ROWS],
    )  # fmt: skip
    part = f"checks took {format_percent(result.check_share)} of the time"
    yield Items([f"{result.cycles:,} cycles in {result.elapsed_s:,.0f} s; {part}."])


_WRONG = (
    Column("rank", attrgetter("rank"), NUMBER),
    Column("host", attrgetter("host"), TEXT, 2),
    Column("case", attrgetter("case"), TEXT, 8, is_wrapped=True),
    Column("elements", attrgetter("elements"), NUMBER),
    Column("first at", lambda each: _clock(each.clock), TEXT, 6),
    Column("expected", lambda each: each.first and each.first.expected, TEXT, 3),
    Column("got", lambda each: each.first and each.first.got, TEXT, 3),
)
_MINUTES = (
    Column("began at", lambda each: _clock(each.clock), TEXT),
    Column("times the usual", attrgetter("ratio"), cells.RATIO_WITH_INTERVAL),
    Column("batches", attrgetter("batches"), NUMBER),
)
_CASES = (
    Column("size", lambda row: row.case.size_bytes if row.case.dtype else None, cells.BYTES),
    Column("cycles", lambda row: len(row.points), NUMBER, 3),
    Column("median", attrgetter("time_s"), TIME),
    Column("first", attrgetter("first_s"), TIME, 6),
    Column("last", attrgetter("last_s"), TIME, 6),
    Column("last / first", attrgetter("drift"), cells.RATIO_WITH_INTERVAL),
    Column("two speeds", lambda row: " / ".join(map(cells.time_text, row.two_speeds_s)), TEXT, 4),
    Column("checked", lambda row: row.checked_calls or None, NUMBER, 5),
    Column("wrong", lambda row: row.wrong if row.checked_calls else None, NUMBER),
)


def document(result: SoakResult) -> Document:
    """The whole result."""
    ended = [f"This soak is incomplete: {result.incomplete}."] if result.incomplete else []
    drawn = Pictures(lambda: [*filter(None, [_picture(result)])])
    blocks, tone = [*soak_blocks(result), drawn], BAD if result.exit_code else GOOD
    return Document(f"soak {result.name}", (), [*soak_answer(result), *ended], blocks, tone)


VIEW = View(document, schema=1)


def soak_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each run that is a soak: the times of each case over its median."""
    found = (_picture(analyse_soak(run)) for run in runs if run.header.plan.is_soak)
    return [*filter(None, found)]


def _picture(result: SoakResult) -> Picture | None:
    """The worst cases; None where none has two cycles."""
    drawn = [row for row in _worst_first(result) if len(row.points) > 1][:MOST_CURVES]
    series = [
        pictures.Series(row.case.name, Look(colour, width=1.2), _curve(row), has_band=False)
        for row, colour in zip(drawn, pictures.COLOURS, strict=False)
    ]
    unit, unit_s = ("seconds", 1.0) if result.elapsed_s < SHORT_S else ("minutes", MINUTE_S)
    across = pictures.Axis(
        lambda place: f"{place / unit_s:.3g}", f"{unit} since the soak began", is_log=False
    )
    slow = Look(pictures.LIMIT, fill=0.12)
    marks = [
        pictures.Mark(slow, at, at + MINUTE_S, "a slow minute", is_upright=True)
        for at in (each.start_s for each in result.slow_minutes)
    ]
    heading = "Time over the median of the case"
    panel = pictures.Curves(heading, series, pictures.RATIOS, across, marks, inches=3.2)
    notes = [f"{more} more cases are not drawn"] if (more := len(result.rows) - len(drawn)) else []
    answer = " ".join(soak_answer(result))
    return Picture("soak", f"Soak {result.name}", answer, [panel], notes) if drawn else None


def _curve(row: SoakRow) -> list[tuple[float, Estimate | None]]:
    """The points of a case; of many cycles the medians of several in a row."""
    size = -(-len(row.points) // MOST_POINTS)
    curve: list[tuple[float, Estimate | None]] = []
    for begin in range(0, len(row.points), size):
        part = row.points[begin : begin + size]
        middle = median(sorted(point.time_s for point in part)) / (row.time_s or 1.0)
        curve.append((part[len(part) // 2].start_s, Estimate(middle)))
    return curve

"""What a document of a soak says: right or wrong, steady or not, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from operator import attrgetter

from commbench.analysis.diagnostics import waited_sentences
from commbench.analysis.statistics import median
from commbench.answers.soak.soak import MINUTE_S, SoakResult, SoakRow, analyse_soak
from commbench.output.text import list_some
from commbench.plan.dimensions import IN_TITLE
from commbench.results.schema import Run
from commbench.stats import SLOWER, UNDECIDED, Estimate
from commbench.units import format_bytes, format_count, format_percent
from commbench.views import cells, pictures
from commbench.views.cells import NUMBER, TEXT, TIME, Column, ratio_with_interval_text
from commbench.views.document import BAD, GOOD, Block, Document, Items, Pictures, Table
from commbench.views.formats import View
from commbench.views.pictures import Look, Picture

LATE = 1.05
"""A soak that lasted more times as long as was asked for says why."""
MOST_ROWS, MOST_CURVES, MOST_POINTS, MOST_MARKERS = 20, 6, 120, 30
"""How many cases a terminal shows, and a picture curves, each of so many points; fewer than the
last have markers."""


def soak_answer(result: SoakResult) -> list[str]:
    """The verdict, in sentences: data, drift, slow minutes, two speeds."""
    calls = f"{result.checked_calls:,} checked calls"
    answer = ["No result was checked."]
    if result.wrong:
        total = format_count(sum(each.elements for each in result.wrong), "element")
        cases = list_some([*dict.fromkeys(each.case for each in result.wrong)], 2)
        first = _clock(min(each.clock for each in result.wrong))
        answer = [
            f"Results are wrong: {result.quorum}.", f"The first was found at {first}.",
            f"{total} of {calls} are wrong, in {cases}.",
        ]  # fmt: skip
    elif result.checked_calls:
        seen = result.seen_probability
        share = format_percent(seen) if seen < 0.9999 else "more than 99.99 %"
        text = f"A fault of 1 call in 1,000 would have been seen with a probability of {share}."
        answer = [f"The results of all {calls} are right.", text]
    waited = waited_sentences([row.queued_share for row in result.rows], ())
    answer = [*answer, *waited] if result.wrong else [*waited, *answer]
    answer.append(_drift_sentence(result))
    if minutes := len(result.slow_minutes):
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
    most = 1 + result.tolerance
    open_rows = (row for row in known if row.drift_verdict == UNDECIDED)
    if unsure := sum(not row.drift or row.drift.ends[1] > most for row in open_rows):
        of = f"{unsure} of {format_count(len(result.rows), 'case')}"
        return f"Whether times rose by more than {within} is undecided in {of}."
    return f"No time rose by more than {within} from the first tenth of the cycles to the last."


def _clock(text: str) -> str:
    """The clock of a time of ISO 8601 in UTC: `14:03:00 UTC`."""
    return f"{text[11:19]} UTC"


def soak_blocks(result: SoakResult) -> Iterator[Block]:
    """Wrong elements by rank, slow minutes, and every case, the worst first."""
    yield Table("Wrong elements by rank", _WRONG, result.wrong, tone=lambda _: BAD)
    yield Table("Slow minutes", _MINUTES, result.slow_minutes)
    is_known = any(row.drift for row in result.rows)
    title = "From the first tenth of the cycles to the last" if is_known else "All cycles"
    yield Table(
        title, _CASES, result.rows, attrgetter("case.title"),
        "case", lambda row: BAD if row.wrong or row.drift_verdict == SLOWER else "",
        result.rows[:MOST_ROWS],
    )  # fmt: skip
    part = f"checks took {format_percent(result.check_share)} of the time"
    planned_s, late = result.planned_s or inf, ""
    if result.elapsed_s > LATE * planned_s:
        late = f" (asked for: {planned_s:,.0f} s; the last batch ended later)"
    cycles = f"{result.cycles:,} cycle{'s' * (result.cycles != 1)}"
    yield Items([f"{cycles} in {result.elapsed_s:,.0f} s{late}; {part}."])


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
    cells.SIZE,
    Column("cycles", lambda row: len(row.points), NUMBER, 3),
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
    blocks = [Pictures(lambda: _pictures(result)), *soak_blocks(result)]
    tone = BAD if result.exit_code else GOOD
    return Document(f"soak {result.name}", (), [*soak_answer(result), *ended], blocks, tone)


VIEW = View(document, schema=1)


def soak_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each run that is a soak: the times of each case over its median."""
    return [p for run in runs if run.header.plan.is_soak for p in _pictures(analyse_soak(run))]


def _pictures(result: SoakResult) -> list[Picture]:
    """The picture of the cases that tell most; none where no case has two cycles."""
    known = [row for row in result.rows if len(row.points) > 1]
    drawn = _telling(known)
    if not drawn:
        return []
    fields = [each.field for each in IN_TITLE]
    same = [f for f in fields if len({getattr(row.case, f) for row in known}) == 1]
    common = known[0].case.title_without(*(f for f in fields if f not in same))
    series = []
    for row, colour in zip(drawn, pictures.COLOURS, strict=False):
        size = format_bytes(row.case.size_bytes) if row.case.dtype else ""
        name = " ".join(filter(None, (row.case.title_without(*same), size))) or common
        look = Look(colour, "o" * (len(row.points) < MOST_MARKERS), width=1.2)
        series.append(pictures.Series(name, look, _curve(row), has_band=False))
    last_s = max(row.points[-1].start_s for row in drawn)
    units = (("seconds", 1.0), ("minutes", MINUTE_S), ("hours", 60 * MINUTE_S))
    word, unit = next((u for u in units if last_s < 180 * u[1]), units[-1])
    since = f"{word} since the soak began"
    across = pictures.Axis(lambda place: f"{place / unit:.3g}", since, is_log=False, unit=unit)
    slow, starts = Look(pictures.LIMIT, fill=0.12), [each.start_s for each in result.slow_minutes]
    marks = [
        pictures.Mark(slow, at, at + MINUTE_S, "a slow minute", is_upright=True) for at in starts
    ]
    heading = "Time over the median of the case"
    panel = pictures.Curves(heading, series, pictures.RATIOS, across, marks, inches=3.2)
    first, *others = soak_answer(result)
    notes = [*others, *([f"All: {common}"] if common else [])]
    if len(drawn) < len(result.rows):
        bad = "bad ones, and of the others " * any(map(_is_bad, drawn))
        number = f"{len(drawn)} of {format_count(len(result.rows), 'case')}"
        notes.append(f"{number} are drawn: {bad}the smallest, a middle and the largest")
    title = f"Soak: {first[0].lower()}{first[1:].rstrip('.')}"
    return [Picture("soak", title, " ".join([first, *others]), [panel], notes)]


def _is_bad(row: SoakRow) -> bool:
    return bool(row.wrong or row.drift_verdict == SLOWER or row.two_speeds_s)


def _telling(rows: Sequence[SoakRow]) -> list[SoakRow]:
    """The cases of a picture, in the order of the plan: all if they are few, else bad ones, and of
    the others the smallest, a middle and the largest."""
    found = [*rows]
    if len(rows) > MOST_CURVES:
        found = [*filter(_is_bad, rows)][: MOST_CURVES - 3]
        others = sorted((r for r in rows if r not in found), key=attrgetter("case.size_bytes"))
        found += [others[0], others[len(others) // 2], others[-1]]
    return sorted(found, key=attrgetter("case.index"))


def _curve(row: SoakRow) -> list[tuple[float, Estimate | None]]:
    """The points of a case; of many cycles the medians of several in a row."""
    size = -(-len(row.points) // MOST_POINTS)
    parts = [row.points[begin : begin + size] for begin in range(0, len(row.points), size)]
    middles = [median(sorted(point.time_s for point in part)) for part in parts]
    starts = [part[len(part) // 2].start_s for part in parts]
    return [(s, Estimate(m / (row.time_s or 1.0))) for s, m in zip(starts, middles, strict=True)]

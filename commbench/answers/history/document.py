"""What a document of a history says: what became slower or faster, when, and what changed then; the
level of each row; the runs; and the picture over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import ceil
from operator import attrgetter
from pathlib import Path

from commbench.analysis.diagnostics import WAITED, busy_hint, waited_hint
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.answers.history.baseline import TURN_S
from commbench.answers.history.causes import MOST_CAUSES, describe_causes, host_causes, what_is_new
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.fitted import FittedSeries
from commbench.answers.history.history import Change, RowStep, Trend, causes_text
from commbench.answers.history.plot import rows_picture, times_of_runs
from commbench.answers.history.records import HistoryRun, System
from commbench.answers.history.store import db_option
from commbench.output.text import as_sentence, list_some, span
from commbench.plan.case import Case
from commbench.stats import CHANGED, TOLERANCE, Estimate, collect, decide, mean_ratio
from commbench.units import format_count, format_rough_percent
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import BAD, Block, Document, Items, Pictures, Table
from commbench.views.formats import Result, View
from commbench.views.pictures import Picture

MOST_SENTENCES = 6
ALIKE = 1.25
"""Ratios of rows that differ by more have no mean in a sentence."""
AS_FAST = 1.1
"""A run that takes so many times as long is called as fast as others."""


def document(trend: Trend) -> Document:
    """The changes, the rows with their level, and the picture."""
    systems = dict.fromkeys(each.series.system for each in trend.series)
    ends = dict.fromkeys(map(trend.moment, (*trend.runs[:1], *trend.runs[-1:])))
    period = f" {'from' if len(ends) > 1 else 'at'} {' to '.join(ends)} UTC" if ends else ""
    subtitle = [f"{format_count(len(trend.runs), 'run')}{period}"]
    subtitle += [system.name for system in systems][:MOST_SENTENCES]
    answer = _sentences(trend)
    if (more := len(trend.changes) - MOST_SENTENCES) > 0:
        answer.append(f"{format_count(more, 'older change')}: see the table.")
    judged = len(_judged(trend))
    slower = [*_slower_now(trend), *_fast_again(trend)]
    accepted = [*_since_accepted(trend)]
    if judged and not (answer or slower or any(each.accepted for each in trend.series)):
        answer = [f"No lasting change shows in {format_count(judged, 'row')}."]
    answer += [*slower, *_not_counted(trend), *accepted]
    answer += _unknown(trend)
    known = [each for each in trend.series if each.last.level]
    tone = BAD if any(c.is_current and c.ratio.value > 1 for c in trend.changes) else ""
    steps = [(change, step) for change in trend.changes for step in change.steps]
    blocks: list[Block] = [
        Pictures(lambda: [*pictures(trend)]),
        Table("Usual level of each row", ROW_COLUMNS, trend.series, _title, brief=known),
        Table("Changes by row", CHANGE_COLUMNS, steps, partial(_when, trend), "change", brief=()),
        *times_of_runs(trend, _accepted(trend)),
        Items([*_waits(trend), *_slow_by_chance(trend), *notes(trend.runs)], "Notes"),
    ]
    return Document(f"History {trend.path}", subtitle, answer, blocks, tone=tone)


def _sentences(trend: Trend) -> list[str]:
    """Of each change, the newest first."""
    texts = [sentence(change, trend) for change in trend.changes[:MOST_SENTENCES]]
    return [*texts[:1], *(f"Before that, {text[:1].lower()}{text[1:]}" for text in texts[1:])]


def sentence(change: Change, trend: Trend) -> str:
    """A change in one sentence: when, which rows, how much (by row where rows really differ), and
    what changed then."""
    is_slower = change.ratio.value > 1
    became = f"{rows_of(change, trend)} became {'slower' if is_slower else 'faster'}"
    first, last = (f"{trend.moment(r)} (run {r.id})" for r in (change.run, change.until))
    when = f"At {first}" if change.run == change.until else f"Between {first} and {last}"
    return f"{when} {became}: {_times(_ratios(change))}; {causes_text(change)}."


def _ratios(change: Change) -> list[Estimate]:
    """The ratios of its rows, or their mean: see _by_row."""
    return _by_row(step.ratio for step in change.steps)


def _by_row(ratios: Iterable[Estimate]) -> list[Estimate]:
    """The ratios of rows where they really differ, or by so much that a mean is none of them; else
    their mean."""
    own = [*ratios]
    whole = mean_ratio(own)
    differ = any(decide(one.scaled(1 / whole.value), TOLERANCE) in CHANGED for one in own)
    values = [one.value for one in own]
    return own if differ or max(values) > ALIKE * min(values) else [whole]


def _times(own: Sequence[Estimate], how: str = "as long") -> str:
    """What _by_row found, in words; of ratios that are hardly known, the least that they are."""
    if not own[1:]:
        return cells.times_text(own[0], how)
    if any(each.is_unknown for each in own):
        return f"over {min(each.ends[0] for each in own):.2g} times {how}, by row"
    return f"{cells.ratios_text(own)} times {how}, by row"


def _not_counted(trend: Trend) -> Iterator[str]:
    """How many of the last runs count for no row, for their ranks waited for a core."""
    counted = {point.run for each in trend.series for point in each.every if point.counts}
    if number := len([*takewhile(lambda run: run not in counted, reversed(trend.runs))]):
        last = "The last run does" if number == 1 else f"The last {number} runs do"
        yield f"{last} not count: {WAITED}."


def _slower_now(trend: Trend) -> Iterator[str]:
    """Which rows are slower than usual now, and what makes that usual."""
    current = [c for c in trend.changes if c.is_current and c.ratio.value > 1]
    began = {id(step.found): c.run for c in current for step in c.steps}
    numbers = collect((len(each.late.later), each) for each in trend.series if each.late)
    for _, late in sorted(numbers.items(), reverse=True):
        yield from _slower_without_step(late, trend)
    told = collect(
        (began.get(id(each), each.slower.after), each)
        for each in trend.series if each.slower and each.slower != each.late
    )  # fmt: skip
    for run, rows in told.items():
        yield (
            f"Checks compare {_names(rows, trend)} with the level before run {run.id}. "
            f"{_accept(run, trend)} makes the later level usual."
        )


def _accept(run: HistoryRun, trend: Trend) -> str:
    return f"`commbench history accept {run.id}{db_option(Path(trend.path))}`"


def _slower_without_step(rows: Sequence[FittedSeries], trend: Trend) -> Iterator[str]:
    """Which rows are slower in the last runs without a step yet, and what changed then."""
    found = [each.late for each in rows if each.late]
    runs = len(found[0].later)
    last = "run" if runs == 1 else f"{runs} runs"
    last += f" that count{'s' * (runs == 1)}" * any(each.waited for each in rows)
    is_sure = all(each.ratio.ends[0] > 1 for each in found)
    new = [point for each in found for point in each.later]
    old = [point for each in found for point in each.before]
    by = mean_ratio(each.ratio for each in found).value
    causes = describe_causes(host_causes(old, new, by)) if is_sure else ""
    slower = "Slower" if is_sure else "Perhaps slower"
    first = Counter(each.later[0].run for each in found).most_common(1)[0][0]
    is_only = runs > 1 and all(each.late == each.slower for each in rows)
    accept = f" If that is to last, {_accept(first, trend)} makes it usual." * is_only
    times = _times(_by_row(each.ratio for each in found), "as long as before")
    yield (
        f"{slower} in the last {last}, too few or too noisy for a step: {_names(rows, trend)} took "
        f"{times}{f'; {causes}' * bool(causes)}.{accept}"
    )
    before, since = ({point.run for point in points} for points in (old, new))
    calls = {each.case.call for each in rows}
    words = what_is_new(trend.environments, before, since, calls) if is_sure else []
    yield from [f"{as_sentence(list_some(words, MOST_CAUSES))}."] * bool(words)


def _names(rows: Sequence[FittedSeries], trend: Trend) -> str:
    """The names of some rows, also of such that have too few runs for a step."""
    cases = [each.case for each in rows]
    return name_rows(cases, [*cases, *_judged(trend)], LONGEST)


def _fast_again(trend: Trend) -> Iterator[str]:
    """Which rows are faster again in the last runs, after their last slowdown."""
    every = collect(
        ((change.run.id, step.found.over_before <= AS_FAST), step.found)
        for change in trend.changes for step in change.steps if step.is_undone
    )  # fmt: skip
    for (slow, is_as_fast), rows in every.items():
        names = _names(rows, trend)
        runs = span(str, [each.back for each in rows])
        last = "The last run is" if runs == "1" else f"The last {runs} runs are"
        most = cells.ratio_text(max(each.over_before for each in rows))
        how = f"as fast as before run {slow} again" if is_as_fast else (
            f"faster again, but took up to {most} times as long as before run {slow}"
        )  # fmt: skip
        yield f"{last} {how}, too few for a level: {names}."


def _unknown(trend: Trend) -> Iterator[str]:
    """Of how many rows nothing can be said yet, and how many runs these need."""
    lacks = [FEWEST - len(f.series.points) for f in trend.series if not f.level]
    lacks = [number for number in lacks if number > 0]
    if lacks:
        other = " other" * (len(lacks) < len(trend.series))
        every = f"{len(lacks)}{other} {'row needs' if len(lacks) == 1 else 'rows need'}"
        needs = "Every row needs" if 1 < len(lacks) == len(trend.series) else every
        more = span(str, lacks)
        yield (
            f"{needs} {more} more run{'s' * (more != '1')} before a step can show (a step needs "
            f"{FEWEST} runs, a level {SHORTEST})."
        )


def _waits(trend: Trend) -> Iterator[str]:
    """The runs that do not count, for their ranks waited for a core."""
    rows = sum(bool(each.waited) for each in trend.series)
    if runs := sorted({point.run.id for each in trend.series for point in each.waited}):
        yield (
            f"{'Runs' if runs[1:] else 'Run'} {list_some([*map(str, runs)], 8)}: {WAITED}, "
            "so these times make no level and no step "
            f"({format_count(rows, 'row')}). {_hint(trend)}"
        )


def _slow_by_chance(trend: Trend) -> Iterator[str]:
    """Which earlier run was so slow by chance that a check takes later ones for that, too."""
    found = [
        (f.level, ratio, f) for f in trend.series if f.level and (ratio := f.level.slow_run_ratio)
    ]
    rows = collect((level.slowest_run, (ratio, each)) for level, ratio, each in found)
    for run, own in rows.items():
        yield (
            f"Run {run} took {cells.ratios_text(ratio for ratio, _ in own)} times as long as usual "
            f"({_names([each for _, each in own], trend)}), and later runs did not. So a check has "
            "no verdict on a run that is slow, but less so, before it is the third in a row. "
            f"`commbench history forget {run}{db_option(Path(trend.path))}` leaves that run out."
        )


def _hint(trend: Trend) -> str:
    """What lets ranks wait less, where it is the same for the systems whose ranks waited."""
    systems = {each.series.system for each in trend.series if each.waited}
    hints = {busy_hint(s.cpu_mode) for s in systems if s.device == "cpu"}
    return hints.pop() if len(hints) == 1 else waited_hint([])


def _since_accepted(trend: Trend) -> Iterator[str]:
    """Which runs someone accepted, and how times differ since."""
    for run in _accepted(trend):
        of_one = f" of {run.system.name}" * (len({each.system for each in trend.runs}) > 1)
        at = f"Run {run.id} ({trend.moment(run)})"
        yield f"{at} is accepted: the usual level{of_one} begins there."
        own = [f for f in trend.series if f.series.system == run.system and f.accepted]
        if own:
            times = _times(_by_row(f.accepted for f in own if f.accepted))
            yield f"Since then, {_names(own, trend)} took {times} as before."


def _accepted(trend: Trend) -> list[HistoryRun]:
    """With which runs the usual level of a check begins, where someone accepted one."""
    return [run for run in trend.runs if trend.accepted.get(run.system) == run.placed]


def _level_text(found: FittedSeries) -> str:
    """The usual level with its digits, the mean of a few runs, or how many more the row needs."""
    if mean := found.level.mean if found.level else found.last.level:
        return cells.time_text(mean)
    return f"after {format_count(SHORTEST - found.last.number, 'more run')}"


def _counted(found: FittedSeries) -> str:
    """On how many runs the usual level rests: `16 of 24`."""
    level = found.level
    return (level and level.counted) or str(len(found.series.points))


def _last_run(found: FittedSeries) -> float | None:
    """How many times as long as usual the last run took that counts."""
    return found.series.points[-1].time.value / found.level.time if found.level else None


def _when(trend: Trend, of: tuple[Change, RowStep]) -> str:
    return f"run {of[0].run.id}, {trend.moment(of[0].run)}"


def rows_of(change: Change, trend: Trend, longest: float = LONGEST) -> str:
    """The names of the rows of a change."""
    return name_rows([s.case for s in change.steps], _judged(trend, change.system), longest)


def _judged(trend: Trend, *systems: System) -> list[Case]:
    """The rows that have enough runs for a step, of all systems or of these. Ranges of sizes in
    names are among them."""
    own = (f for f in trend.series if not systems or f.series.system in systems)
    return [found.case for found in own if found.fit.noise]


def notes(runs: Sequence[HistoryRun]) -> Iterator[str]:
    """What may mislead: clocks that were wrong, and different systems under one name."""
    if late := [run for run in runs if run.placed != run.started]:
        yield (
            f"{format_count(len(late), 'run')} (such as {late[0].id}) started later than they were "
            "added, by the clocks: they are placed when they were added."
        )
    on_cpu = [run.time for run in runs if run.system.device == "cpu"]
    if on_cpu[1:] and (seconds := (max(on_cpu) - min(on_cpu)).total_seconds()) < TURN_S:
        yield (
            f"All runs were made within {max(1, ceil(seconds / 60))} min: they do not show how the "
            "host changes from hour to hour."
        )
    systems = collect((system.node, system) for system in dict.fromkeys(run.system for run in runs))
    for node, own in systems.items():
        if len(own) > 1:
            has = f"{node} has runs of {len(own)} systems, which have rows of their own"
            yield f"{has}: {'; '.join(each.name for each in own)}"


def _title(found: FittedSeries) -> str:
    return f"{found.case.title}, {found.series.system.where}"


PERCENT = cells.Unit(format_rough_percent)
CHANGE_COLUMNS = (
    Column("row", lambda of: name_rows([of[1].case], [of[1].case], LONGEST), cells.TEXT),
    Column("before", lambda of: of[1].around[0], cells.TIME),
    Column("since", lambda of: of[1].around[1], cells.TIME),
    Column("ratio", lambda of: of[1].ratio, cells.RATIO),
    Column("95 %\ninterval", lambda of: of[1].ratio, cells.RATIO_INTERVAL),
)
ROW_COLUMNS = (
    cells.SIZE,
    Column("usual\ntime", _level_text, cells.NUMBER),
    Column("95 % of\nruns", lambda f: f.level and f.level.prediction, cells.TIME_INTERVAL, 8),
    Column("runs", _counted, cells.NUMBER),
    Column("waited", lambda f: len(f.waited) or None, cells.NUMBER, 7),
    Column("steps", lambda f: len(f.steps) or None, cells.NUMBER, 7),
    Column("noise", lambda f: f.level and f.level.deviation, PERCENT, 6),
    Column("last run\nover usual", _last_run, cells.RATIO, 7),
)
VIEW = View(document, schema=1)


# The picture.


def pictures(trend: Trend) -> Iterator[Picture]:
    """The picture of the rows, with the sentences of the answer; none without a level."""
    texts = _sentences(trend)
    now = (*_slower_now(trend), *_fast_again(trend), *_since_accepted(trend))
    texts = [*texts, *now] or [*document(trend).answer[:1]]
    yield from rows_picture(trend, texts, _accepted(trend))


# The list of runs, and all points for other programs.


@dataclass(frozen=True, repr=False)
class RunsOfHistory(Result, view="answers.history.document:RUNS", rows="runs"):
    """The runs of a history."""

    history: str
    runs: tuple[HistoryRun, ...]
    """The newest first."""
    waited: dict[int, int]
    """How many rows of a run, by its id, do not count, for their ranks waited for a core."""
    accepted: frozenset[int] = frozenset()
    """The ids of the runs with which the usual level of a system begins: someone accepted it."""


def runs_document(found: RunsOfHistory) -> Document:
    """A row for each run, the newest first."""
    systems = [*{run.system.name for run in found.runs}]
    of_one = f" of {systems[0]}" if len(systems) == 1 else ""
    answer = [f"{format_count(len(found.runs), 'run')}{of_one} in {found.history}."]
    columns = [column for column in RUN_COLUMNS if column.heading != "system" or len(systems) > 1]
    waited = Column("rows\nwaited", lambda run: found.waited.get(run.id), cells.NUMBER, 7)
    accepted = Column("accepted", lambda run: "yes" * (run.id in found.accepted), cells.TEXT)
    table = Table("", (*columns, waited, accepted), found.runs)
    return Document("Runs of a history", (), answer, [table, Items([*notes(found.runs)], "Notes")])


RUN_COLUMNS = (
    Column("run", attrgetter("id"), cells.NUMBER),
    Column("label", attrgetter("label"), cells.TEXT, 8, is_wrapped=True),
    Column("started (UTC)", lambda run: run.started[:19].replace("T", " "), cells.TEXT, 8),
    Column("system", lambda run: run.system.name, cells.TEXT, 7, is_wrapped=True),
    Column("path", attrgetter("path"), cells.TEXT, 1, is_detail=True),
)
RUNS = View(runs_document, schema=1)

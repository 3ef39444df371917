"""The usual level of each row of a history, as the baseline of a check.

A check must not take a slowdown that lasts for usual. So a level counts until a lower one follows,
or until someone accepts a later one: `commbench history accept RUN` begins a new level there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from math import exp, log, sqrt
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from commbench.analysis.environment import compare_recorded, recorded_of
from commbench.analysis.load import LoadedRun, OfHistory
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.answers.compare.turns import SURE_TURNS
from commbench.answers.history import history as trends
from commbench.answers.history import records
from commbench.answers.history.causes import usual_of
from commbench.answers.history.cuts import FEWEST
from commbench.answers.history.fitted import FittedSeries, fit_series
from commbench.answers.history.history import Change
from commbench.answers.history.level import Level
from commbench.answers.history.noise import JUMP
from commbench.answers.history.records import HistoryRun, Point, Series
from commbench.answers.history.store import HISTORY, History, db_option
from commbench.output.text import span
from commbench.plan.case import Case
from commbench.results.schema import OK
from commbench.stats import collect
from commbench.units import format_count
from commbench.views.cells import ratios_text

_MOST = 500.0
"""Half an interval of logarithms that is not known, as that of a time which may be 0."""
TURN_S = 600.0
"""Runs that began so long after each other show how the host changes."""
LATER_RUNS = "{} that started later do not"
WAITED_TOO = "their ranks waited for a core"
_IN_ORDER = attrgetter("placed", "id")


def find_baseline(
    history: History | None,
    run: LoadedRun,
    node: str = "",
    path: Path = HISTORY,
    covers: Callable[[Any], bool] = bool,
) -> tuple[LoadedRun, list[str]]:
    """The usual level of each row of a run in the runs of the same system that started before it,
    as a run whose intervals are those of the time of this run; and what the history lacks, or which
    runs are slower. It has no row for a case with fewer than FEWEST runs. Without a history at
    `path` it is None. Of the run, the rows count that a rule `covers`."""
    measured, run = run.rows, run._replace(rows=[row for row in run.rows if covers(row)])
    if not run.rows:  # it was cut off before its first row, which fails a check
        name, lacks = f"history of {node or 'this host'}", OfHistory("this run has no row")
        return LoadedRun(name, path, run.columns, [], history=lacks), []
    system, cases = records.find_system(run, node), {row.case.key(): row for row in run.rows}
    known = [*history.series(lambda s, c: s == system and covers(c))] if history else []
    found = [each for each in known if each.case.key() in cases]
    begin = history.accepted().get(system, "") if history else ""
    series = [each._replace(points=(*_earlier(each.points, run, begin),)) for each in found]
    if not any(point.run.placed >= begin for each in series for point in each.points):
        begin = ""  # the run is older than the accepted level
    environments = history.environments() if history else {}
    rows, levels, is_slow = [], {}, False
    of_calls: dict[str, list[HistoryRun]] = {}
    fitted = fit_series(series, accepted={system: begin} if begin else {})
    for each in fitted:
        points, key = each.series.points, each.case.key()
        if not each.level:
            continue
        row, level = cases[key], each.level
        far = JUMP * level.deviation
        usual = [p for p in points[each.begin :] if abs(log(p.time.value / level.time)) <= far]
        close = _are_close(points if each.begin else usual)
        levels[key] = level = level.for_run(row.time)._replace(is_close=close)
        rows.append(_baseline_row(row, level, usual))
        of_calls.setdefault(each.case.call, []).extend(point.run for point in usual)
        if late := each.slower:  # as slow as they, or as usual again
            is_slow |= row.time is None or row.time.value > level.time * sqrt(late.ratio.value)
    notes = []
    if is_slow:
        changes = trends.find_changes(fitted, environments)
        notes.append(_slower_note(fitted, [row.case for row in run.rows], path, changes))
    own = str(run.path.absolute())
    if any(point.run.path == own for each in series for point in each.points):
        notes.append("This run is the accepted level: it is compared with itself.")
    if history and (missing := len(cases) - len(rows)):
        notes.append(
            f"In {format_count(missing, 'row')}, fewer than {FEWEST} earlier runs count on "
            f"{system.name}. Runs whose ranks waited for a core do not."
        )
    if history:
        lacking = [each for each in known if each.case.key() not in cases]
        earlier = [each.points[-1].run for each in series if each.points]
        if earlier:
            notes += _missing_rows(max(earlier, key=_IN_ORDER), lacking, measured)
        else:
            notes += records.other_systems(history.runs(system.node), system)
    few = [each for each in fitted if not each.level]
    counts = [len(each.series.points) for each in few]
    number = span(str, [*counts, *[0] * (len(cases) - len(series))] or [0])
    counted = "1 earlier run counts" if number == "1" else f"{number} earlier runs count"
    absent = f"{counted}, and {FEWEST} are needed"
    absent = absent if history else f"there is no history yet at {path}"
    if any(waited := [len(each.waited) for each in few]):
        absent += f"; {span(str, waited)} do not, {WAITED_TOO}"
    used, every = ({p.run for each in own for p in each.points} for own in (series, found))
    if newer := sum(run.path != own for run in every - used):
        absent += f"; {LATER_RUNS.format(newer)}"
    name, paths = f"history of {system.node}", {p.run.path for each in found for p in each.points}
    most = _mostly(chain(*of_calls.values()), len(rows))
    host = collect((takes, log(time)) for run in most for takes, time in run.host_s)
    usual_facts, now = usual_of(environments, most), recorded_of(run)
    differences = [d for d in compare_recorded(usual_facts, now) if not d.is_of_call]
    for call, runs in of_calls.items():  # its rows may have another level than the others
        usual_facts = usual_of(environments, _mostly(runs, sum(r.call == call for r in rows)))
        differences += [
            d for d in compare_recorded(usual_facts, now) if d.is_of_call and d.concerns(call)
        ]
    facts = OfHistory(absent, levels, host, tuple(differences), own in paths, node)
    return LoadedRun(name, path, run.columns, rows, history=facts), notes


def _missing_rows(
    last: HistoryRun, lacking: Iterable[Series], rows: Iterable[Any]
) -> Iterator[str]:
    """Which of the series that a run with these rows lacks the last run before it has."""
    cases = [each.case for each in lacking if any(point.run == last for point in each.points)]
    if cases:
        names = name_rows(cases, [*cases, *(row.case for row in rows)], LONGEST)
        yield (
            f"Run {last.id}, the last one before, also has {names}: this run does not, so nothing "
            "is said of that."
        )


def _mostly(runs: Iterable[HistoryRun], rows: int) -> list[HistoryRun]:
    """The runs which are usual for half of so many rows or more."""
    return [run for run, number in Counter(runs).items() if 2 * number >= rows]


def _are_close(points: Sequence[Point]) -> bool:
    """See Level.is_close."""
    times = [point.run.time for point in points]
    turns = 1 + sum((b - a).total_seconds() >= TURN_S for a, b in pairwise(times))
    return turns < SURE_TURNS and any(point.run.system.device == "cpu" for point in points)


def _slower_note(
    fitted: Iterable[FittedSeries], every: Sequence[Case], path: Path, changes: Iterable[Change]
) -> str:
    """Which runs are slower than usual, by how much, what changed then if that is a step, and how
    to accept it; of `every` row that is checked."""
    rows = [(each.case, late) for each in fitted if (late := each.slower)]
    firsts = Counter(late.later[0].run for _, late in rows)
    first = max(firsts, key=lambda run: (firsts[run], run.placed, run.id))
    rows = [(case, late) for case, late in rows if late.later[0].run == first]
    names = name_rows([case for case, _ in rows], every, LONGEST)
    found = [late for _, late in rows]
    # Where `history show` finds a step, it is that.
    slowdowns = (each for each in changes if each.ratio.value > 1 and each.is_current)
    change = next((c for c in slowdowns if c.latest.placed >= first.placed), None)
    first = change.run if change else first
    slower, db = ratios_text(row.ratio.value for row in found), db_option(path)
    since = [[p for p in row.later if p.run.placed >= first.placed] for row in found]
    runs = span(str, [*map(len, since)])
    accept = ""
    if runs != "1":  # a single one may be slow by chance
        accept = f" If that is to last, `commbench history accept {first.id}{db}` makes it usual."
    cause = f"; {trends.causes_text(change)}" if change else ""
    ended = min((row.after for row in found), key=_IN_ORDER)
    then = "since then they"
    if ended.placed < first.placed and not (change and change.before.placed <= ended.placed):
        then = f"runs from then on were slower; since run {first.id} they"
    else:
        ended = first
    return (
        f"Usual for {names} is the level before run {ended.id} "
        f"({ended.time:%Y-%m-%d %H:%M} UTC): {then} took {slower} times as long in {runs} "
        f"run{'s' * (runs != '1')} before this one{cause}.{accept}"
    )


def _earlier(points: Iterable[Point], run: LoadedRun, begin: str) -> list[Point]:
    """The points of other runs that started before; and of the run itself where the accepted level
    begins with it."""
    path, start = str(run.path.absolute()), run.header.started if run.header else ""

    def is_earlier(found: HistoryRun) -> bool:
        if found.path == path:
            return found.placed == begin
        return not start or found.started < start

    return [point for point in points if is_earlier(point.run)]


def _baseline_row(row: Any, level: Level, points: Iterable[Point]) -> Any:
    """The row as it is on its usual level, that of these points."""
    time, factor = level.time, exp(min(_MOST, level.full_half))
    shares = [p.queued_share for p in points if p.queued_share is not None]
    other = dict.fromkeys(("time_p5_s", "time_p5_ci_low_s", "time_p5_ci_high_s"))
    return row._replace(
        time_s=time, time_ci_low_s=time / factor,
        time_ci_high_s=max(time * factor, level.slowest), **other,
        busbw_bytes_per_s=None, launches=None, status=OK, wrong=0, stop_reason="",
        queued_share=fmean(shares) if shares else None, warnings="",
    )  # fmt: skip

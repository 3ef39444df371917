"""The usual level of each row of a history, as the baseline of a check.

A check must not take a slowdown that lasts for usual. So a level counts until a lower one follows,
or until someone accepts a later one: `commbench history accept RUN` begins a new level there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, takewhile
from math import exp, hypot, log, sqrt
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple

from commbench.analysis.environment import compare_recorded, recorded_of
from commbench.analysis.load import LoadedRun, OfHistory
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.analysis.statistics import Z, median
from commbench.answers.compare.turns import SURE_TURNS
from commbench.answers.history import history as trends
from commbench.answers.history import records, steps
from commbench.answers.history.causes import usual_of
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.history import TOLERANCE, Change
from commbench.answers.history.noise import JUMP, LEAST_NOISE, estimate_noise
from commbench.answers.history.records import HistoryRun, Point, Series
from commbench.answers.history.store import HISTORY, History, db_option
from commbench.answers.history.two_levels import ALPHA, slow_end
from commbench.output.text import span
from commbench.plan.case import Case
from commbench.results.schema import OK
from commbench.stats import Estimate, collect, factor_of_all, np, student_quantile
from commbench.units import format_count
from commbench.views.cells import ratio_text

_MOST = 500.0
"""Half an interval of logarithms that is not known, as that of a time which may be 0."""


class Level(NamedTuple):
    """The usual level of a row, and how far a new run may be from it. Deviations are standard ones,
    of logarithms."""

    time: float
    """Seconds."""
    runs: int
    """On which it rests, without those that are far from the others."""
    number: int
    """With these."""
    deviation: float
    """Of single runs, in which what differs within and between runs is."""
    degrees: int
    """Of freedom, of this deviation."""
    usual: float
    """The deviation of a usual run by its own interval; it is a part of `deviation`."""
    own: float
    """By how much more the interval of the new run is wider than that: the square root of the
    difference of the variances."""
    end: int
    """The place of the first run of what is slower now: of the last segment, or after the level."""
    after: int
    """The place of the first run after the level."""
    known: int
    """The runs of which the deviation is known, those of other levels among them, and without the
    outliers."""
    outliers: int
    """How many more there are."""
    slowest: float
    """Seconds that a usual run may take, since earlier ones did: see slow_by_chance."""
    slowest_at: int
    """The place of that run."""
    slowest_run: int = 0
    """Its number in a history."""
    is_close: bool = False
    """Whether its runs, on CPUs, are of fewer than SURE_TURNS times that are TURN_S apart: so they
    do not show how the host changes."""
    earlier: int = 0
    """How many runs count before the new one."""

    def half(self, more: int = 0) -> float:
        """Half the 95 % prediction interval of a usual run, by so many more runs."""
        factor = student_quantile(Z, self.degrees + more)
        return factor * self.deviation * sqrt(1 + 1 / (self.runs + more))

    @property
    def slow_run_ratio(self) -> float | None:
        """How many times as long as usual that run took, where it is beyond the interval of noise:
        it alone makes the interval wider."""
        found = self.slowest / self.time
        return found if found > exp(self.half()) else None

    @property
    def counted(self) -> str:
        """How many of the earlier runs it rests on, where others do not count: `5 of 7`."""
        return f"{self.runs} of {self.earlier}" * (self.runs < self.earlier)

    @property
    def slow_s(self) -> float:
        """The time above which a run is slower than noise explains."""
        return self.time * exp(max(self.half(), log(1 + TOLERANCE)))

    @property
    def full_half(self) -> float:
        """Half the 95 % prediction interval of the new run."""
        return hypot(self.half(), Z * self.own)


TURN_S = 600.0
"""Runs that began so long after each other show how the host changes."""
LATER_RUNS = "{} that started later do not"
WAITED_TOO = "their ranks waited for a core"


def find_baseline(
    history: History | None, run: LoadedRun, node: str = "", path: Path = HISTORY
) -> tuple[LoadedRun, list[str]]:
    """The usual level of each row of a run in the runs of the same system that started before it,
    as a run whose intervals are those of the time of this run; and what the history lacks, or which
    runs are slower. It has no row for a case with fewer than FEWEST runs. Without a history at
    `path` it is None."""
    if not run.rows:  # it was cut off before its first row, which fails a check
        name, lacks = f"history of {node or 'this host'}", OfHistory("this run has no row")
        return LoadedRun(name, path, run.columns, [], history=lacks), []
    system, cases = records.find_system(run, node), {row.case.key(): row for row in run.rows}
    found = [*history.series(lambda s, c: s == system and c.key() in cases)] if history else []
    begin = history.accepted().get(system, "") if history else ""
    series = [each._replace(points=(*_earlier(each.points, run, begin),)) for each in found]
    if not any(point.run.placed >= begin for each in series for point in each.points):
        begin = ""  # the run is older than the accepted level
    environments = history.environments() if history else {}
    rows, levels, is_slow = [], {}, False
    slower: list[SlowerRow] = []
    of_calls: dict[str, list[HistoryRun]] = {}
    few: list[Series] = []
    alpha = trends.alpha_of_each(sum(point.counts for point in each.points) for each in series)
    for each in series:
        points, key = [point for point in each.points if point.counts], each.case.key()
        accepted = sum(point.run.placed < begin for point in points)
        if len(points) < FEWEST or accepted == len(points):
            few.append(each)
            continue
        times = [point.time for point in points]
        level = find_level(times, cases[key].time, accepted, alpha)
        far = JUMP * level.deviation
        usual = [p for p in points[accepted:] if abs(log(p.time.value / level.time)) <= far]
        slow = points[level.slowest_at].run.id
        close = _are_close(points if accepted else usual)
        levels[key] = level._replace(slowest_run=slow, is_close=close, earlier=len(points))
        rows.append(_baseline_row(cases[key], level, usual))
        of_calls.setdefault(each.case.call, []).extend(point.run for point in usual)
        if row := find_slower_row(each.case, points, level):
            slower.append(row)
            own = cases[key].time  # as slow as they, or as usual again
            is_slow |= own is None or own.value > level.time * sqrt(row.times)
    notes = []
    if is_slow:
        changes = trends.find_changes(trends.fit_series(series), environments)
        notes.append(_slower_note(slower, [row.case for row in run.rows], path, changes))
    own = str(run.path.absolute())
    if any(point.run.path == own for each in series for point in each.points):
        notes.append("This run is the accepted level: it is compared with itself.")
    if history and (missing := len(cases) - len(rows)):
        notes.append(
            f"In {format_count(missing, 'row')}, fewer than {FEWEST} earlier runs count on "
            f"{system.name}. Runs whose ranks waited for a core do not."
        )
    if history and not found:
        notes += records.other_systems(history.runs(system.node), system)
    counts = [sum(point.counts for point in each.points) for each in few]
    number = span(str, [*counts, *[0] * (len(cases) - len(series))] or [0])
    counted = "1 earlier run counts" if number == "1" else f"{number} earlier runs count"
    absent = f"{counted}, and {FEWEST} are needed"
    absent = absent if history else f"there is no history yet at {path}"
    if any(waited := [sum(not point.counts for point in each.points) for each in few]):
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


class SlowerRow(NamedTuple):
    """A row whose last runs are slower than its usual level."""

    case: Case
    later: Sequence[Point]
    """These runs."""
    times: float
    """How many times as long they took; the geometric mean."""
    after: HistoryRun
    """The first run after the level, which others may precede that are slower now."""


def find_slower_row(case: Case, points: Sequence[Point], level: Level) -> SlowerRow | None:
    """A row with these points, if the last of them are slower than its usual level; None where the
    last one may be as fast as usual again."""
    later = points[level.end :]
    newest = sorted(point.time.value for point in later[-SHORTEST:])
    if not later or min(median(newest), later[-1].time.value) <= level.slow_s:
        return None
    mean = geometric_mean(point.time.value for point in later)
    return SlowerRow(case, later, mean / level.time, points[level.after].run)


def _mostly(runs: Iterable[HistoryRun], rows: int) -> list[HistoryRun]:
    """The runs which are usual for half of so many rows or more."""
    return [run for run, number in Counter(runs).items() if 2 * number >= rows]


def _are_close(points: Sequence[Point]) -> bool:
    """See Level.is_close."""
    times = [point.run.time for point in points]
    turns = 1 + sum((b - a).total_seconds() >= TURN_S for a, b in pairwise(times))
    return turns < SURE_TURNS and any(point.run.system.device == "cpu" for point in points)


def _slower_note(
    found: Sequence[SlowerRow], every: Sequence[Case], path: Path, changes: Iterable[Change]
) -> str:
    """Which runs are slower than usual, by how much, what changed then if that is a step, and how
    to accept it; of `every` row that is checked."""
    firsts = Counter(row.later[0].run for row in found)
    first = max(firsts, key=lambda run: (firsts[run], run.placed, run.id))
    found = [row for row in found if row.later[0].run == first]
    # Where `history show` finds a step, it is that.
    slowdowns = (each for each in changes if each.ratio.value > 1 and each.is_current)
    change = next((c for c in slowdowns if c.latest.placed >= first.placed), None)
    first = change.run if change else first
    slower, db = span(ratio_text, [row.times for row in found]), db_option(path)
    since = [[p for p in row.later if p.run.placed >= first.placed] for row in found]
    runs = span(str, [*map(len, since)])
    names = name_rows([row.case for row in found], every, LONGEST)
    accept = ""
    if runs != "1":  # a single one may be slow by chance
        accept = f" If that is to last, `commbench history accept {first.id}{db}` makes it usual."
    cause = f"; {trends.causes_text(change)}" if change else ""
    ended = min((row.after for row in found), key=attrgetter("placed", "id"))
    then = "since then they"
    if ended.placed < first.placed and not (change and change.before.placed <= ended.placed):
        then = f"runs from then on were slower; since run {first.id} they"
    else:
        ended = first
    return (
        f"Usual for {names} is what runs took before run {ended.id} "
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


def find_level(
    times: Sequence[Estimate],
    new: Estimate | None = None,
    accepted: int = 0,
    alpha: float = ALPHA,
) -> Level:
    """The usual level of these times, of at least FEWEST runs, for a new run. It is that of the
    segment with the lowest level, of those since the place `accepted`, without the last times that
    are slower than the others, or as fast as before a slowdown again."""
    fit, back = trends.fit_with_return(times, alpha, TOLERANCE, accepted)
    if back:
        return find_level(times[:-back], new, accepted, alpha)
    logs = [log(each.value) for each in times]
    noise = estimate_noise(np.array(logs)).deviation
    segments, used = [], {}
    for part in fit.segments:
        near = near_median(logs[part.first : part.last + 1], noise)
        is_sure = part.level and part.number >= steps.STEADY
        segments.append(part if is_sure else part._replace(level=Estimate(exp(fmean(near)))))
        used[part.first] = part.number if is_sure else len(near)
    deviation, degrees, known = single_points(logs, segments)
    outliers = len(logs) - known
    base = _fast_parts([part for part in segments if part.first >= accepted], deviation)
    slow = _slow_end(logs, base[-1], noise) if base[-1] == segments[-1] else 0
    if slow:
        return find_level(times[:-slow], new, accepted, alpha)
    number, runs = (sum(of) for of in zip(*((p.number, used[p.first]) for p in base), strict=True))
    if number >= FEWEST:  # so many say by themselves how much runs differ
        fast = [each for part in base for each in logs[part.first : part.last + 1]]
        deviation, degrees, known = single_points(fast, base)
        outliers = len(fast) - known
    logs_of_base = (used[p.first] * log(p.level.value) for p in base if p.level)
    time = exp(sum(logs_of_base) / runs)
    at, above = slow_by_chance([*_residuals(logs, segments)])
    slowest = time * exp(above)
    usual = median(sorted(map(steps.own_deviation, times)))
    more = sqrt(max(0.0, (steps.own_deviation(new) if new else 0.0) ** 2 - usual**2))
    end = base[-1].last + 1 if base[-1] == segments[-1] else segments[-1].first
    return Level(
        time, runs, number, deviation, degrees, usual, more, end, base[-1].last + 1, known,
        outliers, slowest, at,
    )  # fmt: skip


def _slow_end(logs: Sequence[float], last: steps.Segment, noise: float) -> int:
    """How many of the last runs are slower than the others of the last segment: by a t test, or few
    that are far above its level. Of few runs, fast ones widen the scatter, which hides them."""
    assert last.level
    most = log(last.level.value) + JUMP * max(noise, log(1 + TOLERANCE))
    above = len([*takewhile(lambda each: each > most, reversed(logs))])
    return slow_end(logs[last.first :])[0] or above * (above < SHORTEST)


def _residuals(logs: Sequence[float], segments: Sequence[steps.Segment]) -> Iterator[float]:
    """Of each time that over the level of its segment; logarithms. All levels are known."""
    levels = [log(part.level.value) for part in segments if part.level for _ in range(part.number)]
    return (own - level for own, level in zip(logs, levels, strict=True))


def slow_by_chance(logs: Sequence[float]) -> tuple[int, float]:
    """The largest of these logarithms of times over their levels, with its place, of those after
    which a run was as fast as usual again; of many, that which 5 % of them exceed. A run that is
    not slower than that may be slow by the same chance."""
    ended = max((n for n, own in enumerate(logs) if own <= 0), default=0)
    return sorted(enumerate(logs[: ended + 1]), key=itemgetter(1))[-1 - (ended + 2) // 20]


def _fast_parts(segments: Sequence[steps.Segment], deviation: float) -> list[steps.Segment]:
    """The segment with the lowest level, and those whose level is as low but for noise: a slowdown
    between them has ended."""
    low = min(segments, key=attrgetter("level.value"))

    def is_low(part: steps.Segment) -> bool:
        assert part.level and low.level
        error = deviation * sqrt(1 / part.number + 1 / low.number)
        return log(part.level.value / low.level.value) <= max(Z * error, log(1 + TOLERANCE))

    return [*filter(is_low, segments)]


def near_median(logs: Sequence[float], noise: float) -> list[float]:
    """Of the logarithms of a level of fewer than STEADY runs, one of which may be an outlier, those
    that are near their median; of an even number, near the lower one of the middle two."""
    middle = sorted(logs)[(len(logs) - 1) // 2]
    away = sorted(abs(each - middle) for each in logs)
    usual = min(noise, max(2 * away[len(away) // 2], LEAST_NOISE))
    return [each for each in logs if abs(each - middle) <= JUMP * usual]


def single_points(
    logs: Sequence[float], segments: Sequence[steps.Segment]
) -> tuple[float, int, int]:
    """The standard deviation of single points about the levels of their segments, of all of which
    the level is known, its degrees of freedom, and of how many points it is. One point in ten, at
    least one, does not count where it is an outlier: at 5 % for all points together, by Student's t
    of the others."""
    squares = sorted(residual**2 for residual in _residuals(logs, segments))
    number, lost = len(squares), len(segments)
    z = factor_of_all(number)
    for out in range(max(1, number // 10), -1, -1):
        degrees = number - lost - out
        variance = sum(squares[: number - out]) / degrees
        if out and squares[-out] > variance * student_quantile(z, degrees) ** 2:
            break
    return max(sqrt(variance), LEAST_NOISE), degrees, number - out


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

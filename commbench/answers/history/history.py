"""What became slower or faster over the runs of a history, when, and what changed then; and the
level with which a new run is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import exp, hypot, log, sqrt
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from commbench.analysis.environment import Difference, Recorded, compare_recorded
from commbench.analysis.load import LoadedRun
from commbench.analysis.statistics import Z, median
from commbench.answers.history import records
from commbench.answers.history.records import HistoryRun, Point, Series, System
from commbench.answers.history.steps import (
    ALPHA,
    FEWEST,
    Fit,
    Segment,
    find_steps,
    own_deviation,
    single_points,
)
from commbench.answers.history.store import HISTORY, History, Keep
from commbench.output.text import span
from commbench.plan.case import Case
from commbench.results.schema import OK
from commbench.stats import Estimate, student_quantile
from commbench.units import format_count, format_GBps, format_percent
from commbench.views.formats import Result

TOLERANCE = 0.02
"""A level that changes by less has no step."""
LINK = "slowest transfer between hosts"
"""What is measured of the network before a run on several hosts."""
MOST_NEW = 30
"""A check tells of a rise of the level for so many runs."""
NEAR = 2
"""Steps of rows that are at most so many runs apart may be one."""


class FittedSeries(NamedTuple):
    """A series with its segments and steps."""

    series: Series
    """Its points that count."""
    fit: Fit
    waited: tuple[Point, ...] = ()
    """Those that do not, for their ranks waited for a core."""

    @property
    def last(self) -> Segment:
        """The points since the last step."""
        return self.fit.segments[-1] if self.fit.segments else Segment(0, -1, None)

    @property
    def case(self) -> Case:
        """What the row measured."""
        return self.series.case

    @property
    def every(self) -> list[Point]:
        """The points that count and those that do not, in order."""
        points = (*self.series.points, *self.waited)
        return sorted(points, key=lambda point: _order(point.run))

    def as_json(self) -> dict[str, Any]:
        """The case, its levels and its points."""
        points = [
            {"run": run.id, "at": run.placed, "time_s": time, "queued_share": queued}
            for run, time, queued in self.every
        ]
        return {
            "system": self.series.system.name, "row": self.case.name,
            "operation": self.case.operation, "size_bytes": self.case.size_bytes,
            **self.fit._asdict(), "points": points,
        }  # fmt: skip


class RowStep(NamedTuple):
    """A step of one row, with the places of its runs in the order of the system's runs."""

    found: FittedSeries
    number: int
    """Of the step, in the fit."""
    at: int
    earliest: int
    latest: int

    @property
    def case(self) -> Case:
        """What the row measured."""
        return self.found.case

    @property
    def ratio(self) -> Estimate:
        """The new level over the old one."""
        return self.found.fit.steps[self.number].ratio

    @property
    def is_last(self) -> bool:
        """Whether the row had no step since."""
        return self.number == len(self.found.fit.steps) - 1

    @property
    def levels(self) -> list[list[HistoryRun]]:
        """The runs of the segments before and after it."""
        parts = self.found.fit.segments[self.number : self.number + 2]
        return [[p.run for p in self.found.series.points[s.first : s.last + 1]] for s in parts]

    @property
    def clarity(self) -> float:
        """How far the step is beyond its uncertainty."""
        low, high = self.ratio.ends
        return abs(log(self.ratio.value)) / log(high / low)


@dataclass(frozen=True)
class Change:
    """Steps of several rows at one time, in one direction."""

    system: System
    before: HistoryRun
    """The last run that surely has the old level."""
    run: HistoryRun
    """The run that most likely is the first of the new level."""
    latest: HistoryRun
    """The first run that surely has it."""
    ratio: Estimate
    """New time over old time: the geometric mean over the rows, and that of their intervals."""
    steps: tuple[RowStep, ...]
    causes: tuple[Difference, ...]
    """What changed between `before` and `latest`, and for both levels as a whole; the likely causes
    first."""
    is_current: bool = True
    """Whether no row had another step since."""

    @property
    def likely(self) -> tuple[Difference, ...]:
        """The causes without those that hardly change times; all, where there are only such."""
        return tuple(each for each in self.causes if each.is_likely) or self.causes

    def as_json(self) -> dict[str, Any]:
        """The time, the rows and what changed."""
        return {
            "system": self.system.name,
            "at": self.run.placed,
            "after": self.before.placed,
            "not_later_than": self.latest.placed,
            "ratio": self.ratio,
            "rows": [{"row": each.case.name, "ratio": each.ratio} for each in self.steps],
            "changed": [{"name": c.name, "from": c.a, "to": c.b} for c in self.causes],
        }


@dataclass(frozen=True, repr=False)
class Trend(Result, view="answers.history.document", rows="series"):
    """The series of a history with their steps, and the changes that these are."""

    path: str
    series: tuple[FittedSeries, ...]
    changes: tuple[Change, ...]
    """The newest first."""
    runs: tuple[HistoryRun, ...]
    """The runs that have these series, in order."""

    def moment(self, run: HistoryRun) -> str:
        """The time of a run, UTC; with seconds where runs are less than a minute apart."""
        return f"{run.time:{self._form}}"

    @cached_property
    def _form(self) -> str:
        return records.short_form([run.time for run in self.runs], "%Y-%m-%d %H:%M")

    def as_json(self) -> dict[str, Any]:
        """Without the runs, whose times the points have."""
        return {"history": self.path, "changes": self.changes, "series": self.series}


def find_trend(
    history: History, keep: Keep = lambda *_: True, tolerance: float = TOLERANCE
) -> Trend:
    """Fit the series that `keep` accepts, by default all. The probability that a system without any
    step has one is ALPHA, whatever the number of its series."""
    environments = history.environments()
    fitted: list[FittedSeries] = []
    changes: list[Change] = []
    for _, group in groupby(history.series(keep), key=lambda series: series.system):
        own = fit_series([*group], tolerance)
        fitted += own
        changes += find_changes(own, environments)
    changes.sort(key=lambda change: change.run.placed, reverse=True)
    runs = sorted({point.run for each in fitted for point in each.every}, key=_order)
    return Trend(str(history.path), tuple(fitted), tuple(changes), tuple(runs))


def runs_of(fitted: Iterable[FittedSeries]) -> list[HistoryRun]:
    """The runs whose points count in series, in order."""
    return sorted({p.run for each in fitted for p in each.series.points}, key=_order)


def _order(run: HistoryRun) -> tuple[str, int]:
    return run.placed, run.id


def fit_series(series: Sequence[Series], tolerance: float = TOLERANCE) -> list[FittedSeries]:
    """The series of one system, with their steps."""
    alpha, fitted = ALPHA / max(1, len(series)), []
    for each in series:
        counted = each._replace(points=tuple(point for point in each.points if point.counts))
        fit = find_steps([point.time for point in counted.points], alpha, tolerance)
        waited = tuple(point for point in each.points if not point.counts)
        fitted.append(FittedSeries(counted, fit, waited))
    return fitted


def find_changes(
    fitted: Sequence[FittedSeries], environments: dict[int, Recorded]
) -> Iterator[Change]:
    """The steps of the series of one system, those together that are in one direction and may be at
    one time; the clearest step of a change tells its time."""
    runs = runs_of(fitted)
    places = {run.id: number for number, run in enumerate(runs)}
    rest = [
        RowStep(each, n, *(places[each.series.points[index].run.id] for index in step[:3]))
        for each in fitted
        for n, step in enumerate(each.fit.steps)
    ]
    rest.sort(key=lambda found: found.clarity, reverse=True)
    while rest:
        first = rest[0]
        own = [found for found in rest if _are_one(first, found)]
        rest = [found for found in rest if not _are_one(first, found)]
        own.sort(key=lambda found: (found.case.title, found.case.size_bytes))
        values = zip(*((s.ratio.value, *s.ratio.ends) for s in own), strict=True)
        ratio = Estimate(*map(geometric_mean, values))
        before, latest = runs[max(0, first.earliest - 1)], runs[first.latest]
        causes = [*_link_causes(runs, first)]
        causes += _causes(environments, (before, latest), first.levels)
        causes.sort(key=lambda cause: not cause.is_likely)
        yield Change(
            fitted[0].series.system, before, runs[first.at], latest, ratio, tuple(own),
            tuple(causes), all(each.is_last for each in own),
        )  # fmt: skip


def _are_one(first: RowStep, other: RowStep) -> bool:
    """Whether two steps may be at the same time, in the same direction."""
    is_near = first.earliest - NEAR <= other.latest and other.earliest <= first.latest + NEAR
    return (first.ratio.value > 1) == (other.ratio.value > 1) and is_near


def _causes(
    environments: dict[int, Recorded],
    near: Iterable[HistoryRun],
    levels: Iterable[Iterable[HistoryRun]],
) -> list[Difference]:
    """What differs between two runs, and between what is usual in two segments."""
    one, other = (environments[run.environment_id] for run in near)
    old, new = (_usual([environments[run.environment_id] for run in runs]) for runs in levels)
    usual = compare_recorded(old, new)
    return [each for each in compare_recorded(one, other) if each in usual]


def _usual(environments: Sequence[Recorded]) -> Recorded:
    """What most of several environments have in common."""

    def most(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
        counts = Counter(item for each in found for item in each.items())
        return dict(item for item, number in counts.items() if 2 * number > len(found))

    known = [each.variables for each in environments if each.variables is not None]
    return Recorded(most([each.facts for each in environments]), most(known) if known else None)


def _link_causes(runs: Sequence[HistoryRun], found: RowStep) -> Iterator[Difference]:
    """Whether the network between hosts had a step at that time, by the transfers before each
    run."""
    probed = [n for n, run in enumerate(runs) if run.link_bytes_per_s]
    rates = [Estimate(runs[n].link_bytes_per_s or 0.0) for n in probed]
    fit = find_steps(rates, ALPHA, TOLERANCE)
    for number, step in enumerate(fit.steps):
        is_before = probed[step.earliest] - NEAR <= found.latest
        if is_before and found.earliest <= probed[step.latest] + NEAR:
            levels = [part.level for part in fit.segments[number : number + 2]]
            yield Difference(LINK, *(f"{format_GBps(each.value)} GB/s" for each in levels if each))


# The level of a history as the baseline of a check.


class Level(NamedTuple):
    """How far a new run of a row may be from the level of a history. Deviations are standard ones,
    of logarithms."""

    runs: int
    """Since the last step."""
    deviation: float
    """Of single runs, in which what differs within and between runs is."""
    degrees: int
    """Of freedom, of this deviation."""
    usual: float
    """The deviation of a usual run by its own interval; it is a part of `deviation`."""
    own: float
    """By how much more the interval of the new run is wider than that: the square root of the
    difference of the variances."""
    least_step: float | None
    """See Fit."""

    def half(self, more: int = 0) -> float:
        """Half the 95 % prediction interval of a usual run, by so many more runs."""
        factor = student_quantile(Z, self.degrees + more)
        return factor * self.deviation * sqrt(1 + 1 / (self.runs + more))

    @property
    def full_half(self) -> float:
        """Half the 95 % prediction interval of the new run."""
        return hypot(self.half(), Z * self.own)


def find_baseline(
    history: History | None, run: LoadedRun, node: str = "", path: Path = HISTORY
) -> tuple[LoadedRun, list[str]]:
    """The level of each row of a run in the runs of the same system that started before it, since
    its last step, as a run whose intervals are those of the time of this run; and what the history
    lacks. It has no row for a case with fewer than FEWEST runs. Without a history at `path` it is
    None."""
    system, cases = records.find_system(run, node), {row.case.key(): row for row in run.rows}
    found = [*history.series(lambda s, c: s == system and c.key() in cases)] if history else []
    series = [each._replace(points=(*_earlier(each.points, run),)) for each in found]
    few = [each for each in series if sum(point.counts for point in each.points) < FEWEST]
    fitted = fit_series([each for each in series if each not in few])
    environments = history.environments() if history and fitted else {}
    own = {f.case.key(): f for f in fitted}
    levels = {
        key: find_level([p.time for p in found.series.points], found.fit, cases[key].time)
        for key, found in own.items()
    }
    rows = [_baseline_row(cases[key], found, levels[key]) for key, found in own.items()]
    notes = []
    if history and (missing := len(cases) - len(rows)):
        notes.append(
            f"The history has fewer than {FEWEST} earlier runs of {format_count(missing, 'row')} "
            f"on {system.name}, without those whose ranks waited for a core."
        )
    absent = f"fewer than {FEWEST} earlier runs count"
    absent = absent if history else f"there is no history yet at {path}"
    if any(waited := [sum(not point.counts for point in each.points) for each in few]):
        absent += f": {span(str, waited)} do not, their ranks waited for a core"
    notes += [
        f"The level rose by {format_percent(change.ratio.value - 1)} at "
        f"{change.run.time:%Y-%m-%d %H:%M} UTC ({format_count(len(change.steps), 'row')}). The run "
        "is compared with what came after; `commbench history show` says what changed then."
        for change in find_changes(fitted, environments)
        if change.ratio.value > 1
        and change.is_current
        and sum(run.placed >= change.run.placed for run in runs_of(fitted)) <= MOST_NEW
    ]
    name, paths = f"history of {system.node}", {p.run.path for each in found for p in each.points}
    baseline = LoadedRun(name, path, run.columns, rows, absent=absent, levels=levels)
    return baseline._replace(has_run=str(run.path.absolute()) in paths), notes


def _earlier(points: Iterable[Point], run: LoadedRun) -> list[Point]:
    """The points of other runs that started before."""
    path, start = str(run.path.absolute()), run.header.started if run.header else ""
    others = (point for point in points if point.run.path != path)
    return [point for point in others if not start or point.run.started < start]


_MOST = 500.0
"""Half an interval of logarithms that is not known, as that of a time which may be 0."""


def find_level(times: Sequence[Estimate], fit: Fit, new: Estimate | None = None) -> Level:
    """How far a new run may be from the last level of these times, of at least FEWEST runs."""
    deviation, degrees = single_points([log(each.value) for each in times], fit.segments)
    usual = median(sorted(map(own_deviation, times)))
    own = own_deviation(new) if new else 0.0
    more = sqrt(max(0.0, own**2 - usual**2))
    return Level(fit.segments[-1].number, deviation, degrees, usual, more, fit.least_step)


def _baseline_row(row: Any, found: FittedSeries, level: Level) -> Any:
    """The row as it is on the level of the last segment."""
    assert found.last.level, "a series of FEWEST points has levels"
    time, factor = found.last.level.value, exp(min(_MOST, level.full_half))
    other = dict.fromkeys(("time_p5_s", "time_p5_ci_low_s", "time_p5_ci_high_s"))
    return row._replace(
        time_s=time, time_ci_low_s=time / factor, time_ci_high_s=time * factor, **other,
        busbw_bytes_per_s=None, launches=None, status=OK, wrong=0, stop_reason="",
        queued_share=None, warnings="",
    )  # fmt: skip

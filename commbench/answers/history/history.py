"""What became slower or faster over the runs of a history, when, and what changed then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import log, prod, sqrt
from statistics import geometric_mean, median
from types import MappingProxyType
from typing import Any, NamedTuple

from commbench.analysis.environment import Difference, Recorded, compare_recorded
from commbench.analysis.statistics import Z
from commbench.answers.history import steps
from commbench.answers.history.causes import LEAST_PART, describe_causes, host_causes, usual_of
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.records import HistoryRun, Point, Series, System, short_form
from commbench.answers.history.steps import Fit, Segment, Step, find_steps
from commbench.answers.history.store import History, Keep
from commbench.answers.history.two_levels import ALPHA, slow_end
from commbench.output.text import short_repr
from commbench.plan.case import Case
from commbench.stats import Estimate, mean_ratio, spread
from commbench.units import format_count
from commbench.views.cells import times_text
from commbench.views.formats import Result

TOLERANCE = 0.02
"""A level that changes by less has no step."""
NEAR = 2
"""Steps of rows that are at most so many runs apart may be one."""
NOTHING = "nothing recorded surely changed then"


@short_repr("series.system.where", "case.name")
class FittedSeries(NamedTuple):
    """A series with its segments and steps."""

    series: Series
    """Its points that count."""
    fit: Fit
    """Someone who accepts a run cuts it there."""
    told: Fit
    """The same without that: its steps are those that times show."""
    waited: tuple[Point, ...] = ()
    """Those that do not, for their ranks waited for a core."""
    slow: int = 0
    """How many of the last points are slower than the others without a step. They are in no segment
    where at least FEWEST others are left. 0 where someone accepted them."""
    by: Estimate = Estimate(1.0)
    """How many times as long they take."""
    back: int = 0
    """How many of the last points, too few for a level, are nearer to the level before the last
    slowdown than to the one after it; they are in no segment."""
    begin: int = 0
    """The place of the first point of the accepted level; 0 where no one accepted a run."""
    accepted: Estimate | None = None
    """How many times as long the row takes since the accepted run, where that is sure and no step
    tells it."""

    @property
    def last(self) -> Segment:
        """The points since the last step."""
        return self.fit.segments[-1] if self.fit.segments else Segment(0, -1, None)

    @property
    def before_slow(self) -> Sequence[Point]:
        """The points of the level with which the last `slow` points are compared."""
        number = len(self.series.points) - self.slow
        begins = [part.first for part in self.fit.segments if part.first < number]
        return self.series.points[max(begins, default=0) : number]

    @property
    def over_before(self) -> float:
        """How many times as long the slowest of these takes as before the slowdown."""
        level = self.fit.segments[-2].level
        last = max(point.time.value for point in self.series.points[-self.back :])
        return last / level.value if level else 1.0

    @property
    def steps(self) -> list[Step]:
        """The steps that are sure: levels of few runs, or since an accepted one, may be none."""
        return [*filter(_is_sure, self.told.steps)]

    @property
    def least_step(self) -> float | None:
        """That of the fit, but at least half the interval of the last level."""
        found, level = self.fit.least_step, self.last.level
        return max(found, level.ends[1] / level.value - 1) if found and level else found

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
            **self.fit._asdict(), "steps": self.steps, "least_step": self.least_step,
            "points": points,
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
        return self.found.told.steps[self.number].ratio

    @property
    def is_last(self) -> bool:
        """Whether the row had no step since, and is not as fast as before again."""
        return self.number == len(self.found.told.steps) - 1 and not self.found.back

    @property
    def is_undone(self) -> bool:
        """Whether the row is nearer to the level before it again, and had no step since."""
        return self.number == len(self.found.fit.steps) - 1 and self.found.back > 0

    @property
    def levels(self) -> tuple[Sequence[Point], Sequence[Point]]:
        """The points of the segments before and after it."""
        before, after = self.found.told.segments[self.number : self.number + 2]
        points = self.found.series.points
        return points[before.first : before.last + 1], points[after.first : after.last + 1]

    @property
    def clarity(self) -> float:
        """How far the step is beyond its uncertainty."""
        low, high = self.ratio.ends
        return abs(log(self.ratio.value)) / log(high / low)


@dataclass(frozen=True, repr=False)
class Change:
    """Steps of several rows at one time, in one direction."""

    system: System
    before: HistoryRun
    """The last run that surely has the old level."""
    run: HistoryRun
    """The run that most likely is the first of the new level, in the first of its rows."""
    until: HistoryRun
    """That of the last of its rows; `run` itself where all changed with the same run."""
    latest: HistoryRun
    """The first run that surely has it, in all rows."""
    ratio: Estimate
    """New time over old time: the geometric mean over the rows, and that of their intervals."""
    steps: tuple[RowStep, ...]
    causes: tuple[Difference, ...]
    """What changed between `before` and `latest`, and for both levels as a whole; the likely causes
    first."""
    is_current: bool = True
    """Whether no row had another step since."""
    partly: tuple[Difference, ...] = ()
    """Where nothing else changed, the figures of its hosts that did, by less than LEAST_SHARE."""

    @property
    def likely(self) -> tuple[Difference, ...]:
        """The causes without those that hardly change times; all, where there are only such."""
        return tuple(each for each in self.causes if each.is_likely) or self.causes

    def __repr__(self) -> str:
        rows, times = format_count(len(self.steps), "row"), times_text(self.ratio, "as long")
        return f"<Change: run {self.run.id}, {rows}: {times}>"

    def as_json(self) -> dict[str, Any]:
        """The time, the rows and what changed."""
        return {
            "system": self.system.name,
            "at": self.run.placed,
            "until": self.until.placed,
            "after": self.before.placed,
            "not_later_than": self.latest.placed,
            "ratio": self.ratio,
            "rows": [{"row": each.case.name, "ratio": each.ratio} for each in self.steps],
            "changed": [{"name": c.name, "from": c.a, "to": c.b} for c in self.causes],
            "changed_in_part": [{"name": c.name, "from": c.a, "to": c.b} for c in self.partly],
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
    accepted: Mapping[System, str]
    """The place of the run with which the accepted level of a system begins."""
    environments: Mapping[int, Recorded]
    """What is recorded of them, by HistoryRun.environment_id."""

    def moment(self, run: HistoryRun) -> str:
        """The time of a run, UTC; with seconds where runs are less than a minute apart."""
        return f"{run.time:{self._form}}"

    @cached_property
    def _form(self) -> str:
        return short_form([run.time for run in self.runs], "%Y-%m-%d %H:%M")

    def as_json(self) -> dict[str, Any]:
        """Without the runs, whose times the points have."""
        return {"history": self.path, "changes": self.changes, "series": self.series}


def find_trend(
    history: History, keep: Keep = lambda *_: True, tolerance: float = TOLERANCE
) -> Trend:
    """Fit the series that `keep` accepts, by default all. The probability that a system without any
    step has one is ALPHA, whatever the number of its series."""
    environments, accepted = history.environments(), history.accepted()
    fitted: list[FittedSeries] = []
    changes: list[Change] = []
    for _, group in groupby(history.series(keep), key=lambda series: series.system):
        own = fit_series([*group], tolerance, accepted)
        fitted += own
        changes += find_changes(own, environments)
    changes.sort(key=lambda change: change.run.placed, reverse=True)
    runs = sorted({point.run for each in fitted for point in each.every}, key=_order)
    return Trend(
        str(history.path), tuple(fitted), tuple(changes), tuple(runs), accepted, environments
    )


def causes_text(change: Change) -> str:
    """What changed then, in a clause."""
    if part := describe_causes(change.partly):
        return f"{part}, which explains a part of it at most"
    return describe_causes(change.likely) or NOTHING


def _order(run: HistoryRun) -> tuple[str, int]:
    return run.placed, run.id


def alpha_of_each(numbers: Iterable[int]) -> float:
    """The alpha of each of several series with so many points, for ALPHA for all of them
    together: by Bonferroni's inequality. Those with too few points have no step and do not count.
    """
    return ALPHA / max(1, sum(number >= FEWEST for number in numbers))


def fit_series(
    series: Sequence[Series],
    tolerance: float = TOLERANCE,
    accepted: Mapping[System, str] = MappingProxyType({}),
) -> list[FittedSeries]:
    """The series of one system, with their steps. `accepted` is that of a Trend."""
    own = [each._replace(points=tuple(p for p in each.points if p.counts)) for each in series]
    alpha, fitted = alpha_of_each(len(each.points) for each in own), []
    for each, counted in zip(series, own, strict=True):
        times = [point.time for point in counted.points]
        accept = accepted.get(each.system, "")
        begin = sum(point.run.placed < accept for point in counted.points)
        fit, back = fit_with_return(times, alpha, tolerance, begin)
        last = times[fit.segments[-1].first :] if fit.segments and not back else []
        slow, by = slow_end([log(time.value) for time in last], tolerance)
        step = fit.steps[-1] if fit.steps and not back else None
        is_slower = step and not _is_sure(step) and step.ratio.value > 1 and step.at != begin
        old = fit.segments[-2].level if is_slower else None
        if step and old and times[-1].value > old.value * sqrt(step.ratio.value):
            number = fit.segments[-1].number
            slow, by = (number, step.ratio) if 2 * number < len(times) else (0, by)
        elif old:  # a few slow runs, and the last one is not
            *kept, part, last_part = fit.segments
            whole = (*kept, part._replace(last=last_part.last))
            fit = fit._replace(segments=whole, steps=fit.steps[:-1])
        if slow and len(times) - slow >= FEWEST:
            fit = find_steps(times[:-slow], alpha, tolerance, begin)
            mean = geometric_mean(time.value for time in times[-slow:])
            level = fit.segments[-1].level
            by = by.scaled(mean / level.value / by.value) if level else by
        waited = tuple(point for point in each.points if not point.counts)
        told = fit
        if 0 < begin < len(times):
            left_out = back + (slow if len(times) - slow >= FEWEST else 0)
            told = find_steps(times[: len(times) - left_out], alpha, tolerance)
        by = spread(by, _less_sure(times, slow)) if slow else by
        is_told = any(step.earliest <= begin <= step.latest for step in told.steps)
        step = next((each for each in fit.steps if each.at == begin), None)
        since = step.ratio if step and _is_sure(step) and not is_told else None
        fitted.append(FittedSeries(counted, fit, told, waited, slow, by, back, begin, since))
    return fitted


def _less_sure(times: Sequence[Estimate], last: int) -> float:
    """Half the 95 % interval that the mean of the last times has because they are less sure than
    usual; a logarithm."""
    variances = [steps.own_deviation(each) ** 2 for each in times]
    usual = median(variances)
    return Z * sqrt(sum(max(0.0, each - usual) for each in variances[-last:])) / last


def _is_sure(step: Step) -> bool:
    """Whether the interval of a step does not contain 1, also as it is written."""
    low, high = (round(end, 2) for end in step.ratio.ends)
    return not low <= 1 <= high


def fit_with_return(
    times: Sequence[Estimate], alpha: float, tolerance: float, begin: int = 0
) -> tuple[Fit, int]:
    """The steps of a series, in which a level begins at the place `begin` in any case; and how many
    of its last points are as fast again as before the last step, where that is a slowdown which
    shows without them."""
    most = min(SHORTEST - 1, len(times) - begin - 1) if len(times) > FEWEST else 0
    for back in range(most, 0, -1):
        before, last = times[-back - 1].value, max(time.value for time in times[-back:])
        if before < (1 + tolerance) * last:
            continue  # the one before them is as fast: no need to try
        fit = find_steps(times[:-back], alpha, tolerance, begin)
        levels = [part.level.value for part in fit.segments[-2:] if part.level]
        step = fit.steps[-1] if fit.steps else None
        is_slowdown = step and step.ratio.value > 1 and _is_sure(step)
        if is_slowdown and len(levels) == 2 and last < sqrt(prod(levels)) < before:
            return fit, back
    return find_steps(times, alpha, tolerance, begin), 0


def find_changes(
    fitted: Sequence[FittedSeries], environments: dict[int, Recorded]
) -> Iterator[Change]:
    """The steps of the series of one system, those together that are in one direction and may be at
    one time; the clearest step of a change tells its time."""
    runs = sorted({p.run for each in fitted for p in each.series.points}, key=_order)
    places = {run.id: number for number, run in enumerate(runs)}
    rest = [
        RowStep(each, n, *(places[each.series.points[index].run.id] for index in step[:3]))
        for each in fitted
        for n, step in enumerate(each.told.steps)
        if step in each.steps
    ]
    rest.sort(key=lambda found: found.clarity, reverse=True)
    while rest:
        first = rest[0]
        own = [found for found in rest if _are_one(first, found)]
        rest = [found for found in rest if not _are_one(first, found)]
        own.sort(key=lambda found: (found.case.title, found.case.size_bytes))
        ratio = mean_ratio([step.ratio for step in own])
        # A row that may have changed with the clearest one did so.
        at = [first.at if e.earliest <= first.at <= e.latest else e.at for e in own]
        begin, until = runs[min(at)], runs[max(at)]
        before, latest = runs[max(0, min(first.earliest, *at) - 1)], runs[max(first.latest, *at)]
        causes = [*host_causes(*first.levels, first.ratio.value)]
        # What differs between the two runs, and between what is usual in the two segments.
        old, new = (environments[run.environment_id] for run in (before, latest))
        both = [usual_of(environments, (point.run for point in same)) for same in first.levels]
        usual = compare_recorded(*both)
        found = compare_recorded(old, new)
        causes += [e for e in found if e in usual and e.concerns(first.case.call)]
        causes.sort(key=lambda cause: not cause.is_likely)
        partly = host_causes(*first.levels, first.ratio.value, LEAST_PART)
        yield Change(
            fitted[0].series.system, before, begin, until, latest, ratio, tuple(own),
            tuple(causes), all(each.is_last for each in own), () if causes else tuple(partly),
        )  # fmt: skip


def _are_one(first: RowStep, other: RowStep) -> bool:
    """Whether two steps may be at the same time, in the same direction, of calls of one code."""
    is_near = first.earliest - NEAR <= other.latest and other.earliest <= first.latest + NEAR
    is_alike = (first.ratio.value > 1) == (other.ratio.value > 1)
    return is_alike and is_near and first.case.call == other.case.call

"""The series of a history with their levels and steps, and what its last runs say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log, sqrt
from operator import attrgetter
from statistics import geometric_mean, median
from types import MappingProxyType
from typing import Any, NamedTuple

from commbench.analysis.statistics import Z
from commbench.answers.history import steps
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.level import Level, find_level, fit_with_return
from commbench.answers.history.records import HistoryRun, Point, Series, System
from commbench.answers.history.steps import TOLERANCE, Fit, Segment, Step, find_steps
from commbench.answers.history.two_levels import ALPHA, slow_end
from commbench.output.text import short_repr
from commbench.plan.case import Case
from commbench.stats import Estimate, spread


class Slower(NamedTuple):
    """The last runs of a row, if they are slower than its usual level."""

    later: Sequence[Point]
    """These runs."""
    times: float
    """How many times as long they took; the median."""
    after: HistoryRun
    """The first run after the level, which others may precede that are slower now."""


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
    level: Level | None = None
    """The usual level of the row, for checks; None for fewer than FEWEST points."""

    @property
    def slower(self) -> Slower | None:
        """The last points, if they are slower than the usual level; None where the last one may be
        as fast as usual again."""
        if not self.level:
            return None
        points = self.series.points
        later = points[self.level.end :]
        newest = [point.time.value for point in later[-SHORTEST:]]
        if not later or min(median(newest), newest[-1]) <= self.level.slow_s:
            return None
        usual = median(point.time.value for point in later)
        return Slower(later, usual / self.level.time, points[self.level.after].run)

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
        return [*filter(attrgetter("is_sure"), self.told.steps)]

    @property
    def case(self) -> Case:
        """What the row measured."""
        return self.series.case

    @property
    def every(self) -> list[Point]:
        """The points that count and those that do not, in order."""
        points = (*self.series.points, *self.waited)
        return sorted(points, key=attrgetter("run.placed", "run.id"))

    def as_json(self) -> dict[str, Any]:
        """The case, its levels and its points."""
        points = [
            {"run": run.id, "at": run.placed, "time_s": time, "queued_share": queued}
            for run, time, queued in self.every
        ]
        return {
            "system": self.series.system.name, "row": self.case.name,
            "operation": self.case.operation, "size_bytes": self.case.size_bytes,
            **self.fit._asdict(), "steps": self.steps,
            "usual": self.level and self.level.as_json(), "points": points,
        }  # fmt: skip


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
        fit = _without_unsure(fit, begin)
        last = times[fit.segments[-1].first :] if fit.segments and not back else []
        slow, by = slow_end([log(time.value) for time in last], tolerance)
        step = fit.steps[-1] if fit.steps and not back else None
        is_slower = step and not step.is_sure and step.ratio.value > 1 and step.at != begin
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
        since = step.ratio if step and step.is_sure and not is_told else None
        is_known = len(times) >= FEWEST and begin < len(times)
        usual = find_level(times, begin, alpha) if is_known else None
        fitted.append(FittedSeries(counted, fit, told, waited, slow, by, back, begin, since, usual))
    return fitted


def _without_unsure(fit: Fit, begin: int) -> Fit:
    """The fit without the steps that no sentence tells, since their intervals contain 1: the level
    there is that of the longer part. The last one stays if it is a slowdown, and an accepted one
    does."""
    segments, found = [*fit.segments[:1]], []
    for number, (step, part) in enumerate(zip(fit.steps, fit.segments[1:], strict=True), 1):
        is_last_slowdown = number == len(fit.steps) and step.ratio.value > 1
        if step.at == begin or is_last_slowdown or step.is_sure:
            segments.append(part)
            found.append(step)
        else:
            longer = max(segments[-1], part, key=attrgetter("number"))
            segments[-1] = longer._replace(first=segments[-1].first, last=part.last)
    return fit._replace(segments=tuple(segments), steps=tuple(found))


def _less_sure(times: Sequence[Estimate], last: int) -> float:
    """Half the 95 % interval that the mean of the last times has because they are less sure than
    usual; a logarithm."""
    variances = [steps.own_deviation(each) ** 2 for each in times]
    usual = median(variances)
    return Z * sqrt(sum(max(0.0, each - usual) for each in variances[-last:])) / last

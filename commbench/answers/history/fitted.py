"""The series of a history with their levels and steps, and what its last runs say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, hypot, log, sqrt
from operator import attrgetter
from statistics import fmean, median
from types import MappingProxyType
from typing import Any, NamedTuple

from commbench.analysis.statistics import Z
from commbench.answers.history import steps
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.level import Level, find_level, fit_with_return
from commbench.answers.history.records import HistoryRun, Point, Series, System
from commbench.answers.history.steps import TOLERANCE, Fit, Segment, Step, find_steps
from commbench.answers.history.two_levels import ALPHA
from commbench.output.text import short_repr
from commbench.plan.case import Case
from commbench.stats import Estimate, around


class Slower(NamedTuple):
    """The last runs of a row, if they are slower than a level."""

    before: Sequence[Point]
    """The runs of the level."""
    later: Sequence[Point]
    """The last ones."""
    ratio: Estimate
    """Their time, the median, over the level."""
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
    slower: Slower | None = None
    """What is slower than it now."""
    late: Slower | None = None
    """What is slower than the last level without a step; these points are in no segment."""

    @property
    def last(self) -> Segment:
        """The points since the last step."""
        return self.fit.segments[-1] if self.fit.segments else Segment(0, -1, None)

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
        is_known = len(times) >= FEWEST and begin < len(times)
        numbers = [point.run.id for point in counted.points]
        usual = find_level(times, begin, alpha).after_runs(times, numbers) if is_known else None
        late = slower = _find_slower(counted.points, usual) if usual else None
        slowdowns = [step.at for step in fit.steps if step.ratio.value > 1]
        if usual and slower and slowdowns and slowdowns[-1] >= usual.after:
            late = _find_slower(counted.points, find_level(times, slowdowns[-1], alpha))
        number = len(times) - (len(late.later) if late else 0)
        if late:
            fit = _without_unsure(find_steps(times[:number], alpha, tolerance, begin), begin)
        waited = tuple(point for point in each.points if not point.counts)
        told = fit
        if 0 < begin < len(times):
            told = find_steps(times[: number - back], alpha, tolerance)
        is_told = any(step.earliest <= begin <= step.latest for step in told.steps)
        step = next((each for each in fit.steps if each.at == begin), None)
        since = step.ratio if step and step.is_sure and not is_told else None
        fitted.append(
            FittedSeries(counted, fit, told, waited, back, begin, since, usual, slower, late)
        )
    return fitted


def _find_slower(points: Sequence[Point], level: Level) -> Slower | None:
    """The last points, if they are slower than a level; None where the last one may be as fast as
    that again."""
    later = points[level.end :]
    newest = [point.time.value for point in later[-SHORTEST:]]
    if not later or min(median(newest), newest[-1]) <= level.slow_s:
        return None
    half = level.half_of_mean(len(later))
    more = fmean(max(0.0, steps.own_deviation(p.time) ** 2 - level.usual**2) for p in later)
    half = hypot(half, Z * sqrt(more / len(later)))
    over = log(median(point.time.value for point in later) / level.time)
    before = [points[n] for n in sorted(level.places)]
    return Slower(before, later, around(over, half).map(exp), points[level.after].run)


def _without_unsure(fit: Fit, begin: int) -> Fit:
    """The fit without the steps that no sentence tells, since their intervals contain 1: the level
    there is that of the longer part. An accepted one stays."""
    segments, found = [*fit.segments[:1]], []
    for step, part in zip(fit.steps, fit.segments[1:], strict=True):
        if step.at == begin or step.is_sure:
            segments.append(part)
            found.append(step)
        else:
            longer = max(segments[-1], part, key=attrgetter("number"))
            segments[-1] = longer._replace(first=segments[-1].first, last=part.last)
    return fit._replace(segments=tuple(segments), steps=tuple(found))

"""What became slower or faster over the runs of a history, when, and what changed then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import log
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.environment import Difference, Recorded, compare_recorded
from commbench.answers.history.causes import LEAST_PART, describe_causes, host_causes, usual_of
from commbench.answers.history.fitted import FittedSeries, fit_series
from commbench.answers.history.records import HistoryRun, Point, System, short_form
from commbench.answers.history.steps import TOLERANCE
from commbench.answers.history.store import History, Keep
from commbench.plan.case import Case
from commbench.stats import Estimate, mean_ratio
from commbench.units import format_count
from commbench.views.cells import times_text
from commbench.views.formats import Result

NEAR = 2
"""Steps of rows that are at most so many runs apart may be one."""
NOTHING = "nothing recorded surely changed then"
_in_order = attrgetter("placed", "id")


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
    def around(self) -> tuple[Estimate | None, Estimate | None]:
        """The levels before and after it."""
        before, after = self.found.told.segments[self.number : self.number + 2]
        return before.level, after.level

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
    runs = sorted({point.run for each in fitted for point in each.every}, key=_in_order)
    return Trend(
        str(history.path), tuple(fitted), tuple(changes), tuple(runs), accepted, environments
    )


def causes_text(change: Change) -> str:
    """What changed then, in a clause."""
    if part := describe_causes(change.partly):
        return f"{part}, which explains a part of it at most"
    return describe_causes(change.likely) or NOTHING


def find_changes(
    fitted: Sequence[FittedSeries], environments: dict[int, Recorded]
) -> Iterator[Change]:
    """The steps of the series of one system, those together that are in one direction and may be at
    one time; the clearest step of a change tells its time."""
    runs = sorted({p.run for each in fitted for p in each.series.points}, key=_in_order)
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

"""Which setting is best at which sizes, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.columns import TIMES, UNDISTURBED_TIMES, row_type, row_values
from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow
from commbench.compare.comparison import ComparedRow
from commbench.compare.pooling import PooledRatio, PooledRow, pool_kind
from commbench.compare.ratio import of_launches
from commbench.results.schema import OK
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.workload_variants import AS_TRACED
from commbench.stats.estimate import Estimate, ratio
from commbench.stats.verdict import CHANGED, FASTER, SAME, SLOWER, UNDECIDED, decide
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import Setting
from commbench.views.as_json import fields_of

BEST, TIED = "best", "tied"
_PLACES = {SAME: TIED, UNDECIDED: UNDECIDED}


class SettingTime(NamedTuple):
    """The time of one case under one setting, over all its rounds."""

    setting: Setting
    row: ResultRow
    time: Estimate
    """Median and 95 % interval, in seconds."""
    ratio: Estimate | None
    """Its time over that under the first setting; None for the first setting itself, and where
    the first setting has no time."""
    verdict: str
    """What it is against the fastest: SAME, also for the fastest itself, where the whole interval
    lies within the tolerance; SLOWER; or UNDECIDED."""

    @property
    def is_tied(self) -> bool:
        """Whether it is the fastest, or the same as the fastest."""
        return self.verdict == SAME

    @property
    def is_undecided(self) -> bool:
        """Whether it may be as fast as the fastest, but is not known to be."""
        return self.verdict == UNDECIDED


class SweepPoint(NamedTuple):
    """One case under all settings."""

    kind: str
    """The title of the case without the fields that are varied."""
    size_bytes: int
    """0 for an operation without a size, such as the step of a workload."""
    times: tuple[SettingTime | None, ...]
    """One for each setting, in the order of the sweep; None where a setting has no valid time."""

    @property
    def by_time(self) -> list[SettingTime]:
        """The settings that have a time, fastest first."""
        return sorted(filter(None, self.times), key=lambda each: each.time.value)

    @property
    def best(self) -> SettingTime:
        """The fastest setting."""
        return self.by_time[0]

    def place(self, each: SettingTime) -> str:
        """The place of one of the settings: BEST, TIED, UNDECIDED or empty."""
        return BEST if each is self.best else _PLACES.get(each.verdict, "")

    @property
    def tied(self) -> tuple[Setting, ...]:
        """The fastest setting, then those that are tied with it."""
        return tuple(each.setting for each in self.by_time if each.is_tied)

    @property
    def undecided(self) -> tuple[Setting, ...]:
        """The settings that may be as fast as the fastest, but are not known to be."""
        return tuple(each.setting for each in self.by_time if each.is_undecided)

    @property
    def not_slower(self) -> tuple[Setting, ...]:
        """The settings that are not known to be slower than the fastest, fastest first."""
        return tuple(each.setting for each in self.by_time if each.verdict != SLOWER)

    @property
    def is_compared(self) -> bool:
        """Whether at least two settings have a time."""
        return len(self.by_time) > 1

    @property
    def case(self) -> Case:
        """The case under the fastest setting."""
        return self.best.row.measurement.case


class PooledSetting(NamedTuple):
    """Two settings at neighbouring sizes of one kind of case, together."""

    setting: Setting
    against: Setting
    """The setting that has the shortest times of this kind on average."""
    pooled: PooledRatio
    """The time under `setting` over that under `against`."""

    def as_json(self) -> dict[str, Any]:
        """The names of the settings, and the ratio."""
        return {"setting": self.setting, "against": self.against, **self.pooled.as_json()}

    def slower_at(self, point: SweepPoint) -> Setting | None:
        """Which of the two is slower at the sizes around a point, if that is known."""
        found = self.pooled
        if found.kind != point.kind or found.verdict not in CHANGED:
            return None
        is_there = found.low_bytes <= point.size_bytes <= found.high_bytes
        slower = self.setting if found.verdict == SLOWER else self.against
        return slower if is_there else None


class SizeRange(NamedTuple):
    """Neighbouring sizes of one kind at which a setting is the fastest, or not known to be
    slower."""

    kind: str
    best: tuple[Setting, ...]
    """The settings that are the fastest, or not known to be slower, at each of these sizes."""
    points: tuple[SweepPoint, ...]
    """By ascending size; at least one."""
    decided: int = 0
    """At how many of these sizes every other setting is slower."""

    @property
    def low_bytes(self) -> int:
        """The smallest size."""
        return self.points[0].size_bytes

    @property
    def high_bytes(self) -> int:
        """The largest size."""
        return self.points[-1].size_bytes

    @property
    def verdict(self) -> str:
        """FASTER than all others, at most of these sizes at least; SAME: these settings are tied;
        or UNDECIDED."""
        if 2 * self.decided > len(self.points):
            return FASTER
        is_tie = len(self.best) > 1 and all({*self.best} <= {*p.tied} for p in self.points)
        return SAME if is_tie else UNDECIDED

    def as_json(self) -> dict[str, Any]:
        """Its sizes, settings and verdict."""
        more = {"sizes": len(self.points)}
        return fields_of(self, "low_bytes", "high_bytes", "verdict", without=("points",)) | more


class FasterVariant(NamedTuple):
    """A variant of a step that is faster than the step as the program makes it."""

    step: str
    setting: Setting
    """The best setting of the step."""
    variant: str
    ratio: Estimate
    """Its time over that of the step as it is made."""


class SettingRank(NamedTuple):
    """How one setting does over all cases."""

    setting: Setting
    won: int
    """Cases in which every other setting is slower."""
    tied: int
    """Cases in which it is the fastest or tied with it."""
    times_best: float
    """Geometric mean of its time over the best time; a ratio of ratios, used for ranking only."""


def make_points(results: Sequence[SettingResult], tolerance: float) -> tuple[SweepPoint, ...]:
    """Every case that at least one setting has a valid time for: steps of a workload first, else in
    the order of the plan."""
    varied = varied_fields([result.setting for result in results])
    found: dict[tuple[str, int, int], dict[Setting, ResultRow]] = {}
    for result in results:
        for row in result.rows:
            if row.time and row.time.median and row.measurement.status == OK:
                case = row.measurement.case
                # On other ranks a step has other groups, although its calls have the same sizes.
                ranks = case.ranks if case.step else 0
                key = (case.title_without(*varied), case.size_bytes, ranks)
                found.setdefault(key, {})[result.setting] = row
    settings = [result.setting for result in results]
    points = [
        SweepPoint(
            kind,
            named_bytes(next(iter(rows.values())).measurement.case),
            _make_times(settings, rows, tolerance),
        )
        for (kind, *_), rows in found.items()
    ]
    return tuple(sorted(points, key=lambda point: not point.case.step))


def varied_fields(settings: Sequence[Setting]) -> list[str]:
    """The dimensions of a case that differ between settings."""
    options = {f"--{name}" for setting in settings for name, _ in setting.options}
    return [dimension.field for dimension in DIMENSIONS if dimension.option in options]


def _make_times(
    settings: Sequence[Setting], rows: dict[Setting, ResultRow], tolerance: float
) -> tuple[SettingTime | None, ...]:
    times = {setting: row.time.estimate for setting, row in rows.items() if row.time}
    fastest_setting = min(times, key=lambda setting: times[setting].value)
    fastest = times[fastest_setting]
    first = times.get(settings[0])
    found: list[SettingTime | None] = []
    for setting in settings:
        time = times.get(setting)
        if time is None:
            found.append(None)
            continue
        over_first = None if setting == settings[0] else ratio(time, first)
        behind = allow_for_launches(ratio(time, fastest), rows[setting], rows[fastest_setting])
        verdict = SAME if time is fastest else decide(behind, tolerance)
        found.append(SettingTime(setting, rows[setting], time, over_first, verdict))
    return tuple(found)


def allow_for_launches(ratio: Estimate | None, a: ResultRow, b: ResultRow) -> Estimate | None:
    """The ratio of two rows, with what launches usually differ by. One run measures all of its rows
    in the same launches."""
    if a.header is b.header:
        return ratio
    launches = [len(row.launch_medians) for row in (a, b)]
    return of_launches(ratio, launches, a.header.plan.backend)


def pool_settings(points: Iterable[SweepPoint], tolerance: float) -> tuple[PooledSetting, ...]:
    """Of each kind of case, every setting against the one with the shortest times on average."""
    kinds: dict[str, list[SweepPoint]] = {}
    for point in points:
        kinds.setdefault(point.kind, []).append(point)
    found = []
    for same in kinds.values():
        ranked = [rank.setting for rank in rank_settings(same)]
        for setting in ranked[1:]:
            pooled = pooled_ratios(same, ranked[0], setting, tolerance)
            found += [PooledSetting(setting, ranked[0], each) for each in pooled]
    return tuple(found)


def pooled_ratios(
    points: Sequence[SweepPoint], first: Setting, second: Setting, tolerance: float
) -> list[PooledRatio]:
    """The time under the second setting over that under the first, for each range of sizes in which
    the ratio does not change, as `commbench compare` pools the rows of two runs. `points` are of
    one kind."""
    rows = []
    for point in sorted(points, key=lambda each: each.size_bytes):
        times = {each.setting: each for each in point.by_time}
        if first in times and second in times:
            a, b = times[first], times[second]
            if found := ratio(b.time, a.time):
                verdict = decide(found, tolerance)
                sides = _pooled_values(a.row), _pooled_values(b.row)
                row = ComparedRow(point.kind, *sides, found, None, "", verdict, "")
                rows.append(PooledRow(row, a.row, b.row))
    return pool_kind(points[0].kind, rows, tolerance)


_POOLED = ("operation", "size_bytes", "launches", "backend", *TIMES, *UNDISTURBED_TIMES)


def _pooled_values(row: ResultRow) -> Any:
    return row_type(_POOLED)(*row_values(row, _POOLED))


def judged_points(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """The points that decide which setting is the best: of a replay its steps, else all."""
    return [point for point in points if point.case.step] or list(points)


def steps_as_made(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """The steps of a workload with the calls that the program makes; with its gaps where these were
    measured."""
    found: dict[str, SweepPoint] = {}
    for variant in AS_TRACED:
        for point in points:
            if point.case.step and point.case.variant == variant:
                found.setdefault(point.case.step, point)
    return list(found.values())


def faster_variants(points: Sequence[SweepPoint], tolerance: float) -> tuple[FasterVariant, ...]:
    """The variant of each step that takes least time under the best setting of the step, if it is
    faster than the step as it is made."""
    compared = [point for point in points if point.case.step and point.is_compared]
    found = []
    for made in steps_as_made(compared):
        step, setting = made.case.step, made.best.setting
        others = [
            (each.time, point.case.variant)
            for point in compared
            for each in point.by_time
            if (point.case.step, each.setting) == (step, setting)
            and point.case.variant not in AS_TRACED
        ]
        time, fastest = min(others, default=(None, ""))
        gain = ratio(time, made.best.time)
        if gain and decide(gain, tolerance) == FASTER:
            found.append(FasterVariant(step, setting, fastest, gain))
    return tuple(found)


def make_ranges(
    points: Sequence[SweepPoint], pooled: Sequence[PooledSetting] = ()
) -> tuple[SizeRange, ...]:
    """Join neighbouring sizes of a kind as long as one setting is not known to be slower than the
    fastest at any of them. A setting that `pooled` shows to be slower is known to be."""
    ranges: list[SizeRange] = []
    compared = [point for point in points if point.is_compared]
    for point in sorted(compared, key=attrgetter("kind", "size_bytes")):
        slower = {each.slower_at(point) for each in pooled}
        best = tuple(s for s in point.not_slower if s not in slower) or point.not_slower
        decided = int(len(best) == 1)
        last = ranges[-1] if ranges and ranges[-1].kind == point.kind else None
        common = tuple(setting for setting in last.best if setting in best) if last else ()
        if last and common:
            joined = (*last.points, point)
            ranges[-1] = SizeRange(point.kind, common, joined, last.decided + decided)
        else:
            ranges.append(SizeRange(point.kind, best, (point,), decided))
    return tuple(ranges)


def rank_settings(points: Sequence[SweepPoint]) -> tuple[SettingRank, ...]:
    """The settings that have a time for some case that was compared, best first."""
    ratios: dict[Setting, list[float]] = {}
    compared = [point for point in points if point.is_compared]
    for point in compared:
        for each in point.by_time:
            times_best = each.time.value / point.best.time.value
            ratios.setdefault(each.setting, []).append(times_best)
    ranks = [
        SettingRank(
            setting,
            won=sum(point.not_slower == (setting,) for point in compared),
            tied=sum(setting in point.tied for point in compared),
            times_best=exp(sum(map(log, of_setting)) / len(of_setting)),
        )
        for setting, of_setting in ratios.items()
    ]
    return tuple(sorted(ranks, key=lambda rank: rank.times_best))

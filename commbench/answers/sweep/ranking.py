"""Which setting is best at which sizes, by how much, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from statistics import geometric_mean
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis.columns import KEY, TIMES, UNDISTURBED_TIMES, row_type, row_values
from commbench.analysis.diagnostics import WAITED, has_waited, waited_launches
from commbench.analysis.nccl_log import NcclSelection, one_selection
from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow
from commbench.answers.compare import ratio as comparing
from commbench.answers.compare.turns import TwoRuns, find_facts
from commbench.answers.sweep.runner import SettingResult
from commbench.answers.sweep.settings import CALL, Setting
from commbench.output.text import short_repr
from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS
from commbench.plan.own_calls import TORCH
from commbench.plan.workload_variants import AS_TRACED
from commbench.results.schema import IN_SWEEP, OK, Run
from commbench.views.formats import fields_of

FASTEST, SHORTEST, TIED = "fastest", "shortest", "tied"
_TIED = (FASTEST, SHORTEST, TIED)


@short_repr("setting.name", "case.name", "verdict")
class SettingTime(NamedTuple):
    """One case under one setting, over all its rounds."""

    setting: Setting
    row: ResultRow
    estimate: stats.Estimate | None
    """Median and 95 % interval, in seconds; None where there is no valid time."""
    ratio: stats.Estimate | None
    """Its time over the shortest one; None for the shortest itself, and where there is no time."""
    verdict: str
    """FASTEST where it has the shortest time and every other is SLOWER; SHORTEST where not; TIED
    where the whole interval of the ratio lies within the tolerance; UNDECIDED or SLOWER. Empty
    without a time, and where no other setting has one."""
    reason: str = ""
    """Why it is UNDECIDED although the interval of the ratio may decide it."""
    run: Run | None = None
    """The whole run that the row is of; None where it is not known."""
    holds_for_all: bool = False
    """Whether it is SLOWER with 95 % for all rows of the sweep together."""

    @property
    def waited(self) -> float | None:
        """For how much of the time its ranks waited for a core, where that is too long."""
        return self.row.queued_share if has_waited(self.row.queued_share) else None

    @property
    def waited_rounds(self) -> list[int]:
        """In which rounds ranks waited for a core too long, where that is not so of all together;
        counted from 1."""
        return [] if self.waited else waited_launches(self.row.measurement)

    @property
    def time(self) -> stats.Estimate:
        """Its time, where it has one."""
        assert self.estimate
        return self.estimate

    @property
    def case(self) -> Case:
        """The case."""
        return self.row.case

    @property
    def selection(self) -> NcclSelection | None:
        """What NCCL selected, as the first round recorded it; None where that is not known."""
        return one_selection(self.row.header.environment, self.case)

    def as_json(self) -> dict[str, Any]:
        """The case, its time and its ratio to that of the first setting."""
        return {name: getattr(self.case, name) for name in KEY} | {
            "time_s": self.estimate,
            "busbw_bytes_per_s": self.row.busbw if self.estimate else None,
            "status": self.row.measurement.status,
            "warnings": [each.name for each in self.row.diagnoses],
            **fields_of(self, "selection", without=("row", "run", "estimate")),
        }


@short_repr("kind", "size_bytes")
class SweepPoint(NamedTuple):
    """One case under all settings."""

    kind: str
    """The title of the case without the fields that are varied."""
    size_bytes: int
    """0 for an operation without a size, such as the step of a workload."""
    rows: tuple[SettingTime | None, ...]
    """One for each setting, in the order of the sweep; None where a setting did not measure it."""

    @property
    def by_time(self) -> list[SettingTime]:
        """The settings that have a time, fastest first."""
        timed = (each for each in self.rows if each and each.estimate)
        return sorted(timed, key=lambda each: each.time.value)

    @property
    def best(self) -> SettingTime:
        """The fastest setting."""
        return self.by_time[0]

    @property
    def tied(self) -> tuple[Setting, ...]:
        """The fastest setting, then those that are tied with it."""
        return tuple(each.setting for each in self.by_time if each.verdict in _TIED)

    @property
    def not_slower(self) -> tuple[Setting, ...]:
        """The settings that no row shows to be slower than the fastest, fastest first: not by
        chance because rows are many."""
        return tuple(each.setting for each in self.by_time if not each.holds_for_all)

    @property
    def is_compared(self) -> bool:
        """Whether at least two settings have a time."""
        return len(self.by_time) > 1

    @property
    def case(self) -> Case:
        """The case under the fastest setting that measured it."""
        return [*self.by_time, *filter(None, self.rows)][0].case


class FasterVariant(NamedTuple):
    """A variant of a step that is faster than the step as the program makes it."""

    step: str
    setting: Setting
    """The best setting of the step."""
    variant: str
    ratio: stats.Estimate
    """Its time over that of the step as it is made."""


class SettingRank(NamedTuple):
    """How one setting does over all cases."""

    setting: Setting
    won: int
    """Cases in which every other setting is slower."""
    tied: int
    """Cases in which it is the fastest or tied with it, and nothing is undecided."""
    over_best: float
    """Geometric mean of its time over the shortest, used for ranking only. It has no interval: the
    cases have their launches in common."""


def make_points(results: Sequence[SettingResult], tolerance: float) -> tuple[SweepPoint, ...]:
    """Every case that a setting measured: steps of a workload first, else in the order of the
    plan."""
    runs = {result.setting: result.run for result in results}
    own = [r.case for s in results for r in s.rows if not is_beside(r.case, s.setting)]
    varied = varied_fields([*runs], own)
    found: dict[tuple[str, int, int], dict[Setting, ResultRow]] = {}
    for result in results:
        for row in result.rows:
            if is_beside(row.case, result.setting):
                continue
            # On other ranks a step has other groups, although its calls have the same sizes.
            ranks = row.case.ranks if row.case.step else 0
            key = (row.case.title_without(*varied), row.case.size_bytes, ranks)
            found.setdefault(key, {})[result.setting] = row
    number = sum(max(0, sum(map(is_timed, rows.values())) - 1) for rows in found.values())
    points = []
    for (kind, *_), rows in found.items():
        size = named_bytes(next(iter(rows.values())).case)
        points.append(SweepPoint(kind, size, _make_times(runs, rows, tolerance, number)))
    return tuple(sorted(points, key=lambda point: not point.case.step))


def is_timed(row: ResultRow) -> bool:
    """Whether a row has a valid time."""
    return bool(row.time and row.time.median) and row.measurement.status == OK


def varied_fields(settings: Sequence[Setting], cases: Iterable[Case]) -> list[str]:
    """The dimensions of their cases that differ between settings: versions of a call may have one
    name."""
    options = {f"--{name}" for setting in settings for name, _ in setting.options}
    options -= {f"--{CALL}"} if len({case.call for case in cases}) == 1 else set()
    return [dimension.field for dimension in DIMENSIONS if dimension.option in options]


def is_beside(case: Case, setting: Setting) -> bool:
    """Whether a setting has it only beside the call that it is about: the operation's own, whose
    times are those of the setting `call=torch`."""
    return not case.call and dict(setting.vary_options).get(CALL, TORCH) != TORCH


def _make_times(
    runs: Mapping[Setting, Run | None], rows: Mapping[Setting, ResultRow], tolerance: float,
    number: int,
) -> tuple[SettingTime | None, ...]:  # fmt: skip
    """The rows of one case, of `number` that are compared in the sweep."""
    times = {
        setting: (row.header.launcher == IN_SWEEP and row.mean_time) or row.time.estimate
        for setting, row in rows.items() if row.time and is_timed(row)
    }  # fmt: skip
    best = min(times, key=lambda setting: times[setting].value, default=None)
    found: list[SettingTime | None] = []
    for setting, run in runs.items():
        if not (row := rows.get(setting)):
            found.append(None)
            continue
        own = SettingTime(setting, row, times.get(setting), None, "", run=run)
        if best and own.estimate and setting != best:
            compared = compare_rows("", rows[best], row, tolerance, find_facts(runs[best], run))
            why = WAITED * bool(compared.waited)
            verdict = stats.UNDECIDED if why else stats.decide(compared.ratio, tolerance)
            of_all = comparing.hold_together(compared, number)
            own = own._replace(
                ratio=compared.ratio, reason=why,
                # By round, another may be faster than the one whose median is the shortest.
                verdict={stats.SAME: TIED, stats.FASTER: stats.UNDECIDED}.get(verdict, verdict),
                holds_for_all=verdict == stats.SLOWER == stats.decide(of_all, tolerance),
            )  # fmt: skip
        found.append(own)
    others = {each.verdict for each in found if each and each.verdict}
    place = (FASTEST if others == {stats.SLOWER} else SHORTEST) if others else ""
    return tuple(e._replace(verdict=place) if e and e.setting == best else e for e in found)


_COLUMNS = (
    "operation", "size_bytes", "launches", "backend", "status", "part", "work", "queued_share",
    "cpu_mode", *TIMES, *UNDISTURBED_TIMES,
)  # fmt: skip


def compare_rows(
    kind: str, a: ResultRow, b: ResultRow, tolerance: float, facts: TwoRuns
) -> comparing.ComparedRow:
    """The time of b over that of a. Launches and hosts differ only between runs: one run measures
    all of its rows in the same launches."""
    of_a, of_b = (row_type(_COLUMNS)(*row_values(row, _COLUMNS)) for row in (a, b))
    if a.header is b.header:
        of_a, of_b = (each._replace(launches=None) for each in (of_a, of_b))
        return comparing.compare_rows(kind, of_a, of_b, tolerance)
    samples = (a.measurement, b.measurement)
    return comparing.compare_rows(kind, of_a, of_b, tolerance, samples=samples, runs=facts)


def steps_as_made(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """The steps of a workload with the calls that the program makes; with its gaps where these were
    measured."""
    found: dict[str, SweepPoint] = {}
    for variant in AS_TRACED:
        for point in points:
            if point.case.step and point.case.variant == variant:
                found.setdefault(point.case.step, point)
    return list(found.values())


def faster_variants(points: Sequence[SweepPoint], tolerance: float) -> Iterator[FasterVariant]:
    """The variant of each step that takes least time under the best setting of the step, if it is
    faster than the step as it is made."""
    compared = [point for point in points if point.case.step and point.is_compared]
    for made in steps_as_made(compared):
        others = [
            (each.time, point.case.variant, each.row)
            for point in compared
            for each in point.by_time
            if point.case.step == made.case.step and each.setting == made.best.setting
            and point.case.variant not in AS_TRACED
        ]  # fmt: skip
        none = None, "", made.best.row
        time, fastest, row = min(others, key=itemgetter(0), default=none)
        gain, why = stats.ratio(time, made.best.time), comparing.waited_sides(made.best.row, row)
        if gain and not why and stats.decide(gain, tolerance) == stats.FASTER:
            yield FasterVariant(made.case.step, made.best.setting, fastest, gain)


def rank_settings(points: Sequence[SweepPoint]) -> tuple[SettingRank, ...]:
    """The settings that have a time for some case that was compared, best first."""
    compared = [times for point in points if len(times := point.by_time) > 1]
    every = (each for times in compared for each in times)
    ratios = stats.collect((e.setting, e.ratio.value if e.ratio else 1.0) for e in every)
    won = Counter(times[0].setting for times in compared if times[0].verdict == FASTEST)
    decided = [own for own in compared if stats.UNDECIDED not in {each.verdict for each in own}]
    tied = Counter(each.setting for own in decided for each in own if each.verdict in _TIED)
    ranks = [SettingRank(s, won[s], tied[s], geometric_mean(own)) for s, own in ratios.items()]
    return tuple(sorted(ranks, key=attrgetter("over_best")))

"""What a sweep found: the times of every case under every setting, and which settings are best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench import stats
from commbench.analysis.columns import KEY, TEXTS
from commbench.analysis.csv_file import make_csv
from commbench.analysis.nccl_log import TunerRange, is_symmetric, tuner_lines
from commbench.analysis.rows import make_rows
from commbench.answers.compare.host import LeftOut, find_left_out, without
from commbench.answers.sweep import ranking, runner
from commbench.answers.sweep.ranges import (
    PooledSetting,
    SizeRange,
    judge_point,
    make_ranges,
    pool_settings,
    pool_two,
)
from commbench.answers.sweep.settings import Setting, short_names
from commbench.errors import RecordsError, UnavailableError, WrongResultError
from commbench.results.files import write_new
from commbench.results.run_folder import SWEEP_CSV, find_sweep
from commbench.results.schema import WRONG
from commbench.units import GB, MICRO, scaled
from commbench.views.formats import Result, fields_of

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    *KEY, "setting", "time_us", "time_ci_low_us", "time_ci_high_us", "busbw_GBps", "ratio",
    "ratio_ci_low", "ratio_ci_high", "verdict", "status", "reason",
)  # fmt: skip
"""The columns of a sweep's frame: a row for each case under each setting. The last are those of
SettingTime, `status` that of the row."""
TUNER = "nccl-tuner"
"""What --export takes: a file for NCCL's plugins/tuner/example."""
TUNER_FILE = f"{TUNER}.csv"


class Winner(NamedTuple):
    """The best setting of one case."""

    kind: str
    """The title of the case without the fields that are varied."""
    size_bytes: int
    best: str | None
    """The name of the fastest setting; None where that is undecided."""
    tied: tuple[str, ...]
    """The names of settings whose time is the same, within the tolerance."""
    undecided: tuple[str, ...]
    """The names of settings of which each may be the fastest, the shortest time first; empty where
    it is decided."""


@dataclass(frozen=True, repr=False)
class SweepResult(Result, view="answers.sweep.document"):
    """A sweep and what was measured of it until now."""

    path: Path
    """The folder of the sweep."""
    sweep: runner.Sweep
    """Its settings, number of rounds and tolerance."""
    settings: tuple[runner.SettingResult, ...]
    """What was measured under each setting, in the order of the sweep."""
    cases: tuple[ranking.SweepPoint, ...]
    """Each case under all settings, in the order of the plan."""
    left_out: tuple[LeftOut, ...] = ()
    """Rounds that do not count: times and ratios are without them."""

    @cached_property
    def points(self) -> tuple[ranking.SweepPoint, ...]:
        """The cases that have a time under some setting."""
        return tuple(point for point in self.cases if point.by_time)

    @property
    def compared(self) -> list[ranking.SweepPoint]:
        """The cases that have a time under several settings."""
        return [point for point in self.points if point.is_compared]

    @property
    def rows(self) -> tuple[ranking.SettingTime, ...]:
        """Each case under each setting, setting by setting."""
        by_setting = zip(*(point.rows for point in self.cases), strict=True)
        return tuple(row for rows in by_setting for row in rows if row)

    @property
    def names(self) -> dict[Setting, str]:
        """A short name for each setting."""
        return short_names(self.sweep.settings)

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The best setting of each case that was measured under two settings or more, by its row
        and its range of sizes."""
        found = []
        for point in self.compared:
            verdict, best = judge_point(point, self.pooled)
            names = tuple(setting.name for setting in best)
            is_open = verdict == stats.UNDECIDED
            settings = (None, (), names) if is_open else (names[0], names[1:], ())
            found.append(Winner(point.kind, point.size_bytes, *settings))
        return tuple(found)

    @property
    def failures(self) -> dict[str, str]:
        """The settings that were not measured in full, by name, each with the error's message."""
        return {each.setting.name: each.failure for each in self.settings if each.failure}

    @property
    def missing_rounds(self) -> int:
        """How many runs are still to be made or failed; `commbench sweep --resume` makes them."""
        return sum(self.sweep.rounds - each.rounds for each in self.settings)

    @cached_property
    def pooled(self) -> tuple[PooledSetting, ...]:
        """Each setting against the one with the shortest times, for ranges of sizes."""
        return pool_settings(self.points, self.sweep.tolerance)

    @cached_property
    def ranges(self) -> tuple[SizeRange, ...]:
        """Which settings are the fastest at which sizes, of each kind of case."""
        return make_ranges(self.points, self.pooled)

    @property
    def ranks(self) -> tuple[ranking.SettingRank, ...]:
        """The settings by their time over all cases; of a replay over its steps."""
        steps = [point for point in self.points if point.case.step]
        return ranking.rank_settings(steps or self.points)

    @property
    def faster_variants(self) -> tuple[ranking.FasterVariant, ...]:
        """For each step of a workload the variant to use, if one is faster."""
        return tuple(ranking.faster_variants(self.points, self.sweep.tolerance))

    def as_json(self) -> dict[str, Any]:
        """Everything that is known."""
        settings = [
            {
                "name": each.setting,
                "short_name": self.names[each.setting],
                "variables": dict(each.setting.variables),
                "options": dict(each.setting.options),
                "world_size": each.run and each.run.header.plan.world_size,
                "backend": each.run and each.run.header.plan.backend,
                "device": each.run and each.run.header.plan.device,
                **fields_of(each, without=("setting", "run", "rows")),
            }
            for each in self.settings
        ]
        sweep = fields_of(self.sweep, without=("settings", "arguments", "environments", "backends"))
        found = fields_of(
            self, "ranges", "pooled", "rows", "winners", "ranks", "faster_variants",
            "missing_rounds", without=("sweep", "settings", "cases"),
        )  # fmt: skip
        return sweep | {"settings": settings} | found

    def frame(self) -> DataFrame:
        """A row for each case under each setting as a pandas DataFrame, with COLUMNS."""
        from commbench.analysis.load import make_frame

        return make_frame(self.frame_rows(), COLUMNS, (*TEXTS, "setting", "verdict", "reason"))

    def frame_rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the sweep's frame, as values of COLUMNS."""
        for each in self.rows:
            yield (
                *(getattr(each.case, name) for name in KEY),
                each.setting.name,
                *(scaled(value, MICRO) for value in each.estimate or _UNKNOWN),
                scaled(each.row.busbw, GB) if each.estimate else None,
                *map(scaled, each.ratio or _UNKNOWN),
                each.verdict,
                each.row.measurement.status,
                each.reason,
            )


_UNKNOWN = (None, None, None)


def load_sweep(sweep: str | Path) -> SweepResult:
    """Load a sweep by its folder, or by its name under results/; RecordsError if there is none, or
    no round is complete."""
    folder = find_sweep(str(sweep)) or Path(sweep)
    found = runner.read_sweep(folder)
    rounds = runner.read_rounds(found, folder)
    if not rounds:
        why = f"no round of the sweep {folder} was completed"
        raise RecordsError(why, f"`commbench sweep --resume {folder}` continues it")
    return make_result(found, folder, rounds)


def make_result(sweep: runner.Sweep, folder: Path, rounds: runner.Rounds) -> SweepResult:
    """The result of a sweep from the rounds that are complete."""
    results = runner.make_results(sweep, folder, rounds)
    left_out: tuple[LeftOut, ...] = ()
    if all(each.rounds == sweep.rounds for each in results) and results[1:]:
        left_out = find_left_out([each.run for each in results if each.run])
    if left_out:
        kept = (without(each.run, left_out) for each in results if each.run)
        both = zip(results, kept, strict=True)
        results = tuple(each._replace(run=run, rows=make_rows(run)) for each, run in both)
    points = ranking.make_points(results, sweep.tolerance)
    return SweepResult(folder, sweep, results, points, left_out)


def write_csv(result: SweepResult) -> None:
    """Write the rows of the frame into sweep.csv, in the sweep's folder."""
    runner.write_again(result.path / SWEEP_CSV, make_csv([COLUMNS, *result.frame_rows()]))


def require_correct(result: SweepResult) -> None:
    """Raise WrongResultError, with the result, where a setting gave wrong results: forcing a
    protocol can do that."""
    for each in result.settings:
        for measurement in each.run.measurements if each.run else ():
            if measurement.status == WRONG:
                what = f"under {each.setting.name} {measurement.case.name} is wrong"
                hint = "do not use this setting; the table leaves such times out"
                error = WrongResultError(f"{what}: {measurement.reason}", hint)
                error.run = result
                raise error


def mean_ratio(
    points: Sequence[ranking.SweepPoint], a: Setting, b: Setting, tolerance: float
) -> stats.Estimate | None:
    """The time under `b` over that under `a`, of points of one kind: stats.mean_ratio over the
    sizes, of the ranges that `pool_two` pools, which have their launches in common. None
    where none has both."""
    pooled = pool_two(points, a, b, tolerance)
    ratios = [each.ratio for each in pooled for _ in range(each.rows)]
    return stats.mean_ratio(ratios) if ratios else None


def make_tuner_ranges(points: Sequence[ranking.SweepPoint]) -> tuple[TunerRange, ...]:
    """NCCL's selections under the best setting, by operation and range of sizes. A range extends to
    the next measured size, so that the plugin's own default holds nowhere. Of a replay the setting
    that is best for its first step counts for all calls."""
    steps = ranking.steps_as_made(points)
    setting = steps[0].best.setting if steps else None
    ranges: list[TunerRange] = []
    for point in sorted(points, key=lambda p: (p.case.operation, p.size_bytes)):
        operation, size = point.case.operation, point.size_bytes
        chosen = [each for each in point.by_time if setting in (None, each.setting)][:1]
        selection = chosen[0].selection if chosen else None
        if selection is None or not point.case.call_form.is_reference:
            continue
        if is_symmetric(selection.algorithm):  # no tuner chooses these
            continue
        wanted = (selection.algorithm.lower(), selection.protocol.lower(), selection.channels)
        last = ranges[-1] if ranges and ranges[-1].operation == operation else None
        is_same = last and (last.algorithm, last.protocol, last.channels) == wanted
        if last and (is_same or last.high_bytes == size):  # of several of one size, the first
            ranges[-1] = last._replace(high_bytes=size)
            continue
        if last:
            ranges[-1] = last._replace(high_bytes=size - 1)
        ranges.append(TunerRange(operation, size if last else 0, size, *wanted))
    return tuple(ranges)


def export_tuner(points: Sequence[ranking.SweepPoint], folder: Path) -> Path:
    """Write the best selections for NCCL's example tuner plugin; UnavailableError where NCCL logged
    none, for without a number of channels the plugin would use one channel."""
    ranges = make_tuner_ranges(points)
    if not ranges:
        hint = "NCCL 2.24 or newer logs its selections where NCCL_DEBUG is not set otherwise"
        raise UnavailableError("there is nothing to export: NCCL logged no selection", hint)
    path, header = folder / TUNER_FILE, points[0].best.row.header
    lines = tuner_lines(ranges, header.num_nodes, header.plan.world_size)
    write_new(path, [f"{line}\n" for line in lines])
    return path

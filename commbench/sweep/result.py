"""What a sweep found: the times of every case under every setting, and which settings are best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.columns import KEY, TEXTS
from commbench.analysis.csv_file import make_csv
from commbench.analysis.diagnostics import diagnose_row
from commbench.analysis.nccl_log import NcclSelection, one_selection
from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow
from commbench.errors import RecordsError, WrongResultError, unwritable_error
from commbench.results.run_folder import find_sweep
from commbench.results.schema import WRONG
from commbench.sweep import nccl_tuning, ranking, runner
from commbench.sweep.runner import SettingResult, Sweep
from commbench.sweep.settings import Setting, short_names
from commbench.units import GB, MICRO, seven_digits
from commbench.views.as_json import fields_of

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    *KEY, "setting", "time_us", "time_ci_low_us", "time_ci_high_us", "busbw_GBps", "ratio",
    "ratio_ci_low", "ratio_ci_high", "place", "status",
)  # fmt: skip
"""The columns of a sweep's frame: a row for each case under each setting. `ratio` is the time over
that under the first setting; `place` is best, tied, undecided or empty."""
CSV = "sweep.csv"


class Winner(NamedTuple):
    """The best setting of one case."""

    kind: str
    """The title of the case without the fields that are varied."""
    size_bytes: int
    best: str
    """The name of the fastest setting."""
    tied: tuple[str, ...]
    """The names of settings whose time is the same, within the tolerance."""
    undecided: tuple[str, ...]
    """The names of settings that may be as fast, but are not known to be."""


class SweepRow(NamedTuple):
    """One case under one setting."""

    kind: str
    """The title of the case without the fields that are varied."""
    setting: Setting
    row: ResultRow
    timed: ranking.SettingTime | None
    """None where there is no valid time."""
    place: str
    """`best`, `tied`, `undecided` or empty."""
    selection: NcclSelection | None
    """What NCCL selected; None where that is not known."""

    @property
    def size_bytes(self) -> int:
        """0 for an operation without a size."""
        return named_bytes(self.row.measurement.case)

    @property
    def status(self) -> str:
        """Whether the case was measured, failed or is wrong, in its worst round."""
        return self.row.measurement.status

    def as_json(self) -> dict[str, Any]:
        """The case, its time and its ratio to that of the first setting."""
        case = self.row.measurement.case
        return {name: getattr(case, name) for name in KEY} | {
            "setting": self.setting,
            "time_s": self.timed and self.timed.time,
            "busbw_bytes_per_s": self.row.busbw if self.timed else None,
            "ratio": self.timed and self.timed.ratio,
            **fields_of(self, "status", without=("kind", "setting", "row", "timed")),
            "warnings": [each.name for each in diagnose_row(self.row)],
        }


@dataclass(frozen=True)
class SweepResult:
    """A sweep and what was measured of it until now."""

    path: Path
    """The folder of the sweep."""
    sweep: Sweep
    """Its settings, number of rounds and tolerance."""
    settings: tuple[SettingResult, ...]
    """What was measured under each setting, in the order of the sweep."""
    points: tuple[ranking.SweepPoint, ...]
    """Each case under all settings, in the order of the plan."""
    selections: nccl_tuning.Selections | None
    """What NCCL selected under each setting; None where no setting used NCCL."""

    @property
    def names(self) -> dict[Setting, str]:
        """A short name for each setting."""
        return short_names(self.sweep.settings)

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The best setting of each case that was measured under two settings or more."""
        return tuple(
            Winner(
                point.kind,
                point.size_bytes,
                best.name,
                tuple(other.name for other in tied),
                tuple(other.name for other in point.undecided),
            )
            for point in self.points
            if point.is_compared
            for best, *tied in [point.tied]
        )

    @property
    def failures(self) -> dict[str, str]:
        """The settings that were not measured in full, by name, each with the error's message."""
        return {each.setting.name: each.failure for each in self.settings if each.failure}

    @property
    def fails_again(self) -> bool:
        """Whether all that is missing would fail again, because the request or the environment
        does not allow it."""
        lacking = [each for each in self.settings if each.rounds < self.sweep.rounds]
        return bool(lacking) and all(each.is_permanent for each in lacking)

    @property
    def missing_rounds(self) -> int:
        """How many runs are still to be made or failed; `commbench sweep --resume` makes them."""
        return sum(self.sweep.rounds - each.rounds for each in self.settings)

    @cached_property
    def pooled(self) -> tuple[ranking.PooledSetting, ...]:
        """Each setting against the one with the shortest times, for ranges of sizes."""
        return ranking.pool_settings(self.points, self.sweep.tolerance)

    @cached_property
    def ranges(self) -> tuple[ranking.SizeRange, ...]:
        """Which settings are the fastest at which sizes, of each kind of case."""
        return ranking.make_ranges(self.points, self.pooled)

    @property
    def ranks(self) -> tuple[ranking.SettingRank, ...]:
        """The settings by their time over all cases; of a replay over its steps."""
        return ranking.rank_settings(ranking.judged_points(self.points))

    @property
    def faster_variants(self) -> tuple[ranking.FasterVariant, ...]:
        """For each step of a workload the variant to use, if one is faster."""
        return ranking.faster_variants(self.points, self.sweep.tolerance)

    @cached_property
    def rows(self) -> tuple[SweepRow, ...]:
        """Each case under each setting, setting by setting."""
        times = {
            (each.setting, each.row.measurement.case.index): (each, point.place(each))
            for point in self.points
            for each in point.by_time
        }
        varied = ranking.varied_fields(self.sweep.settings)
        found = []
        for setting, row in ((each.setting, row) for each in self.settings for row in each.rows):
            case = row.measurement.case
            timed, place = times.get((setting, case.index), (None, ""))
            selection = one_selection((self.selections or {}).get(setting, {}), case)
            kind = case.title_without(*varied)
            found.append(SweepRow(kind, setting, row, timed, place, selection))
        return tuple(found)

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
        return {
            "path": self.path,
            **fields_of(self.sweep, without=("settings", "arguments", "environments", "backends")),
            "settings": settings,
            **fields_of(
                self, "ranges", "pooled", "rows", "winners", "ranks", "faster_variants",
                "missing_rounds", "fails_again",
                without=("path", "sweep", "settings", "points", "selections"),
            ),
        }  # fmt: skip

    def frame(self) -> DataFrame:
        """A row for each case under each setting as a pandas DataFrame, with COLUMNS."""
        from commbench.analysis.load import make_frame

        return make_frame(self.frame_rows(), COLUMNS, (*TEXTS, "setting", "place"))

    def frame_rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the sweep's frame, as values of COLUMNS."""
        for each in self.rows:
            timed, case = each.timed, each.row.measurement.case
            yield (
                *(getattr(case, name) for name in KEY),
                each.setting.name,
                *(_scaled(value, MICRO) for value in (timed.time if timed else _UNKNOWN)),
                _scaled(each.row.busbw, GB) if timed else None,
                *(_scaled(value, 1) for value in ((timed and timed.ratio) or _UNKNOWN)),
                each.place,
                each.status,
            )


_UNKNOWN = (None, None, None)


def _scaled(value: float | None, unit: float) -> float | None:
    """A value in a unit, with seven digits."""
    return None if value is None else seven_digits(value / unit)


def load_sweep(text: str | Path) -> SweepResult:
    """The sweep in a folder, or of a name under results/; RecordsError where there is none, or
    where no round is complete."""
    folder = find_sweep(str(text)) or Path(text)
    sweep = runner.read_sweep(folder)
    rounds = runner.read_rounds(sweep, folder)
    if not rounds:
        raise RecordsError(
            f"no round of the sweep {folder} was completed",
            f"`commbench sweep --resume {folder}` continues it",
        )
    return make_result(sweep, folder, rounds)


def make_result(sweep: Sweep, folder: Path, rounds: runner.Rounds) -> SweepResult:
    """The result of a sweep from the rounds that are complete."""
    results = runner.make_results(sweep, folder, rounds)
    uses_nccl = any(each.run.header.plan.backend == "nccl" for each in results if each.run)
    return SweepResult(
        path=folder,
        sweep=sweep,
        settings=results,
        points=ranking.make_points(results, sweep.tolerance),
        selections=nccl_tuning.read_selections(results) if uses_nccl else None,
    )


def write_csv(result: SweepResult) -> None:
    """Write the rows of the frame into sweep.csv, in the sweep's folder."""
    path = result.path / CSV
    try:
        path.write_bytes(make_csv([COLUMNS, *result.frame_rows()]).encode())
    except OSError as error:
        raise unwritable_error(path, error) from None


def require_correct(result: SweepResult) -> None:
    """Raise WrongResultError, with the result, where a setting gave wrong results: forcing a
    protocol can do that."""
    for each in result.settings:
        for measurement in each.run.measurements if each.run else ():
            if measurement.status == WRONG:
                error = WrongResultError(
                    f"under {each.setting.name} {measurement.case.name} is wrong: "
                    f"{measurement.reason}",
                    "do not use this setting; the table leaves such times out",
                )
                error.run = result
                raise error

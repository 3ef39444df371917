"""What a sweep found: the times of every case under every setting, and which settings are best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.columns import KEY, TEXTS
from commbench.analysis.csv_file import make_csv
from commbench.errors import RecordsError, WrongResultError, unwritable_error
from commbench.results.run_folder import find_sweep
from commbench.results.schema import WRONG
from commbench.stats.verdict import SAME, UNDECIDED
from commbench.sweep import nccl_tuning, ranking, runner
from commbench.sweep.runner import SettingResult, Sweep
from commbench.sweep.settings import Setting, short_names
from commbench.units import GB, MICRO

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    *KEY, "setting", "time_us", "time_ci_low_us", "time_ci_high_us", "busbw_GBps", "ratio",
    "ratio_ci_low", "ratio_ci_high", "place", "status",
)  # fmt: skip
"""The columns of a sweep's frame: a row for each case under each setting. `ratio` is the time over
that under the first setting; `place` is best, tied, undecided or empty."""
BEST, TIED = "best", "tied"
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

    @property
    def text(self) -> str:
        """The sentences and tables that `commbench sweep` prints."""
        from commbench.sweep.text import sweep_text

        return sweep_text(self)

    def frame(self) -> DataFrame:
        """A row for each case under each setting as a pandas DataFrame, with COLUMNS."""
        from commbench.analysis.load import make_frame

        return make_frame(self.frame_rows(), COLUMNS, (*TEXTS, "setting", "place"))

    def frame_rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the sweep's frame, as values of COLUMNS."""
        times = {
            (each.setting, each.row.measurement.case.index): (each, each is point.best)
            for point in self.points
            for each in point.by_time
        }
        for result in self.settings:
            for row in result.rows:
                case = row.measurement.case
                each, is_best = times.get((result.setting, case.index), (None, False))
                place = BEST if is_best else _PLACES.get(each.verdict, "") if each else ""
                yield (
                    *(getattr(case, name) for name in KEY),
                    result.setting.name,
                    *(_scaled(value, MICRO) for value in (each.time if each else _UNKNOWN)),
                    _scaled(row.busbw, GB) if each else None,
                    *(_scaled(value, 1) for value in ((each and each.ratio) or _UNKNOWN)),
                    place,
                    row.measurement.status,
                )


_PLACES = {SAME: TIED, UNDECIDED: UNDECIDED}
_UNKNOWN = (None, None, None)


def _scaled(value: float | None, unit: float) -> float | None:
    """A value in a unit, with seven digits."""
    return None if value is None else float(f"{value / unit:.7g}")


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

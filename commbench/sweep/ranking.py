"""Which setting is best at which sizes, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, nan
from typing import NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.compare.ratio import SLOWER, MedianCI, decide_verdict, time_ratio
from commbench.results.schema import OK
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import Setting


class SweepPoint(NamedTuple):
    """One case under all settings."""

    kind: str
    """The title of the case without the fields that are varied."""
    size_bytes: int
    rows: tuple[tuple[Setting, ResultRow], ...]
    """The rows that were timed and are not wrong, fastest first."""
    tied: tuple[Setting, ...]
    """The fastest setting, and those that are not slower than it beyond the tolerance."""
    gain: float
    """Time under the first setting of the sweep over time under the fastest."""
    gain_low: float
    gain_high: float
    """The 95 % interval of the gain; NaN where there is none."""

    @property
    def best(self) -> Setting:
        """The fastest setting."""
        return self.rows[0][0]

    @property
    def best_row(self) -> ResultRow:
        """The row of the fastest setting."""
        return self.rows[0][1]

    @property
    def case(self) -> Case:
        """The case under the fastest setting."""
        return self.best_row.measurement.case


class SizeRange(NamedTuple):
    """Neighbouring sizes of one kind at which the same settings are best."""

    kind: str
    low_bytes: int
    high_bytes: int
    best: tuple[Setting, ...]
    gains: tuple[float, float]
    """The least and the largest gain over the first setting."""


class SettingRank(NamedTuple):
    """How one setting does over all cases."""

    setting: Setting
    won: int
    """Cases in which it alone is best."""
    tied: int
    """Cases in which it is among the best."""
    times_best: float
    """Geometric mean of its time over the best time; a ratio of ratios, used for ranking only."""


def make_points(results: Sequence[SettingResult], tolerance: float) -> tuple[SweepPoint, ...]:
    """Every case that at least two settings have a valid time for, in the order of the plan."""
    options = {f"--{name}" for result in results for name, _ in result.setting.options}
    varied = [dimension.field for dimension in DIMENSIONS if dimension.option in options]
    found: dict[tuple[str, int], list[tuple[Setting, ResultRow]]] = {}
    for result in results:
        for row in result.rows:
            if row.time and row.measurement.status == OK:
                case = row.measurement.case
                key = (case.title_without(*varied), case.size_bytes)
                found.setdefault(key, []).append((result.setting, row))
    first = results[0].setting
    return tuple(
        _make_point(kind, size, rows, first, tolerance)
        for (kind, size), rows in found.items()
        if len(rows) > 1
    )


def _make_point(
    kind: str, size: int, rows: list[tuple[Setting, ResultRow]], first: Setting, tolerance: float
) -> SweepPoint:
    ordered = sorted(rows, key=lambda item: _median(item[1]))
    fastest = _median_ci(ordered[0][1])
    ratios = [time_ratio(fastest, _median_ci(row)) for _, row in ordered]
    tied = [
        setting
        for (setting, _), ratio in zip(ordered, ratios, strict=True)
        if decide_verdict(ratio, tolerance) != SLOWER
    ]
    index = next((i for i, (setting, _) in enumerate(ordered) if setting == first), None)
    gains = MedianCI(None, None, None) if index is None else ratios[index]
    return SweepPoint(
        kind, size, tuple(ordered), tuple(tied), *(nan if gain is None else gain for gain in gains)
    )


def _median_ci(row: ResultRow) -> MedianCI:
    assert row.time
    return MedianCI(row.time.median, row.time.low, row.time.high)


def _median(row: ResultRow) -> float:
    assert row.time
    return row.time.median


def make_ranges(points: Sequence[SweepPoint]) -> tuple[SizeRange, ...]:
    """Join neighbouring sizes of a kind where the same settings are best."""
    ranges: list[SizeRange] = []
    for point in sorted(points, key=lambda p: (p.kind, p.size_bytes)):
        last = ranges[-1] if ranges else None
        if last and last.kind == point.kind and set(last.best) == set(point.tied):
            gains = min(last.gains[0], point.gain), max(last.gains[1], point.gain)
            ranges[-1] = last._replace(high_bytes=point.size_bytes, gains=gains)
        else:
            size, gains = point.size_bytes, (point.gain, point.gain)
            ranges.append(SizeRange(point.kind, size, size, point.tied, gains))
    return tuple(ranges)


def rank_settings(points: Sequence[SweepPoint]) -> tuple[SettingRank, ...]:
    """The settings that have a time for some case, best first."""
    ratios: dict[Setting, list[float]] = {}
    for point in points:
        best = _median(point.best_row)
        for setting, row in point.rows if best else ():
            ratios.setdefault(setting, []).append(_median(row) / best)
    ranks = [
        SettingRank(
            setting,
            won=sum(point.tied == (setting,) for point in points),
            tied=sum(setting in point.tied for point in points),
            times_best=exp(sum(map(log, of_setting)) / len(of_setting)),
        )
        for setting, of_setting in ratios.items()
    ]
    return tuple(sorted(ranks, key=lambda rank: rank.times_best))

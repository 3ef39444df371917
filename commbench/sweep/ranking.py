"""Which setting is best for which sizes, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any, NamedTuple

from commbench.analysis.rows import ResultRow, make_rows
from commbench.compare.ratio import SLOWER, MedianCI, ratio_of, verdicts_of
from commbench.spec.case import Case
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import Setting

VARIED_FIELDS = ("dtype", "placement", "timing")
"""Fields of a case that differ between settings where the option of that name is varied."""


class SweepPoint(NamedTuple):
    """One case under all settings."""

    kind: str
    size_bytes: int
    rows: tuple[tuple[Setting, ResultRow], ...]
    """Those that were timed, fastest first."""
    tied: tuple[Setting, ...]
    """The settings that are not slower than the fastest beyond the tolerance; it is the first."""
    gain: float
    """Time under the first setting of the sweep over time under the fastest."""
    gain_low: float
    gain_high: float
    """The 95 % interval of the gain; NaN where there is none."""

    @property
    def best(self) -> Setting:
        return self.rows[0][0]


class SizeRange(NamedTuple):
    """Neighbouring sizes of one kind at which the same settings are best."""

    kind: str
    low_bytes: int
    high_bytes: int
    best: tuple[Setting, ...]
    gains: tuple[float, float]
    """Least and largest gain over the first setting."""


class SettingRank(NamedTuple):
    """How one setting does over all cases."""

    setting: Setting
    won: int
    """Cases in which it alone is best."""
    tied: int
    """Cases in which it is among the best."""
    times_best: float
    """Geometric mean of its time over the best one's: a ratio of ratios, only to rank by."""


def places_of(outcomes: Sequence[SettingResult], tolerance: float) -> tuple[SweepPoint, ...]:
    """Every case that at least two settings have a time for, in the order of the plan."""
    varied = {name for outcome in outcomes for name, _ in outcome.setting.options}
    found: dict[tuple[str, int], list[tuple[Setting, ResultRow]]] = {}
    for outcome in outcomes:
        for row in make_rows(outcome.run) if outcome.run else ():
            if row.time and not row.measurement.wrong:
                case = row.measurement.case
                key = (_kind(case, varied), case.size_bytes)
                found.setdefault(key, []).append((outcome.setting, row))
    first = outcomes[0].setting
    return tuple(
        _place(kind, size, rows, first, tolerance)
        for (kind, size), rows in found.items()
        if len(rows) > 1
    )


def _kind(case: Case, varied: set[str]) -> str:
    """The title of a case without what is varied."""
    without: dict[str, Any] = {name: "" for name in VARIED_FIELDS if name in varied}
    return case._replace(**without).title


def _place(
    kind: str, size: int, rows: list[tuple[Setting, ResultRow]], first: Setting, tolerance: float
) -> SweepPoint:
    import numpy as np

    ordered = sorted(rows, key=lambda item: _times(item[1])[0])
    fastest = _as_times([ordered[0][1]])
    others = _as_times([row for _, row in ordered])
    ratio = ratio_of(fastest, others)
    verdicts = verdicts_of(ratio, np.full(len(ordered), np.nan), tolerance)
    tied = [s for (s, _), verdict in zip(ordered, verdicts, strict=True) if verdict != SLOWER]
    at = next((i for i, (setting, _) in enumerate(ordered) if setting == first), None)
    gains = (float("nan"),) * 3 if at is None else tuple(float(part[at]) for part in ratio)
    return SweepPoint(kind, size, tuple(ordered), tuple(tied), *gains)


def _as_times(rows: Sequence[ResultRow]) -> MedianCI:
    import numpy as np

    columns = zip(*(_times(row) for row in rows), strict=True)
    return MedianCI(*(np.array(column) for column in columns))


def _times(row: ResultRow) -> tuple[float, float, float]:
    assert row.time
    low, high = row.time.low, row.time.high
    nothing = float("nan")
    return row.time.median, nothing if low is None else low, nothing if high is None else high


def ranges_of(places: Sequence[SweepPoint]) -> tuple[SizeRange, ...]:
    """Neighbouring sizes of a kind joined where the same settings are best."""
    ranges: list[SizeRange] = []
    for place in sorted(places, key=lambda p: (p.kind, p.size_bytes)):
        last = ranges[-1] if ranges else None
        if last and last.kind == place.kind and set(last.best) == set(place.tied):
            low, high = min(last.gains[0], place.gain), max(last.gains[1], place.gain)
            ranges[-1] = last._replace(high_bytes=place.size_bytes, gains=(low, high))
        else:
            ranges.append(
                SizeRange(
                    place.kind, place.size_bytes, place.size_bytes, place.tied,
                    (place.gain, place.gain),
                )
            )  # fmt: skip
    return tuple(ranges)


def standings_of(
    outcomes: Sequence[SettingResult], places: Sequence[SweepPoint]
) -> tuple[SettingRank, ...]:
    """The settings that were measured, best first."""
    standings = []
    for setting in (outcome.setting for outcome in outcomes if outcome.run):
        shares = [
            _times(row)[0] / _times(place.rows[0][1])[0]
            for place in places
            for other, row in place.rows
            if other == setting and _times(place.rows[0][1])[0]
        ]
        if shares:
            standings.append(
                SettingRank(
                    setting,
                    won=sum(place.tied == (setting,) for place in places),
                    tied=sum(setting in place.tied for place in places),
                    times_best=exp(sum(map(log, shares)) / len(shares)),
                )
            )
    return tuple(sorted(standings, key=lambda s: s.times_best))

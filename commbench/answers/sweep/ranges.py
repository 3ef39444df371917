"""Ranges of sizes in which the same is known of the settings of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis.row_names import format_range
from commbench.answers.compare import pooling
from commbench.answers.compare import ratio as comparing
from commbench.answers.compare.turns import find_facts
from commbench.answers.sweep.ranking import SweepPoint, compare_rows, rank_settings
from commbench.answers.sweep.settings import Setting
from commbench.output.text import join_words
from commbench.views.formats import fields_of


class PooledSetting(NamedTuple):
    """Two settings at neighbouring sizes of one kind of case, together."""

    setting: Setting
    against: Setting
    """The setting that has the shortest times of this kind on average."""
    pooled: pooling.PooledRatio
    """The time under `setting` over that under `against`."""

    def as_json(self) -> dict[str, Any]:
        """The names of the settings, and the ratio."""
        return {"setting": self.setting, "against": self.against, **self.pooled.as_json()}

    def is_at(self, point: SweepPoint) -> bool:
        """Whether a point is among its sizes."""
        (kind, low, high), size = self.pooled[:3], point.size_bytes
        return kind == point.kind and low <= size <= high


class SizeRange(NamedTuple):
    """Neighbouring sizes of one kind at which the same is known of the settings."""

    kind: str
    verdict: str
    """FASTER than all others, SAME for several that are tied, or UNDECIDED; SLOWER: see
    `make_ranges`."""
    best: tuple[Setting, ...]
    """The settings that are the fastest; of UNDECIDED those that may be, at any of these sizes."""
    points: tuple[SweepPoint, ...]
    """By ascending size; at least one."""

    def __repr__(self) -> str:
        sizes = format_range(self.low_bytes, self.high_bytes)
        names = join_words([setting.name for setting in self.best], "or")
        return f"<SizeRange: {self.kind} {sizes}: {names}, {self.verdict}>"

    @property
    def low_bytes(self) -> int:
        """The smallest size."""
        return self.points[0].size_bytes

    @property
    def high_bytes(self) -> int:
        """The largest size."""
        return self.points[-1].size_bytes

    def as_json(self) -> dict[str, Any]:
        """Its sizes, settings and verdict."""
        more = {"sizes": len(self.points)}
        return fields_of(self, "low_bytes", "high_bytes", without=("points",)) | more


def pool_settings(points: Sequence[SweepPoint], tolerance: float) -> tuple[PooledSetting, ...]:
    """Of each kind of case, every setting against the one with the shortest times on average, for
    each range of sizes in which the ratio does not change, as `commbench compare` pools the rows of
    two runs: a verdict holds with 95 % for all of them together."""
    found: list[PooledSetting] = []
    for kind in dict.fromkeys(point.kind for point in points):
        same = [point for point in points if point.kind == kind]
        same.sort(key=attrgetter("size_bytes"))
        ranked = [rank.setting for rank in rank_settings(same)]
        for first, setting in product(ranked[:1], ranked[1:]):
            pooled = pool_two(same, first, setting, tolerance)
            found += [PooledSetting(setting, first, each) for each in pooled]
    rows = sum(each.pooled.rows for each in found)
    return tuple(
        e._replace(pooled=e.pooled.among(rows if e.pooled.rows == 1 else len(found))) for e in found
    )


def pool_two(
    points: Sequence[SweepPoint], a: Setting, b: Setting, tolerance: float
) -> list[pooling.PooledRatio]:
    """The time under b over that under a, of points of one kind by ascending size, for each range
    of sizes in which it does not change."""
    return pooling.pool_kind(compare_two(points, a, b, tolerance), tolerance)


def compare_two(
    points: Sequence[SweepPoint], a: Setting, b: Setting, tolerance: float
) -> list[comparing.ComparedRow]:
    """The same of each point that both have measured, and whose ratio is known."""
    times = [{each.setting: each for each in point.by_time} for point in points]
    both = [(own[a], own[b]) for own in times if a in own and b in own]
    if not both:
        return []
    facts = find_facts(*(each.run for each in both[0]))
    rows = (compare_rows(points[0].kind, x.row, y.row, tolerance, facts) for x, y in both)
    return [row for row in rows if row.ratio]


def make_ranges(
    points: Iterable[SweepPoint], pooled: Sequence[PooledSetting], used: Setting | None = None
) -> tuple[SizeRange, ...]:
    """Join neighbouring sizes of a kind at which the same is known. A setting that `pooled` shows
    to be slower, or the same, is known to be, where no row says otherwise.

    Of a setting that is `used` it counts whether another is faster: if so the verdict is SLOWER, if
    not SAME; then `best` are the settings that are the fastest at each of these sizes."""
    ranges: list[SizeRange] = []
    compared = [point for point in points if point.is_compared]
    for point in sorted(compared, key=attrgetter("kind", "size_bytes")):
        verdict, best = judge_point(point, pooled)
        if used and used not in best:
            verdict = stats.SLOWER
        elif used and verdict == stats.FASTER:
            verdict = stats.SAME
        last = ranges[-1] if ranges and ranges[-1][:2] == (point.kind, verdict) else None
        joined = tuple(dict.fromkeys((*last.best, *best))) if last else ()
        if last and verdict != stats.UNDECIDED:
            shared = tuple(setting for setting in last.best if setting in best)
            joined = shared if used or len(shared) == len(joined) else ()
        earlier = ranges.pop().points if joined else ()
        ranges.append(SizeRange(point.kind, verdict, joined or best, (*earlier, point)))
    return tuple(ranges)


def judge_point(
    point: SweepPoint, pooled: Sequence[PooledSetting]
) -> tuple[str, tuple[Setting, ...]]:
    """The verdict on one case, and the settings that are the fastest, or may be: see SizeRange."""
    own = [(each.pooled.verdict, each[:2]) for each in pooled if each.is_at(point)]
    slower = {pair[v == stats.FASTER] for v, pair in own if v in stats.CHANGED}
    same = {setting for v, pair in own if v == stats.SAME for setting in pair}
    best = tuple(s for s in point.not_slower if s not in slower) or point.not_slower
    others = stats.SAME if {*best} <= {*point.tied} or {*best} <= same else stats.UNDECIDED
    return stats.FASTER if len(best) == 1 else others, best

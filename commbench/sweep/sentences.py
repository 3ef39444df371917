"""What a sweep found, in a few sentences for each kind of case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commbench.compare.ratio import MedianCI
from commbench.compare.sentences import format_sizes, pooled_sentence, short_kinds
from commbench.output.paragraphs import list_some
from commbench.output.table import clean
from commbench.sweep.ranking import (
    SweepPoint,
    make_ranges,
    pooled_ratios,
    rank_settings,
    varied_fields,
)
from commbench.sweep.settings import Setting
from commbench.units import format_ratio

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult

MOST_NAMED = 3
MOST_RANGES = 4


def kind_sentences(result: SweepResult) -> list[str]:
    """What was found, in one or a few sentences for each kind of case."""
    found = sentences_by_kind(result)
    return [sentence for kind in found.values() for sentence in kind] or ["Nothing was timed."]


def sentences_by_kind(result: SweepResult) -> dict[str, list[str]]:
    """The sentences about each kind of case, the most important one first."""
    kinds: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        kinds.setdefault(point.kind, []).append(point)
    cases = {kind: points[0].case for kind, points in kinds.items()}
    short = short_kinds(cases, varied_fields(result.sweep.settings))
    return {kind: _sentences(result, short[kind], points) for kind, points in kinds.items()}


def _sentences(result: SweepResult, kind: str, points: Sequence[SweepPoint]) -> list[str]:
    """What was found for the cases of one kind."""
    names = {setting: clean(name) for setting, name in result.names.items()}
    settings = [
        setting
        for setting in result.sweep.settings
        if any(each.setting == setting for point in points for each in point.by_time)
    ]
    compared = sorted((p for p in points if p.is_compared), key=lambda p: p.size_bytes)
    if len(settings) == 1:
        only = names[settings[0]]
        return [f"{kind}: only {only} was measured; there is nothing to compare it with."]
    if not compared:
        return [f"{kind}: no size was measured under two settings."]
    ranked = [rank.setting for rank in rank_settings(compared)]
    best, *others = ranked
    found = [] if len(settings) == 2 else [_winners(kind, compared, names)]
    shown = others if len(others) <= MOST_NAMED else [others[0], others[-1]]
    for other in shown:
        ratios = pooled_ratios(compared, best, other, result.sweep.tolerance)
        found += [pooled_sentence(ratio, kind, names[best], names[other]) for ratio in ratios]
    if len(shown) < len(others):
        found.append(f"{kind}: the other {len(others) - 2} settings lie between these two.")
    return found


def _winners(kind: str, points: Sequence[SweepPoint], names: dict[Setting, str]) -> str:
    """The fastest setting of each range of sizes, with those that are tied at all of its sizes, and
    those that are undecided."""
    ranges = make_ranges(points)
    if len(ranges) > MOST_RANGES:
        overall = names[rank_settings(points)[0].setting]
        return (
            f"{kind}: {overall} is the fastest over all sizes; which one is the fastest changes "
            f"{len(ranges) - 1} times with the size."
        )
    parts = []
    for found in ranges:
        by_time = [rank.setting for rank in rank_settings(found.points)]
        best, *others = sorted(found.best, key=by_time.index)
        tied = [each for each in others if all(each in point.tied for point in found.points)]
        groups = {"tied": tied, "undecided": [each for each in others if each not in tied]}
        with_it = "; ".join(
            f"{word}: {list_some([names[setting] for setting in group], MOST_NAMED)}"
            for word, group in groups.items()
            if group
        )
        sizes = format_sizes(found.points[0].size_bytes, found.points[-1].size_bytes)
        parts.append(
            f"{names[best]} is the fastest"
            + (f" at {sizes}" if sizes else "")
            + (f" ({with_it})" if with_it else "")
        )
    return f"{kind}: {'; '.join(parts)}."


def ratio_text(ratio: MedianCI) -> str:
    """A ratio with three digits: `1.93`; empty where there is none."""
    return "" if ratio.median is None else _digits(ratio.median)


def interval_text(ratio: MedianCI) -> str:
    """The interval of a ratio: `1.80-2.10`; empty where there is none."""
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{_digits(ratio.low)}-{_digits(ratio.high)}"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else format_ratio(value)

"""What a sweep found, in a few sentences for each kind of case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.row_names import format_range, short_titles
from commbench.compare.pooling import PooledRatio
from commbench.compare.sentences import pooled_sentence
from commbench.output.paragraphs import list_some
from commbench.output.table import clean
from commbench.spec.workload_variants import AS_TRACED
from commbench.stats.estimate import ratio
from commbench.stats.verdict import FASTER, SLOWER, decide
from commbench.sweep.ranking import (
    SettingTime,
    SizeRange,
    SweepPoint,
    judged_points,
    make_ranges,
    pooled_ratios,
    rank_settings,
    steps_as_made,
    varied_fields,
)
from commbench.sweep.settings import Setting
from commbench.views.cells import in_brackets, ratio_interval_text, ratio_text, time_text

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult

MOST_NAMED = 3
MOST_RANGES = 4


def kind_sentences(result: SweepResult) -> list[str]:
    """What was found, in one or a few sentences for each kind of case; of a replay the setting to
    use for each step, and the fastest one for each of its variants."""
    found = sentences_by_kind(result)
    judged = judged_points(result.points)
    kinds = {p.kind: not p.case.step or p.case.variant in AS_TRACED for p in judged}
    sentences = [
        each for kind, has_all in kinds.items() for each in found[kind][: None if has_all else 1]
    ]
    return [*_recommendations(result), *(sentences or ["Nothing was timed."])]


def _recommendations(result: SweepResult) -> Iterator[str]:
    """For each step of a workload the setting to use, and the variant that is faster with it."""
    compared = [point for point in result.points if point.case.step and point.is_compared]
    for made in steps_as_made(compared):
        step = made.case.step
        yield _recommendation(result, f"For the step {clean(step)!r}", made)
        yield from _faster_variants(result, made, [p for p in compared if p.case.step == step])


def _recommendation(result: SweepResult, what: str, point: SweepPoint) -> str:
    """Which setting to use for a step, and its time there."""
    names = {setting: clean(name) for setting, name in result.names.items()}
    best, *others = point.by_time
    candidates = [names[setting] for setting in point.not_slower]
    if len(candidates) == 1:
        second = ratio(others[0].time, best.time)
        return (
            f"{what}, use {candidates[0]}: it takes {_time(best)}, and {ratio_text(second)} times "
            f"as long{in_brackets(ratio_interval_text(second))} under {names[others[0].setting]}"
            f"{', the next one' if len(others) > 1 else ''}."
        )
    listed = list_some(candidates, MOST_NAMED)
    if {*point.tied} == {*point.not_slower}:
        tolerance = f"{result.sweep.tolerance * 100:g} %"
        return f"{what}, these are equally fast, within {tolerance}: {listed}."
    more = "" if len(candidates) == len(point.by_time) else "; the others are slower"
    return f"{what}, more rounds must decide between {listed}{more}."


def _faster_variants(
    result: SweepResult, made: SweepPoint, points: Sequence[SweepPoint]
) -> Iterator[str]:
    """The variant of a step that takes least time under the best setting of the step, if it is
    faster than the step as it was made."""
    setting = made.best.setting
    times = {
        point.case.variant: each.time
        for point in points
        for each in point.by_time
        if each.setting == setting
    }
    others = [variant for variant in times if variant not in AS_TRACED]
    if not others:
        return
    fastest = min(others, key=lambda variant: times[variant].value)
    gain = ratio(times[fastest], made.best.time)
    if decide(gain, result.sweep.tolerance) == FASTER:
        yield (
            f"With {clean(fastest.replace(':', ' '))} under {clean(result.names[setting])} the "
            f"step takes {ratio_text(gain)} times as long as with its own "
            f"calls{in_brackets(ratio_interval_text(gain))}."
        )


def _time(found: SettingTime) -> str:
    return time_text(found.time)


def sentences_by_kind(result: SweepResult) -> dict[str, list[str]]:
    """The sentences about each kind of case, the most important one first."""
    kinds: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        kinds.setdefault(point.kind, []).append(point)
    cases = {kind: points[0].case for kind, points in kinds.items()}
    short = short_titles(cases, varied_fields(result.sweep.settings))
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
    if not compared and points[0].case.step:
        ranks = {point.case.ranks for point in points}
        what = "calls differ" if len(ranks) == 1 else "groups have other ranks"
        which = "between the settings" if len(ranks) == 1 else "under each setting"
        return [f"{kind}: its {what} {which}; there is nothing to compare."]
    if not compared:
        return [f"{kind}: no size was measured under two settings."]
    ranked = [rank.setting for rank in rank_settings(compared)]
    best, *others = ranked
    shown = others if len(others) <= MOST_NAMED else [others[0], others[-1]]
    pooled = {s: pooled_ratios(compared, best, s, result.sweep.tolerance) for s in shown}
    found = []
    if len(settings) > 2:
        found.append(_winners(kind, compared, names, _Pooled(best, pooled), result.sweep.tolerance))
    for other, ratios in pooled.items():
        found += [pooled_sentence(ratio, kind, names[best], names[other]) for ratio in ratios]
    if len(shown) < len(others):
        found.append(f"{kind}: the other {len(others) - 2} settings are between these two.")
    return found


class _Pooled(NamedTuple):
    """The ratios that the sentences after the first one give."""

    best: Setting
    """The setting that the others are compared with."""
    ratios: Mapping[Setting, Sequence[PooledRatio]]

    def slower_at(self, low_bytes: int, high_bytes: int) -> set[Setting]:
        """The settings that these ratios show to be slower at some of these sizes."""
        slower = set()
        for setting, ratios in self.ratios.items():
            for found in ratios:
                if found.low_bytes <= high_bytes and found.high_bytes >= low_bytes:
                    if found.verdict == SLOWER:
                        slower.add(setting)
                    elif found.verdict == FASTER:
                        slower.add(self.best)
        return slower


def _winners(
    kind: str, points: Sequence[SweepPoint], names: Mapping[Setting, str], pooled: _Pooled,
    tolerance: float,
) -> str:  # fmt: skip
    """Which setting is the fastest at which sizes, as far as that is decided."""
    ranges = make_ranges(points)
    if len(ranges) > MOST_RANGES:
        return (
            f"{kind}: no setting is the fastest at all sizes; {names[pooled.best]} has the "
            "shortest times on average."
        )
    return f"{kind}: {'; '.join(_winner(each, names, pooled, tolerance) for each in ranges)}."


def _winner(
    found: SizeRange, names: Mapping[Setting, str], pooled: _Pooled, tolerance: float
) -> str:
    """Which setting is the fastest at a range of sizes: one, several that are tied, or undecided.

    Where a pooled ratio shows that a setting is slower, it is no candidate, although it may be
    undecided at each single size.
    """
    points = found.points
    low, high = points[0].size_bytes, points[-1].size_bytes
    by_time = [rank.setting for rank in rank_settings(points)]
    every = sorted(found.best, key=by_time.index)
    slower = pooled.slower_at(low, high)
    candidates = [setting for setting in every if setting not in slower] or every
    listed = list_some([names[setting] for setting in candidates], MOST_NAMED)
    sizes = format_range(low, high)
    at = f" at {sizes}" if sizes else ""
    won = sum(point.not_slower == tuple(candidates) for point in points)
    if len(candidates) == 1:
        if won == len(points):
            return f"{listed} is the fastest{at}"
        if won:
            return (
                f"{listed} is the fastest at {won} of {len(points)} sizes of {sizes}, and tied or "
                "undecided at the others"
            )
        return f"no single size{at} decides which setting is the fastest; it may be {listed}"
    if all(set(candidates) == {*point.tied} == {*point.not_slower} for point in points):
        return f"these are equally fast{at}, within {tolerance * 100:g} %: {listed}"
    return f"it is undecided which setting is the fastest{at}; it may be one of {listed}"

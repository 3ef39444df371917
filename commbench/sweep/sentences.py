"""Which setting is the fastest at which sizes: a sentence for each kind of case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from commbench.analysis.row_names import format_range, short_titles
from commbench.output.paragraphs import join_words, list_some
from commbench.stats.verdict import FASTER, SAME
from commbench.sweep.ranking import (
    SizeRange,
    SweepPoint,
    pooled_ratios,
    rank_settings,
    steps_as_made,
    varied_fields,
)
from commbench.units import format_size
from commbench.views.cells import in_brackets, ratio_interval_text, ratio_text

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult

MOST_NAMED = 3
MOST_RANGES = 4
_FASTEST = " is the fastest"


def kind_sentences(result: SweepResult) -> list[str]:
    """The sentences about what decides: the steps of a workload as the program makes them, and the
    variants that are faster; else all kinds of cases."""
    found = sentences_by_kind(result)
    judged = steps_as_made(result.points) or result.points
    kinds = dict.fromkeys(point.kind for point in judged)
    sentences = [each for kind in kinds for each in found[kind]]
    return [*sentences, *_faster_variants(result)] or ["Nothing was timed."]


def _faster_variants(result: SweepResult) -> Iterator[str]:
    for step, setting, variant, ratio in result.faster_variants:
        yield (
            f"With {variant.replace(':', ' ')} under {result.names[setting]} the step {step} takes "
            f"{ratio_text(ratio)} times as long as with its own calls"
            f"{in_brackets(ratio_interval_text(ratio))}."
        )


def sentences_by_kind(result: SweepResult) -> dict[str, list[str]]:
    """The sentences about each kind of case."""
    kinds: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        kinds.setdefault(point.kind, []).append(point)
    short = short_kinds(result)
    return {kind: [_sentence(result, short[kind], points)] for kind, points in kinds.items()}


def short_kinds(result: SweepResult) -> dict[str, str]:
    """A short title of each kind of case."""
    cases = {point.kind: point.case for point in result.points}
    return short_titles(cases, varied_fields(result.sweep.settings))


def _sentence(result: SweepResult, title: str, points: Sequence[SweepPoint]) -> str:
    """What was found for the cases of one kind."""
    settings = {each.setting for point in points for each in point.by_time}
    compared = [point for point in points if point.is_compared]
    if len(settings) == 1:
        only = result.names[settings.pop()]
        return f"{title}: only {only} was measured; there is nothing to compare it with."
    if not compared and points[0].case.step:
        has_same_ranks = len({point.case.ranks for point in points}) == 1
        what = "calls differ between the settings"
        if not has_same_ranks:
            what = "groups have other ranks under each setting"
        return f"{title}: its {what}; there is nothing to compare."
    if not compared:
        return f"{title}: no size was measured under two settings."
    ranges = [found for found in result.ranges if found.kind == points[0].kind]
    if len(ranges) > MOST_RANGES:
        best = result.names[rank_settings(compared)[0].setting]
        return (
            f"For {title}, no setting is the fastest at all sizes; {best} has the shortest times "
            "on average."
        )
    clauses = [_clause(result, found, _where(found, ranges)) for found in ranges]
    if all(found.verdict == FASTER for found in ranges):
        first, *others = clauses
        others = [clause.replace(_FASTEST, "", 1) for clause in others]
        return f"For {title}, {join_words([first, *others])}."
    return f"For {title}, {'; '.join(clauses)}."


def _where(found: SizeRange, ranges: Sequence[SizeRange]) -> str:
    """At which sizes: ` up to 64K`, ` at 1M-4M`, ` from 16M on`; empty without sizes."""
    if not found.high_bytes:
        return ""
    if found is ranges[0] and len(ranges) > 1:
        return f" up to {format_size(found.high_bytes)}"
    if found is ranges[-1] and len(ranges) > 1:
        return f" from {format_size(found.low_bytes)} on"
    return f" at {format_range(found.low_bytes, found.high_bytes)}"


def _clause(result: SweepResult, found: SizeRange, where: str) -> str:
    """Which setting is the fastest there: one, several that are tied, or undecided."""
    ranked = [rank.setting for rank in rank_settings(found.points)]
    names = [result.names[setting] for setting in ranked if setting in found.best]
    listed = list_some(names, MOST_NAMED)
    if found.verdict == SAME:
        tolerance = f"{result.sweep.tolerance * 100:g} %"
        return f"these are equally fast{where}, within {tolerance}: {listed}"
    if found.verdict != FASTER:
        one_of = "one of " if len(names) > 1 else ""
        return f"it is undecided which setting is the fastest{where}; it may be {one_of}{listed}"
    (best,) = found.best
    second = next(setting for setting in ranked if setting != best)
    pooled = pooled_ratios(found.points, best, second, result.sweep.tolerance)
    ratios = sorted(each.ratio for each in pooled)
    texts = list(dict.fromkeys(ratio_text(ratio) for ratio in (ratios[0], ratios[-1])))
    told = [f"{result.names[second]} takes {' to '.join(texts)} times as long"]
    if found.decided < len(found.points):
        told.insert(0, f"tied or undecided at {len(found.points) - found.decided} of these sizes")
    return f"{listed}{_FASTEST}{where} ({'; '.join(told)})"

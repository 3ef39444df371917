"""What sentences say of a sweep: which setting is the fastest at which sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

from commbench.analysis.diagnostics import WAITED, waited_answer
from commbench.analysis.row_names import format_range, short_titles
from commbench.answers.compare.causes import of_most, waited_at
from commbench.answers.compare.host import left_out_text
from commbench.answers.compare.pooling import by_size_text
from commbench.answers.show.numerics import ways_sentence
from commbench.answers.sweep import ranking
from commbench.answers.sweep.ranges import SizeRange, pool_settings
from commbench.answers.sweep.result import SweepResult
from commbench.output.text import join_words, list_some, span
from commbench.stats import FASTER, SAME, UNDECIDED, collect
from commbench.units import format_bytes, format_count
from commbench.views import cells

MOST_NAMED, MOST_GROUPS = 3, 3
"""Settings, or ranges of sizes, and groups of sizes in a sentence."""
_WORDS = {
    FASTER: "{} is the fastest", SAME: "{} are equally fast", UNDECIDED: "undecided between {}",
}  # fmt: skip


def answers(result: SweepResult) -> list[str]:
    """The sentences about what decides: the steps of a workload as the program makes them, and the
    variants that are faster; else all kinds of cases."""
    judged = ranking.steps_as_made(result.points) or result.points
    variants = [
        f"With {variant.replace(':', ' ')} under {result.names[setting]} the step {step} takes "
        f"{cells.ratio_with_interval_text(ratio)} times as long as with its own calls."
        for step, setting, variant, ratio in result.faster_variants
    ]
    sentences = range_sentences(result, {point.kind for point in judged})
    whose = [f"under {result.names[each.setting]}" for each in result.settings]
    left_out = left_out_text(result.left_out, whose, "round")
    told = [*sentences, *variants, *left_out, *_rounds_that_waited(result)]
    return [*before_all(result), *(told or ["Nothing was timed."])]


def before_all(result: SweepResult) -> list[str]:
    """That rounds are missing of settings that did not fail; that ranks waited for a core."""
    done = [each.rounds for each in result.settings if not each.failure] or [result.sweep.rounds]
    partial = f"This is partial: {span(str, done)} of {format_count(result.sweep.rounds, 'round')}."
    rows = [row for each in result.settings for row in each.rows]
    return [*[partial] * (min(done) < result.sweep.rounds), *waited_answer(rows)]


def _rounds_that_waited(result: SweepResult) -> list[str]:
    """In which rounds ranks waited for a core, in half of the rows or more, which explains why
    rounds differ; beside some rounds of one setting also all rounds of another one."""
    rows = collect((row.setting, row) for row in result.rows)
    found = {each: of_most([row.waited_rounds for row in own]) for each, own in rows.items()}
    if any(found.values()):
        every = [*range(1, result.sweep.rounds + 1)]
        found |= {each: every for each, own in rows.items() if all(row.waited for row in own)}
    names = {f"under {result.names[each]}": rounds for each, rounds in found.items()}
    return waited_at("round", names, "rounds")


def range_sentences(result: SweepResult, kinds: Collection[str]) -> list[str]:
    """Which setting is the fastest at which sizes: a sentence for each of these kinds of cases."""
    found = []
    for kind, title in short_kinds(result).items():
        ranges = [each for each in result.ranges if each.kind == kind]
        if kind in kinds:
            alone = f"{title}: nothing to compare: {_why_alone(result, kind)}."
            found.append(_sentence(result, title, ranges) if ranges else alone)
    return found


def bits_sentences(result: SweepResult) -> list[str]:
    """How the bits of the results differ between settings, at the largest size of each kind."""
    titles, found = short_kinds(result), []
    ascending = sorted(result.points, key=attrgetter("size_bytes"))
    largest = {point.kind: point for point in ascending}
    for kind, point in largest.items():
        rows = {result.names[row.setting]: row.row.measurement for row in point.rows if row}
        found.append(ways_sentence(f"{titles[kind]} {format_bytes(point.size_bytes)}", rows))
    return [*filter(None, found)]


def _why_alone(result: SweepResult, kind: str) -> str:
    """Why no case of a kind has a time under two settings."""
    points = [point for point in result.points if point.kind == kind]
    timed = dict.fromkeys(result.names[each.setting] for p in points for each in p.by_time)
    if len(timed) > 1:
        return "its calls differ"
    return f"only {', '.join(timed)} was measured" if timed else "nothing was timed"


def _sentence(result: SweepResult, title: str, ranges: Sequence[SizeRange]) -> str:
    """What is known at the sizes of one kind, those with the same findings together, the most
    important first: `all_reduce 64K: plain is the fastest, ...; 4K and 1M: undecided.`"""
    alike = collect(((e.verdict, e.verdict != UNDECIDED and frozenset(e.best)), e) for e in ranges)
    groups = [*alike.values()]
    groups.sort(key=lambda same: (same[0].verdict == UNDECIDED, -sum(len(r.points) for r in same)))
    shown, others = groups[:MOST_GROUPS], groups[MOST_GROUPS:]
    shown.sort(key=lambda same: (same[0].verdict == UNDECIDED, same[0].low_bytes))
    texts = [
        f"{_sizes(same)}: {_finding(result, same, len(groups) == 1)}{_why(result, same)}"
        for same in shown
    ]
    more = sum(len(each.points) for same in others for each in same)
    texts += [format_count(more, "more size")] * (more > 0)
    return f"{title} {'; '.join(texts)}.".replace(" :", ":")


def _why(result: SweepResult, ranges: Sequence[SizeRange]) -> str:
    """Why it is undecided which setting is the fastest, where ranks waited for a core."""
    every = [each for found in ranges for point in found.points for each in point.by_time]
    names = dict.fromkeys(result.names[each.setting] for each in every if each.waited)
    is_told = ranges[0].verdict == UNDECIDED and any(each.reason for each in every)
    return f" ({WAITED} under {list_some([*names], MOST_NAMED)})" * is_told


def _sizes(ranges: Sequence[SizeRange]) -> str:
    """The sizes of some ranges: `4K and 64K-1M`; empty for calls without data."""
    texts = [format_range(each.low_bytes, each.high_bytes) for each in ranges]
    number = sum(len(each.points) for each in ranges)
    return join_words(texts) if len(texts) <= MOST_NAMED else format_count(number, "size")


def _finding(result: SweepResult, ranges: Sequence[SizeRange], is_only: bool) -> str:
    """What is known at some sizes, and how much longer the next setting takes."""
    write = cells.ratio_with_interval_text
    verdict, best = ranges[0].verdict, {setting for each in ranges for setting in each.best}
    points = [point for each in ranges for point in each.points]
    ranked = [rank.setting for rank in ranking.rank_settings(points)]
    slower = [setting for setting in ranked if setting not in best]
    names = [result.names[setting] for setting in ranked if setting in best]
    if more := names[MOST_NAMED:]:
        names[MOST_NAMED:] = [f"{len(more)} more"]
    text = _WORDS[verdict].format(join_words(names))
    if verdict == UNDECIDED and not is_only:
        return text if slower else UNDECIDED
    pooled = pool_settings(points, result.sweep.tolerance)
    if verdict == UNDECIDED and not slower:
        widest = max(pooled, key=lambda each: each.pooled.ratio)
        a, b = (result.names[each] for each in (widest.against, widest.setting))
        if cells.is_too_noisy(widest.pooled.ratio):
            return f"{UNDECIDED}, {cells.TOO_NOISY_TO_COMPARE} (shortest: {a})"
        times = f"{write(widest.pooled.ratio)} times as long as {a}"
        return f"{b} takes {times}{by_size_text([widest.pooled])}, {UNDECIDED}"
    for some in filter(None, (slower[:1], slower[1:])):
        if own := [each.pooled for each in pooled if each.setting in some]:
            who = result.names[some[0]] if len(some) == 1 else "the others"
            verb, end = (" takes", " as long") if some == slower[:1] else ("", "")
            times = f"{span(write, [each.ratio for each in own])} times{end}"
            if len(some) == 1 < len(own) <= MOST_NAMED:
                at = [f"{write(e.ratio)} times at {format_range(*e[1:3])}" for e in own]
                times = join_words(at).replace(" times", f" times{end}", 1)
            text += f", {who}{verb} {times}{by_size_text(own)}"
    return text


def short_kinds(result: SweepResult) -> dict[str, str]:
    """A short title of each kind of case."""
    cases = {point.kind: point.case for point in result.points}
    return short_titles(cases, ranking.varied_fields(result.sweep.settings, cases.values()))

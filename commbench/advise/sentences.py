"""Advice in words: sentences, the lines to paste, and the commands that measure what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from commbench.advise.buckets import MOST_BUCKETS, BucketAdvice, Slowdown, least_size
from commbench.advise.choices import CHANGE, KEEP, UNDECIDED, ChoiceAdvice, SizeRange, widen
from commbench.advise.fsdp import FORWARD_PART, GroupingAdvice
from commbench.advise.measured import Measured
from commbench.advise.moe import EXCHANGED, GATHERED, MoEAdvice, MoEPoint
from commbench.advise.time_table import ESTIMATED
from commbench.analysis.nccl_tuner import tuner_lines
from commbench.output.paragraphs import join_words
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import FASTER, SAME, SLOWER, decide
from commbench.sweep import nccl_tuning
from commbench.sweep.settings import Setting, short_names
from commbench.units import (
    format_about,
    format_bytes,
    format_count,
    format_known_time,
    format_memory,
    format_time,
)

if TYPE_CHECKING:
    from commbench.advise.advice import Question


def _percent(tolerance: float) -> str:
    return f"{100 * tolerance:g} %"


def gain_text(gain: Estimate | None) -> str:
    """`1.70 times as fast (1.67-1.73)`."""
    if gain is None:
        return ""
    ends = "" if gain.low is None or gain.high is None else f" ({gain.low:.2f}-{gain.high:.2f})"
    return f"{gain.value:.2f} times as fast{ends}"


def time_text(time: Estimate) -> str:
    """A time with the digits that its interval supports."""
    return format_known_time(time.value, time.low, time.high)[0]


def bucket_sentences(found: BucketAdvice, verdict: str, question: Question) -> tuple[str, ...]:
    """What the simulation of DDP says."""
    step, chosen, now = found.step, found.recommended, found.now
    is_default = question.bucket_bytes is None
    used = format_bytes(now.bucket_bytes)
    used = f"torch's default of {used}" if is_default else used
    within = _percent(question.tolerance)
    said = []
    if verdict == CHANGE:
        said.append(
            f"Buckets of {format_bytes(chosen.bucket_bytes)} instead of {used}: a backward pass of "
            f"{time_text(chosen.time)} instead of {time_text(now.time)}, "
            f"{gain_text(found.gain)}."
        )
    elif found.is_guess:
        rank = "the best" if found.best == now else f"within {within} of the best"
        said.append(
            f"The rows do not decide it: {used} would be {rank}, but is far beyond the measured "
            "sizes."
        )
    elif chosen == now:
        said.append(f"Keep {used}: no simulated size is more than {within} faster.")
    elif verdict == KEEP:
        said.append(
            f"Keep {used}: buckets of {format_bytes(chosen.bucket_bytes)} are at most {within} "
            "faster."
        )
    else:
        said.append(
            f"The rows do not decide whether {format_bytes(chosen.bucket_bytes)} is faster than "
            f"{used}: {gain_text(found.gain)}."
        )
    low, high = map(format_bytes, found.good)
    said.append(
        f"Buckets from {low} to {high} are within {within} of the best."
        if low != high
        else f"No other size is within {within} of the best, {low}."
    )
    if (least := least_size(step)) > found.table.smallest:
        smallest = min(least, found.curve[0].bucket_bytes)
        said.append(
            f"Sizes below {format_about(smallest)} are not simulated: they make more than "
            f"{MOST_BUCKETS:,} buckets."
        )
    which = "longer" if found.is_communication_bound else "shorter"
    assumed = ""
    if question.backward_s is None:
        assumed = " (assumed: as long as the communication; give --backward)"
    said.append(
        f"{format_about(step.gradient_bytes)} of gradients in {format_time(step.backward_s)} of "
        f"computation{assumed}; their communication alone takes "
        f"{format_time(found.communication_s)}, the {which} of the two."
    )
    if found.largest_sent > found.table.largest:
        said.append(
            f"The largest bucket, of {format_about(found.largest_sent)}, is beyond the measured "
            "sizes; its time continues the line of the last two."
        )
    if found.best.time.low is None:
        said.append("The times alone decide, because no interval of them is known.")
    if found.beyond:
        largest = format_bytes(found.table.largest)
        said.append(f"Buckets above {largest} were not measured; they may be faster.")
    busy = found.table.busy
    if busy and busy.kind == ESTIMATED:
        said.append(
            "The backend works on several calls at once; the time of each is then estimated from "
            "that of a single call."
        )
    return (*said, _slowdown_text(found.slowdown))


def _slowdown_text(slowdown: Slowdown) -> str:
    if not slowdown.source:
        return "How much computation and communication slow each other down is not measured."
    return (
        f"While both run, the communication takes {1 + slowdown.communication:.2f} times as long "
        f"and the computation {1 + slowdown.computation:.2f} times (measured with "
        f"{slowdown.source})."
    )


def grouping_sentences(found: GroupingAdvice, verdict: str, question: Question) -> tuple[str, ...]:
    """What the simulation of FSDP says."""
    chosen, now, within = found.recommended, found.now, _percent(question.tolerance)
    if verdict == CHANGE:
        memory, used = map(format_memory, (chosen.gathered_bytes, now.gathered_bytes))
        first = (
            f"Groups of {chosen.blocks} blocks instead of {now.blocks}: a step of "
            f"{time_text(chosen.time)} instead of {time_text(now.time)}, {gain_text(found.gain)}. "
            f"Two groups at once need {memory} instead of {used} of gathered parameters."
        )
    elif verdict == KEEP:
        larger = f"groups of {chosen.blocks} blocks are at most {within} faster"
        if chosen == now:
            larger = f"no larger group is more than {within} faster"
        first = f"Keep {format_count(now.blocks, 'block')} in each group: {larger}."
    else:
        first = (
            f"The rows do not decide whether groups of {chosen.blocks} blocks are faster: "
            f"{gain_text(found.gain)}."
        )
    if now.blocks > 1:
        first += f" Groups of fewer than {now.blocks} blocks were not measured."
    kept = found.kept
    second = (
        f"reshard_after_forward=False would be {gain_text(kept)}, and needs "
        f"{format_memory(found.step.gathered_bytes)} of gathered parameters."
    )
    if decide(kept, question.tolerance) != SLOWER:
        second = "reshard_after_forward=False has no known gain."
    assumed = "" if question.backward_s else " (assumed: as long as the reduce_scatter of all)"
    third = (
        f"Simulated: a backward pass of {format_time(found.step.backward_s)} without "
        f"communication{assumed}, and a forward pass of {FORWARD_PART:g} times that."
    )
    return (first, second, third, _slowdown_text(found.slowdown))


def moe_sentences(
    found: MoEAdvice, question: Question
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The verdict on both ways for experts, what the rows say, and what to call."""
    routing = found.routing
    said = [
        f"A token goes to {found.copies:.2f} of {found.ranks} ranks on average (top-{routing.topk} "
        f"of {routing.experts} experts)."
    ]
    crossing = found.crossing
    if crossing:
        small, large = (GATHERED, EXCHANGED) if crossing.rises else (EXCHANGED, GATHERED)
        said.append(
            f"{small} is faster for few tokens, {large} for many; crossover at "
            f"{crossing.at:.0f} tokens on each rank ({crossing.low:.0f}-{crossing.high:.0f}), "
            f"between {crossing.below} and {crossing.above}."
        )
    chosen = [p for p in found.curve if p.tokens == routing.tokens] or list(found.curve)
    decided = {p: decide(widen(p.ratio, len(chosen)), question.tolerance) for p in chosen}
    slower, faster = ([p for p, v in decided.items() if v == wanted] for wanted in (SLOWER, FASTER))
    where = _tokens_text(chosen)
    if bool(slower) != bool(faster):
        known = slower or faster
        best, other = (EXCHANGED, GATHERED) if slower else (GATHERED, EXCHANGED)
        rest = len(chosen) - len(known)
        also = f"; {rest} of {len(chosen)} numbers of tokens do not decide it" if rest else ""
        gains = _gain_range(known, is_inverse=bool(faster))
        first = f"{best} for {where}: {gains} as {other}{also}."
        return CHANGE, (first, *said), _EXCHANGE if slower else _GATHER
    if slower:
        return CHANGE, tuple(said[::-1]) if crossing else (_UNCLEAR, *said), ()
    if set(decided.values()) == {SAME}:
        return KEEP, (f"Both ways take equally long for {where}.", *said), ()
    return UNDECIDED, (f"The rows do not decide which way is faster for {where}.", *said), ()


_UNCLEAR = "Which way is faster changes several times with the tokens: see the table."
_GATHER = (
    "dist.all_gather_into_tensor(all_tokens, tokens)",
    "dist.reduce_scatter_tensor(output, expert_output)",
)
_EXCHANGE = (
    "dist.all_to_all_single(received, sent, received_splits, sent_splits)",
    "dist.all_to_all_single(output, expert_output, sent_splits, received_splits)",
)


def _tokens_text(points: Sequence[MoEPoint]) -> str:
    first, last = points[0].tokens, points[-1].tokens
    return f"{first} tokens" if first == last else f"{first} to {last} tokens"


def _gain_range(points: Sequence[MoEPoint], is_inverse: bool) -> str:
    ratios = [point.ratio for point in points]
    if is_inverse:
        ratios = [Estimate(*(1 / (end or 1.0) for end in (r.value, r.high, r.low))) for r in ratios]
    if len(ratios) == 1:
        return gain_text(ratios[0])
    middles = [ratio.value for ratio in ratios]
    return f"{min(middles):.2f} to {max(middles):.2f} times as fast"


def choice_sentences(found: ChoiceAdvice) -> tuple[str, ...]:
    """A sentence for each range of sizes, then the crossovers."""
    names = names_of(found)
    said = [_range_sentence(each, found.default, names) for each in found.ranges]
    for a, b, crossing in found.crossings:
        said.append(
            f"Crossover of {names[a]} and {names[b]}: {format_about(crossing.at)} "
            f"({format_about(crossing.low)} to {format_about(crossing.high)}), between "
            f"{format_bytes(crossing.below)} and {format_bytes(crossing.above)}."
        )
    return tuple(said)


def names_of(found: ChoiceAdvice) -> dict[Setting, str]:
    """A short name of each alternative."""
    settings = dict.fromkeys(each.setting for point in found.points for each in point.by_time)
    if found.choice.option:
        return {setting: setting.options[0][1] for setting in settings}
    return short_names(tuple(settings)) if len(settings) > 1 else {s: s.name for s in settings}


def _range_sentence(each: SizeRange, default: Setting, names: dict[Setting, str]) -> str:
    sizes = size_range_text(each.low_bytes, each.high_bytes)
    at = f"{sizes}: " if sizes else ""
    if each.verdict == CHANGE:
        also = [names[setting] for setting in each.candidates[1:]]
        equal = f"; {join_words(also)} may be as fast" if also else ""
        usual = f"; without a flat tensor {names[each.fallback]}" if each.fallback else ""
        return (
            f"{at}{names[each.best]} instead of {names[default]}, {gain_text(each.gain)}"
            f"{equal}{usual}."
        )
    others = [names[setting] for setting in each.candidates if setting != default]
    if each.verdict == KEEP:
        rest = f"; no gain with {join_words(others)}" if others else ""
        if each.slower:
            which = names[each.slower] if len(names) == 2 else f"the next, {names[each.slower]},"
            rest = f"; {which} is {gain_text(each.gain)}"
        return f"{at}keep {names[default]}{rest}."
    return (
        f"{at}{join_words([names[default], *others])} cannot be told apart: {others[0]} is "
        f"{gain_text(each.gain)}."
    )


def size_range_text(low: int, high: int) -> str:
    """`64 KiB to 1 MiB`; empty without a size."""
    if not high:
        return ""
    return format_bytes(low) if low == high else f"{format_bytes(low)} to {format_bytes(high)}"


def choice_paste(found: ChoiceAdvice, measured: Measured) -> tuple[str, ...]:
    """The lines for each alternative that is recommended, under a comment with its sizes where
    there are several; NCCL's tuner where it is to choose by size."""
    chosen = [each for each in found.ranges if each.verdict == CHANGE]
    case = found.points[0].case
    lines: list[str] = []
    for best, same in groupby(chosen, key=lambda each: each.best):
        sizes = ", ".join(filter(None, (size_range_text(e.low_bytes, e.high_bytes) for e in same)))
        if len(found.ranges) > 1 and sizes:
            lines.append(f"# {sizes}")
        lines += found.choice.paste(best, case)
    if not found.choice.option and len(found.ranges) > 1 and chosen:
        lines += _tuner_lines(found, measured)
    return tuple(lines)


def _tuner_lines(found: ChoiceAdvice, measured: Measured) -> list[str]:
    """Lines of a file for NCCL's tuner plugin; none where NCCL's selections are not recorded."""
    selections = nccl_tuning.read_selections(measured.results)
    ranges = nccl_tuning.make_tuner_ranges(found.points, selections)
    if not ranges:
        return []
    nodes, ranks = measured.header.num_nodes, measured.header.plan.world_size
    return [
        "# or all sizes, in the file of NCCL_TUNER_CONFIG_FILE:",
        *tuner_lines(ranges, nodes, ranks),
    ]

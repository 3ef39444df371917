"""What the replay of a step says in sentences: what takes most, how the network here is against
that of the trace, how much is waiting, and which variant saves time."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.replay import OperationReplay, StepReplay
from commbench.analysis.workload import known_sum
from commbench.output.paragraphs import join_words
from commbench.spec.workload import MESSAGES, Workload
from commbench.spec.workload_fit import was_shrunk
from commbench.spec.workload_variants import BUCKET, CALLS, GAPS
from commbench.stats.estimate import Estimate
from commbench.units import (
    format_bytes,
    format_known_time,
    format_share,
    format_time,
    parse_size,
)

WHOLE = {CALLS: "all calls without gaps", GAPS: "all calls with gaps"}
_LEAST_WAITING = 0.05
"""The part of the communication from which on waiting has a place where it is looked for."""


def name_variant(variant: str) -> str:
    """A variant in words: `buckets of 50 MiB`."""
    name, _, size = variant.partition(":")
    if name == BUCKET and not size:
        return "buckets"
    if name == BUCKET:
        return f"buckets of {format_bytes(parse_size(size))}"
    return WHOLE.get(variant, variant.replace("+", " + "))


def missing_variants(found: StepReplay) -> Iterator[str]:
    """Sentences: which variants the step does not have, and why."""
    by_reason: dict[str, list[str]] = {}
    for variant, why in found.left_out:
        name = variant if variant == GAPS else name_variant(variant)
        by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        yield f"The step has no variant with {join_words(names)}: {why}."


def meaning_of(ratio: Estimate) -> str:
    """What a ratio of two times means: `12 % less time`."""
    if ratio.low is None or ratio.high is None:
        return f"{_part(ratio.value)}, without an interval"
    if ratio.low <= 1 <= ratio.high:
        return "no difference that can be seen"
    return _part(ratio.value)


def _part(ratio: float) -> str:
    part = abs(ratio - 1)
    shown = f"{100 * part:.0f} %" if part >= 0.01 else f"{100 * part:.1g} %"
    return f"{shown} {'more' if ratio > 1 else 'less'} time"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].islower() and "_" not in text else text


def verdict(workload: Workload, found: StepReplay) -> list[str]:
    """A few sentences on what is slow and what would help: what takes most, how much is waiting,
    how the network here is against that of the trace, and which variant saves time."""
    return [
        *_largest(found), *_waiting(found), *_against_trace(workload, found), *_would_help(found)
    ]  # fmt: skip


def _largest(found: StepReplay) -> Iterator[str]:
    """Which operation takes most; sends and receives are messages, since each is both."""
    kinds: dict[str, list[OperationReplay]] = {}
    for one in found.operations:
        is_message = one.traced.operation in MESSAGES
        name = "messages" if is_message else one.traced.operation
        kinds.setdefault(f"{name} over {one.traced.group}", []).append(one)
    if len(kinds) == 1:
        yield f"All calls are {next(iter(kinds))}."
        return
    shares: dict[str, list[str]] = {}
    for where, seconds in (
        ("in the trace", lambda one: one.traced_s),
        ("here", lambda one: one.replayed and one.replayed.value),
    ):
        times = {name: known_sum(map(seconds, own)) for name, own in kinds.items()}
        if total := known_sum(times.values()):
            largest = max(times, key=lambda name: times[name] or 0.0)
            share = format_share((times[largest] or 0.0) / total)
            shares.setdefault(largest, []).append(f"{share} {where}")
    for name, parts in shares.items():
        takes = "take" if name.startswith("messages") else "takes"
        yield f"{name} {takes} most of the time of all calls: {', '.join(parts)}."


def _against_trace(workload: Workload, found: StepReplay) -> Iterator[str]:
    """The same calls here and in the trace; where they were made one after another, also how long
    each takes alone, which is what the table of operations has."""
    ratio, compared = found.over_trace, found.compared
    if ratio is None or compared is None:
        return
    how = "One after another and without computation" if compared.is_in_order else "Each alone"
    here = format_known_time(*compared.here)[0]
    said = (
        f"{how}, the calls take {here} here and {format_time(compared.traced_s)} in the trace, "
        f"{_times(ratio)} as long"
    )
    if was_shrunk(workload):
        yield f"{said}; the trace had more ranks, so this does not compare the networks."
    elif ratio.low is None or ratio.high is None:
        yield f"{said}; no interval is known."
    elif not ratio.low <= 1 <= ratio.high:
        yield f"{said}: communication is {'slower' if ratio.value > 1 else 'faster'} here."
    else:
        yield f"{said}: no difference that can be seen."
    if compared.is_in_order and (alone := found.alone):
        yield f"Each alone, they take {format_known_time(*alone)[0]} here."


def _times(ratio: Estimate) -> str:
    """A ratio with its interval: `0.64 times (0.51-0.71)`."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} times"
    return f"{ratio.value:.2f} times ({ratio.low:.2f}-{ratio.high:.2f})"


def _waiting(found: StepReplay) -> Iterator[str]:
    if found.communication_s is None:
        return
    if found.waiting_s is None:
        yield "The trace does not say how much of it is waiting."
    elif found.communication_s:
        part = found.waiting_s / found.communication_s
        where = "; `commbench workload show TRACES` says which rank waits for which"
        yield (
            f"{format_share(part)} of the communication of the trace, "
            f"{format_time(found.waiting_s)} of {format_time(found.communication_s)} a step, is "
            f"waiting for other ranks{where if part >= _LEAST_WAITING else ''}."
        )


def _would_help(found: StepReplay) -> Iterator[str]:
    """Which variant saves most, or that none does."""
    compared = [(each.ratio, each.variant) for each in found.variants if each.ratio]
    if not compared:
        return
    faster = [(r, v) for r, v in compared if (r.value if r.high is None else r.high) < 1]
    if not faster:
        is_decided = all(r.low is not None and r.low > 1 for r, _ in compared)
        yield f"No variant of the step {'takes' if is_decided else 'is seen to take'} less time."
        return
    ratio, variant = min(faster)
    yield f"{_capital(name_variant(variant))} would save most: {meaning_of(ratio)}."

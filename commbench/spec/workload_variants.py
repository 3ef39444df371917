"""The variants of a step that a replay measures: its calls alone, with the gaps between them, and
with other calls that have the same result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commbench.errors import UsageError
from commbench.spec.call_forms import CALL_FORMS
from commbench.spec.workload import Call, Step
from commbench.spec.workload_order import waits_after
from commbench.units import format_size, parse_size

CALLS, GAPS, BUCKET = "calls", "gaps", "bucket"
COMPOSED = next(form for form in CALL_FORMS.values() if form.steps and form.is_divided)
"""The form of a reduction that a step may use instead: a reduce_scatter and an all_gather."""
AS_TRACED = (GAPS, CALLS)
"""The variants with the calls that the step has, the most faithful first: what others are compared
with is the first of them that was measured."""
EVERY_VARIANT = "all"
VARIANTS = {
    CALLS: "its calls one after another, without the gaps",
    GAPS: "with the gaps of the trace: a CPU computes, a GPU spins",
    BUCKET: "bucket:SIZE: its neighbouring all_reduces cut into others of SIZE bytes",
    COMPOSED.name: "each all_reduce as these two",
}
VARIANTS_HELP = "; ".join(f"{name}: {what}" for name, what in VARIANTS.items() if name != BUCKET)


MEBIBYTE = 1 << 20
MOST_BUCKETS = 10_000
"""Of a rank in a step."""


def parse_variant(text: str) -> str:
    """The normal form of the name of a variant; UsageError for any other text."""
    name, _, size = text.strip().lower().partition(":")
    if name == BUCKET and size:
        return f"{BUCKET}:{format_size(parse_size(size))}"
    if size or name not in (CALLS, GAPS, COMPOSED.name, EVERY_VARIANT):
        known = (CALLS, GAPS, f"{BUCKET}:50M", COMPOSED.name, EVERY_VARIANT)
        raise UsageError(f"unknown variant {text!r:.60}", f"known: {', '.join(known)}")
    return name


def expand_variants(names: Iterable[str], step: Step) -> tuple[str, ...]:
    """The variants of a step, EVERY_VARIANT replaced by those that differ: its gaps where they are
    known, and for reductions of 1 MiB or more buckets of half and twice the largest, and COMPOSED.
    """
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(_every_variant(step) if name == EVERY_VARIANT else (name,))
    return tuple(found)


def why_no_variant(variant: str, step: Step) -> str:
    """Why a step has no such variant; empty where it has."""
    if variant == GAPS and not has_gaps(step):
        return "its source says nothing about gaps"
    if variant not in (CALLS, GAPS) and not _reductions(step):
        return f"it has no {' or '.join(COMPOSED.operations)}"
    if variant.startswith(BUCKET):
        total = max(sum(c.size_bytes or 0 for c in p.calls if _is_reduction(c))
                    for p in step.programs)  # fmt: skip
        number = total // parse_size(variant.partition(":")[2])
        if number > MOST_BUCKETS:
            return f"it would make {number} calls, more than {MOST_BUCKETS}"
    return ""


def has_gaps(step: Step) -> bool:
    """Whether it is known when its calls began."""
    calls = [call for program in step.programs for call in program.calls]
    return any(call.start_s is not None or call.compute_s is not None for call in calls)


def variant_calls(
    step: Step, calls: Sequence[Call], variant: str
) -> tuple[tuple[Call, ...], float]:
    """The calls of a program of a step in a variant, each with how long the rank computes before
    it, and how long it computes behind the last one: not at all in CALLS. The calls of BUCKET say
    when they are waited for."""
    gaps = [0.0] * (len(calls) + 1) if variant == CALLS else _gaps(step, calls)
    found = [call._replace(compute_s=gap) for call, gap in zip(calls, gaps, strict=False)]
    if variant.startswith(BUCKET):
        found = _cut(found, parse_size(variant.partition(":")[2]))
    return tuple(found), gaps[-1]


def _every_variant(step: Step) -> list[str]:
    found = [CALLS, *([GAPS] if has_gaps(step) else [])]
    sizes = [call.size_bytes or 0 for call in _reductions(step)]
    if max(sizes, default=0) < MEBIBYTE:
        return found
    largest = -(-max(sizes) // MEBIBYTE)
    halves = [largest // 2] if largest > 1 else []
    buckets = [*halves, 2 * largest] if len(sizes) > 1 else []
    return [*found, *(f"{BUCKET}:{size}M" for size in buckets), COMPOSED.name]


def is_composed(call: Call, variant: str) -> bool:
    """Whether a call has the form COMPOSED in a variant."""
    return variant == COMPOSED.name and _is_reduction(call)


def _is_reduction(call: Call) -> bool:
    return call.operation in COMPOSED.operations and call.tensors == 1


def _reductions(step: Step) -> list[Call]:
    return [call for program in step.programs for call in program.calls if _is_reduction(call)]


def _gaps(step: Step, calls: Sequence[Call]) -> list[float]:
    """For how long the rank computes before each call, and behind the last. Where the trace does
    not say, it computes from the moment when it has made the call before, and has waited for the
    calls that it waits for there."""
    waits, free_s, gaps = waits_after(calls), 0.0, []
    for index, call in enumerate(calls):
        ready_s = free_s if call.begin_s is None else call.begin_s
        gaps.append(max(0.0, ready_s - free_s) if call.compute_s is None else call.compute_s)
        ends = [calls[i].interval_s[1] for i in waits[index]]
        free_s = max(free_s, ready_s, *ends)
    after_s = calls[-1].compute_after_s if calls else None
    return [*gaps, max(0.0, (step.time_s or 0.0) - free_s) if after_s is None else after_s]


def _cut(calls: Sequence[Call], bucket_bytes: int) -> list[Call]:
    """The calls with neighbouring reductions cut into others of so many bytes."""
    found: list[Call] = []
    spans: list[tuple[int, int]] = []
    """Of each old call, the first and the last new call that has bytes of it."""
    while len(spans) < len(calls):
        first, run = len(found), _run(calls, len(spans))
        if not run:
            found.append(calls[len(spans)])
            spans.append((first, first))
            continue
        found += _cut_run(run, bucket_bytes)
        begin = 0
        for call in run:
            end = begin + (call.size_bytes or 0)
            spans.append((first + begin // bucket_bytes, first + (end - 1) // bucket_bytes))
            begin = end
    return _with_waits(calls, found, spans)


def _run(calls: Sequence[Call], begin: int) -> list[Call]:
    """The reductions from one on that follow one another and could be one call."""
    run: list[Call] = []
    for call in calls[begin:]:
        if not _is_reduction(call) or (run and _kind(call) != _kind(run[0])):
            break
        run.append(call)
    return run


def _kind(call: Call) -> tuple[object, ...]:
    is_at_once = call.asynchronous is False
    return call.operation, call.group, call.dtype, call.reduce_op, is_at_once


def _cut_run(run: Sequence[Call], bucket_bytes: int) -> list[Call]:
    """The same bytes in calls of so many bytes; a call begins when its last byte is ready."""
    total = sum(call.size_bytes or 0 for call in run)
    pieces, ready, begin, taken = [], iter(run), 0, 0
    while begin < total:
        size, compute_s = min(bucket_bytes, total - begin), 0.0
        begin += size
        while taken < begin:
            call = next(ready)
            taken += call.size_bytes or 0
            compute_s += call.compute_s or 0.0
        pieces.append(run[0]._replace(size_bytes=size, compute_s=compute_s))
    return pieces


def _with_waits(
    calls: Sequence[Call], found: Sequence[Call], spans: Sequence[tuple[int, int]]
) -> list[Call]:
    """The new calls, each waited for where the first of the old calls was whose bytes it has."""
    until: dict[int, int] = {}
    for at, waited in enumerate(waits_after(calls)):
        for first, last in (spans[index] for index in waited):
            for new in range(first, last + 1):
                until[new] = min(until.get(new, len(found)), spans[at][1])
    return [call._replace(waited_after=until[new]) for new, call in enumerate(found)]

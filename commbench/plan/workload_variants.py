"""The order of the calls of a step, and its variants.

Ranks that make the calls in their order must come to an end. A replay measures a step in variants:
its calls alone, with the gaps between them, and with other calls that have the same result.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

from commbench.errors import UsageError
from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.workload import SEND, Call, Step, Workload
from commbench.units import format_size, parse_size

_HINT = "its calls must be those of all ranks, of the same step; calls are counted from 1"


class MadeCall(NamedTuple):
    """A call as one rank makes it."""

    rank: int
    number: int
    """The index of the call in the program of the rank."""
    call: Call


Match: TypeAlias = tuple[MadeCall, ...]
"""The calls of different ranks that are one: of all ranks of a group, in the order of its ranks, or
of the two ranks of a message."""


def match_calls(workload: Workload, step: Step) -> list[Match]:
    """Which calls of different ranks are one: those of a group have the same place among its calls
    on each of its ranks, and the messages from one rank to another come in order.

    Raises UsageError where ranks of a group make different calls, or wait for one another forever.
    """
    programs = {rank: program.calls for program in step.programs for rank in program.ranks}
    counts: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[str, tuple[int, ...], bool, int], list[MadeCall]] = defaultdict(list)
    """By the ranks that make a call, and its place among theirs."""
    for rank, calls in programs.items():
        for number, call in enumerate(calls):
            members, side = workload.group_of(call, rank), ""
            if call.peer is not None:
                side, pair = call.operation, (rank, members[call.peer])
                members = pair if side == SEND else pair[::-1]
            place = (call.group, members, side, rank)
            key = (call.group, members, bool(side), counts[place])
            found[key].append(MadeCall(rank, number, call))
            counts[place] += 1
    matches = []
    for (_, members, *_), made in found.items():
        for other in made[1:]:
            _require_alike(made[0], other)
        matches.append(tuple(sorted(made, key=lambda one, own=members: own.index(one.rank))))  # type: ignore[misc]
    _require_end(step, programs, matches, [len(members) for _, members, *_ in found])
    return matches


def _require_end(
    step: Step, programs: dict[int, tuple[Call, ...]], matches: Sequence[Match], lacking: list[int]
) -> None:
    """Raise UsageError where ranks wait for one another forever. A rank goes on when all ranks have
    begun the calls that it waits for. `lacking`: how many ranks have not begun a match."""
    match_of = {(one.rank, one.number): at for at, own in enumerate(matches) for one in own}
    waits = {id(calls): waits_after(calls) for calls in programs.values()}
    begun = dict.fromkeys(programs, 0)
    ready = deque(programs)
    while ready:
        rank = ready.popleft()
        calls = programs[rank]
        for index in range(begun[rank], len(calls)):
            waited = waits[id(calls)][index - 1] if index else []
            if any(lacking[match_of[rank, before]] for before in waited):
                break
            begun[rank] += 1
            lacking[at := match_of[rank, index]] -= 1
            if not lacking[at]:
                ready.extend(one.rank for one in matches[at] if one.rank != rank)
    stuck = [one for at, own in enumerate(matches) if lacking[at] for one in own
             if one.number < begun[one.rank]]  # fmt: skip
    if stuck:
        first = min(stuck, key=lambda one: (one.number, one.rank))
        raise UsageError(
            f"the replay of {step.name} would never end: call {first.number + 1} of rank "
            f"{first.rank}, {_name(first.call)}, waits for ranks that do not make it",
            _HINT,
        )


def waits_after(calls: Sequence[Call]) -> list[list[int]]:
    """For each call of a program, the calls that the rank waits for when it has begun that one: a
    call whose wait is not known, at the end if it is a message to another rank or asynchronous, at
    once if not."""
    found: list[list[int]] = [[] for _ in calls]
    for index, call in enumerate(calls):
        at = call.waited_after
        if at is None:
            at = len(calls) - 1 if call.asynchronous or call.operation == SEND else index
        found[min(max(at, index), len(calls) - 1)].append(index)
    return found


_Node: TypeAlias = int | tuple[int, int]
"""The end of a match, or the moment when a rank makes a call: its index."""


def calls_only_s(workload: Workload, step: Step) -> float | None:
    """Seconds from the first call to the last end where no rank computes; None where the times of
    the calls are not known.

    Each call takes its transfer time, or the whole time where no transfer time is known, from when
    all its ranks have begun it. A rank makes its calls in order and waits where the program does;
    those of one stream follow one another. Raises UsageError for calls that never end.
    """
    matches = match_calls(workload, step)
    took = [_transfer_s(match) for match in matches]
    if None in took:
        return None
    match_of = {(one.rank, one.number): at for at, match in enumerate(matches) for one in match}
    before: dict[_Node, list[_Node]] = {at: [] for at in range(len(matches))}
    for program in step.programs:
        waits = waits_after(program.calls)
        for rank in program.ranks:
            last: dict[int | str, int] = {}
            """Of each stream, the match of its last call; messages may be under way together."""
            for index, call in enumerate(program.calls):
                at = match_of[rank, index]
                made: list[_Node] = [(rank, index - 1)] if index else []
                waited = waits[index - 1] if index else ()
                before[rank, index] = made + [match_of[rank, each] for each in waited]
                before[at].append((rank, index))
                if call.peer is None:
                    before[at] += [last[call.stream]] if call.stream in last else []
                    last[call.stream] = at
    ends: dict[_Node, float] = {}
    try:
        for node in TopologicalSorter(before).static_order():
            begin_s = max((ends[each] for each in before[node]), default=0.0)
            ends[node] = begin_s + ((took[node] or 0.0) if isinstance(node, int) else 0.0)
    except CycleError:
        return None
    return max(ends.values(), default=0.0)


def _transfer_s(match: Match) -> float | None:
    """The shortest time of a call on its ranks."""
    known = [one.call.transfer_s or one.call.time_s for one in match]
    return min((time for time in known if time is not None), default=None)


def _require_alike(first: MadeCall, second: MadeCall) -> None:
    """Raise UsageError where the calls of two ranks cannot be one."""
    if _work(first.call) != _work(second.call):
        raise UsageError(
            f"ranks {first.rank} and {second.rank} do not make the same calls: call "
            f"{first.number + 1} of rank {first.rank} is {_name(first.call)}, and call "
            f"{second.number + 1} of rank {second.rank} is {_name(second.call)}",
            _HINT,
        )


def _work(call: Call) -> tuple[object, ...]:
    size = None if call.send_splits or call.receive_splits else call.size_bytes
    kind = "message" if call.is_message else call.operation
    return kind, call.dtype, size, call.root, call.tensors


def _name(call: Call) -> str:
    size = "" if call.size_bytes is None else f" of {call.size_bytes} bytes"
    root = "" if call.root is None else f" from root {call.root}"
    tensors = f" in {call.tensors} tensors" if call.tensors > 1 else ""
    words = f"{call.operation} {call.dtype}".strip()
    return f"{words}{size}{tensors}{root} over {call.group}"


# The variants.

CALLS, GAPS, BUCKET = "calls", "gaps", "bucket"
COMPOSED = next(form for form in CALL_FORMS.values() if form.steps and form.is_divided)
"""The form of a reduction that a step may use instead: a reduce_scatter and an all_gather."""
AS_TRACED = (GAPS, CALLS)
"""The variants with the calls that the step has, the most faithful first: what others are compared
with is the first of them that was measured."""
EVERY_VARIANT = "all"
VARIANTS = {
    CALLS: "one call after another, without the gaps",
    GAPS: "with those of the trace: a CPU computes, a GPU spins",
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
    found = (_every_variant(step) if name == EVERY_VARIANT else [name] for name in names)
    return tuple(dict.fromkeys(chain.from_iterable(found)))


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
        free_s = max(free_s, ready_s, *[calls[i].interval_s[1] for i in waits[index]])
    after_s = calls[-1].compute_after_s if calls else None
    return [*gaps, max(0.0, (step.time_s or 0.0) - free_s) if after_s is None else after_s]


def _cut(calls: Sequence[Call], bucket_bytes: int) -> list[Call]:
    """The calls with neighbouring reductions cut into others of so many bytes."""
    found: list[Call] = []
    spans: list[tuple[int, int]] = []
    """Of each old call, the first and the last new call that has bytes of it."""
    for kind, same in groupby(calls, _kind):
        run, first = list(same), len(found)
        if kind is None:
            found += run
            spans += [(new, new) for new in range(first, len(found))]
            continue
        found += _cut_run(run, bucket_bytes)
        begin = 0
        for call in run:
            end = begin + (call.size_bytes or 0)
            spans.append((first + begin // bucket_bytes, first + (end - 1) // bucket_bytes))
            begin = end
    return _with_waits(calls, found, spans)


def _kind(call: Call) -> tuple[object, ...] | None:
    """What is equal in reductions that could be one call; None of another call."""
    alike = call.operation, call.group, call.dtype, call.reduce_op, call.asynchronous is False
    return alike if _is_reduction(call) else None


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

"""What the traces of a job say: how long each operation took, and who waited for whom.

A call of a group is the same call on all ranks of the group: it has the same number in the group,
as torch counts, or else the same place among the calls of the group in its step. A collective ends
on all ranks at about the same time, and the rank that comes last waits for nobody. So of a call

    transfer    the shortest of the durations on the ranks of its group
    waiting     the rest of the duration on a rank: it waited for the rank with the shortest one

as TraceLens computes it (NcclAnalyser); clocks of several hosts need not agree. Of a rank

    hidden      time of communication during which computation ran
    exposed     the rest of the time of communication

with the union of intervals of each. HTA's overlap (comm_comp_overlap) is hidden / (hidden +
exposed). Computation is GPU kernels that are neither communication nor copies, as in HTA; in a
trace without kernels it is torch's operators on the host.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from commbench.analysis.trace_groups import GroupId, GroupSets, find_group_sets, group_id
from commbench.analysis.trace_notes import trace_notes
from commbench.importers.traces.base import RankTrace, TracedCall, TracedStep, merged
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import RECV, SEND, UNKNOWN_GROUP

WHOLE_TRACE = "trace"
"""The name of the only step of a trace that marks none."""
_Interval = tuple[float, float]


class PlacedCall(NamedTuple):
    """A call with its rank, its step and its group."""

    rank: int
    step: str
    call: TracedCall
    group_set: str
    group: GroupId
    transfer_s: float | None
    """The shortest duration on the ranks of the group; None where fewer than two are known."""
    last_rank: int | None
    """The rank with that duration."""

    @property
    def waiting_s(self) -> float | None:
        """How long it waited for other ranks."""
        if self.transfer_s is None or self.call.time_s is None:
            return None
        return max(0.0, self.call.time_s - self.transfer_s)


class OperationTotals(NamedTuple):
    """All calls of an operation in a set of groups, for one step of one rank: means."""

    group: str
    ranks: int | None
    """Ranks of a group; None where they are not known."""
    operation: str
    calls: float
    size_bytes: float | None
    """S of all calls together; None where the size of one is not known."""
    time_s: float | None
    transfer_s: float | None
    waiting_s: float | None
    busbw: float | None
    """Bus bandwidth in bytes/s, of the transfer where it is known, else of the time."""
    share: float | None
    """The part of the step during which such a call was under way."""


class RankWaiting(NamedTuple):
    """How long a rank waited in each step, for whom most, and what part of it that is."""

    rank: int
    waiting_s: float
    for_rank: int
    share: float


class TraceOverlap(NamedTuple):
    """Seconds of a step, means over ranks and steps."""

    communication_s: float
    exposed_s: float
    computing_s: float

    @property
    def hidden_s(self) -> float:
        """Communication during which computation ran."""
        return self.communication_s - self.exposed_s


class TraceAnalysis(NamedTuple):
    """What is known of a job by the traces of its ranks."""

    traces: tuple[RankTrace, ...]
    world_size: int
    steps: tuple[str, ...]
    step_s: float | None
    """Mean duration of a step."""
    sets: GroupSets
    calls: tuple[PlacedCall, ...]
    totals: tuple[OperationTotals, ...]
    waits: tuple[RankWaiting, ...]
    """Longest first; empty where waiting is not known."""
    overlap: TraceOverlap | None
    notes: tuple[str, ...]


def analyse_traces(traces: Sequence[RankTrace]) -> TraceAnalysis:
    """The analysis of the traces of one or several ranks of a job."""
    traces = [t if t.rank is not None else t._replace(rank=0) for t in traces]
    ranks = [trace.rank or 0 for trace in traces]
    named = [trace.world_size for trace in traces if trace.world_size]
    world_size = max([*named, max(ranks) + 1])
    sets = find_group_sets(traces, world_size)
    steps = {rank: find_steps(trace) for rank, trace in zip(ranks, traces, strict=True)}
    names = [step.name for step in steps[ranks[0]]]
    known = [{step.name for step in own} for own in steps.values()]
    common = [name for name in names if all(name in own for own in known)]
    found, outside = _place(traces, steps, common, sets)
    found, differing = _correlate(found)
    shared = {*common}
    durations = [s.end_s - s.start_s for own in steps.values() for s in own if s.name in shared]
    step_s = sum(durations) / len(durations) if durations and max(durations) > 0 else None
    parts = len(durations)
    return TraceAnalysis(
        traces=tuple(traces),
        world_size=world_size,
        steps=tuple(common),
        step_s=step_s,
        sets=sets,
        calls=tuple(found),
        totals=tuple(_totals(found, sets, parts, step_s)),
        waits=tuple(_waits(found, len(common))),
        overlap=_find_overlap(traces, steps, common, found),
        notes=tuple(trace_notes(traces, world_size, sets, found, outside, differing, step_s)),
    )


def find_steps(trace: RankTrace) -> list[TracedStep]:
    """The steps of a trace; of one that marks none, a step from its first call to its last."""
    if trace.steps:
        return list({step.name: step for step in trace.steps}.values())
    begins = [call.begin_s for call in trace.calls if call.begin_s is not None]
    ends = [end for call in trace.calls if (end := call.end_s or call.begin_s) is not None]
    return [TracedStep(WHOLE_TRACE, min(begins, default=0.0), max(ends, default=0.0))]


def _place(
    traces: Sequence[RankTrace],
    steps: dict[int, list[TracedStep]],
    common: Sequence[str],
    sets: GroupSets,
) -> tuple[list[PlacedCall], int]:
    """The calls of all steps that all ranks have, and how many calls are in none of them."""
    found, outside, names = [], 0, {*common}
    for trace in traces:
        rank = trace.rank or 0
        own = sorted(steps[rank], key=lambda step: step.start_s)
        begins = [step.start_s for step in own]
        for call in trace.calls:
            at = bisect_right(begins, call.begin_s or 0.0) - 1 if trace.steps else 0
            is_inside = not trace.steps or (at >= 0 and (call.begin_s or 0.0) <= own[at].end_s)
            if not is_inside or own[at].name not in names:
                outside += 1
                continue
            name = sets.set_of(trace, call.group) if call.group else UNKNOWN_GROUP
            group = group_id(trace, call.group)
            found.append(PlacedCall(rank, own[at].name, call, name, group, None, None))
    return found, outside


def _correlate(calls: list[PlacedCall]) -> tuple[list[PlacedCall], int]:
    """The calls with their transfers, and how many do not agree with those of other ranks."""
    counts: Counter[tuple[object, ...]] = Counter()
    matches: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, placed in enumerate(calls):
        call = placed.call
        if placed.group_set == UNKNOWN_GROUP:
            continue
        own: tuple[object, ...] = (placed.group, "")
        if call.operation in (SEND, RECV):
            if (pair := _pair(placed)) is None:
                continue
            own = (placed.group, pair)
        if call.sequence is not None and call.operation not in (SEND, RECV):
            key: tuple[object, ...] = (*own, call.sequence)
        else:
            place = (placed.rank, placed.step, *own, call.operation in (SEND, RECV))
            key = (*own, placed.step, counts[place])
            counts[place] += 1
        matches[key].append(index)
    differing = 0
    for indices in matches.values():
        _share_sizes(calls, indices)
        same = {_same_call(calls[index].call) for index in indices}
        ranks = [calls[index].rank for index in indices]
        if len(same) > 1 or len({*ranks}) < len(ranks):
            differing += len(indices)
            continue
        timed = [(time, r) for i, r in zip(indices, ranks, strict=True)
                 if (time := calls[i].call.time_s) is not None]  # fmt: skip
        if len(timed) < 2:
            continue
        shortest, last = min(timed)
        for index in indices:
            calls[index] = calls[index]._replace(transfer_s=shortest, last_rank=last)
    return calls, differing


def _share_sizes(calls: list[PlacedCall], indices: list[int]) -> None:
    """Write the size and the type of a call into those of its ranks that do not know them: gloo's
    scatter has shapes on the root only."""
    known = {
        (c.dtype, c.size_bytes) for i in indices if (c := calls[i].call).size_bytes is not None
    }
    if len(known) == 1:
        ((dtype, size),) = known
        for index in indices:
            call = calls[index].call
            if call.size_bytes is None:
                call = call._replace(dtype=dtype, size_bytes=size)
                calls[index] = calls[index]._replace(call=call)


def _pair(placed: PlacedCall) -> tuple[int, int] | None:
    """Sender and receiver of a message, as global ranks."""
    peer = placed.call.peer
    if peer is None or isinstance(placed.group, str) or peer >= len(placed.group):
        return None
    ranks = placed.rank, placed.group[peer]
    return ranks if placed.call.operation == SEND else ranks[::-1]


def _same_call(call: TracedCall) -> tuple[object, ...]:
    """What must be equal on all ranks of a group."""
    if call.operation in (SEND, RECV):
        return ("message", call.size_bytes)
    if OPERATIONS[call.operation].is_personalized:  # blocks may differ from rank to rank
        return ("personalized",)
    return call.operation, call.size_bytes


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is not known."""
    found = list(values)
    return None if None in found else float(sum(v for v in found if v is not None))


def bus_bandwidth(
    operation: str, ranks: int | None, size_bytes: float | None, seconds: float | None
) -> float | None:
    """Bus bandwidth in bytes/s, by the factor of the operation; None where it has none or not
    enough is known. A message moves its size once."""
    if not size_bytes or not seconds:
        return None
    if operation not in OPERATIONS:
        return size_bytes / seconds
    factor = OPERATIONS[operation].busbw_factor
    return size_bytes * factor(ranks) / seconds if factor and ranks else None


def _totals(
    calls: Sequence[PlacedCall], sets: GroupSets, parts: int, step_s: float | None
) -> list[OperationTotals]:
    by_row: dict[tuple[str, str], list[PlacedCall]] = defaultdict(list)
    for placed in calls:
        by_row[placed.group_set, placed.call.operation].append(placed)
    rows = []
    for (name, operation), own in by_row.items():
        groups = sets.sets.get(name, ())
        sizes = {len(group) for group in groups}
        ranks = sizes.pop() if len(sizes) == 1 else None
        is_known = all(placed.transfer_s is not None for placed in own)
        size = known_sum(placed.call.size_bytes for placed in own)
        time = known_sum(placed.call.time_s for placed in own)
        transfer = known_sum(placed.transfer_s for placed in own) if is_known else None
        seconds = transfer if transfer is not None else time
        busbw = bus_bandwidth(operation, ranks, size, seconds)
        share = None
        if step_s and time is not None:
            share = sum(_length(each) for each in _by_part(own).values()) / (step_s * parts)
        rows.append(OperationTotals(
            name, ranks, operation, len(own) / parts,
            None if size is None else size / parts, None if time is None else time / parts,
            None if transfer is None else transfer / parts,
            None if transfer is None or time is None else max(0.0, time - transfer) / parts,
            busbw, share,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (-(row.time_s or 0.0), -(row.size_bytes or 0.0)))


def _by_part(calls: Iterable[PlacedCall]) -> dict[tuple[int, str], list[_Interval]]:
    """The union of the intervals of calls, for each step of each rank."""
    found: dict[tuple[int, str], list[_Interval]] = defaultdict(list)
    for placed in calls:
        start, end = placed.call.start_s, placed.call.end_s
        if start is not None and end is not None:
            found[placed.rank, placed.step].append((start, end))
    return {part: merged(own) for part, own in found.items()}


def _length(intervals: Iterable[_Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def _waits(calls: Sequence[PlacedCall], steps: int) -> list[RankWaiting]:
    waited: dict[int, Counter[int]] = defaultdict(Counter)
    for placed in calls:
        if placed.waiting_s is not None and placed.last_rank is not None:
            waited[placed.rank][placed.last_rank] += placed.waiting_s  # type: ignore[assignment]
    found = []
    for rank, by_rank in waited.items():
        total = float(sum(by_rank.values()))
        for_rank, most = max(by_rank.items(), key=lambda item: (item[1], -item[0]))
        found.append(RankWaiting(rank, total / steps, for_rank, most / total if total else 0.0))
    return sorted(found, key=lambda waiting: (-waiting.waiting_s, waiting.rank))


def _find_overlap(
    traces: Sequence[RankTrace],
    steps: dict[int, list[TracedStep]],
    common: Sequence[str],
    calls: Sequence[PlacedCall],
) -> TraceOverlap | None:
    communication = _by_part(calls)
    sums, parts, names = [0.0, 0.0, 0.0], 0, {*common}
    for trace in traces:
        rank = trace.rank or 0
        flat = trace.computing
        begins, ends = flat[::2], flat[1::2]
        for step in steps[rank]:
            if step.name not in names:
                continue
            parts += 1
            own = communication.get((rank, step.name), [])
            after = max([step.end_s, *(end for _, end in own)])
            first, last = bisect_right(ends, step.start_s), bisect_left(begins, after)
            near = list(zip(begins[first:last], ends[first:last], strict=True))
            both = _length(own) + _length(near) - _length(merged([*own, *near]))
            sums[0] += _length(own)
            sums[1] += _length(own) - both
            sums[2] += _length(
                (max(begin, step.start_s), max(step.start_s, min(end, step.end_s)))
                for begin, end in near
                if begin < step.end_s
            )
    has_times = any(communication.values()) and any(len(trace.computing) for trace in traces)
    if not has_times:
        return None
    return TraceOverlap(*(max(0.0, total) / parts for total in sums))

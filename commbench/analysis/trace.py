"""What the traces of a job say: how long each operation took, and who waited for whom.

A call of a group is the same call on all ranks of the group: it has the same number in the group,
as torch counts, or else the same place among the calls of the group in its step. An operation
without a root ends on all ranks at about the same time, and the rank that comes last waits for
nobody. So of a call

    transfer    the shortest of the durations on the ranks of its group
    waiting     the rest of the duration on a rank: it waited for the rank with the shortest one

as TraceLens computes it (NcclAnalyser); clocks of several hosts need not agree. Ranks of an
operation with a root do not end together: the root of a broadcast may be done before others begin.
So its shortest duration does not say for whom the others waited. Of a rank

    waiting     the union of [begin, end - transfer] of its calls without a root
    hidden      time of communication during which computation ran
    exposed     the rest of the time of communication

with the union of intervals of each. HTA's overlap (comm_comp_overlap) is hidden / (hidden +
exposed). Computation is GPU kernels that are neither communication nor copies, as in HTA; in a
trace without kernels it is torch's operators on the host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from commbench.analysis.trace_groups import GroupSets, find_group_sets
from commbench.analysis.trace_notes import trace_notes
from commbench.analysis.trace_steps import PlacedCall, RankStep, length_within, place_calls
from commbench.analysis.trace_workload import trace_workload
from commbench.analysis.workload import OperationTotals, workload_totals
from commbench.importers.traces.base import (
    RankTrace,
    union_length,
)
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import MESSAGES, SEND, UNKNOWN_GROUP, Call, Workload
from commbench.units import format_count


class RankWaiting(NamedTuple):
    """How long a rank waited in a step (the median), for whom most, and what part that is.

    Only calls without a root count."""

    rank: int
    waiting_s: float
    for_rank: int
    share: float


class TraceOverlap(NamedTuple):
    """Seconds of a step, medians over ranks and steps."""

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
    """Names of the whole steps that the traces of all ranks have."""
    step_s: float | None
    """Median duration of these steps."""
    sets: GroupSets
    calls: tuple[PlacedCall, ...]
    workload: Workload
    """The calls of these steps; without a name."""
    waits: tuple[RankWaiting, ...]
    """Longest first; empty where waiting is not known."""
    overlap: TraceOverlap | None
    """None where it is not known, as in a file that ends early."""
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        ranks = f"{len(self.traces)} of {format_count(self.world_size, 'rank')}"
        steps, calls = format_count(len(self.steps), "step"), format_count(len(self.calls), "call")
        return f"<commbench.TraceAnalysis of {ranks}, {steps}, {calls}>"

    @property
    def totals(self) -> tuple[OperationTotals, ...]:
        """The totals of the workload's steps."""
        return tuple(
            row for step in self.workload.steps for row in workload_totals(self.workload, step)
        )


def analyse_traces(traces: Sequence[RankTrace]) -> TraceAnalysis:
    """The analysis of the traces of one or several ranks of a job."""
    traces = [t if t.rank is not None else t._replace(rank=0) for t in traces]
    ranks = [trace.rank or 0 for trace in traces]
    named = [trace.world_size for trace in traces if trace.world_size]
    world_size = max([*named, max(ranks) + 1])
    sets = find_group_sets(traces, world_size)
    common, parts, outside = place_calls(traces, sets)
    differing = _correlate(parts)
    durations = [part.length_s for part in parts]
    step_s = median(durations) if durations and max(durations) > 0 else None
    notes = trace_notes(traces, world_size, sets, parts, outside, differing, step_s)
    return TraceAnalysis(
        traces=tuple(traces),
        world_size=world_size,
        steps=tuple(common),
        step_s=step_s,
        sets=sets,
        calls=tuple(placed for part in parts for placed in part.calls),
        workload=trace_workload(traces, parts, world_size, sets, notes),
        waits=tuple(_waits(parts)),
        overlap=_find_overlap(parts),
        notes=tuple(notes),
    )


_Place: TypeAlias = tuple[list[PlacedCall], int]
"""Where a call is: the calls of a rank in a step, and its index."""


def _correlate(parts: Sequence[RankStep]) -> int:
    """Write the transfers into the calls, and the rank that was waited for. How many calls do not
    agree with those of other ranks."""
    counts: Counter[tuple[object, ...]] = Counter()
    matches: dict[tuple[object, ...], list[_Place]] = defaultdict(list)
    for part in parts:
        for index, placed in enumerate(part.calls):
            call, is_message = placed.call, placed.call.operation in MESSAGES
            pair = _pair(placed) if is_message else ""
            if call.group == UNKNOWN_GROUP or pair is None:
                continue
            key: tuple[object, ...] = (placed.group, pair, call.sequence)
            if call.sequence is None or is_message:
                place = (placed.rank, placed.step, placed.group, pair)
                key = (placed.group, pair, placed.step, counts[place])
                counts[place] += 1
            matches[key].append((part.calls, index))
    differing = 0
    for places in matches.values():
        _share_sizes(places)
        own = [calls[index] for calls, index in places]
        same, ranks = {_same_call(one.call) for one in own}, {one.rank for one in own}
        if len(same) > 1 or len(ranks) < len(own):
            differing += len(own)
            continue
        timed = [(one.call.time_s, one.rank) for one in own if one.call.time_s is not None]
        if len(timed) < 2:
            continue
        shortest, last = min(timed)
        operation = OPERATIONS.get(own[0].call.operation)
        last_rank = None if operation and operation.rooted else last
        for calls, index in places:
            call = calls[index].call._replace(transfer_s=shortest)
            calls[index] = calls[index]._replace(call=call, last_rank=last_rank)
    return differing


def _share_sizes(places: Sequence[_Place]) -> None:
    """Write the size and the type of a call into those of its ranks that do not know them: gloo's
    scatter has shapes on the root only."""
    own = [calls[index].call for calls, index in places]
    known = {(call.dtype, call.size_bytes) for call in own if call.size_bytes is not None}
    if len(known) == 1:
        ((dtype, size),) = known
        for calls, index in places:
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


def _same_call(call: Call) -> tuple[object, ...]:
    """What must be equal on all ranks of a group."""
    if call.operation in MESSAGES:
        return ("message", call.size_bytes)
    if OPERATIONS[call.operation].is_personalized:  # blocks may differ from rank to rank
        return ("personalized",)
    return call.operation, call.size_bytes


def _waits(parts: Sequence[RankStep]) -> list[RankWaiting]:
    waited: dict[int, list[float]] = defaultdict(list)
    by_last: dict[int, dict[int, list[PlacedCall]]] = defaultdict(lambda: defaultdict(list))
    for part in parts:
        known = [one for one in part.calls if one.call.waiting_s is not None]
        rank, known = part.trace.rank or 0, [one for one in known if one.last_rank is not None]
        waited[rank].append(_waiting_time(known))
        for one in known:
            by_last[rank][one.last_rank or 0].append(one)
    found = []
    for rank, own in by_last.items():
        for_ranks = {last: _waiting_time(calls) for last, calls in own.items()}
        for_rank, most = max(for_ranks.items(), key=lambda item: (item[1], -item[0]))
        share = min(1.0, most / total) if (total := sum(waited[rank])) else 0.0
        found.append(RankWaiting(rank, float(median(waited[rank])), for_rank, share))
    return sorted(found, key=lambda waiting: (-waiting.waiting_s, waiting.rank))


def _waiting_time(calls: Iterable[PlacedCall]) -> float:
    """How long at least one of these calls of a rank waited. Where the begin of calls is not known,
    their waits are added up."""
    intervals, more = [], 0.0
    for placed in calls:
        waiting, start = placed.call.waiting_s or 0.0, placed.call.start_s
        if start is None:
            more += waiting
        else:
            intervals.append((start, start + waiting))
    return more + union_length(intervals)


def _find_overlap(parts: Sequence[RankStep]) -> TraceOverlap | None:
    """None where a file ends early, and without communication or computation."""
    is_known = any(part.communication for part in parts) and not any(
        part.trace.is_cut for part in parts
    )
    if not (is_known and any(len(part.trace.computing) for part in parts)):
        return None
    figures = [
        (
            length_within(part.communication),
            length_within(part.exposed),
            length_within(part.computing, 0.0, part.length_s),
        )
        for part in parts
    ]
    return TraceOverlap(*(median(values) for values in zip(*figures, strict=True)))

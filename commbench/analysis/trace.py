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
from typing import NamedTuple

from commbench.analysis.trace_groups import GroupSets, find_group_sets
from commbench.analysis.trace_notes import trace_notes
from commbench.analysis.trace_steps import (
    PlacedCall,
    RankStep,
    find_steps,
    length_within,
    place_calls,
    rank_steps,
)
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
    steps = {rank: find_steps(trace) for rank, trace in zip(ranks, traces, strict=True)}
    names = [step.name for step in steps[ranks[0]]]
    known = [{step.name for step in own} for own in steps.values()]
    common = [name for name in names if all(name in own for own in known)]
    found, outside = place_calls(traces, steps, common, sets)
    found, differing = _correlate(found)
    parts = rank_steps(traces, steps, common, found)
    durations = [part.length_s for part in parts]
    step_s = median(durations) if durations and max(durations) > 0 else None
    notes = trace_notes(traces, world_size, sets, found, outside, differing, step_s)
    return TraceAnalysis(
        traces=tuple(traces),
        world_size=world_size,
        steps=tuple(common),
        step_s=step_s,
        sets=sets,
        calls=tuple(found),
        workload=trace_workload(traces, parts, world_size, sets, notes),
        waits=tuple(_waits(found, common)),
        overlap=_find_overlap(parts),
        notes=tuple(notes),
    )


def _correlate(calls: list[PlacedCall]) -> tuple[list[PlacedCall], int]:
    """The calls with their transfers, and how many do not agree with those of other ranks."""
    counts: Counter[tuple[object, ...]] = Counter()
    matches: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, placed in enumerate(calls):
        call = placed.call
        if call.group == UNKNOWN_GROUP:
            continue
        own: tuple[object, ...] = (placed.group, "")
        if call.operation in MESSAGES:
            if (pair := _pair(placed)) is None:
                continue
            own = (placed.group, pair)
        if call.sequence is not None and call.operation not in MESSAGES:
            key: tuple[object, ...] = (*own, call.sequence)
        else:
            place = (placed.rank, placed.step, *own, call.operation in MESSAGES)
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
        operation = OPERATIONS.get(calls[indices[0]].call.operation)
        last_rank = None if operation and operation.rooted else last
        for index in indices:
            call = calls[index].call._replace(transfer_s=shortest)
            calls[index] = calls[index]._replace(call=call, last_rank=last_rank)
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


def _same_call(call: Call) -> tuple[object, ...]:
    """What must be equal on all ranks of a group."""
    if call.operation in MESSAGES:
        return ("message", call.size_bytes)
    if OPERATIONS[call.operation].is_personalized:  # blocks may differ from rank to rank
        return ("personalized",)
    return call.operation, call.size_bytes


def _waits(calls: Sequence[PlacedCall], steps: Sequence[str]) -> list[RankWaiting]:
    by_step: dict[int, dict[str, list[PlacedCall]]] = defaultdict(lambda: defaultdict(list))
    by_last: dict[int, dict[int, list[PlacedCall]]] = defaultdict(lambda: defaultdict(list))
    for placed in calls:
        if placed.call.waiting_s is not None and placed.last_rank is not None:
            by_step[placed.rank][placed.step].append(placed)
            by_last[placed.rank][placed.last_rank].append(placed)
    found = []
    for rank, own in by_step.items():
        waited = [_waiting_time(own[step]) for step in steps]
        for_ranks = {last: _waiting_time(with_last) for last, with_last in by_last[rank].items()}
        for_rank, most = max(for_ranks.items(), key=lambda item: (item[1], -item[0]))
        share = min(1.0, most / total) if (total := sum(waited)) else 0.0
        found.append(RankWaiting(rank, float(median(waited)), for_rank, share))
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

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

Totals are what a workload moves, for each operation of each set of groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from commbench.plan.operations import OPERATIONS
from commbench.plan.workload import SEND, UNKNOWN_GROUP, Call, Step, Workload, most_often, waited
from commbench.readers.trace_base import RankTrace, union_length
from commbench.stats import collect
from commbench.units import GB, format_count
from commbench.views.formats import Result, fields_of
from commbench.workloads import trace_steps
from commbench.workloads.trace_steps import GroupSets, RankStep, length_within


class RankWaiting(NamedTuple):
    """How long a rank waited in a step (the median), for whom most, and what part that is.

    Only calls without a root count."""

    rank: int
    waiting_s: float
    for_rank: int
    for_rank_share: float


class TraceOverlap(NamedTuple):
    """Seconds of the step that was made most often."""

    communication_s: float
    """As communication_of has it."""
    exposed_s: float
    """Its exposed part: the median over ranks and steps of that part."""
    computing_s: float
    """The median over ranks and steps."""

    @property
    def hidden_s(self) -> float:
        """Communication during which computation ran."""
        return self.communication_s - self.exposed_s

    def as_json(self) -> dict[str, Any]:
        """The fields, and what is hidden."""
        return fields_of(self, "hidden_s")


@dataclass(frozen=True, repr=False)
class TraceAnalysis(Result, view="workloads.document", rows="operations"):
    """What is known of a job by the traces of its ranks."""

    traces: tuple[RankTrace, ...]
    world_size: int
    steps: tuple[str, ...]
    """Names of the whole steps that the traces of all ranks have."""
    step_s: float | None
    """Median duration of these steps."""
    sets: GroupSets
    calls: tuple[Call, ...]
    workload: Workload
    """The calls of these steps; without a name."""
    waits: tuple[RankWaiting, ...]
    """Longest first; empty where waiting is not known."""
    overlap: TraceOverlap | None
    """None where it is not known, as in a file that ends early."""

    @property
    def totals(self) -> tuple[OperationTotals, ...]:
        """The totals of the workload's steps."""
        return workload_totals(self.workload)


def analyse_traces(traces: Sequence[RankTrace]) -> TraceAnalysis:
    """The analysis of the traces of one or several ranks of a job."""
    traces = [t if t.rank is not None else t._replace(rank=0) for t in traces]
    named = [trace.world_size for trace in traces if trace.world_size]
    world_size = max([*named, *((trace.rank or 0) + 1 for trace in traces)])
    sets = trace_steps.find_group_sets(traces, world_size)
    parts, outside = trace_steps.place_calls(traces, sets)
    differing = _match_ranks(parts, sets)
    durations = [part.length_s for part in parts]
    step_s = median(durations) if durations and max(durations) > 0 else None
    notes = [*_lacking(traces, world_size), *_unknown(parts, sets, step_s is not None)]
    waiting = f"left out the waiting of {format_count(differing, 'call')}, in which ranks differ"
    left_out = f"left out {format_count(outside, 'call')}: no whole step of all ranks has them"
    notes += [waiting] * bool(differing) + [left_out] * bool(outside)
    notes += dict.fromkeys(note for trace in traces for note in trace.notes)
    workload = trace_steps.trace_workload(traces, parts, world_size, sets, notes)
    return TraceAnalysis(
        traces=tuple(traces), world_size=world_size,
        steps=tuple(dict.fromkeys(part.step.name for part in parts)), step_s=step_s, sets=sets,
        workload=workload, calls=tuple(call for part in parts for call in part.calls),
        waits=tuple(_waits(parts)), overlap=_find_overlap(workload, parts),
    )  # fmt: skip


# What cannot be known, and why, in sentences.


def _lacking(traces: Sequence[RankTrace], world_size: int) -> Iterator[str]:
    """What files that end early lack, and which ranks were not traced."""
    for trace in [trace for trace in traces if trace.is_cut][:3]:  # all may be cut alike
        left_out = f", in {trace.cut_step}: this step is left out" if trace.cut_step else ""
        rest = "calls before may lack what came later in the file"
        yield f"{trace.path.rpartition('/')[2]} ends early{left_out}; {rest}"
    if len(traces) == 1 and world_size > 1:
        yield (
            f"only rank {traces[0].rank} of {world_size} was traced, so transfer and waiting are "
            "not known"
        )
    elif len(traces) < world_size:
        yield (
            f"there are traces of {len(traces)} of {world_size} ranks: a rank without a trace may "
            "have come later than the others, so waiting may be longer"
        )


def _unknown(parts: Sequence[RankStep], sets: GroupSets, has_times: bool) -> Iterator[str]:
    """What calls do not say, and what is not known of the groups."""
    calls = [call for part in parts if not part.trace.is_cut for call in part.calls]
    why = "this trace names no groups (older PyTorch)"
    if any("gloo" in part.trace.backend for part in parts):
        why = "gloo's traces name none, and several would fit"
    for number, text in (
        (sum(call.size_bytes is None for call in calls),
         "have no size: profile with record_shapes=True"),
        (has_times and sum(call.time_s is None for call in calls),
         "have no time: no transfer was recorded"),
        (sum(call.group == UNKNOWN_GROUP for call in calls), f"have no group: {why}"),
    ):  # fmt: skip
        if number:
            yield f"{number} of {len(calls)} calls {text}"
    if names := ", ".join(sets.completed):
        yield f"groups of ranks without a trace are taken to be those of a mesh: {names}"


# The same call on several ranks.


_Place: TypeAlias = tuple[RankStep, int]
"""Where a call is: what a rank did in a step, and its index there."""


def _match_ranks(parts: Sequence[RankStep], sets: GroupSets) -> int:
    """Write the transfers into the calls, and the rank that was waited for. How many calls do not
    agree with those of other ranks."""
    counts: Counter[tuple[object, ...]] = Counter()
    matches: dict[tuple[object, ...], list[_Place]] = defaultdict(list)
    for part in parts:
        for index, call in enumerate(part.calls):
            group = sets.members.get((call.group, part.rank), ())
            pair = _pair(call, group, part.rank) if call.is_message else ()
            if call.group == UNKNOWN_GROUP or pair is None:
                continue
            key: tuple[object, ...] = (call.group, group, pair, call.sequence)
            if call.sequence is None or call.is_message:
                place = (part.rank, part.step.name, *key[:3])
                key = (*key[:3], part.step.name, counts[place])
                counts[place] += 1
            matches[key].append((part, index))
    differing = 0
    for places in matches.values():
        _share_sizes(places)
        calls = [part.calls[index] for part, index in places]
        if len({*map(_same_call, calls)}) > 1 or len({p.rank for p, _ in places}) < len(places):
            differing += len(places)
            continue
        times = zip((call.time_s for call in calls), (part.rank for part, _ in places), strict=True)
        timed = [(time, rank) for time, rank in times if time is not None]
        if len(timed) > 1:
            shortest, last = min(timed)
            operation = OPERATIONS.get(calls[0].operation)
            last_rank = None if operation and operation.rooted else last
            for part, index in places:
                part.fill(index, transfer_s=shortest, last_rank=last_rank)
    return differing


def _share_sizes(places: Sequence[_Place]) -> None:
    """Write the size and the type of a call into those of its ranks that do not know them: gloo's
    scatter has shapes on the root only."""
    calls = [part.calls[index] for part, index in places]
    known = {(call.dtype, call.size_bytes) for call in calls if call.size_bytes is not None}
    if len(known) == 1:
        ((dtype, size),) = known
        for part, index in places:
            if part.calls[index].size_bytes is None:
                part.fill(index, dtype=dtype, size_bytes=size)


def _pair(call: Call, group: Sequence[int], rank: int) -> tuple[int, int] | None:
    """Sender and receiver of a message, as global ranks."""
    if call.peer is None or call.peer >= len(group):
        return None
    other = group[call.peer]
    return (rank, other) if call.operation == SEND else (other, rank)


def _same_call(call: Call) -> tuple[object, ...]:
    """What must be equal on all ranks of a group."""
    if call.is_message:
        return ("message", call.size_bytes)
    if OPERATIONS[call.operation].is_personalized:  # blocks may differ from rank to rank
        return ("personalized",)
    return call.operation, call.size_bytes


def _waits(parts: Sequence[RankStep]) -> list[RankWaiting]:
    by_rank = collect(
        (part.rank, [call for call in part.calls if call.last_rank is not None]) for part in parts
    )
    found = []
    for rank, steps in by_rank.items():
        waited = [*map(_waiting_time, steps)]
        by_last = collect((call.last_rank or 0, call) for own in steps for call in own)
        if for_ranks := {last: _waiting_time(calls) for last, calls in by_last.items()}:
            for_rank, most = max(for_ranks.items(), key=lambda item: (item[1], -item[0]))
            share = min(1.0, most / total) if (total := sum(waited)) else 0.0
            found.append(RankWaiting(rank, float(median(waited)), for_rank, share))
    return sorted(found, key=lambda waiting: (-waiting.waiting_s, waiting.rank))


def _waiting_time(calls: Iterable[Call]) -> float:
    """How long at least one of these calls of a rank waited. Where the begin of calls is not known,
    their waits are added up."""
    intervals, more = [], 0.0
    for call in calls:
        waiting = call.waiting_s or 0.0
        if call.start_s is None:
            more += waiting
        else:
            intervals.append((call.start_s, call.start_s + waiting))
    return more + union_length(intervals)


def _find_overlap(workload: Workload, parts: Sequence[RankStep]) -> TraceOverlap | None:
    """None where a file ends early, and without communication or computation."""
    is_cut = any(part.trace.is_cut for part in parts)
    wholes = [(length_within(part.communication), part) for part in parts]
    exposed = [length_within(part.exposed) / whole for whole, part in wholes if whole]
    if is_cut or not exposed or not any(len(part.trace.computing) for part in parts):
        return None
    whole_s = communication_of(most_often(workload.steps))
    computing = (length_within(part.computing, 0.0, part.length_s) for part in parts)
    return TraceOverlap(whole_s, whole_s * median(exposed), median(computing))


_Interval: TypeAlias = Callable[[Call], tuple[float, float]]


def communication_of(step: Step, interval: _Interval = lambda call: call.interval_s) -> float:
    """Seconds of a step during which at least one call was under way: mean over the ranks. Calls
    whose times are not known do not count. `interval` gives the begin and the end of a call."""
    ranks = sum(len(program.ranks) for program in step.programs) or 1
    under_way = (
        len(program.ranks) * union_length(map(interval, program.calls)) for program in step.programs
    )
    return sum(under_way) / ranks


class OperationTotals(NamedTuple):
    """All calls of an operation in a set of groups, for one step of one rank: the sums over the
    calls, which have the medians over steps and ranks; means over the ranks of several programs."""

    step: str
    """The name of the step."""
    group: str
    ranks: int | None
    """Ranks of a group; None where they are not known."""
    operation: str
    calls: float
    size_bytes: float | None
    """S of all calls together; None where the size of one is not known."""
    time_s: float | None
    transfer_s: float | None
    step_share: float | None
    """The part of the step during which such a call was under way."""

    @property
    def waiting_s(self) -> float | None:
        """How long the calls waited for other ranks; None where that is not known."""
        return waited(self.time_s, self.transfer_s)

    @property
    def seconds(self) -> float | None:
        """The transfer where it is known, else the time."""
        return self.time_s if self.transfer_s is None else self.transfer_s

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s; None where it has none or not enough is known."""
        return self.busbw_in(self.seconds)

    def busbw_in(self, seconds: float | None) -> float | None:
        """The same, if the calls took so long. A message moves its size once."""
        if not self.size_bytes or not seconds:
            return None
        if self.operation not in OPERATIONS:
            return self.size_bytes / seconds
        factor = OPERATIONS[self.operation].busbw_factor
        return self.size_bytes * factor(self.ranks) / seconds if factor and self.ranks else None

    def as_json(self) -> dict[str, Any]:
        """The fields, the waiting and the bus bandwidth."""
        return fields_of(self, "waiting_s") | {"busbw_GBps": self.busbw and self.busbw / GB}


def workload_totals(workload: Workload, *steps: Step) -> tuple[OperationTotals, ...]:
    """The calls of steps (none given: of all), by set of groups and operation; of each step those
    that take longest first."""
    return tuple(row for step in steps or workload.steps for row in _step_totals(workload, step))


def _step_totals(workload: Workload, step: Step) -> list[OperationTotals]:
    ranks = sum(len(program.ranks) for program in step.programs) or 1
    by_row = collect(
        (key, (len(program.ranks), calls))
        for program in step.programs
        for key, calls in collect(((c.group, c.operation), c) for c in program.calls).items()
    )
    """For each program how many ranks it has, and its calls."""
    rows = []
    for (group, operation), parts in by_row.items():
        sizes = {len(each) for each in workload.groups.get(group, ())}
        every = [(call, weight) for weight, calls in parts for call in calls]
        sums = {
            name: _mean(((getattr(call, name), weight) for call, weight in every), ranks)
            for name in ("size_bytes", "time_s", "transfer_s")
        }
        under_way = _mean(((_under_way(calls), weight) for weight, calls in parts), ranks)
        share = None if under_way is None or not step.time_s else under_way / step.time_s
        rows.append(OperationTotals(
            step.name, group, sizes.pop() if len(sizes) == 1 else None, operation,
            sum(weight for _, weight in every) / ranks, **sums, step_share=share,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (-(row.time_s or 0.0), -(row.size_bytes or 0.0)))


def _mean(values: Iterable[tuple[float | None, int]], ranks: int) -> float | None:
    """The sum of values, each times how many ranks have it, over all ranks."""
    total = known_sum(None if value is None else value * weight for value, weight in values)
    return None if total is None else total / ranks


def _under_way(calls: Sequence[Call]) -> float | None:
    """How long at least one of these calls of a program was under way; None where not known."""
    is_known = all(call.end_s is not None for call in calls)
    return union_length(call.interval_s for call in calls) if is_known else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is not known."""
    found = list(values)
    return None if None in found else float(sum(v for v in found if v is not None))

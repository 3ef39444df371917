"""The groups and the steps of the traces of a job, and the workload of the calls in them.

Steps in which all ranks make the same calls become one step, and ranks that make the same calls
share a program; times are medians then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from math import inf
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from commbench.plan import workload
from commbench.plan.groups import WORLD, every_group
from commbench.plan.operations import OPERATIONS
from commbench.readers.trace_base import RankTrace, TracedGroup, TracedStep, merged
from commbench.stats import collect

GroupId: TypeAlias = tuple[int, ...] | str
"""The global ranks of a group, or its name in the trace where these are not known."""
Groups: TypeAlias = tuple[tuple[int, ...], ...]
Intervals: TypeAlias = list[tuple[float, float]]
WHOLE_TRACE = "trace"
"""The name of the only step of a trace that marks none."""
_UNNAMED = ("", "undefined", "default_pg")
_MESH = "mesh_"
LONGEST_NAME = 40


class GroupSets(NamedTuple):
    """The process groups of all ranks, in sets of those that do the same on other ranks."""

    sets: dict[str, Groups]
    names: dict[GroupId, str]
    """The set of each group."""
    completed: tuple[str, ...]
    """Sets that have groups of ranks without a trace: they are taken to be those that the ranks of
    a mesh would have."""
    members: dict[tuple[str, int], tuple[int, ...]] = {}  # noqa: RUF012 - never changed
    """The group of a set in which a rank is, where that is known."""


def find_group_sets(traces: Sequence[RankTrace], world_size: int) -> GroupSets:
    """Put groups into one set that have the same description, size and distance of ranks."""
    kinds: dict[tuple[str, int, int], dict[tuple[int, ...], None]] = defaultdict(dict)
    nameless: dict[str, tuple[str, int]] = {}
    everyone = tuple(range(world_size))
    for trace in traces:
        for name in sorted({call.group for call in trace.calls if call.group}):
            group = trace.groups.get(name, TracedGroup())
            text = "" if group.description in _UNNAMED else group.description
            if not group.ranks:
                nameless[name] = group.description, group.size
            elif max(group.ranks) < workload.MOST_RANKS:  # no job has more; the group is not known
                if tuple(sorted(group.ranks)) == everyone:
                    text = text if text.removeprefix(_MESH) else WORLD
                kinds[text, len(group.ranks), _stride(group.ranks)][group.ranks] = None
    sets: dict[str, Groups] = {}
    names: dict[GroupId, str] = {}
    completed = []
    for (text, size, stride), groups in kinds.items():
        is_next = size > 1 and stride == 1
        by_shape = f"{size} neighbours" if is_next else f"{size} ranks, every {stride}."
        name = _unused(text.removeprefix(_MESH) or by_shape, sets)
        found = tuple(sorted(groups))
        sets[name] = _complete(found, size, stride, world_size)
        completed += [name] if sets[name] != found else []
        names.update(dict.fromkeys(groups, name))
    for own, (text, size) in nameless.items():
        is_world = text == "default_pg" or size == world_size
        name = text.removeprefix(_MESH) if text not in _UNNAMED else ""
        name = name or (WORLD if is_world and WORLD not in sets else f"group {own}"[:LONGEST_NAME])
        if is_world and world_size > 1:
            sets.setdefault(name, (everyone,))
        names[own] = name
    members = {(name, r): g for name, found in sets.items() for g in found[::-1] for r in g}
    return GroupSets(sets, names, tuple(completed), members)


def _unused(name: str, sets: dict[str, Groups]) -> str:
    name = name[:LONGEST_NAME]
    number = 2
    while name in sets or name == workload.UNKNOWN_GROUP:
        name, number = f"{name[: LONGEST_NAME - 4]} {number}", number + 1
    return name


def _stride(ranks: tuple[int, ...]) -> int:
    """The distance of the ranks of a group; 0 where it is not the same everywhere."""
    steps = {b - a for a, b in pairwise(ranks)} or {1}
    return steps.pop() if len(steps) == 1 else 0


def _complete(groups: Groups, size: int, stride: int, world_size: int) -> Groups:
    """The groups and those of the other ranks, if all are those of a dimension of a mesh."""
    if stride < 1 or world_size % (size * stride) or size * len(groups) >= world_size:
        return groups
    whole = every_group(size, stride, world_size)
    return whole if {*groups} <= {*whole} else groups


@dataclass(frozen=True)
class RankStep:
    """What a rank did in a step. Intervals are in seconds from the begin of the step, ascending and
    apart."""

    trace: RankTrace
    step: TracedStep
    calls: list[workload.Call] = field(default_factory=list)
    """Their `group` is the name of a set of groups."""

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.trace.rank or 0

    def fill(self, index: int, **known: Any) -> None:
        """Write into a call what is known by those of other ranks."""
        self.calls[index] = self.calls[index]._replace(**known)

    @property
    def length_s(self) -> float:
        """How long the step took."""
        return self.step.end_s - self.step.start_s

    @cached_property
    def communication(self) -> Intervals:
        """When a call was under way."""
        begin_s = self.step.start_s
        return merged(
            (call.start_s - begin_s, call.end_s - begin_s)
            for call in self.calls
            if call.start_s is not None and call.end_s is not None
        )

    @cached_property
    def computing(self) -> Intervals:
        """When the rank computed, until its last call ended."""
        begin_s = self.step.start_s
        until_s = max([self.step.end_s, *(end + begin_s for _, end in self.communication)])
        begins, ends = self.trace.computing[::2], self.trace.computing[1::2]
        near = range(bisect_right(ends, begin_s), bisect_left(begins, until_s))
        return [(begins[i] - begin_s, ends[i] - begin_s) for i in near]

    @cached_property
    def exposed(self) -> Intervals:
        """Communication during which the rank did not compute."""
        edges, found = [-inf, *chain.from_iterable(self.computing), inf], []
        begins, ends = edges[::2], edges[1::2]  # of the pauses between computations
        for begin, end in self.communication:
            near = range(bisect_right(ends, begin), bisect_left(begins, end))
            found += [(max(begin, begins[i]), min(end, ends[i])) for i in near]
        return found


def find_steps(trace: RankTrace) -> list[TracedStep]:
    """The steps of a trace; of one that marks none, a step from its first call to its last."""
    if trace.steps:
        return list({step.name: step for step in trace.steps}.values())
    begins = [call.begin_s for call in trace.calls if call.begin_s is not None]
    ends = [end for call in trace.calls if (end := call.end_s or call.begin_s) is not None]
    return [TracedStep(WHOLE_TRACE, min(begins, default=0.0), max(ends, default=0.0))]


def place_calls(traces: Sequence[RankTrace], sets: GroupSets) -> tuple[list[RankStep], int]:
    """What each rank did in each of the steps that all ranks have, and how many calls are in
    none."""
    steps = [find_steps(trace) for trace in traces]
    common = set.intersection(*({step.name for step in own} for own in steps))
    found: list[RankStep] = []
    outside = 0
    for trace, own in zip(traces, steps, strict=True):
        parts = {step.name: RankStep(trace, step) for step in own if step.name in common}
        found += parts.values()
        in_order = sorted(own, key=lambda step: step.start_s)
        begins = [step.start_s for step in in_order]
        for call in trace.calls:
            begin_s = call.begin_s or 0.0
            at = bisect_right(begins, begin_s) - 1 if trace.steps else 0
            is_inside = not trace.steps or (at >= 0 and begin_s <= in_order[at].end_s)
            part = parts.get(in_order[at].name) if is_inside else None
            if part is None:
                outside += 1
                continue
            group = trace.groups.get(call.group, TracedGroup()).ranks or call.group
            part.calls.append(call._replace(group=sets.names.get(group, workload.UNKNOWN_GROUP)))
    return found, outside


def length_within(
    intervals: Iterable[tuple[float, float]], begin: float = 0.0, end: float = float("inf")
) -> float:
    """How much of these intervals lies between two times."""
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in intervals)


# The workload.

_DIGITS = 9
"""Decimals of seconds: torch.profiler's clock counts nanoseconds."""
_TIMES = (
    "start_s", "ready_s", "compute_s", "compute_after_s", "gap_before_s", "time_s", "transfer_s",
)  # fmt: skip


def trace_workload(
    traces: Sequence[RankTrace],
    parts: Sequence[RankStep],
    world_size: int,
    sets: GroupSets,
    notes: Sequence[str],
) -> workload.Workload:
    """The workload, without a name, of what the ranks did in their steps."""
    by_step: dict[str, dict[int, tuple[workload.Call, ...]]] = defaultdict(dict)
    for part in parts:
        by_step[part.step.name][part.rank] = _with_computation(_make_calls(sets, part), part)
    durations = collect((part.step.name, part.length_s) for part in parts)
    alike = collect(
        (tuple((rank, _work(calls)) for rank, calls in by_rank.items()), name)
        for name, by_rank in by_step.items()
    )
    found, everyone, is_taken = [], tuple(range(world_size)), False
    for same in alike.values():
        ranks = by_step[same[0]]
        medians = {rank: _median_calls([by_step[n][rank] for n in same]) for rank in ranks}
        by_work = collect((_work(calls), rank) for rank, calls in medians.items())
        programs = tuple(
            workload.Program(tuple(own), _median_calls([medians[rank] for rank in own]))
            for own in by_work.values()
        )
        if len(traces) < world_size and _is_alike_everywhere(world_size, sets, programs):
            programs, is_taken = (programs[0]._replace(ranks=everyone),), True
        times = [time for name in same for time in durations[name] if time > 0]
        time_s = round(median(times), _DIGITS) if times else None
        found.append(workload.Step(same[0], programs, len(same), time_s))
    taken = ["ranks without a trace are taken to make the same calls"] if is_taken else []
    return workload.Workload(
        name="", source=f"{traces[0].format} of {len(traces)} of {world_size} ranks",
        world_size=world_size, groups=dict(sets.sets), steps=tuple(found),
        ranks_per_node=_ranks_per_node([trace.host for trace in traces], world_size),
        backend=", ".join(dict.fromkeys(trace.backend for trace in traces if trace.backend)),
        notes=(*notes, *taken),
    )  # fmt: skip


def _ranks_per_node(hosts: Sequence[str], world_size: int) -> int | None:
    """Ranks on each host, where all ranks have one, and each host as many."""
    counts = {hosts.count(host) for host in hosts}
    is_known = all(hosts) and len(hosts) == world_size and len(counts) == 1
    return counts.pop() if is_known else None


def _make_calls(sets: GroupSets, part: RankStep) -> list[workload.Call]:
    """The program of one rank in one step, without its computation."""
    begin_s, is_on_host = part.step.start_s, not part.trace.has_kernels
    issued = [call.begin_s or 0.0 for call in part.calls]
    streams: dict[int | str, int] = {}
    calls, busy_until = [], begin_s
    for index, call in enumerate(part.calls):
        ranks = len(sets.members.get((call.group, part.rank), ()))
        operation = OPERATIONS.get(call.operation)
        start = call.ready_s if call.start_s is None else call.start_s
        gap = None if start is None or call.time_s is None else max(0.0, start - busy_until)
        busy_until = max(busy_until, call.end_s or busy_until)
        is_ready = is_on_host and call.ready_s is not None
        calls.append(call._replace(
            group=call.group if ranks else workload.UNKNOWN_GROUP,
            reduce_op=call.reduce_op if operation and operation.reduces else "",
            root=call.root if (call.root or 0) < ranks else None,
            peer=call.peer if (call.peer or 0) < ranks else None,
            send_splits=call.send_splits if len(call.send_splits) == ranks else (),
            receive_splits=call.receive_splits if len(call.receive_splits) == ranks else (),
            stream=streams.setdefault(call.stream, len(streams)),
            waited_after=_waited_after(call, index, issued),
            start_s=None if start is None else max(0.0, start - begin_s),
            ready_s=max(0.0, issued[index] - begin_s) if is_ready else None,
            gap_before_s=gap,
            **dict.fromkeys(workload.OF_TRACE),  # type: ignore[arg-type]
        ))  # fmt: skip
    return calls


def _with_computation(calls: Sequence[workload.Call], part: RankStep) -> tuple[workload.Call, ...]:
    """The calls with how long their rank computed between them. It only waits while a call is under
    way and it does not compute; all else of its time, such as that of Python, is computation."""
    ready = [call.begin_s for call in calls]
    is_known = len(part.trace.computing) and not part.trace.is_cut and None not in ready
    if not (calls and is_known and part.length_s > 0):
        return tuple(calls)
    computed = [
        max(0.0, end - begin - length_within(part.exposed, begin, end))
        for begin, end in pairwise([0.0, *(time or 0.0 for time in ready), part.length_s])
    ]
    made = [call._replace(compute_s=time) for call, time in zip(calls, computed, strict=False)]
    made[-1] = made[-1]._replace(compute_after_s=computed[-1])
    return tuple(made)


def _waited_after(call: workload.Call, index: int, issued: Sequence[float]) -> int | None:
    """The last call that was begun before this one was waited for."""
    if call.asynchronous is False:
        return index
    return None if call.waited_s is None else max(index, bisect_right(issued, call.waited_s) - 1)


def _work(calls: Sequence[workload.Call]) -> tuple[Any, ...]:
    """What a program does; the threads of a host and the moment of a wait differ by chance, and the
    reduction is not known of a call without a kernel."""
    return tuple(call._replace(reduce_op="").what() for call in calls)


def _median_calls(programs: Sequence[Sequence[workload.Call]]) -> tuple[workload.Call, ...]:
    """The same program several times, as one with the medians of its times."""
    merged = []
    for calls in zip(*programs, strict=True):
        reduce_op = next((call.reduce_op for call in calls if call.reduce_op), "")
        known: dict[str, Any] = {"reduce_op": reduce_op}
        for name in _TIMES:
            times = [time for call in calls if (time := getattr(call, name)) is not None]
            known[name] = round(median(times), _DIGITS) if times else None
        merged.append(calls[0]._replace(**known))
    return tuple(merged)


def _is_alike_everywhere(
    world_size: int, sets: GroupSets, programs: Sequence[workload.Program]
) -> bool:
    """Whether the ranks without a trace must make the same calls: all ranks with one do, all are in
    the groups, and no call depends on the rank."""
    if len(programs) != 1 or not programs[0].calls:
        return False
    everyone = set(range(world_size))
    return all(
        {rank for group in sets.sets.get(call.group, ()) for rank in group} == everyone
        and call.peer is None
        and not call.send_splits
        for call in programs[0].calls
    )

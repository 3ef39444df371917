"""Makes a workload of traces: the calls of each step, with the gaps between them.

Steps in which all ranks make the same calls become one step, and ranks that make the same calls
share a program; times are medians then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from commbench.analysis.trace_groups import GroupSets
from commbench.analysis.trace_steps import PlacedCall
from commbench.importers.traces.base import RankTrace, TracedStep, merged
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import UNKNOWN_GROUP, Call, Program, Step, Workload

_DIGITS = 9
"""Decimals of seconds: torch.profiler's clock counts nanoseconds."""
_TIMES = (
    "start_s",
    "ready_s",
    "compute_s",
    "compute_after_s",
    "gap_before_s",
    "time_s",
    "transfer_s",
)
_OF_TRACE: dict[str, Any] = dict.fromkeys(("waited_s", "sequence", "has_ended"))
"""What a workload does not say of a call."""


def trace_workload(
    traces: Sequence[RankTrace],
    rank_steps: Mapping[int, Sequence[TracedStep]],
    world_size: int,
    names: Sequence[str],
    sets: GroupSets,
    calls: Sequence[PlacedCall],
    notes: Sequence[str],
) -> Workload:
    """The workload, without a name, of traces whose calls are in the steps of these names."""
    by_step = _calls_by_step(calls, rank_steps, names, sets, {t.rank or 0: t for t in traces})
    durations: dict[str, list[float]] = defaultdict(list)
    for steps in rank_steps.values():
        for step in steps:
            durations[step.name].append(step.end_s - step.start_s)
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name in names:
        key = tuple((r, _work(calls)) for r, calls in sorted(by_step[name].items()))
        alike[key].append(name)
    ranks = [trace.rank or 0 for trace in traces]
    notes, found = list(notes), []
    for same in alike.values():
        own = {r: _median_calls([by_step[name].get(r, ()) for name in same]) for r in ranks}
        times = [time for name in same for time in durations[name] if time > 0]
        programs = _merge_ranks(own)
        if len(ranks) < world_size and _is_alike_everywhere(world_size, sets, programs):
            programs = (programs[0]._replace(ranks=tuple(range(world_size))),)
            note = "ranks without a trace are taken to make the same calls"
            notes += [note] if note not in notes else []
        time_s = round(median(times), _DIGITS) if times else None
        found.append(Step(same[0], programs, len(same), time_s))
    backends = dict.fromkeys(trace.backend for trace in traces if trace.backend)
    hosts = [trace.host for trace in traces]
    return Workload(
        name="",
        source=f"{traces[0].format} of {len(ranks)} of {world_size} ranks",
        world_size=world_size,
        groups=dict(sets.sets),
        steps=tuple(found),
        ranks_per_node=_ranks_per_node(hosts, world_size),
        backend=", ".join(backends),
        notes=tuple(notes),
    )


def _ranks_per_node(hosts: Sequence[str], world_size: int) -> int | None:
    """Ranks on each host, where all ranks have one, and each host as many."""
    counts = {hosts.count(host) for host in hosts}
    is_known = all(hosts) and len(hosts) == world_size and len(counts) == 1
    return counts.pop() if is_known else None


def _calls_by_step(
    calls: Sequence[PlacedCall],
    rank_steps: Mapping[int, Sequence[TracedStep]],
    names: Sequence[str],
    sets: GroupSets,
    traces: Mapping[int, RankTrace],
) -> dict[str, dict[int, tuple[Call, ...]]]:
    placed: dict[tuple[str, int], list[PlacedCall]] = defaultdict(list)
    for one in calls:
        placed[one.step, one.rank].append(one)
    known = {(step.name, rank): step for rank, steps in rank_steps.items() for step in steps}
    found: dict[str, dict[int, tuple[Call, ...]]] = {name: {} for name in names}
    for (name, rank), own in placed.items():
        step, trace = known[name, rank], traces[rank]
        made = _make_calls(sets, own, step.start_s, not trace.has_kernels)
        if len(trace.computing) and not trace.is_cut:
            made = _with_computation(made, step, trace.computing)
        found[name][rank] = made
    return found


def _with_computation(
    calls: Sequence[Call], step: TracedStep, computing: Sequence[float]
) -> tuple[Call, ...]:
    """The calls with how long their rank computed between them. It only waits while a call is under
    way and it does not compute; all else of its time, such as that of Python, is computation."""
    length = step.end_s - step.start_s
    begins, ends = computing[::2], computing[1::2]
    first, last = bisect_right(ends, step.start_s), bisect_left(begins, step.end_s)
    near = [(begins[i] - step.start_s, ends[i] - step.start_s) for i in range(first, last)]
    waiting = _without(merged(call.interval_s for call in calls), near)
    ready = [call.begin_s for call in calls]
    if any(time is None for time in ready) or not length > 0:
        return tuple(calls)
    marks = [0.0, *(time or 0.0 for time in ready), length]
    computed = [
        max(0.0, end - begin - _within(waiting, begin, end)) for begin, end in pairwise(marks)
    ]
    made = [call._replace(compute_s=time) for call, time in zip(calls, computed, strict=False)]
    made[-1] = made[-1]._replace(compute_after_s=computed[-1])
    return tuple(made)


def _without(
    intervals: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What is left of ascending intervals without others, which ascend too."""
    found, position = [], 0
    for begin, end in intervals:
        while position < len(others) and others[position][1] <= begin:
            position += 1
        for other_begin, other_end in others[position:]:
            if other_begin >= end:
                break
            if other_begin > begin:
                found.append((begin, other_begin))
            begin = max(begin, other_end)
        if begin < end:
            found.append((begin, end))
    return found


def _within(intervals: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """How much of these intervals lies between two times."""
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in intervals)


def _make_calls(
    sets: GroupSets, placed: Sequence[PlacedCall], begin_s: float, is_on_host: bool
) -> tuple[Call, ...]:
    """The program of one rank in one step; `is_on_host`: no GPU ran it."""
    issued = [one.call.begin_s or 0.0 for one in placed]
    streams: dict[int | str, int] = {}
    calls, busy_until = [], begin_s
    for index, one in enumerate(placed):
        call = one.call
        group = next((g for g in sets.sets.get(call.group, ()) if one.rank in g), ())
        start = call.ready_s if call.start_s is None else call.start_s
        gap = None if start is None or call.time_s is None else max(0.0, start - busy_until)
        busy_until = max(busy_until, call.end_s or busy_until)
        is_ready = is_on_host and call.ready_s is not None
        calls.append(call._replace(
            group=call.group if group else UNKNOWN_GROUP,
            reduce_op=call.reduce_op if _reduces(call) else "",
            root=_place(call.root, group),
            peer=_place(call.peer, group),
            send_splits=call.send_splits if len(call.send_splits) == len(group) else (),
            receive_splits=call.receive_splits if len(call.receive_splits) == len(group) else (),
            stream=streams.setdefault(call.stream, len(streams)),
            waited_after=_waited_after(call, index, issued),
            start_s=None if start is None else max(0.0, start - begin_s),
            ready_s=max(0.0, issued[index] - begin_s) if is_ready else None,
            gap_before_s=gap,
            **_OF_TRACE,
        ))  # fmt: skip
    return tuple(calls)


def _reduces(call: Call) -> bool:
    return call.operation in OPERATIONS and OPERATIONS[call.operation].reduces


def _place(rank: int | None, group: Sequence[int]) -> int | None:
    return rank if rank is not None and rank < len(group) else None


def _waited_after(call: Call, index: int, issued: Sequence[float]) -> int | None:
    """The last call that was begun before this one was waited for."""
    if call.asynchronous is False:
        return index
    if call.waited_s is None:
        return None
    return max(index, bisect_right(issued, call.waited_s) - 1)


def _work(calls: Sequence[Call]) -> tuple[Any, ...]:
    """What a program does; the threads of a host and the moment of a wait differ by chance, and the
    reduction is not known of a call without a kernel."""
    return tuple(call._replace(reduce_op="").what() for call in calls)


def _median_calls(programs: Sequence[Sequence[Call]]) -> tuple[Call, ...]:
    """The same program several times, as one with the medians of its times."""
    merged = []
    for calls in zip(*programs, strict=True):
        known: dict[str, Any] = {
            "reduce_op": next((call.reduce_op for call in calls if call.reduce_op), "")
        }
        for name in _TIMES:
            times = [time for call in calls if (time := getattr(call, name)) is not None]
            known[name] = round(median(times), _DIGITS) if times else None
        merged.append(calls[0]._replace(**known))
    return tuple(merged)


def _merge_ranks(programs: dict[int, tuple[Call, ...]]) -> tuple[Program, ...]:
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rank, calls in programs.items():
        alike[_work(calls)].append(rank)
    return tuple(
        Program(tuple(ranks), _median_calls([programs[rank] for rank in ranks]))
        for ranks in alike.values()
    )


def _is_alike_everywhere(world_size: int, sets: GroupSets, programs: Sequence[Program]) -> bool:
    """Whether the ranks without a trace must make the same calls: all ranks with one do, all are in
    the groups, and no call depends on the rank."""
    if len(programs) != 1:
        return False
    everyone = set(range(world_size))
    return all(
        {rank for group in sets.sets.get(call.group, ()) for rank in group} == everyone
        and call.peer is None
        and not call.send_splits
        for call in programs[0].calls
    )

"""Makes a workload of traces: the calls of each step, with the gaps between them.

Steps in which all ranks make the same calls become one step, and ranks that make the same calls
share a program; times are medians then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from commbench.analysis.trace_groups import GroupSets
from commbench.analysis.trace_steps import RankStep, length_within
from commbench.importers.traces.base import RankTrace
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import OF_TRACE, UNKNOWN_GROUP, Call, Program, Step, Workload

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


def trace_workload(
    traces: Sequence[RankTrace],
    parts: Sequence[RankStep],
    world_size: int,
    sets: GroupSets,
    notes: Sequence[str],
) -> Workload:
    """The workload, without a name, of what the ranks did in their steps."""
    by_step: dict[str, dict[int, tuple[Call, ...]]] = defaultdict(dict)
    durations: dict[str, list[float]] = defaultdict(list)
    for part in parts:
        by_step[part.step.name][part.trace.rank or 0] = _make_calls(sets, part)
        durations[part.step.name].append(part.length_s)
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name, programs in by_step.items():
        alike[tuple((rank, _work(calls)) for rank, calls in programs.items())].append(name)
    notes, found = list(notes), []
    for same in alike.values():
        merged = _merge_ranks(
            {
                rank: _median_calls([by_step[name][rank] for name in same])
                for rank in by_step[same[0]]
            }
        )
        times = [time for name in same for time in durations[name] if time > 0]
        if len(traces) < world_size and _is_alike_everywhere(world_size, sets, merged):
            merged = (merged[0]._replace(ranks=tuple(range(world_size))),)
            note = "ranks without a trace are taken to make the same calls"
            notes += [note] if note not in notes else []
        time_s = round(median(times), _DIGITS) if times else None
        found.append(Step(same[0], merged, len(same), time_s))
    return Workload(
        name="",
        source=f"{traces[0].format} of {len(traces)} of {world_size} ranks",
        world_size=world_size,
        groups=dict(sets.sets),
        steps=tuple(found),
        ranks_per_node=_ranks_per_node([trace.host for trace in traces], world_size),
        backend=", ".join(dict.fromkeys(trace.backend for trace in traces if trace.backend)),
        notes=tuple(notes),
    )


def _ranks_per_node(hosts: Sequence[str], world_size: int) -> int | None:
    """Ranks on each host, where all ranks have one, and each host as many."""
    counts = {hosts.count(host) for host in hosts}
    is_known = all(hosts) and len(hosts) == world_size and len(counts) == 1
    return counts.pop() if is_known else None


def _make_calls(sets: GroupSets, part: RankStep) -> tuple[Call, ...]:
    """The program of one rank in one step."""
    begin_s, is_on_host = part.step.start_s, not part.trace.has_kernels
    issued = [one.call.begin_s or 0.0 for one in part.calls]
    streams: dict[int | str, int] = {}
    calls, busy_until = [], begin_s
    for index, one in enumerate(part.calls):
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
            **dict.fromkeys(OF_TRACE),  # type: ignore[arg-type]
        ))  # fmt: skip
    return _with_computation(calls, part)


def _with_computation(calls: Sequence[Call], part: RankStep) -> tuple[Call, ...]:
    """The calls with how long their rank computed between them. It only waits while a call is under
    way and it does not compute; all else of its time, such as that of Python, is computation."""
    ready = [call.begin_s for call in calls]
    is_known = len(part.trace.computing) and not part.trace.is_cut and None not in ready
    if not (calls and is_known and part.length_s > 0):
        return tuple(calls)
    marks = [0.0, *(time or 0.0 for time in ready), part.length_s]
    computed = [
        max(0.0, end - begin - length_within(part.exposed, begin, end))
        for begin, end in pairwise(marks)
    ]
    made = [call._replace(compute_s=time) for call, time in zip(calls, computed, strict=False)]
    made[-1] = made[-1]._replace(compute_after_s=computed[-1])
    return tuple(made)


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

"""Makes a workload of traces: the calls of each step, with the gaps between them.

Steps in which all ranks make the same calls become one step, and ranks that make the same calls
share a program; times are medians then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from commbench.analysis.trace import PlacedCall, TraceAnalysis, find_steps
from commbench.importers.traces.base import TracedCall
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import UNKNOWN_GROUP, Call, Program, Step, Workload

_DIGITS = 9
"""Decimals of seconds: torch.profiler's clock counts nanoseconds."""
_TIMES = ("start_s", "ready_s", "gap_before_s", "time_s", "transfer_s")


def trace_workload(analysis: TraceAnalysis, name: str) -> Workload:
    """The workload of the traces that were analysed."""
    by_step = _calls_by_step(analysis)
    durations: dict[str, list[float]] = defaultdict(list)
    for trace in analysis.traces:
        for step in find_steps(trace):
            durations[step.name].append(step.end_s - step.start_s)
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for step_name in analysis.steps:
        key = tuple((r, _work(calls)) for r, calls in sorted(by_step[step_name].items()))
        alike[key].append(step_name)
    ranks = [trace.rank or 0 for trace in analysis.traces]
    notes = list(analysis.notes)
    steps = []
    for names in alike.values():
        own = {r: _median_calls([by_step[n].get(r, ()) for n in names]) for r in ranks}
        times = [time for n in names for time in durations[n] if time > 0]
        programs = _merge_ranks(own)
        if len(ranks) < analysis.world_size and _is_alike_everywhere(analysis, programs):
            programs = (programs[0]._replace(ranks=tuple(range(analysis.world_size))),)
            note = "ranks without a trace are taken to make the same calls"
            notes += [note] if note not in notes else []
        steps.append(
            Step(names[0], programs, len(names), round(median(times), _DIGITS) if times else None)
        )
    backends = dict.fromkeys(trace.backend for trace in analysis.traces if trace.backend)
    trace = analysis.traces[0]
    hosts = [trace.host for trace in analysis.traces]
    return Workload(
        name=name,
        source=f"{trace.format} of {len(ranks)} of {analysis.world_size} ranks",
        world_size=analysis.world_size,
        groups=dict(analysis.sets.sets),
        steps=tuple(steps),
        ranks_per_node=_ranks_per_node(hosts, analysis.world_size),
        backend=", ".join(backends),
        notes=tuple(notes),
    )


def _ranks_per_node(hosts: Sequence[str], world_size: int) -> int | None:
    """Ranks on each host, where all ranks have one, and each host as many."""
    counts = {hosts.count(host) for host in hosts}
    is_known = all(hosts) and len(hosts) == world_size and len(counts) == 1
    return counts.pop() if is_known else None


def _calls_by_step(analysis: TraceAnalysis) -> dict[str, dict[int, tuple[Call, ...]]]:
    placed: dict[tuple[str, int], list[PlacedCall]] = defaultdict(list)
    for one in analysis.calls:
        placed[one.step, one.rank].append(one)
    begins = {
        (step.name, trace.rank or 0): step.start_s
        for trace in analysis.traces
        for step in find_steps(trace)
    }
    on_gpu = {trace.rank or 0 for trace in analysis.traces if trace.has_kernels}
    found: dict[str, dict[int, tuple[Call, ...]]] = {name: {} for name in analysis.steps}
    for (name, rank), own in placed.items():
        found[name][rank] = _make_calls(analysis, own, begins[name, rank], rank in on_gpu)
    return found


def _make_calls(
    analysis: TraceAnalysis, placed: Sequence[PlacedCall], begin_s: float, has_kernels: bool
) -> tuple[Call, ...]:
    """The program of one rank in one step."""
    issued = [one.call.begin_s or 0.0 for one in placed]
    streams: dict[str, int] = {}
    calls, busy_until = [], begin_s
    for index, one in enumerate(placed):
        call, name = one.call, one.group_set
        groups = analysis.sets.sets.get(name, ())
        group = next((g for g in groups if one.rank in g), ())
        start = call.start_s if call.start_s is not None else call.issued_s
        is_on_host = call.issued_s is not None and not has_kernels
        gap = None if start is None or call.time_s is None else max(0.0, start - busy_until)
        busy_until = max(busy_until, call.end_s or busy_until)
        calls.append(Call(
            operation=call.operation,
            group=name if group else UNKNOWN_GROUP,
            dtype=call.dtype,
            size_bytes=call.size_bytes,
            tensors=call.tensors,
            reduce_op=call.reduce_op if _reduces(call) else "",
            asynchronous=call.asynchronous,
            root=_place(call.root, group),
            peer=_place(call.peer, group),
            send_splits=call.send_splits if len(call.send_splits) == len(group) else (),
            receive_splits=call.receive_splits if len(call.receive_splits) == len(group) else (),
            stream=streams.setdefault(call.stream, len(streams)),
            waited_after=_waited_after(call, index, issued),
            start_s=None if start is None else max(0.0, start - begin_s),
            ready_s=max(0.0, issued[index] - begin_s) if is_on_host else None,
            gap_before_s=gap,
            time_s=call.time_s,
            transfer_s=one.transfer_s,
        ))  # fmt: skip
    return tuple(calls)


def _reduces(call: TracedCall) -> bool:
    return call.operation in OPERATIONS and OPERATIONS[call.operation].reduces


def _place(rank: int | None, group: Sequence[int]) -> int | None:
    return rank if rank is not None and rank < len(group) else None


def _waited_after(call: TracedCall, index: int, issued: Sequence[float]) -> int | None:
    """The last call that was begun before this one was waited for."""
    if call.asynchronous is False:
        return index
    if call.waited_s is None:
        return None
    return max(index, bisect_right(issued, call.waited_s) - 1)


def _work(calls: Sequence[Call]) -> tuple[Any, ...]:
    """What a program does; the threads of a host and the moment of a wait differ by chance."""
    return tuple(call._replace(stream=0, waited_after=None).same_work() for call in calls)


def _median_calls(programs: Sequence[Sequence[Call]]) -> tuple[Call, ...]:
    """The same program several times, as one with the medians of its times."""
    merged = []
    for calls in zip(*programs, strict=True):
        medians = {}
        for name in _TIMES:
            times = [time for call in calls if (time := getattr(call, name)) is not None]
            medians[name] = round(median(times), _DIGITS) if times else None
        merged.append(calls[0]._replace(**medians))
    return tuple(merged)


def _merge_ranks(programs: dict[int, tuple[Call, ...]]) -> tuple[Program, ...]:
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rank, calls in programs.items():
        alike[_work(calls)].append(rank)
    return tuple(
        Program(tuple(ranks), _median_calls([programs[rank] for rank in ranks]))
        for ranks in alike.values()
    )


def _is_alike_everywhere(analysis: TraceAnalysis, programs: Sequence[Program]) -> bool:
    """Whether the ranks without a trace must make the same calls: all ranks with one do, all are in
    the groups, and no call depends on the rank."""
    if len(programs) != 1:
        return False
    everyone = set(range(analysis.world_size))
    return all(
        {rank for group in analysis.sets.sets.get(call.group, ()) for rank in group} == everyone
        and call.peer is None
        and not call.send_splits
        for call in programs[0].calls
    )

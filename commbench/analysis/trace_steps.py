"""The steps of the traces of a job, and the calls that each rank makes in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from commbench.analysis.trace_groups import GroupId, GroupSets, group_id
from commbench.importers.traces.base import RankTrace, TracedStep, merged
from commbench.spec.workload import UNKNOWN_GROUP, Call

Intervals: TypeAlias = list[tuple[float, float]]
WHOLE_TRACE = "trace"
"""The name of the only step of a trace that marks none."""


class PlacedCall(NamedTuple):
    """A call with where it belongs: its `group` is the name of a set of groups here."""

    rank: int
    step: str
    call: Call
    group: GroupId
    last_rank: int | None = None
    """The rank that began last, for which the others waited: the one with the shortest duration.
    None for an operation with a root, whose ranks do not end together."""


class RankStep(NamedTuple):
    """What a rank did in a step. Intervals are in seconds from the begin of the step, ascending and
    apart."""

    trace: RankTrace
    step: TracedStep
    calls: list[PlacedCall]
    communication: Intervals
    computing: Intervals
    exposed: Intervals
    """Communication during which the rank did not compute."""

    @property
    def length_s(self) -> float:
        """How long the step took."""
        return self.step.end_s - self.step.start_s


def find_steps(trace: RankTrace) -> list[TracedStep]:
    """The steps of a trace; of one that marks none, a step from its first call to its last."""
    if trace.steps:
        return list({step.name: step for step in trace.steps}.values())
    begins = [call.begin_s for call in trace.calls if call.begin_s is not None]
    ends = [end for call in trace.calls if (end := call.end_s or call.begin_s) is not None]
    return [TracedStep(WHOLE_TRACE, min(begins, default=0.0), max(ends, default=0.0))]


def place_calls(
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
            placed = call._replace(group=name)
            found.append(PlacedCall(rank, own[at].name, placed, group_id(trace, call.group)))
    return found, outside


def rank_steps(
    traces: Sequence[RankTrace],
    steps: dict[int, list[TracedStep]],
    common: Sequence[str],
    calls: Sequence[PlacedCall],
) -> list[RankStep]:
    """What each rank did in each step that all ranks have."""
    by_part: dict[tuple[int, str], list[PlacedCall]] = defaultdict(list)
    for placed in calls:
        by_part[placed.rank, placed.step].append(placed)
    found, names = [], {*common}
    for trace in traces:
        begins, ends = trace.computing[::2], trace.computing[1::2]
        for step in steps[trace.rank or 0]:
            if step.name not in names:
                continue
            own, start_s = by_part[trace.rank or 0, step.name], step.start_s
            communication = merged(
                (call.start_s - start_s, call.end_s - start_s)
                for _, _, call, *_ in own
                if call.start_s is not None and call.end_s is not None
            )
            after_s = max([step.end_s, *(end + start_s for _, end in communication)])
            near = range(bisect_right(ends, start_s), bisect_left(begins, after_s))
            computing = [(begins[i] - start_s, ends[i] - start_s) for i in near]
            exposed = _without(communication, computing)
            found.append(RankStep(trace, step, own, communication, computing, exposed))
    return found


def _without(intervals: Intervals, others: Intervals) -> Intervals:
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


def length_within(
    intervals: Iterable[tuple[float, float]], begin: float = 0.0, end: float = float("inf")
) -> float:
    """How much of these intervals lies between two times."""
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in intervals)

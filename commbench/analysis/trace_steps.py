"""The steps of the traces of a job, and the calls that each rank makes in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class RankStep:
    """What a rank did in a step. Intervals are in seconds from the begin of the step, ascending and
    apart."""

    trace: RankTrace
    step: TracedStep
    calls: list[PlacedCall]

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
            for _, _, call, *_ in self.calls
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
        return _without(self.communication, self.computing)


def find_steps(trace: RankTrace) -> list[TracedStep]:
    """The steps of a trace; of one that marks none, a step from its first call to its last."""
    if trace.steps:
        return list({step.name: step for step in trace.steps}.values())
    begins = [call.begin_s for call in trace.calls if call.begin_s is not None]
    ends = [end for call in trace.calls if (end := call.end_s or call.begin_s) is not None]
    return [TracedStep(WHOLE_TRACE, min(begins, default=0.0), max(ends, default=0.0))]


def place_calls(
    traces: Sequence[RankTrace], sets: GroupSets
) -> tuple[list[str], list[RankStep], int]:
    """The names of the steps that all ranks have, what each rank did in each of them, and how many
    calls are in none."""
    steps = [find_steps(trace) for trace in traces]
    known = [{step.name for step in own} for own in steps]
    common = [step.name for step in steps[0] if all(step.name in own for own in known)]
    found: list[RankStep] = []
    outside, names = 0, {*common}
    for trace, own in zip(traces, steps, strict=True):
        parts = {step.name: RankStep(trace, step, []) for step in own if step.name in names}
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
            name = sets.set_of(trace, call.group) if call.group else UNKNOWN_GROUP
            group = group_id(trace, call.group)
            placed = PlacedCall(trace.rank or 0, part.step.name, call._replace(group=name), group)
            part.calls.append(placed)
    return common, found, outside


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

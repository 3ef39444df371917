"""The steps of the traces of a job, and the calls that each rank makes in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from commbench.analysis.trace_groups import GroupId, GroupSets, group_id
from commbench.importers.traces.base import RankTrace, TracedStep
from commbench.spec.workload import UNKNOWN_GROUP, Call

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

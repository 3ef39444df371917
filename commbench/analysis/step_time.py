"""How long the calls of a traced step take without computation, by the times of the trace."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from commbench.spec.workload import Step, Workload
from commbench.spec.workload_order import Match, match_calls, waits_after

_Node: TypeAlias = int | tuple[int, int]
"""The end of a match, or the moment when a rank makes a call: its index."""


def calls_only_s(workload: Workload, step: Step) -> float | None:
    """Seconds from the first call to the last end where no rank computes; None where the times of
    the calls are not known.

    Each call takes its transfer time, or the whole time where no transfer time is known, from when
    all its ranks have begun it. A rank makes its calls in order and waits where the program does;
    those of one stream follow one another. Raises UsageError for calls that never end.
    """
    matches = match_calls(workload, step)
    took = [_transfer_s(match) for match in matches]
    if None in took:
        return None
    match_of = {(one.rank, one.number): at for at, match in enumerate(matches) for one in match}
    before: dict[_Node, list[_Node]] = {at: [] for at in range(len(matches))}
    for program in step.programs:
        waits = waits_after(program.calls)
        for rank in program.ranks:
            last: dict[int | str, int] = {}
            """Of each stream, the match of its last call; messages may be under way together."""
            for index, call in enumerate(program.calls):
                at = match_of[rank, index]
                made: list[_Node] = [(rank, index - 1)] if index else []
                before[rank, index] = made + [
                    match_of[rank, waited] for waited in (waits[index - 1] if index else ())
                ]
                before[at].append((rank, index))
                if call.peer is None:
                    before[at] += [last[call.stream]] if call.stream in last else []
                    last[call.stream] = at
    ends: dict[_Node, float] = {}
    try:
        for node in TopologicalSorter(before).static_order():
            begin_s = max((ends[each] for each in before[node]), default=0.0)
            ends[node] = begin_s + ((took[node] or 0.0) if isinstance(node, int) else 0.0)
    except CycleError:
        return None
    return max(ends.values(), default=0.0)


def _transfer_s(match: Match) -> float | None:
    """The shortest time of a call on its ranks."""
    known = [one.call.transfer_s or one.call.time_s for one in match]
    return min((time for time in known if time is not None), default=None)

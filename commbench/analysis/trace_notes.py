"""What the traces of a job cannot tell, and why, in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from commbench.analysis.trace_groups import GroupSets
from commbench.analysis.trace_steps import PlacedCall, RankStep
from commbench.importers.traces.base import RankTrace
from commbench.spec.workload import UNKNOWN_GROUP

MOST_CUT = 3
"""Files that end early and are named."""


def _cut_note(trace: RankTrace, calls: Sequence[PlacedCall]) -> str:
    """What a file that ends early lacks. `calls` are those of its rank."""
    name = trace.path.rpartition("/")[2]
    if trace.cut_step and trace.steps:
        found = f"{name} ends early, in {trace.cut_step}: this step is left out"
    elif trace.cut_step:
        found = f"{name} ends early, in {trace.cut_step}, and has no whole step"
    else:
        found = f"{name} ends early: the figures are of the calls before its end"
    if lacking := sum(map(_lacks_something, calls)):
        found += (
            f"; {lacking} of {len(calls)} calls lack a size, a time or a group, which the rest of "
            "the file may have"
        )
    return found


def _lacks_something(placed: PlacedCall) -> bool:
    call = placed.call
    return None in (call.size_bytes, call.time_s) or placed.call.group == UNKNOWN_GROUP


def trace_notes(
    traces: Sequence[RankTrace],
    world_size: int,
    sets: GroupSets,
    parts: Sequence[RankStep],
    outside: int,
    differing: int,
    step_s: float | None,
) -> list[str]:
    """What cannot be known, and why, in sentences."""
    calls: dict[str, list[PlacedCall]] = defaultdict(list)
    for part in parts:
        calls[part.trace.path] += part.calls
    cut = [trace for trace in traces if trace.is_cut]
    notes = [_cut_note(trace, calls[trace.path]) for trace in cut[:MOST_CUT]]
    whole = [one for part in parts if not part.trace.is_cut for one in part.calls]
    if not any(calls.values()) and all(trace.calls for trace in traces):
        notes.append("no step is whole in the traces of all ranks, so there is nothing to show")
    if len(traces) == 1 and world_size > 1:
        notes.append(
            f"only rank {traces[0].rank} of {world_size} was traced, so transfer and waiting are "
            "not known"
        )
    elif len(traces) < world_size:
        notes.append(
            f"there are traces of {len(traces)} of {world_size} ranks: a rank without a trace may "
            "have come later than the others, so waiting may be longer"
        )
    unsized = sum(placed.call.size_bytes is None for placed in whole)
    if unsized:
        notes.append(
            f"{unsized} of {len(whole)} calls have no size: profile with record_shapes=True"
        )
    untimed = sum(placed.call.time_s is None for placed in whole)
    if untimed and step_s is not None:
        notes.append(f"{untimed} of {len(whole)} calls have no time: no transfer was recorded")
    unknown = sum(placed.call.group == UNKNOWN_GROUP for placed in whole)
    if unknown:
        notes.append(
            f"{unknown} of {len(whole)} calls do not say their group: gloo's traces name none, and "
            "several would fit"
        )
    if sets.impossible:
        groups = ", ".join(sets.impossible)
        notes.append(f"no job has the ranks of these groups, which are left out: {groups}")
    if sets.completed:
        notes.append(
            f"groups of ranks without a trace are taken to be those of a mesh: "
            f"{', '.join(sets.completed)}"
        )
    if differing:
        notes.append(
            f"{differing} calls differ between the ranks of a group: their waiting is left out"
        )
    if outside:
        notes.append(f"{outside} calls are left out: no whole step of all ranks has them")
    return notes + list(dict.fromkeys(note for trace in traces for note in trace.notes))

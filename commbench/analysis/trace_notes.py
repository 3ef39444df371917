"""What the traces of a job cannot tell, and why, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commbench.importers.traces.base import RankTrace
from commbench.spec.workload import UNKNOWN_GROUP

if TYPE_CHECKING:
    from commbench.analysis.trace import PlacedCall
    from commbench.analysis.trace_groups import GroupSets


def trace_notes(
    traces: Sequence[RankTrace],
    world_size: int,
    sets: GroupSets,
    calls: Sequence[PlacedCall],
    outside: int,
    differing: int,
    step_s: float | None,
) -> list[str]:
    """What cannot be known, and why, in sentences."""
    notes = []
    cut = [trace.path.rpartition("/")[2] for trace in traces if trace.is_cut]
    if cut:
        notes.append(f"the file ends early: {', '.join(cut[:3])}: calls after that are not known")
    if len(traces) == 1 and world_size > 1:
        notes.append(
            f"the trace is of rank {traces[0].rank} of {world_size} only: waiting cannot be told "
            "from transfer; give the traces of all ranks"
        )
    elif len(traces) < world_size:
        notes.append(
            f"there are traces of {len(traces)} of {world_size} ranks: a rank without a trace may "
            "have come later than the others, so waiting may be longer"
        )
    unsized = sum(placed.call.size_bytes is None for placed in calls)
    if unsized:
        notes.append(
            f"{unsized} of {len(calls)} calls have no size: profile with record_shapes=True"
        )
    untimed = sum(placed.call.time_s is None for placed in calls)
    if untimed and step_s is not None:
        notes.append(f"{untimed} of {len(calls)} calls have no time: no transfer was recorded")
    unknown = sum(placed.group_set == UNKNOWN_GROUP for placed in calls)
    if unknown:
        notes.append(
            f"{unknown} of {len(calls)} calls do not say their group: gloo's traces name none, and "
            "several would fit"
        )
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
        notes.append(f"{outside} calls are outside of the steps that all ranks have: left out")
    if not any(trace.steps for trace in traces) and step_s is not None:
        notes.append("the trace marks no steps: call prof.step() after each step of the training")
    return notes + list(dict.fromkeys(note for trace in traces for note in trace.notes))

"""Maps a workload to fewer ranks: `--fit shrink`."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from commbench.errors import UsageError
from commbench.spec.dtypes import DTYPES
from commbench.spec.workload import UNKNOWN_GROUP, Call, Program, Workload
from commbench.units import format_count

REFUSE, SHRINK = "refuse", "shrink"
FIT_CHOICES = (REFUSE, SHRINK)


class Fitted(NamedTuple):
    """A workload for another number of ranks."""

    workload: Workload
    changes: tuple[str, ...]
    """What was changed, in sentences; empty where nothing was."""


def fit_workload(workload: Workload, ranks: int, fit: str = REFUSE) -> Fitted:
    """The workload for so many ranks.

    SHRINK keeps the first ranks, and of each group those of its ranks that are left; a call keeps
    its size S. Calls that are then made by one rank, and messages to ranks that are not left, are
    left out. Raises UsageError where the workload has more ranks and `fit` is REFUSE, where it has
    fewer ranks, and where no call is left.
    """
    if workload.world_size == ranks:
        return Fitted(workload, ())
    named = f"{workload.name} has {format_count(workload.world_size, 'rank')}"
    if workload.world_size < ranks:
        raise UsageError(
            f"{named}, and not {ranks}", f"start {format_count(workload.world_size, 'rank')}"
        )
    if fit == REFUSE:
        raise UsageError(
            f"{named}, and not {ranks}",
            f"start {workload.world_size} ranks, or write --fit shrink to keep the first {ranks}",
        )
    return _shrink(workload, ranks)


def _shrink(workload: Workload, ranks: int) -> Fitted:
    kept = {
        name: tuple(filter(None, (tuple(r for r in group if r < ranks) for group in groups)))
        for name, groups in workload.groups.items()
    }
    left_out: Counter[tuple[str, str]] = Counter()
    steps = []
    for step in workload.steps:
        programs = []
        for program in step.programs:
            members = tuple(rank for rank in program.ranks if rank < ranks)
            if members:
                programs += _shrink_program(workload, kept, program, members, left_out)
        steps.append(step._replace(programs=tuple(programs)))
    if not any(program.calls for step in steps for program in step.programs):
        raise UsageError(
            f"no call of {workload.name} is left on {format_count(ranks, 'rank')}",
            "start more ranks",
        )
    changes = [f"ranks 0 to {ranks - 1} of {workload.world_size} are kept"]
    for name, groups in workload.groups.items():
        before, after = _sizes(groups), _sizes(kept[name])
        if before != after:
            changes.append(f"groups of {name} have {after} ranks instead of {before}; S is kept")
    for (operation, group), number in sorted(left_out.items()):
        calls = format_count(number, "call")
        changes.append(f"{calls} of {operation} over {group} are left out: no other rank is left")
    shrunk = workload._replace(world_size=ranks, groups=kept, steps=tuple(steps))
    return Fitted(shrunk, tuple(changes))


def _sizes(groups: tuple[tuple[int, ...], ...]) -> str:
    sizes = sorted({len(group) for group in groups})
    return " or ".join(map(str, sizes))


def _shrink_program(
    workload: Workload,
    kept: dict[str, tuple[tuple[int, ...], ...]],
    program: Program,
    members: tuple[int, ...],
    left_out: Counter[tuple[str, str]],
) -> list[Program]:
    """The programs of the ranks that are left: ranks whose groups lost different numbers of ranks
    no longer make the same calls."""
    smaller = workload._replace(groups=kept)
    made: dict[tuple[Call, ...], list[int]] = {}
    for rank in members:
        calls = _shrink_calls(workload, smaller, program.calls, rank)
        if rank == members[0]:
            missing = Counter((c.operation, c.group) for c in program.calls)
            missing.subtract((c.operation, c.group) for c in calls)
            left_out.update(+missing)
        made.setdefault(calls, []).append(rank)
    return [Program(tuple(own), calls) for calls, own in made.items()]


def _shrink_calls(
    workload: Workload, smaller: Workload, calls: tuple[Call, ...], rank: int
) -> tuple[Call, ...]:
    """The calls of a rank that are left."""
    places: list[int] = []
    """Of each call, how many calls before it are left."""
    found: list[Call] = []
    for call in calls:
        places.append(len(found))
        if shrunk := _shrink_call(workload, smaller, call, rank):
            found.append(shrunk)
    places.append(len(found))
    return tuple(
        call
        if call.waited_after is None
        else call._replace(waited_after=max(index, places[call.waited_after + 1] - 1))
        for index, call in enumerate(found)
    )


def _shrink_call(workload: Workload, smaller: Workload, call: Call, rank: int) -> Call | None:
    """A call of a rank within the group that is left of its own; None where that is not possible,
    or would be a call of one rank."""
    if call.group == UNKNOWN_GROUP:
        return None
    before, after = workload.group_of(call, rank), smaller.group_of(call, rank)
    if len(after) < 2:
        return None
    changed = call
    if call.peer is not None:
        if before[call.peer] not in after:
            return None
        changed = changed._replace(peer=after.index(before[call.peer]))
    if call.root is not None:
        root = before[call.root]
        changed = changed._replace(root=after.index(root) if root in after else 0)
    places = [before.index(other) for other in after]
    for name in ("send_splits", "receive_splits"):
        if splits := getattr(call, name):
            left: dict[str, Any] = {name: tuple(splits[place] for place in places)}
            changed = changed._replace(**left)
    if changed.send_splits != call.send_splits or changed.receive_splits != call.receive_splits:
        elements = max(sum(changed.send_splits), sum(changed.receive_splits))
        width = DTYPES[call.dtype].size_bytes if call.dtype else 0
        changed = changed._replace(size_bytes=elements * width if width else None)
    return changed

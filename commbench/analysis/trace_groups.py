"""The sets of groups of a job, from the process groups that the traces of its ranks describe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from commbench.importers.traces.base import RankTrace
from commbench.spec.groups import WORLD
from commbench.spec.workload import MOST_RANKS, UNKNOWN_GROUP

GroupId: TypeAlias = tuple[int, ...] | str
"""The global ranks of a group, or its name in the trace where these are not known."""
_UNNAMED = ("", "undefined", "default_pg")
_MESH = "mesh_"
LONGEST_NAME = 40


class GroupSets(NamedTuple):
    """The process groups of all ranks, in sets of those that do the same on other ranks."""

    sets: dict[str, tuple[tuple[int, ...], ...]]
    names: dict[GroupId, str]
    """The set of each group."""
    completed: tuple[str, ...]
    """Sets that have groups of ranks without a trace: they are taken to be those that the ranks of
    a mesh would have."""
    impossible: tuple[str, ...] = ()
    """Groups with a rank that no job has; they belong to no set."""

    def set_of(self, trace: RankTrace, group: str) -> str:
        """The name of the set of a group of a trace; UNKNOWN_GROUP for a call without a group."""
        return self.names.get(group_id(trace, group), UNKNOWN_GROUP)


def group_id(trace: RankTrace, name: str) -> GroupId:
    """The group of that name in a trace."""
    found = trace.groups.get(name)
    return found.ranks if found and found.ranks else name


def find_group_sets(traces: Sequence[RankTrace], world_size: int) -> GroupSets:
    """Put groups into one set that have the same description, size and distance of ranks."""
    kinds: dict[tuple[str, int, int], dict[tuple[int, ...], None]] = defaultdict(dict)
    nameless: dict[str, tuple[str, int]] = {}
    impossible: dict[str, None] = {}
    everyone = tuple(range(world_size))
    for trace in traces:
        used = {call.group for call in trace.calls if call.group}
        for name in sorted(used):
            group = trace.groups.get(name)
            if group is None or not group.ranks:
                nameless[name] = (group.description if group else "", group.size if group else 0)
                continue
            if (last := max(group.ranks)) > MOST_RANKS:
                impossible[f"{name} (rank {last})"] = None
                continue
            text = "" if group.description in _UNNAMED else group.description
            if tuple(sorted(group.ranks)) == everyone:
                text = WORLD if not text.removeprefix(_MESH) else text
            kinds[text, len(group.ranks), _stride(group.ranks)][group.ranks] = None
    sets: dict[str, tuple[tuple[int, ...], ...]] = {}
    names: dict[GroupId, str] = {}
    completed = []
    for (text, size, stride), groups in kinds.items():
        found = tuple(sorted(groups))
        name = _unused(text.removeprefix(_MESH) or f"{size} ranks, every {stride}.", sets)
        if not text and size > 1 and stride == 1:
            name = _unused(f"{size} neighbours", sets)
        whole = _complete(found, size, stride, world_size)
        if whole != found:
            completed.append(name)
        sets[name] = whole
        names.update(dict.fromkeys(groups, name))
    for own, (text, size) in nameless.items():
        name = text.removeprefix(_MESH) if text not in _UNNAMED else ""
        is_world = text == "default_pg" or size == world_size
        name = name or (WORLD if is_world and WORLD not in sets else f"group {own}"[:LONGEST_NAME])
        if is_world and world_size > 1:
            sets.setdefault(name, (everyone,))
        names[own] = name
    return GroupSets(sets, names, tuple(completed), tuple(impossible))


def _unused(name: str, sets: dict[str, tuple[tuple[int, ...], ...]]) -> str:
    name = name[:LONGEST_NAME]
    number = 2
    while name in sets or name == UNKNOWN_GROUP:
        name, number = f"{name[: LONGEST_NAME - 4]} {number}", number + 1
    return name


def _stride(ranks: tuple[int, ...]) -> int:
    """The distance of the ranks of a group; 0 where it is not the same everywhere."""
    steps = {b - a for a, b in pairwise(ranks)}
    return steps.pop() if len(steps) == 1 else 0 if steps else 1


def _complete(
    groups: tuple[tuple[int, ...], ...], size: int, stride: int, world_size: int
) -> tuple[tuple[int, ...], ...]:
    """The groups and those of the other ranks, if all are those of a dimension of a mesh."""
    block = size * stride
    if stride < 1 or world_size % block or size * len(groups) >= world_size:
        return groups
    whole = tuple(
        tuple(range(first + place, first + place + block, stride))
        for first in range(0, world_size, block)
        for place in range(stride)
    )
    return whole if {*groups} <= {*whole} else groups

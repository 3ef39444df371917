"""Makes a workload such that it can be replayed: what the source does not say is filled in, or left
out, and the workload is mapped to fewer ranks (`--fit shrink`). Each change is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from commbench.errors import UsageError, name_error
from commbench.plan.dtypes import DTYPES
from commbench.plan.groups import WORLD
from commbench.plan.operations import OPERATIONS
from commbench.plan.workload import UNKNOWN_GROUP, Call, Program, Step, Workload, most_often
from commbench.plan.workload_variants import match_calls
from commbench.units import format_count

REFUSE, SHRINK = "refuse", "shrink"
FIT_CHOICES = (REFUSE, SHRINK)
EVERY_STEP = "all"


Fitted: TypeAlias = tuple[Workload, tuple[str, ...]]
"""A workload that was changed, and what was, in sentences; empty where nothing was."""


def prepare_replay(
    workload: Workload, ranks: int | None, fit: str = REFUSE, steps: Sequence[str] = ()
) -> Fitted:
    """The workload as so many ranks replay it (None: as many as it has): the `steps` of these names
    (none: the one that was made most often; EVERY_STEP: all), with everything that a call needs.
    Raises UsageError where that is not possible.

    SHRINK keeps the first ranks, and of each group those of its ranks that are left; a call keeps
    its size S. Calls that are then made by one rank, and messages to ranks that are not left, are
    left out. REFUSE takes no other number of ranks.
    """
    complete, completions = _complete(workload._replace(steps=_choose_steps(workload, steps)))
    fitted, changes = _fit(_with_used_groups(complete), ranks or workload.world_size, fit)
    if not fitted.calls():
        why = f": {'; '.join(completions)}" if completions else ""
        hint = "`commbench workload show` prints what is known of its calls"
        raise UsageError(f"{workload.name} has no call that can be replayed{why}", hint)
    fitted = _with_used_groups(fitted)
    for name, found in fitted.groups.items():
        if any(tuple(sorted(group)) != group for group in found):
            why = f"a group of {name} has its ranks in another order than ascending"
            hint = "torch.distributed numbers the ranks of a group in ascending order"
            raise UsageError(why, hint)
    for step in fitted.steps:
        match_calls(fitted, step)
    return fitted, (*completions, *changes)


def _with_used_groups(workload: Workload) -> Workload:
    """The workload without groups in which nobody calls."""
    used = {call.group for _, _, call in workload.calls()}
    return workload._replace(groups={n: g for n, g in workload.groups.items() if n in used})


def _choose_steps(workload: Workload, names: Sequence[str]) -> tuple[Step, ...]:
    if EVERY_STEP in names:
        return workload.steps
    known = [step.name for step in workload.steps]
    for name in names:
        if name not in known:
            raise name_error("step", name, [*known[:20], EVERY_STEP])
    if names:
        return tuple(step for step in workload.steps if step.name in names)
    return (most_often(workload.steps),) if workload.steps else ()


def _complete(workload: Workload) -> Fitted:
    """The workload with everything that a call needs."""
    everyone = tuple(range(workload.world_size))
    known = workload._replace(groups={WORLD: (everyone,)} | workload.groups)
    changes: Counter[str] = Counter()
    steps = []
    for step in known.steps:
        members = {rank for program in step.programs for rank in program.ranks}
        messages = [c for p in step.programs for c in p.calls if c.is_message]
        is_partly = any(c.peer is None or c.group == UNKNOWN_GROUP for c in messages)
        programs = []
        for program in step.programs:
            rank = min(program.ranks, default=0)
            calls: list[Call | None] = []
            for call in program.calls:
                if why := _why_left_out(known, call, rank, members, is_partly):
                    changes[f"{call.operation} left out: {why}"] += 1
                calls.append(None if why else _complete_call(call, changes))
            programs.append(program._replace(calls=_keep(program.calls, calls)))
        steps.append(step._replace(programs=tuple(programs)))
    return known._replace(steps=tuple(steps)), _texts(changes)


def _texts(changes: Counter[str]) -> tuple[str, ...]:
    """What happened to calls, after their number."""
    return tuple(f"{format_count(n, 'call')} of {text}" for text, n in changes.items())


def _why_left_out(
    workload: Workload, call: Call, rank: int, members: set[int], is_partly: bool
) -> str:
    """Why a call cannot be replayed; empty where it can. `members` are the ranks whose calls are
    known. `is_partly`: the step has messages of which the other rank is not known, so that none of
    them can be replayed."""
    operation = OPERATIONS.get(call.operation)
    if operation and (operation.is_on_host or operation.memory or operation.is_timed_by_host):
        return "it is no collective that can be replayed"
    if call.is_message and is_partly:
        return "of some messages the other rank is not known"
    if _has_data(call) and not call.size_bytes:
        return "the size is not known" if call.size_bytes is None else "no bytes are moved"
    name = WORLD if call.group == UNKNOWN_GROUP else call.group
    group = workload.group_of(call._replace(group=name), rank)
    if len(group) < 2:
        return "its group has one rank"
    if not members.issuperset(group):
        return f"the calls of some ranks of {name} are not known"
    return ""


def _complete_call(call: Call, changes: Counter[str]) -> Call:
    """A call with its group, element type, reduction and root."""
    name, operation = call.operation, OPERATIONS.get(call.operation)
    if call.group == UNKNOWN_GROUP:
        changes[f"{name}: all ranks take part, since the group is not known"] += 1
        call = call._replace(group=WORLD)
    if _has_data(call) and not call.dtype:
        changes[f"{name}: float32 is used, since the element type is not known"] += 1
        call = call._replace(dtype="float32")
    if _has_data(call) and (call.size_bytes or 0) % DTYPES[call.dtype].size_bytes:
        changes[f"{name}: the size is rounded down to whole elements"] += 1
    if operation and operation.reduces:
        call = call._replace(reduce_op=call.reduce_op or "sum")
    return call._replace(root=call.root or 0) if operation and operation.rooted else call


def _has_data(call: Call) -> bool:
    return call.is_message or OPERATIONS[call.operation].has_data


def _keep(calls: Sequence[Call], changed: Sequence[Call | None]) -> tuple[Call, ...]:
    """The calls that are left of `calls` after a change of each. Each is waited for after the last
    one that is left of those that were begun before its wait. The rank computes as long as before.
    """
    places = [0]
    """How many of the first calls are left."""
    found: list[Call] = []
    lost_s = 0.0
    for before, call in zip(calls, changed, strict=True):
        places.append(places[-1] + (call is not None))
        if call is None:
            lost_s += (before.compute_s or 0.0) + (before.compute_after_s or 0.0)
            continue
        if lost_s and call.compute_s is not None:
            call = call._replace(compute_s=call.compute_s + lost_s)
        found.append(call)
        lost_s = 0.0
    if found and lost_s:
        found[-1] = found[-1]._replace(compute_after_s=lost_s)
    for index, call in enumerate(found):
        if call.waited_after is not None:
            last = places[min(call.waited_after + 1, len(calls))] - 1
            found[index] = call._replace(waited_after=max(index, last))
    return tuple(found)


_FIRST_KEPT = "ranks 0 to "


def was_shrunk(workload: Workload) -> bool:
    """Whether a workload was mapped to fewer ranks, so that its times are those of other groups."""
    return any(note.startswith(_FIRST_KEPT) for note in workload.notes)


def _fit(workload: Workload, ranks: int, fit: str) -> Fitted:
    """The workload for so many ranks. Raises UsageError where it has more ranks and `fit` is
    REFUSE, where it has fewer ranks, and where no call is left."""
    if workload.world_size == ranks:
        return workload, ()
    if workload.world_size < ranks or fit == REFUSE:
        of = format_count(workload.world_size, "rank")
        shrink = f", or write --fit shrink to keep the first {ranks}"
        hint = f"start {of}{shrink if workload.world_size > ranks else ''}"
        raise UsageError(f"{workload.name} has {of}, and not {ranks}", hint)
    kept = {
        name: tuple(filter(None, (tuple(r for r in group if r < ranks) for group in groups)))
        for name, groups in workload.groups.items()
    }
    smaller = workload._replace(world_size=ranks, groups=kept)
    left_out: Counter[str] = Counter()
    steps = []
    for step in workload.steps:
        own = [_shrink_program(workload, smaller, each, left_out) for each in step.programs]
        steps.append(step._replace(programs=tuple(p for programs in own for p in programs)))
    shrunk = smaller._replace(steps=tuple(steps))
    if not shrunk.calls():
        why = f"no call of {workload.name} is left on {format_count(ranks, 'rank')}"
        raise UsageError(why, "start more ranks")
    changes = [f"{_FIRST_KEPT}{ranks - 1} of {workload.world_size} are kept"]
    for name, groups in workload.groups.items():
        before, after = _sizes(groups), _sizes(kept[name])
        if before != after and after != "1":
            changes.append(f"groups of {name} have {after} ranks instead of {before}; S is kept")
    return shrunk, (*changes, *_texts(left_out))


def _sizes(groups: tuple[tuple[int, ...], ...]) -> str:
    return " or ".join(map(str, sorted({len(group) for group in groups})))


def _shrink_program(
    workload: Workload, smaller: Workload, program: Program, left_out: Counter[str]
) -> list[Program]:
    """The programs of the ranks that are left: ranks whose groups lost different numbers of ranks
    no longer make the same calls."""
    made: dict[tuple[Call, ...], list[int]] = {}
    for rank in (rank for rank in program.ranks if rank < smaller.world_size):
        shrunk = [_shrink_call(workload, smaller, call, rank) for call in program.calls]
        if not made:
            left_out.update(
                f"{call.operation} over {call.group} left out: no other rank is left"
                for call, kept in zip(program.calls, shrunk, strict=True)
                if kept is None
            )
        made.setdefault(_keep(program.calls, shrunk), []).append(rank)
    return [Program(tuple(own), calls) for calls, own in made.items()]


def _shrink_call(workload: Workload, smaller: Workload, call: Call, rank: int) -> Call | None:
    """A call of a rank within the group that is left of its own; None where that is not possible,
    or would be a call of one rank."""
    if call.group == UNKNOWN_GROUP:
        return None
    before, after = workload.group_of(call, rank), smaller.group_of(call, rank)
    if len(after) < 2:
        return None
    peer = None if call.peer is None else before[call.peer]
    if peer is not None and peer not in after:
        return None
    root = None if call.root is None else before[call.root]
    places = [before.index(other) for other in after]
    sent, received = (
        tuple(splits[place] for place in places) if splits else ()
        for splits in (call.send_splits, call.receive_splits)
    )
    size = call.size_bytes
    if (sent, received) != (call.send_splits, call.receive_splits):
        width = DTYPES[call.dtype].size_bytes if call.dtype else 0
        size = max(sum(sent), sum(received)) * width or None
    return call._replace(
        peer=None if peer is None else after.index(peer),
        root=None if root is None else after.index(root) if root in after else 0, send_splits=sent,
        receive_splits=received, size_bytes=size,
    )  # fmt: skip

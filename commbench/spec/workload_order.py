"""Whether ranks that make the calls of a workload in their order come to an end."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from commbench.errors import UsageError
from commbench.spec.workload import SEND, Call, Step, Workload

_Group = tuple[int, ...]
_HINT = "its calls must be those of all ranks, of the same step; calls are counted from 1"


class MadeCall(NamedTuple):
    """A call as one rank makes it."""

    rank: int
    number: int
    """The index of the call in the program of the rank."""
    call: Call


Match: TypeAlias = tuple[MadeCall, ...]
"""The calls of different ranks that are one: of all ranks of a group, in the order of its ranks, or
of the two ranks of a message."""


def match_calls(workload: Workload, step: Step) -> list[Match]:
    """Which calls of different ranks are one: those of a group have the same place among its calls
    on each of its ranks, and the messages from one rank to another come in order.

    Raises UsageError where ranks of a group make different calls, or wait for one another forever.
    """
    programs = {rank: program.calls for program in step.programs for rank in program.ranks}
    counts: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[str, _Group, bool, int], list[MadeCall]] = defaultdict(list)
    """By the ranks that make a call, and its place among theirs."""
    for rank, calls in programs.items():
        for number, call in enumerate(calls):
            members, side = workload.group_of(call, rank), ""
            if call.peer is not None:
                side, pair = call.operation, (rank, members[call.peer])
                members = pair if side == SEND else pair[::-1]
            place = (call.group, members, side, rank)
            found[call.group, members, bool(side), counts[place]].append(
                MadeCall(rank, number, call)
            )
            counts[place] += 1
    matches = []
    for (_, members, *_), made in found.items():
        for other in made[1:]:
            _require_alike(made[0], other)
        matches.append(tuple(sorted(made, key=lambda one, own=members: own.index(one.rank))))  # type: ignore[misc]
    _require_end(step, programs, matches, [len(members) for _, members, *_ in found])
    return matches


def _require_end(
    step: Step,
    programs: dict[int, tuple[Call, ...]],
    matches: Sequence[Match],
    lacking: list[int],
) -> None:
    """Raise UsageError where ranks wait for one another forever. A rank goes on when all ranks have
    begun the calls that it waits for. `lacking`: how many ranks have not begun a match."""
    match_of = {(one.rank, one.number): at for at, own in enumerate(matches) for one in own}
    waits = {id(calls): waits_after(calls) for calls in programs.values()}
    begun = dict.fromkeys(programs, 0)
    ready = deque(programs)
    while ready:
        rank = ready.popleft()
        calls = programs[rank]
        for index in range(begun[rank], len(calls)):
            waited = waits[id(calls)][index - 1] if index else []
            if any(lacking[match_of[rank, before]] for before in waited):
                break
            begun[rank] += 1
            lacking[at := match_of[rank, index]] -= 1
            if not lacking[at]:
                ready.extend(one.rank for one in matches[at] if one.rank != rank)
    stuck = [one for at, own in enumerate(matches) if lacking[at] for one in own
             if one.number < begun[one.rank]]  # fmt: skip
    if stuck:
        first = min(stuck, key=lambda one: (one.number, one.rank))
        raise UsageError(
            f"the replay of {step.name} would never end: call {first.number + 1} of rank "
            f"{first.rank}, {_name(first.call)}, waits for ranks that do not make it",
            _HINT,
        )


def waits_after(calls: Sequence[Call]) -> list[list[int]]:
    """For each call of a program, the calls that the rank waits for when it has begun that one: a
    call whose wait is not known, at the end if it is a message to another rank or asynchronous, at
    once if not."""
    found: list[list[int]] = [[] for _ in calls]
    for index, call in enumerate(calls):
        at = call.waited_after
        if at is None:
            at = len(calls) - 1 if call.asynchronous or call.operation == SEND else index
        found[min(max(at, index), len(calls) - 1)].append(index)
    return found


def _require_alike(first: MadeCall, second: MadeCall) -> None:
    """Raise UsageError where the calls of two ranks cannot be one."""
    if _work(first.call) != _work(second.call):
        raise UsageError(
            f"ranks {first.rank} and {second.rank} do not make the same calls: call "
            f"{first.number + 1} of rank {first.rank} is {_name(first.call)}, and call "
            f"{second.number + 1} of rank {second.rank} is {_name(second.call)}",
            _HINT,
        )


def _work(call: Call) -> tuple[object, ...]:
    size = None if call.send_splits or call.receive_splits else call.size_bytes
    return (
        "message" if call.is_message else call.operation,
        call.dtype,
        size,
        call.root,
        call.tensors,
    )


def _name(call: Call) -> str:
    size = "" if call.size_bytes is None else f" of {call.size_bytes} bytes"
    root = "" if call.root is None else f" from root {call.root}"
    tensors = f" in {call.tensors} tensors" if call.tensors > 1 else ""
    words = f"{call.operation} {call.dtype}".strip()
    return f"{words}{size}{tensors}{root} over {call.group}"

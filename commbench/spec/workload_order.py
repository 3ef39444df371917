"""Whether ranks that make the calls of a workload in their order come to an end."""

from __future__ import annotations

from collections import defaultdict, deque
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
    """Let all ranks make the calls of a step, and find which calls of different ranks are one.

    A rank goes on when the calls that it waits for have been begun by all ranks of their groups.
    Raises UsageError where ranks of a group make different calls, or wait for one another forever.
    """
    programs = {rank: program.calls for program in step.programs for rank in program.ranks}
    matching = _Matching(workload)
    next_index = dict.fromkeys(programs, 0)
    waiting: dict[int, set[int]] = {rank: set() for rank in programs}
    """Of each rank, the indices of the calls that it waits for now."""
    waits = {id(calls): waits_after(calls) for calls in programs.values()}
    ready = deque(programs)
    while ready:
        rank = ready.popleft()
        calls = programs[rank]
        while next_index[rank] < len(calls):
            index = next_index[rank]
            next_index[rank] += 1
            done = matching.begin(MadeCall(rank, index, calls[index]))
            for one in done:
                if one.number in waiting[one.rank]:
                    waiting[one.rank].discard(one.number)
                    if not waiting[one.rank] and one.rank != rank:
                        ready.append(one.rank)
            waiting[rank] = {i for i in waits[id(calls)][index] if matching.is_open(rank, i)}
            if waiting[rank]:
                break
    if any(waiting.values()):
        raise matching.never_ends(step.name)
    return matching.matches


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


class _Matching:
    """Finds the calls of other ranks that belong to a call."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._counts: dict[tuple[int, str, _Group], int] = defaultdict(int)
        self._begun: dict[tuple[str, _Group, int], list[MadeCall]] = defaultdict(list)
        """Of each group and number of its collectives, the ranks that have begun it."""
        self._messages: dict[tuple[str, int, int], tuple[deque[MadeCall], deque[MadeCall]]] = {}
        """Of two ranks in a group, the sends and the receives that have no other side yet."""
        self._open: set[tuple[int, int]] = set()
        """Rank and index of the calls that not all ranks have begun."""
        self.matches: list[Match] = []

    def is_open(self, rank: int, index: int) -> bool:
        return (rank, index) in self._open

    def never_ends(self, step: str) -> UsageError:
        """The error that names the first call that some of its ranks do not make."""
        begun = [*self._begun.values(), *(deque for s in self._messages.values() for deque in s)]
        first = min((made for calls in begun for made in calls), key=lambda m: (m.number, m.rank))
        return UsageError(
            f"the replay of {step} would never end: call {first.number + 1} of rank {first.rank}, "
            f"{_name(first.call)}, waits for ranks that do not make it",
            _HINT,
        )

    def begin(self, made: MadeCall) -> list[MadeCall]:
        """The calls that are complete now that a rank has begun another one."""
        self._open.add((made.rank, made.number))
        group = self._workload.group_of(made.call, made.rank)
        find = self._begin_message if made.call.peer is not None else self._begin_collective
        done = find(made, group)
        self._open.difference_update((one.rank, one.number) for one in done)
        if done:
            self.matches.append(tuple(sorted(done, key=lambda one: group.index(one.rank))))
        return done

    def _begin_message(self, made: MadeCall, group: _Group) -> list[MadeCall]:
        assert made.call.peer is not None
        other, is_send = group[made.call.peer], made.call.operation == SEND
        source, target = (made.rank, other) if is_send else (other, made.rank)
        sides = self._messages.setdefault((made.call.group, source, target), (deque(), deque()))
        own, others = sides if is_send else sides[::-1]
        if not others:
            own.append(made)
            return []
        _require_alike(others[0], made)
        return [others.popleft(), made]

    def _begin_collective(self, made: MadeCall, group: _Group) -> list[MadeCall]:
        counter = (made.rank, made.call.group, group)
        key = (made.call.group, group, self._counts[counter])
        self._counts[counter] += 1
        begun = self._begun[key]
        if begun:
            _require_alike(begun[0], made)
        begun.append(made)
        if len(begun) < len(group):
            return []
        return self._begun.pop(key)


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

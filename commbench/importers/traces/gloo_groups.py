"""Transfers of gloo, and the process groups of its calls, which its traces do not name.

The threads of a process group of gloo run its transfers and no others. They are made with the
group, so the order of their numbers is the order in which the groups were made, which is the order
of the groups' names. That tells the groups apart where only one assignment of threads to groups
agrees with the shapes, the roots and the splits of the calls.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import cache

from commbench.importers.traces.base import TracedGroup, in_bytes
from commbench.importers.traces.torch_calls import Event, Operator
from commbench.spec.workload import Call

THREADS = 2
"""Threads of a process group of gloo, as torch.distributed makes them."""
_MOST_THREADS = 64
_Key = tuple[str, int | None]


class Transfers:
    """The annotations `gloo:...`, taken by the calls that they are transfers of."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._waiting: dict[_Key, deque[tuple[Event, str]]] = defaultdict(deque)
        for event in sorted(events, key=lambda event: event.start_s):
            name, elements, dtype = event.shape()
            self._waiting[name, elements].append((event, dtype))
        self._nested: list[tuple[_Key, float]] = []
        """The first transfers of calls with lists of tensors, and when they began."""

    def take(self, call: Call, operator: Operator) -> Call:
        """The call with its transfer, if there is one."""
        for key in self._keys(call, operator):
            queue = self._waiting.get(key)
            while queue and queue[0][0].start_s < (call.ready_s or 0.0):
                queue.popleft()  # of a call before the trace began
            if not queue:
                continue
            event, dtype = queue.popleft()
            if operator.is_nested:
                self._nested.append((key, event.start_s))
            filled = _with_dtype(call, operator, dtype)
            return filled._replace(
                start_s=event.start_s, time_s=event.end_s - event.start_s, stream=event.thread
            )
        return call

    def _keys(self, call: Call, operator: Operator) -> list[_Key]:
        """What its annotation may be: gloo makes reduce_scatter of all_reduce, as torch does."""
        name = "all_to_all" if call.operation == "all_to_all_v" else call.operation
        names = [name, "all_reduce"] if name == "reduce_scatter" else [name]
        elements = operator.input_elements
        keys = [(each, elements) for each in names] + [(each, None) for each in names]
        if call.tensors > 1 or name == "scatter":  # an annotation may have other tensors of it
            begun = [(q[0][0].start_s, key) for key, q in self._waiting.items() if q]
            later = [found for found in begun if found[0] >= (call.ready_s or 0.0)]
            keys += [key for _, key in sorted(later, key=lambda f: f[0]) if key[0] in names]
        return keys

    def extend(self, calls: list[Call]) -> None:
        """A reduce_scatter of a list is several transfers of gloo: the call lasts until the last of
        them ends."""
        by_start = {call.start_s: index for index, call in enumerate(calls)}
        following: dict[_Key, float] = {}
        ranges = []
        for key, start in sorted(self._nested, key=lambda nested: -nested[1]):
            ranges.append((key, start, following.get(key, float("inf"))))
            following[key] = start
        for key, start, until in ranges[::-1]:
            index = by_start.get(start)
            queue = self._waiting.get(key)
            while queue and index is not None and start <= queue[0][0].start_s < until:
                end = queue.popleft()[0].end_s
                call = calls[index]
                calls[index] = call._replace(time_s=max(call.time_s or 0.0, end - start))


def find_groups(
    calls: list[Call],
    without_group: list[tuple[int, Operator]],
    groups: dict[str, TracedGroup],
    rank: int | None,
    only: str,
) -> None:
    """Write into calls that name no group the only one that is possible: that of the thread of
    their transfer; without a transfer, that of the name `only`."""
    own = [name for name, group in groups.items() if rank is None or rank in group.ranks]
    names = sorted(own, key=lambda name: (len(name), name))
    allowed: dict[str, set[str]] = {}
    for index, operator in without_group:
        if isinstance(thread := calls[index].stream, str):
            fits = {name for name in names if _fits(calls[index], operator, groups[name])}
            allowed[thread] = allowed.get(thread, set(names)) & fits
    assigned = assign_threads(allowed, names)
    for index, operator in without_group:
        thread = calls[index].stream
        found = assigned.get(thread, []) if isinstance(thread, str) else [only]
        if len(found) == 1 and found[0]:
            calls[index] = operator.in_group(calls[index], found[0], groups)


def _with_dtype(call: Call, operator: Operator, dtype: str) -> Call:
    """The call with the type that its transfer has; lists of tensors have none in an operator."""
    if call.dtype or not dtype:
        return call
    size = call.size_bytes
    if size is None and not operator.is_nested:
        size = in_bytes(operator.input_elements, dtype)
    return call._replace(dtype=dtype, size_bytes=size)


def _fits(call: Call, operator: Operator, group: TracedGroup) -> bool:
    """Whether the shapes, root, peer and splits of a call agree with a group."""
    sizes = {len(splits) for splits in (call.send_splits, call.receive_splits) if splits}
    sizes |= {operator.ratio} if operator.ratio else set()
    places = [place for place in (call.root, call.peer) if place is not None]
    return sizes <= {group.size} and all(place < group.size for place in places)


def _number(thread: str, threads: Sequence[str]) -> int:
    """The order of a thread's number after its process's: numbers start again from a low one."""
    process, _, number = thread.partition("/")
    if not (process.isdecimal() and number.isdecimal()):
        return threads.index(thread)
    return int(number) + (1 << 32) * (int(number) < int(process))


def assign_threads(allowed: dict[str, set[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """For each thread the groups to which it may belong, in all assignments that keep the order of
    threads and groups and give a group THREADS threads at most. `names` are in the order in which
    the groups were made."""
    if len(names) == 1:
        return {thread: [*names] for thread in allowed}
    is_process = {thread for thread in allowed if thread.split("/")[0] == thread.split("/")[-1]}
    threads = sorted(allowed.keys() - is_process, key=lambda t: _number(t, list(allowed)))
    if len(threads) > _MOST_THREADS:
        return {}

    def following(index: int, group: int, count: int) -> list[tuple[int, int]]:
        """The groups that a thread may have, and how many threads each has then, where the thread
        before it is the `count`-th of a group."""
        fitting = [g for g, name in enumerate(names) if name in allowed[threads[index]]]
        least = group if count < THREADS else group + 1
        return [(g, count + 1 if g == group else 1) for g in fitting if g >= least]

    @cache
    def can_end(index: int, group: int, count: int) -> bool:
        """Whether all threads from one on can have a group."""
        return index == len(threads) or any(
            can_end(index + 1, *state) for state in following(index, group, count)
        )

    states, found = {(-1, THREADS)}, {}
    for index, thread in enumerate(threads):
        reached = {after for state in states for after in following(index, *state)}
        states = {state for state in reached if can_end(index + 1, *state)}
        found[thread] = [names[group] for group in sorted({group for group, _ in states})]
    for thread in is_process:  # sends and receives begin on the thread that calls them
        found[thread] = [name for name in names if name in allowed[thread]]
    return found

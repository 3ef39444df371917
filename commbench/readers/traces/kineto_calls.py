"""Makes the calls of one rank of the events of torch.profiler.

A call is recorded several times. On the host an operator (`c10d::allreduce_`) contains, for NCCL, a
`record_param_comms` and an annotation (`nccl:all_reduce`). A kernel has the `External id` of one of
them. For gloo an annotation (`gloo:all_reduce`) on a thread of the process group is the transfer.

gloo's calls do not name their process groups. The threads of a process group of gloo run its
transfers and no others. They are made with the group, so the order of their numbers is the order in
which the groups were made, which is the order of the groups' names. That tells the groups apart
where only one assignment of threads to groups agrees with the shapes, the roots and the splits of
the calls.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

from commbench.plan.workload import RECV, SEND, Call
from commbench.readers.traces.base import (
    NO_CALL,
    TracedGroup,
    count_elements,
    find_dtype_name,
    find_reduce_op,
    in_bytes,
)
from commbench.readers.traces.torch_calls import (
    ANNOTATION,
    KERNEL,
    OPERATOR,
    RECORD,
    WAIT,
    Event,
    Operator,
    read_operator,
    read_record,
)

_MOST_ISSUED = 256
"""Calls without a kernel that a later kernel may be of."""
_PEER_KERNELS = (SEND, RECV, "all_to_all", "all_to_all_v", "gather", "scatter")
_KERNELS = {
    "allreduce": ("all_reduce", "barrier"), "allgather": ("all_gather",),
    "reducescatter": ("reduce_scatter",), "broadcast": ("broadcast",), "reduce": ("reduce",),
    "sendrecv": _PEER_KERNELS, "alltoall": ("all_to_all", "all_to_all_v"),
}  # fmt: skip
"""The operations of which NCCL's kernels are, by the name in the kernel's name."""
_KERNEL_NAME = re.compile(r"(?:DevKernel|Kernel)_(?:Symmetric_?)?([A-Za-z]+)_?")


_Site: TypeAlias = list[Event]
"""The events of a place in the host's program where a call was made, the outermost first."""
_Waits: TypeAlias = dict[tuple[str, int | None], float]
"""When the host began to wait for a call, by its group and number."""


def make_calls(
    events: list[Event], groups: dict[str, TracedGroup], rank: int | None, is_complete: bool = False
) -> tuple[list[Call], list[str]]:
    """The calls of a rank in order, and notes about what could not be read. Groups that the events
    describe are added to `groups`. `is_complete`: these are all groups, so that a call that names
    none is in the only one."""
    notes: list[str] = []
    sites = _find_sites(events)
    loose = _link_kernels(sites, _of_kind(events, KERNEL))
    transfers = Transfers(e for e in events if e.is_transfer)
    calls: list[Call] = []
    waits: _Waits = {}
    unknown: set[str] = set()
    without_group: list[tuple[int, Operator]] = []
    for site in sites:
        call, operator = _make_call(site, groups, unknown, waits)
        if call and operator and not _of_kind(site, KERNEL):
            call = transfers.take(call, operator)
            without_group += [] if call.group else [(len(calls), operator)]
        calls += [call] if call else []
    transfers.extend(calls)
    if lost := _add_loose_kernels(calls, loose, groups):
        notes.append(
            f"{lost} communication kernels have no record of their call (CUDA graphs and other "
            "libraries record none): their sizes and groups are not known"
        )
    if unknown:
        names = ", ".join(sorted(unknown)[:4])
        notes.append(f"left out calls that commbench has no operation for: {names}")
    sized = [name for name, group in groups.items() if group.size]
    only = sized[0] if is_complete and len(sized) == 1 else ""
    find_groups(calls, without_group, groups, rank, only)
    calls = _with_waits(calls, waits, _of_kind(events, WAIT))
    return sorted(calls, key=lambda call: call.begin_s or 0.0), notes


def _of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def _find_sites(events: Iterable[Event]) -> list[_Site]:
    """The outermost events on the host about a call, each with those inside it, in order."""
    by_thread: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in (OPERATOR, RECORD, ANNOTATION) and not event.is_transfer:
            by_thread[event.thread].append(event)
    sites: list[_Site] = []
    for own in by_thread.values():
        end_s = float("-inf")
        for event in sorted(own, key=lambda event: (event.start_s, -event.end_s)):
            if event.start_s < end_s:
                sites[-1].append(event)
            else:
                sites.append([event])
                end_s = event.end_s
    return sorted(sites, key=lambda site: site[0].start_s)


def _link_kernels(sites: list[_Site], kernels: list[Event]) -> list[Event]:
    """Add to each site the kernels that it launched; the kernels of no site, in order."""
    by_id = {event.external_id: site for site in sites for event in site}
    by_id.pop(None, None)
    loose: list[Event] = []
    for kernel in sorted(kernels, key=lambda event: event.start_s):
        by_id.get(kernel.external_id, loose).append(kernel)
    return loose


def _make_call(
    site: _Site, groups: dict[str, TracedGroup], unknown: set[str], waits: _Waits
) -> tuple[Call | None, Operator | None]:
    """The call of a site; None for one that is none, or is added to `waits` or to `unknown`."""
    record, operator, note = (
        next(iter(_of_kind(site, kind)), None) for kind in (RECORD, OPERATOR, ANNOTATION)
    )
    described = read_operator(operator) if operator else None
    recorded = read_record(record.args, groups) if record else None
    if record and recorded is None:
        name = record.args.text("Collective name")
        if name == "wait":
            group = record.args.text("Process Group Name")
            waits[group, record.args.count("Seq")] = record.start_s
        if name:
            unknown |= {name} if name.lower().replace("_", "") not in NO_CALL else set()
            return None, None
    call = _merge(recorded, described.call if described else None)
    if recorded is None and note and (call is None or not call.dtype):
        call = _merge(call, _from_annotation(note))
    if call is None:
        unknown.update([operator.name] if operator else [])
        return None, None
    call = call._replace(ready_s=site[0].start_s)
    if kernels := _of_kind(site, KERNEL):
        start, end = min(k.start_s for k in kernels), max(k.end_s for k in kernels)
        call = call._replace(
            start_s=start, time_s=end - start, stream=kernels[0].thread,
            reduce_op=call.reduce_op or find_reduce_op(call.operation, kernels[0].name),
        )  # fmt: skip
    return call, described


def _merge(call: Call | None, other: Call | None) -> Call | None:
    """The call with what only the other description says."""
    if call is None or other is None:
        return call or other
    fields = ("dtype", "size_bytes", "asynchronous", "root", "peer")
    missing = {name: getattr(other, name) for name in fields if getattr(call, name) in (None, "")}
    return call._replace(**missing, tensors=max(call.tensors, other.tensors))


def _from_annotation(event: Event) -> Call | None:
    """The call that an annotation describes: S where the input has it."""
    name, elements, dtype = event.shape()
    if not name:
        return None
    size = None if name in ("all_gather", "gather", "scatter") else in_bytes(elements, dtype)
    return Call(name, "", dtype, size)


def _add_loose_kernels(
    calls: list[Call], kernels: list[Event], groups: dict[str, TracedGroup]
) -> int:
    """Give kernels to calls without one. A coalesced call and a batch of sends and receives have
    one kernel together, which names none of them: their calls share its time equally. A kernel that
    describes its call, but whose call was not recorded, becomes a call, and so does one whose name
    tells its operation. The number of kernels that have neither a call nor a description."""
    lost = 0
    waiting = deque(
        index for index, call in enumerate(calls) if call.start_s is None and call.group
    )
    issued: list[int] = []
    for kernel in kernels:
        times: dict[str, Any] = {
            "start_s": kernel.start_s, "time_s": kernel.end_s - kernel.start_s,
            "stream": kernel.thread,
        }  # fmt: skip
        named = _KERNEL_NAME.search(kernel.name)
        operations = _KERNELS.get(named[1].lower()) if named else None
        if call := read_record(kernel.args, groups):
            reduce_op = find_reduce_op(call.operation, kernel.name)
            calls.append(call._replace(**times, reduce_op=reduce_op))
            continue
        while waiting and (calls[waiting[0]].ready_s or 0.0) <= kernel.start_s:
            issued.append(waiting.popleft())
        taken = [
            index for index in issued if operations is None or calls[index].operation in operations
        ]
        issued = [index for index in issued if index not in taken][-_MOST_ISSUED:]
        if not taken:
            lost += 1
            if operations and operations != _PEER_KERNELS:
                reduce_op = find_reduce_op(operations[0], kernel.name)
                calls.append(Call(operations[0], "", reduce_op=reduce_op, **times))
        for index in taken:
            share = {"time_s": times["time_s"] / len(taken)}
            calls[index] = calls[index]._replace(**times | share)
    return lost


def _with_waits(calls: list[Call], waits: _Waits, tensors: list[Event]) -> list[Call]:
    """The calls with the times at which the host began to wait for them, where events say which
    call was meant: by group and number, or by the elements of the tensor."""
    found = []
    open_calls: dict[int | None, deque[int]] = defaultdict(deque)
    for index, call in enumerate(calls):
        waited = waits.get((call.group, call.sequence)) if call.sequence is not None else None
        found.append(call._replace(waited_s=waited))
        if call.asynchronous and waited is None:
            open_calls[call.size_bytes].append(index)
    for event in sorted(tensors, key=lambda event: event.start_s):
        types, shapes = event.args.list("Input type"), event.args.list("Input Dims")
        if not (types and shapes):
            continue
        queue = open_calls.get(in_bytes(count_elements(shapes[0]), find_dtype_name(types[0])))
        if queue and (found[queue[0]].ready_s or 0.0) <= event.start_s:
            index = queue.popleft()
            found[index] = found[index]._replace(waited_s=event.start_s)
    return found


# Transfers of gloo, and the process groups of its calls.

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
        self._nested: dict[_Key, list[float]] = defaultdict(list)
        """When the first transfers of calls with lists of tensors began."""

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
                self._nested[key].append(event.start_s)
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
        for key, starts in self._nested.items():
            queue = self._waiting[key]
            for start, until in pairwise([*starts, float("inf")]):
                while queue and queue[0][0].start_s < until:
                    end, index = queue.popleft()[0].end_s, by_start[start]
                    time_s = max(calls[index].time_s or 0.0, end - start)
                    calls[index] = calls[index]._replace(time_s=time_s)


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
            allowed[thread] = allowed.get(thread, fits) & fits
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

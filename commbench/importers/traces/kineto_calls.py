"""Makes the calls of one rank of the events of torch.profiler.

A call is recorded several times. On the host an operator (`c10d::allreduce_`) contains, for NCCL, a
`record_param_comms` and an annotation (`nccl:all_reduce`). A kernel has the `External id` of one of
them. For gloo an annotation (`gloo:all_reduce`) on a thread of the process group is the transfer.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import TypeAlias

from commbench.importers.traces import gloo_groups
from commbench.importers.traces.base import (
    NO_CALL,
    TracedGroup,
    as_count,
    as_text,
    count_elements,
    find_dtype_name,
    find_reduce_op,
    in_bytes,
)
from commbench.importers.traces.torch_calls import (
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
from commbench.spec.workload import RECV, SEND, Call

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


def make_calls(
    events: list[Event], groups: dict[str, TracedGroup], rank: int | None, is_complete: bool = False
) -> tuple[list[Call], list[str]]:
    """The calls of a rank in order, and notes about what could not be read. Groups that the events
    describe are added to `groups`. `is_complete`: these are all groups, so that a call that names
    none is in the only one."""
    notes: list[str] = []
    sites = _find_sites(events)
    kernels = sorted((e for e in events if e.kind == KERNEL), key=lambda e: e.start_s)
    loose = _link_kernels(sites, kernels)
    transfers = gloo_groups.Transfers(e for e in events if e.is_transfer)
    calls: list[Call] = []
    waits: dict[tuple[str, int | None], float] = {}
    unknown: set[str] = set()
    without_group: list[tuple[int, Operator]] = []
    for site in sites:
        found = _make_call(site, groups, unknown, waits)
        if found is None:
            continue
        call, operator = found
        if operator and not _of_kind(site, KERNEL):
            call = transfers.take(call, operator)
            if not call.group:
                without_group.append((len(calls), operator))
        calls.append(call)
    transfers.extend(calls)
    lost = _add_loose_kernels(calls, loose, groups)
    if lost:
        notes.append(
            f"{lost} communication kernels have no record of their call (CUDA graphs and other "
            "libraries record none): their sizes and groups are not known"
        )
    if unknown:
        names = ", ".join(sorted(unknown)[:4])
        notes.append(f"left out calls that commbench has no operation for: {names}")
    sized = [name for name, group in groups.items() if group.size]
    only = sized[0] if is_complete and len(sized) == 1 else ""
    gloo_groups.find_groups(calls, without_group, groups, rank, only)
    calls = _with_waits(calls, waits, [e for e in events if e.kind == WAIT])
    return sorted(calls, key=lambda call: call.begin_s or 0.0), notes


_Site: TypeAlias = list[Event]
"""The events of a place in the host's program where a call was made, the outermost first."""


def _of_kind(site: _Site, kind: str) -> list[Event]:
    return [event for event in site if event.kind == kind]


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
    """Add to each site the kernels that it launched; the kernels of no site."""
    by_id = {event.external_id: site for site in sites for event in site}
    by_id.pop(None, None)
    loose: list[Event] = []
    for kernel in kernels:
        by_id.get(kernel.external_id, loose).append(kernel)
    return loose


def _make_call(
    site: _Site,
    groups: dict[str, TracedGroup],
    unknown: set[str],
    waits: dict[tuple[str, int | None], float],
) -> tuple[Call, Operator | None] | None:
    """The call of a site; None for one that is none, or is added to `waits` or to `unknown`."""
    record, operator, note = (
        next(iter(_of_kind(site, kind)), None) for kind in (RECORD, OPERATOR, ANNOTATION)
    )
    described = None
    if operator:
        args = operator.args
        described = read_operator(
            operator.name, args.get("Input Dims"), args.get("Input type"),
            args.get("Concrete Inputs"),
        )  # fmt: skip
    name = as_text(record.args.get("Collective name")) if record else ""
    call = read_record(record.args, groups) if record else None
    if call is None and name.lower().replace("_", "") in NO_CALL:
        if record and name == "wait":
            group = as_text(record.args.get("Process Group Name"))
            waits[group, as_count(record.args.get("Seq"))] = record.start_s
        return None
    if call is None and name:
        unknown.add(name)
        return None
    if call is not None:
        call = _merge(call, described.call if described else None)
    else:
        call = described.call if described else None
        if note and (call is None or not call.dtype):
            call = _merge(call, _from_annotation(note))
    if call is None:
        unknown.update([operator.name] if operator else [])
        return None
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
    tensors = max(call.tensors, other.tensors)
    return call._replace(**missing, tensors=tensors)


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
        if described := read_record(kernel.args, groups):
            call = _of_kernel(described.operation, kernel)
            times = {name: getattr(call, name) for name in ("start_s", "time_s", "stream")}
            calls.append(described._replace(**times, reduce_op=call.reduce_op))
            continue
        named = _KERNEL_NAME.search(kernel.name)
        operations = _KERNELS.get(named[1].lower()) if named else None
        while waiting and (calls[waiting[0]].ready_s or 0.0) <= kernel.start_s:
            issued.append(waiting.popleft())
        taken = [
            index for index in issued if operations is None or calls[index].operation in operations
        ]
        issued = [index for index in issued if index not in taken][-_MOST_ISSUED:]
        if not taken:
            lost += 1
            if operations and operations != _PEER_KERNELS:
                calls.append(_of_kernel(operations[0], kernel))
        for index in taken:
            share = (kernel.end_s - kernel.start_s) / len(taken)
            calls[index] = calls[index]._replace(
                start_s=kernel.start_s, time_s=share, stream=kernel.thread
            )
    return lost


def _of_kernel(operation: str, kernel: Event) -> Call:
    """The call of which only the kernel is known."""
    return Call(
        operation,
        "",
        reduce_op=find_reduce_op(operation, kernel.name),
        stream=kernel.thread,
        start_s=kernel.start_s,
        time_s=kernel.end_s - kernel.start_s,
    )


def _with_waits(
    calls: list[Call], waits: dict[tuple[str, int | None], float], tensors: list[Event]
) -> list[Call]:
    """The calls with the times at which the host began to wait for them, where events say which
    call was meant: by group and number, or by the elements of the tensor."""
    found = [
        call._replace(waited_s=waits.get((call.group, call.sequence)))
        if call.sequence is not None
        else call
        for call in calls
    ]
    open_calls: dict[int | None, deque[int]] = defaultdict(deque)
    for index, call in enumerate(found):
        if call.asynchronous and call.waited_s is None:
            open_calls[call.size_bytes].append(index)
    for event in sorted(tensors, key=lambda event: event.start_s):
        types, shapes = event.args.get("Input type"), event.args.get("Input Dims")
        if not (isinstance(types, list) and isinstance(shapes, list) and types and shapes):
            continue
        size = in_bytes(count_elements(shapes[0]), find_dtype_name(types[0]))
        queue = open_calls.get(size)
        if queue and (found[queue[0]].ready_s or 0.0) <= event.start_s:
            index = queue.popleft()
            found[index] = found[index]._replace(waited_s=event.start_s)
    return found

"""Traces of torch.profiler (Kineto, the Chrome trace format).

Only events about communication are kept. Of the computation the union of its intervals is kept: of
GPU kernels that are no communication and no copy, as in HTA (Holistic Trace Analysis), or of
torch's operators on the host where a trace has no kernels. Event and field names: libkineto and
torch/csrc/profiler/util.cpp.

A trace in which an event that is needed has a damaged time is refused: every figure could be wrong.

A call is recorded several times. On the host an operator (`c10d::allreduce_`) contains, for NCCL, a
`record_param_comms` and an annotation (`nccl:all_reduce`). A kernel has the `External id` of one of
them. For gloo an annotation (`gloo:all_reduce`) on a thread of the process group is the transfer.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import chain, pairwise
from math import inf
from sys import intern
from typing import Any, TypeAlias

from commbench.errors import RecordsError
from commbench.plan.workload import RECV, SEND, Call
from commbench.readers import torch_calls
from commbench.readers import trace_base as base
from commbench.readers.torch_calls import ANNOTATION, KERNEL, OPERATOR, RECORD, WAIT, Event
from commbench.readers.trace_base import Fields, RankTrace, TracedGroups, TracedStep, TraceFormat
from commbench.readers.trace_source import Source
from commbench.stats import collect
from commbench.units import format_count
from commbench.validation import brief

_STEP, _COMPUTING = "step", "computing"
_OPERATORS = {"cpu_op", "Operator"}
_ANNOTATIONS = {"user_annotation", "cpu_op", "Operator", "UserAnnotation"}
_KERNELS = {"kernel", "Kernel"}
_COMMUNICATION = re.compile(r"nccl|rccl|oneccl|hccl", re.IGNORECASE)
_BACKENDS = ("nccl:", "gloo:", "xccl:", "rccl:", "hccl:", "ucc:", "mpi:")
_STEP_NAME = "ProfilerStep#"
_WINDOW = ("Iteration Start: PyTorch Profiler", "Record Window End")
"""The begin and the end of the trace: libkineto leaves out what is not between them."""
_MOST_SPANS = 1000
"""Where the end of the trace is not known, an event may be so many times as long as all steps away
from them: the host may be far ahead of a GPU, and a file that was cut off lacks steps."""
_WAITS = ("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor")
_KEPT = (
    "External id", "external id", "Input Dims", "Input type", "Concrete Inputs", "Collective name",
    "In msg nelems", "Out msg nelems", "dtype", "Is asynchronized op", "Seq", "Dst Rank",
    "Src Rank", "Rank", "In split size", "Out split size", "Process Group Name",
    "Process Group Ranks", "Process Group Description", "Group size", "Global rank start",
    "Global rank stride",
)  # fmt: skip
"""Arguments of events; the others, such as stacks, would take most of the memory."""
_PENDING = 50_000
_MOST_ISSUED = 256
"""Calls without a kernel that a later kernel may be of."""
_PEER_KERNELS = (SEND, RECV, "all_to_all", "all_to_all_v", "gather", "scatter")
_OF_KERNELS = {
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


class _Events:
    """What is kept of the events of a file."""

    def __init__(self, records: Iterable[Any], limits: tuple[float, float] = (0.0, inf)) -> None:
        """An event that begins or ends outside these limits has a damaged time."""
        self._limits = limits
        self.events: list[Event] = []
        self.steps: list[TracedStep] = []
        self._window: list[float] = []
        self.computing: list[tuple[float, float]] = []
        """The intervals of computation, merged whenever many have come: of kernels, or of the
        host's operators until a kernel comes."""
        self._room = _PENDING
        self.count = self.damaged = 0
        self.first_damaged = ""
        self.has_kernels = False
        for values in records:
            self._add(values)

    def _add(self, values: Any) -> None:
        if type(values) is not dict:
            return
        self.count += 1
        name, category = values.get("name"), values.get("cat")
        if name in _WINDOW and (at := Fields(values).seconds("ts")) is not None:
            self._window.append(at)
        if not isinstance(name, str) or not isinstance(category, str):
            return
        event = Fields(values)
        args = event.fields("args").values
        if not (kind := self._kind(name, category, args)):
            return
        start, duration = event.seconds("ts"), event.duration("dur")
        low, high = self._limits
        if start is None or duration is None or not low <= start <= start + duration <= high:
            field = "ts" if start is None or not low <= start <= high else "dur"
            if not self.damaged:
                self.first_damaged = f"{brief(name)}: its `{field}` is {brief(values.get(field))}"
            self.damaged += 1
        elif kind == _COMPUTING:
            self.computing += [(start, start + duration)] if duration else []
            if len(self.computing) > self._room:
                self.computing = base.merged(self.computing)
                self._room = 2 * len(self.computing) + _PENDING
        elif kind == _STEP:
            if category != "gpu_user_annotation":
                self.steps.append(TracedStep(name[:40], start, start + duration))
        elif len(self.events) < base.MOST_RECORDS:
            # A large trace repeats a few texts: each is kept once.
            thread = intern(f"{values.get('pid')!r:.30}/{values.get('tid')!r:.30}")
            kept = {
                key: intern(value) if type(value) is str else value
                for key in _KEPT
                if (value := args.get(key)) is not None
            }
            end = start + duration
            self.events.append(Event(kind, intern(str(name)), start, end, thread, Fields(kept)))

    def find_limits(self) -> tuple[float, float] | None:
        """The limits of the events, if one of them is far outside; None where none is."""
        edges, spans = self._window, 1
        if not edges[1:]:
            edges = [*(s.start_s for s in self.steps), *sorted(s.end_s for s in self.steps)[:1]]
            spans = _MOST_SPANS
        first, last = min(edges, default=0.0), max(edges, default=inf)
        far = (last - first) * spans
        low, high = max(0.0, first - far), last + far
        times = chain(self.computing, (e[2:4] for e in self.events), (s[1:] for s in self.steps))
        return (low, high) if any(a < low or b > high for a, b in times) else None

    def _kind(self, name: str, category: str, args: dict[str, Any]) -> str:
        """What an event is; empty for one that is not needed."""
        if category in _KERNELS:
            if not self.has_kernels:
                self.has_kernels = True
                self.computing.clear()
            is_own = _COMMUNICATION.search(name) or "Collective name" in args
            return KERNEL if is_own else _COMPUTING
        if name == "record_param_comms":
            return RECORD
        if category in _OPERATORS and name.startswith("c10d::"):
            return OPERATOR
        if name in _WAITS:
            return WAIT
        if category in _ANNOTATIONS and name.startswith(_BACKENDS):
            return ANNOTATION
        if category in _OPERATORS:
            return _COMPUTING if name.startswith("aten::") and not self.has_kernels else ""
        return _STEP if name.startswith(_STEP_NAME) else ""


_HINT = "give a file that export_chrome_trace of torch.profiler wrote"
_DAMAGED_HINT = "trace the steps again: figures of this trace would be wrong"


def read(records: Iterable[Any], source: Source) -> RankTrace:
    """The trace of one rank; RecordsError where it has no events."""
    found = _Events(records)
    if not found.count:
        raise RecordsError(f"{source.path} is not a trace: it has no events", _HINT)
    if limits := None if found.damaged else found.find_limits():
        with Source(source.path) as again:
            found = _Events(again.records(KINETO.key), limits)
    if found.damaged:
        what = f"{format_count(found.damaged, 'event')}, first in {found.first_damaged}"
        outside = ", which is outside the trace" if limits else ""
        raise RecordsError(f"{source.path} has damaged times in {what}{outside}", _DAMAGED_HINT)
    in_order = pairwise(sorted(found.steps, key=lambda step: step.start_s))
    if any(a.name != b.name and b.start_s < (a.start_s + a.end_s) / 2 for a, b in in_order):
        raise RecordsError(f"{source.path} has damaged times: its steps overlap", _DAMAGED_HINT)
    facts = Fields(source.facts)
    info = facts.fields("distributedInfo")
    groups, rank = base.read_groups(info), info.rank("rank")
    rank = base.rank_in_name(source.path.name) if rank is None else rank
    # A file has the events of one thread after those of another, so one that ends early may lack
    # the transfers of some threads of gloo. Those of the others cannot be told apart then. The
    # sizes of the calls are those of the transfers.
    events = [e for e in found.events if not (source.is_cut and e.is_transfer)]
    calls, notes = make_calls(events, groups, rank)
    # A step is written before the events in it, so the last one of a file that ends early may lack
    # some of them.
    cut_step = found.steps[-1].name if source.is_cut and found.steps else ""
    steps = [step for step in found.steps if step.name != cut_step]
    if not found.steps and not source.is_cut:
        notes.append("the trace marks no steps: call prof.step() after each step of the training")
    backends = {event.name.partition(":")[0] for event in found.events if event.kind == ANNOTATION}
    return RankTrace(
        rank=rank, world_size=info.rank("world_size"), calls=tuple(calls), groups=groups,
        steps=tuple(sorted(steps, key=lambda step: step.start_s)),
        backend=info.text("backend") or ", ".join(sorted(backends)),
        computing=array("d", chain.from_iterable(base.merged(found.computing))),
        has_kernels=found.has_kernels, host=facts.text("host_name"), cut_step=cut_step,
        notes=tuple(notes),
    )  # fmt: skip


KINETO = TraceFormat(
    "torch.profiler",
    re.compile(
        r'\s*\{\s*"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|displayTimeUnit'
        r'|trace_id|record_shapes|with_\w+|host_name)"|\s*\[\s*\{[^}]{0,300}"ph"\s*:'
    ),
    "traceEvents", ("distributedInfo", "host_name"), read,
)  # fmt: skip

# The calls.


def make_calls(
    events: list[Event], groups: TracedGroups, rank: int | None, is_complete: bool = False
) -> tuple[list[Call], list[str]]:
    """The calls of a rank in order, and notes about what could not be read. Groups that the events
    describe are added to `groups`. `is_complete`: these are all groups, so that a call that names
    none is in the only one."""
    sites, notes = _find_sites(events), []
    loose = _link_kernels(sites, _of_kind(events, KERNEL))
    transfers = torch_calls.Transfers(e for e in events if e.is_transfer)
    calls: list[Call] = []
    waits: _Waits = {}
    unknown: set[str] = set()
    without_group: list[tuple[int, torch_calls.Operator]] = []
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
    torch_calls.find_groups(calls, without_group, groups, rank, only)
    return _with_waits(calls, waits, _of_kind(events, WAIT)), notes


def _of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def _find_sites(events: Iterable[Event]) -> list[_Site]:
    """The outermost events on the host about a call, each with those inside it, in order."""
    on_host = (OPERATOR, RECORD, ANNOTATION)
    by_thread = collect((e.thread, e) for e in events if e.kind in on_host and not e.is_transfer)
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
    site: _Site, groups: TracedGroups, unknown: set[str], waits: _Waits
) -> tuple[Call | None, torch_calls.Operator | None]:
    """The call of a site; None for one that is none, or is added to `waits` or to `unknown`."""
    record, operator, note = (
        next(iter(_of_kind(site, kind)), None) for kind in (RECORD, OPERATOR, ANNOTATION)
    )
    described = torch_calls.read_operator(operator) if operator else None
    recorded = torch_calls.read_record(record.args, groups) if record else None
    if record and recorded is None:
        name = record.args.text("Collective name")
        if name == "wait":
            waits[record.args.text("Process Group Name"), record.args.count("Seq")] = record.start_s
        if name:
            unknown |= {name} if name.lower().replace("_", "") not in base.NO_CALL else set()
            return None, None
    call = _merge(recorded, described.call if described else None)
    if recorded is None and note and (call is None or not call.dtype):
        kind, elements, dtype = note.shape()  # of these the input is not S
        elements = None if kind in ("all_gather", "gather", "scatter") else elements
        call = _merge(call, base.make_call(kind, dtype, elements, group=""))
    if call is None:
        unknown.update([operator.name] if operator else [])
        return None, None
    call = call._replace(ready_s=site[0].start_s)
    if kernels := _of_kind(site, KERNEL):
        start, end = min(k.start_s for k in kernels), max(k.end_s for k in kernels)
        call = call._replace(
            start_s=start, time_s=end - start, stream=kernels[0].thread,
            reduce_op=call.reduce_op or base.find_reduce_op(call.operation, kernels[0].name),
        )  # fmt: skip
    return call, described


def _merge(call: Call | None, other: Call | None) -> Call | None:
    """The call with what only the other description says."""
    if call is None or other is None:
        return call or other
    fields = ("dtype", "size_bytes", "asynchronous", "root", "peer")
    missing = {name: getattr(other, name) for name in fields if getattr(call, name) in (None, "")}
    return call._replace(**missing, tensors=max(call.tensors, other.tensors))


def _add_loose_kernels(calls: list[Call], kernels: list[Event], groups: TracedGroups) -> int:
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
        operations = _OF_KERNELS.get(named[1].lower()) if named else None
        if call := torch_calls.read_record(kernel.args, groups):
            reduce_op = base.find_reduce_op(call.operation, kernel.name)
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
                reduce_op = base.find_reduce_op(operations[0], kernel.name)
                calls.append(Call(operations[0], "", reduce_op=reduce_op, **times))
        for index in taken:
            calls[index] = calls[index]._replace(**times | {"time_s": times["time_s"] / len(taken)})
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
        size = base.in_bytes(base.count_elements(shapes[0]), base.find_dtype_name(types[0]))
        queue = open_calls.get(size)
        if queue and (found[queue[0]].ready_s or 0.0) <= event.start_s:
            index = queue.popleft()
            found[index] = found[index]._replace(waited_s=event.start_s)
    return found

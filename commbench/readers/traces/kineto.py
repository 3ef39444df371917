"""Traces of torch.profiler (Kineto, the Chrome trace format).

Only events about communication are kept. Of the computation the union of its intervals is kept: of
GPU kernels that are no communication and no copy, as in HTA (Holistic Trace Analysis), or of
torch's operators on the host where a trace has no kernels. Event and field names: libkineto and
torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any

from commbench.errors import RecordsError
from commbench.readers.traces.base import (
    MOST_RECORDS,
    Fields,
    RankTrace,
    TracedStep,
    TraceFormat,
    merged,
    rank_in_name,
    read_groups,
)
from commbench.readers.traces.kineto_calls import make_calls
from commbench.readers.traces.source import Source
from commbench.readers.traces.torch_calls import (
    ANNOTATION,
    KERNEL,
    OPERATOR,
    RECORD,
    WAIT,
    Event,
)

_STEP, _COMPUTING_KERNEL, _COMPUTING_OPERATOR = "step", "computing kernel", "computing operator"
_OPERATORS = {"cpu_op", "Operator"}
_ANNOTATIONS = {"user_annotation", "cpu_op", "Operator", "UserAnnotation"}
_KERNELS = {"kernel", "Kernel"}
_COMMUNICATION = re.compile(r"nccl|rccl|oneccl|hccl", re.IGNORECASE)
_BACKENDS = ("nccl:", "gloo:", "xccl:", "rccl:", "hccl:", "ucc:", "mpi:")
_STEP_NAME = "ProfilerStep#"
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


class _Events:
    """What is kept of the events of a file."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.steps: list[TracedStep] = []
        self.computing: dict[str, list[tuple[float, float]]] = {
            _COMPUTING_KERNEL: [], _COMPUTING_OPERATOR: [],
        }  # fmt: skip
        """The intervals of computation, merged whenever many have come."""
        self._room = _PENDING
        self.count = self.without_time = 0
        self.has_kernels = False
        self._texts: dict[str, str] = {}
        """Each text of the events once: a large trace repeats a few of them."""

    def add(self, values: Any) -> None:
        if type(values) is not dict:
            return
        self.count += 1
        name, category = values.get("name"), values.get("cat")
        if not isinstance(name, str) or not isinstance(category, str):
            return
        event = Fields(values)
        args = event.fields("args").values
        if not (kind := self._kind(name, category, args)):
            return
        start, duration = event.seconds("ts"), event.duration("dur")
        if kind in self.computing:
            if start is not None and duration:
                self._compute(kind, start, start + duration)
        elif start is None or duration is None:
            self.without_time += 1
        elif kind == _STEP:
            if category != "gpu_user_annotation":
                self.steps.append(TracedStep(name[:40], start, start + duration))
        elif len(self.events) < MOST_RECORDS:
            thread = self._once(f"{values.get('pid')!r:.30}/{values.get('tid')!r:.30}")
            kept = {
                key: self._once(value) if type(value) is str else value
                for key in _KEPT
                if (value := args.get(key)) is not None
            }
            end = start + duration
            self.events.append(Event(kind, self._once(name), start, end, thread, Fields(kept)))

    def _compute(self, kind: str, begin: float, end: float) -> None:
        (found := self.computing[kind]).append((begin, end))
        if len(found) > self._room:
            found[:] = merged(found)
            self._room = 2 * len(found) + _PENDING

    def _kind(self, name: str, category: str, args: dict[str, Any]) -> str:
        """What an event is; empty for one that is not needed."""
        if category in _KERNELS:
            self.has_kernels = True
            is_own = _COMMUNICATION.search(name) or "Collective name" in args
            return KERNEL if is_own else _COMPUTING_KERNEL
        if name == "record_param_comms":
            return RECORD
        if category in _OPERATORS and name.startswith("c10d::"):
            return OPERATOR
        if name in _WAITS:
            return WAIT
        if category in _ANNOTATIONS and name.startswith(_BACKENDS):
            return ANNOTATION
        if category in _OPERATORS:
            is_computing = name.startswith("aten::") and not self.has_kernels
            return _COMPUTING_OPERATOR if is_computing else ""
        return _STEP if name.startswith(_STEP_NAME) else ""

    def _once(self, text: str) -> str:
        return self._texts.setdefault(text, text)


_HINT = "give a file that export_chrome_trace of torch.profiler wrote"


def read(records: Iterable[Any], source: Source) -> RankTrace:
    """The trace of one rank; RecordsError where it has no events."""
    found = _Events()
    for values in records:
        found.add(values)
    if not found.count:
        raise RecordsError(
            f"{source.path} is not a trace that can be read: it has no events", _HINT
        )
    in_order = pairwise(sorted(found.steps, key=lambda step: step.start_s))
    if any(a.name != b.name and b.start_s < (a.start_s + a.end_s) / 2 for a, b in in_order):
        raise RecordsError(f"{source.path} has damaged times: its steps overlap", _HINT)
    if found.without_time and not (found.events or found.steps):
        raise RecordsError(f"{source.path} has damaged times: no call has a valid one", _HINT)
    facts = Fields(source.facts)
    info = facts.fields("distributedInfo")
    groups, rank = read_groups(info), info.rank("rank")
    rank = rank_in_name(source.path.name) if rank is None else rank
    # A file has the events of one thread after those of another, so one that ends early may lack
    # the transfers of some threads of gloo. Those of the others cannot be told apart then. The
    # sizes of the calls are those of the transfers.
    events = [e for e in found.events if not (source.is_cut and e.is_transfer)]
    calls, notes = make_calls(events, groups, rank)
    if found.without_time:
        notes.append(
            f"{found.without_time} events of calls or steps were left out: their `ts` or `dur` is "
            "missing, below 0 or too long"
        )
    # A step is written before the events in it, so the last one of a file that ends early may lack
    # some of them.
    cut_step = found.steps[-1].name if source.is_cut and found.steps else ""
    steps = [step for step in found.steps if step.name != cut_step]
    if not found.steps and not source.is_cut:
        notes.append("the trace marks no steps: call prof.step() after each step of the training")
    backends = {event.name.partition(":")[0] for event in found.events if event.kind == ANNOTATION}
    union = found.computing[_COMPUTING_KERNEL if found.has_kernels else _COMPUTING_OPERATOR]
    return RankTrace(
        rank=rank,
        world_size=info.rank("world_size"),
        calls=tuple(calls),
        groups=groups,
        steps=tuple(sorted(steps, key=lambda step: step.start_s)),
        backend=info.text("backend") or ", ".join(sorted(backends)),
        computing=array("d", chain.from_iterable(merged(union))),
        has_kernels=found.has_kernels,
        host=facts.text("host_name"),
        cut_step=cut_step,
        notes=tuple(notes),
    )


KINETO = TraceFormat(
    "torch.profiler",
    re.compile(
        r'\s*\{\s*"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|displayTimeUnit'
        r'|trace_id|record_shapes|with_\w+|host_name)"|\s*\[\s*\{[^}]{0,300}"ph"\s*:'
    ),
    "traceEvents", ("distributedInfo", "host_name"), read, _HINT,
)  # fmt: skip

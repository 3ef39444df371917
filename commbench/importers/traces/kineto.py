"""Traces of torch.profiler (Kineto, the Chrome trace format): .json and .json.gz, read as a stream.

Only events about communication are kept. Of the computation the union of its intervals is kept: of
GPU kernels that are no communication and no copy, as in HTA (Holistic Trace Analysis), or of
torch's operators on the host where a trace has no kernels. Event and field names: libkineto and
torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import RecordsError
from commbench.importers.traces import kineto_calls
from commbench.importers.traces.base import (
    RankTrace,
    TracedGroup,
    TracedStep,
    as_duration,
    as_rank,
    as_ranks,
    as_seconds,
    as_text,
    merged,
    pack,
    rank_in_name,
)
from commbench.importers.traces.kineto_calls import (
    ANNOTATION,
    KERNEL,
    OPERATOR,
    RECORD,
    WAIT,
    Event,
)
from commbench.importers.traces.stream import Source

NAME = "torch.profiler"
_KEYS = ("traceEvents", "schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit")
_STARTS = re.compile(rf'\s*\{{\s*"(?:{"|".join(_KEYS)}|trace_id|record_shapes|with_\w+|host_name)"')
_EVENTS = re.compile(r'\s*\[\s*\{[^}]{0,300}"ph"\s*:')

_OPERATORS = {"cpu_op", "Operator"}
_ANNOTATIONS = {"user_annotation", "cpu_op", "Operator", "UserAnnotation"}
_KERNELS = {"kernel", "Kernel"}
_COMMUNICATION = re.compile(r"nccl|rccl|oneccl|hccl", re.IGNORECASE)
_BACKENDS = ("nccl:", "gloo:", "xccl:", "rccl:", "hccl:", "ucc:", "mpi:")
_STEP = "ProfilerStep#"
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
_MOST_NOTED = 1 << 22
"""Events about communication that are kept, at most."""


def recognises(start: str) -> bool:
    """Whether a file that begins so is a trace of torch.profiler."""
    return bool(_STARTS.match(start) or _EVENTS.match(start))


class _Union:
    """The union of intervals that come one by one."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []
        self._merged = 0

    def add(self, begin: float, end: float) -> None:
        self._found.append((begin, end))
        if len(self._found) > 2 * self._merged + _PENDING:
            self._found = merged(self._found)
            self._merged = len(self._found)

    def result(self) -> list[tuple[float, float]]:
        return merged(self._found)


class _Collected(NamedTuple):
    """What was found among the events."""

    events: list[Event]
    steps: list[TracedStep]
    kernels: _Union
    operators: _Union
    texts: dict[str, str]
    """Each text of the events once: a large trace repeats a few of them."""
    seen: list[int]
    """How many events there were, how many GPU kernels, and how many without a valid time."""


def read(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The trace of one rank; RecordsError where the file cannot be read or is no trace."""
    found = _Collected([], [], _Union(), _Union(), {}, [0, 0, 0])
    facts: dict[str, Any] = {}
    with Source(path, report) as source:
        try:
            if source.peek() == "[":
                _collect(source, found)
            elif source.peek() == "{":
                for key, value in source.members("traceEvents"):
                    if value is None and key == "traceEvents":
                        _collect(source, found)
                    elif key in ("distributedInfo", "host_name"):
                        facts[key] = value
            else:
                raise ValueError
        except EOFError:
            pass
        except ValueError:
            if not found.seen[0]:
                raise _damaged(path) from None
            source.is_cut = True
    if not found.seen[0]:
        raise _damaged(path)
    return _make(path, source, found, facts)


def _damaged(path: Path) -> RecordsError:
    return RecordsError(
        f"{path} is not a trace that can be read: it has no events",
        "give a file that export_chrome_trace of torch.profiler wrote",
    )


def _collect(source: Source, found: _Collected) -> None:
    events, texts = found.events, found.texts
    for values in source.items():
        if type(values) is not dict:
            continue
        found.seen[0] += 1
        name, category = values.get("name"), values.get("cat")
        if not isinstance(name, str) or not isinstance(category, str):
            continue
        kind = ""
        if category in _KERNELS:
            found.seen[1] += 1
            is_own = _COMMUNICATION.search(name) or "Collective name" in _arguments(values)
            kind = KERNEL if is_own else ""
            if not kind:
                _add_interval(found.kernels, values)
                continue
        elif name == "record_param_comms":
            kind = RECORD
        elif category in _OPERATORS and name.startswith("c10d::"):
            kind = OPERATOR
        elif name in _WAITS:
            kind = WAIT
        elif category in _ANNOTATIONS and name.startswith(_BACKENDS):
            kind = ANNOTATION
        elif category in _OPERATORS:
            if name.startswith("aten::") and not found.seen[1]:
                _add_interval(found.operators, values)
            continue
        if kind or name.startswith(_STEP):
            start, duration = as_seconds(values.get("ts")), as_duration(values.get("dur"))
            if start is None or duration is None:
                found.seen[2] += 1
                continue
            if not kind:
                if category != "gpu_user_annotation":
                    found.steps.append(TracedStep(name[:40], start, start + duration))
            elif len(events) < _MOST_NOTED:
                thread = f"{values.get('pid')!r:.30}/{values.get('tid')!r:.30}"
                thread = texts.setdefault(thread, thread)
                arguments = _kept_arguments(_arguments(values), texts)
                name = texts.setdefault(name, name)
                events.append(Event(kind, name, start, start + duration, thread, arguments))


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    found = values.get("args")
    return found if isinstance(found, dict) else {}


def _kept_arguments(arguments: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """Those arguments that are read later."""
    found = {}
    for key in _KEPT:
        if (value := arguments.get(key)) is not None:
            found[key] = texts.setdefault(value, value) if type(value) is str else value
    return found


def _add_interval(union: _Union, values: dict[str, Any]) -> None:
    start, duration = as_seconds(values.get("ts")), as_duration(values.get("dur"))
    if start is not None and duration:
        union.add(start, start + duration)


def _make(path: Path, source: Source, found: _Collected, facts: dict[str, Any]) -> RankTrace:
    info = facts.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    groups = _read_groups(info.get("pg_config"))
    rank = as_rank(info.get("rank"))
    rank = rank_in_name(path.name) if rank is None else rank
    # A file has the events of one thread after those of another, so one that ends early may lack
    # the transfers of some threads of gloo. Those of the others cannot be told apart then. The
    # sizes of the calls are those of the transfers.
    events = [e for e in found.events if not (source.is_cut and _is_transfer(e))]
    calls, notes = kineto_calls.make_calls(events, groups, rank)
    if source.damaged:
        notes.append(f"{source.damaged} events are damaged and were left out")
    if bad := found.seen[2]:
        notes.append(
            f"{bad} events of calls or steps were left out: their `ts` or `dur` is missing, "
            "below 0 or too long"
        )
    has_kernels = found.seen[1] > 0
    union = found.kernels if has_kernels else found.operators
    # A step is written before the events in it, so the last one of a file that ends early may lack
    # some of them.
    cut_step = found.steps[-1].name if source.is_cut and found.steps else ""
    steps = sorted(
        (step for step in found.steps if step.name != cut_step), key=lambda step: step.start_s
    )
    if not found.steps and not source.is_cut:
        notes.append("the trace marks no steps: call prof.step() after each step of the training")
    backends = {event.name.partition(":")[0] for event in found.events if event.kind == ANNOTATION}
    return RankTrace(
        path=str(path),
        format=NAME,
        rank=rank,
        world_size=as_rank(info.get("world_size")),
        calls=tuple(calls),
        groups=groups,
        steps=tuple(steps),
        backend=as_text(info.get("backend")) or ", ".join(sorted(backends)),
        computing=pack(union.result()),
        has_kernels=has_kernels,
        host=as_text(facts.get("host_name")),
        is_cut=source.is_cut,
        cut_step=cut_step,
        notes=tuple(notes),
    )


def _is_transfer(event: Event) -> bool:
    """Whether it is a transfer of gloo."""
    return event.kind == ANNOTATION and event.name.startswith(kineto_calls.GLOO)


def _read_groups(config: Any) -> dict[str, TracedGroup]:
    groups = {}
    for entry in config if isinstance(config, list) else ():
        if isinstance(entry, dict) and (name := as_text(entry.get("pg_name"))):
            ranks = as_ranks(entry.get("ranks"))
            size = as_rank(entry.get("pg_size")) or len(ranks)
            groups[name] = TracedGroup(ranks, as_text(entry.get("pg_desc")), size)
    return groups

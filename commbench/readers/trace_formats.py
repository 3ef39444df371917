"""TRACES, the table of formats of traces, how a file's format is recognised, and the formats beside
that of torch.profiler: Chakra, the flight recorder, NCCL Inspector.

* Chakra execution traces in JSON, as ExecutionTraceObserver of torch.profiler writes them, have the
  order of the calls, with groups and shapes, and no times. The nodes of operators and records say
  what those of torch.profiler do; the number of a node takes the place of its time. Schemas
  `...-chakra.0.0.4`.
* A dump of torch's flight recorder, the pickle of each rank or its JSON, has the last calls of a
  rank with their groups, shapes and numbers. It has no steps, and durations only with
  TORCH_NCCL_ENABLE_TIMING=1. Field names: FlightRecorderDetail.hpp of torch.
* The output of NCCL's plug-in Inspector has one JSON object for each collective of a rank, with
  sizes and times, and neither steps nor the ranks of a communicator. Its size is NCCL's count in
  bytes: of all_gather and reduce_scatter that of one rank's block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any

from commbench.errors import RecordsError, UsageError
from commbench.plan.workload import Call
from commbench.readers import trace_base as base
from commbench.readers.kineto import KINETO, make_calls
from commbench.readers.plain_pickle import read_plain_pickle
from commbench.readers.torch_calls import OPERATOR, RECORD, Event
from commbench.readers.trace_base import Fields, RankTrace, TracedGroup, TraceFormat, rank_in_name
from commbench.readers.trace_source import Source
from commbench.results.files import first_bytes, is_folder, is_workload, read_whole, why_unreadable
from commbench.results.run_folder import require_no_run
from commbench.units import format_count
from commbench.validation import by_name

# Chakra.

_CHAKRA_HINT = "give the trace of a rank that communicates"
_INIT = "process_group:init"
_TYPE = re.compile(r"Tensor\(([\w:]+(?: \w+)?)\)")
_RECORD_ARGS = {
    "collective_name": "Collective name", "dtype": "dtype", "in_msg_nelems": "In msg nelems",
    "out_msg_nelems": "Out msg nelems", "in_split_size": "In split size",
    "out_split_size": "Out split size", "global_rank_start": "Global rank start",
    "global_rank_stride": "Global rank stride", "pg_name": "Process Group Name",
    "pg_desc": "Process Group Description", "pg_size": "Group size",
}  # fmt: skip
"""Attributes of a node by the names that the profiler gives them."""


def _read_chakra(records: Iterable[Any], source: Source) -> RankTrace:
    groups: base.TracedGroups = {}
    events: list[Event] = []
    for node in map(Fields, records):
        name, inputs = str(node.get("name")), node.fields("inputs")
        if _INIT in name:
            groups |= _groups_of_all(inputs.list("values"))
        number, parent = node.count("id"), node.count("ctrl_deps")
        if number is None or len(events) == base.MOST_RECORDS:
            continue
        if name.startswith("c10d::"):
            types = [_TYPE.search(str(one)[:200]) for one in inputs.list("types")]
            args = {
                "Input Dims": inputs.get("shapes"),
                "Input type": [match[1] if match else "" for match in types],
                "Concrete Inputs": inputs.get("values"),
            }
            events.append(Event(OPERATOR, name, number, inf, str(number), Fields(args)))
        elif name == "record_param_comms":
            site = number if parent is None else parent
            args = _record_args(node.list("attrs"), inputs.list("values"))
            events.append(Event(RECORD, name, number, number, str(site), Fields(args)))
    calls, notes = make_calls(events, groups, None, is_complete=True)
    if not calls:
        raise RecordsError(f"{source.path} has no calls that can be read", _CHAKRA_HINT)
    return RankTrace(
        world_size=max((group.size for group in groups.values()), default=None),
        calls=tuple(call._replace(ready_s=None, waited_s=None) for call in calls),
        groups=groups,
        notes=("a Chakra execution trace has no times, only the order of the calls", *notes),
    )


def _groups_of_all(values: list[Any]) -> base.TracedGroups:
    """The process groups in the first value of a node; that of all ranks has an empty list."""
    try:
        found = base.read_groups(Fields({"pg_config": json.loads(values[0]) if values else None}))
    except (ValueError, TypeError, RecursionError):
        return {}
    for name, group in found.items():
        if not group.ranks and group.size <= base.MOST_GROUP_RANKS:
            found[name] = group._replace(ranks=tuple(range(group.size)))
    return found


def _record_args(attributes: list[Any], values: list[Any]) -> dict[str, Any]:
    """The arguments of a record, by the names of torch.profiler. Its values have the number of the
    call in its group as [number, is it peer to peer]."""
    named = ((entry.text("name"), entry.get("value")) for entry in map(Fields, attributes))
    args = {_RECORD_ARGS[name]: value for name, value in named if name in _RECORD_ARGS}
    for value in values:
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bool):
            return args | {"Seq": value[0]}
    return args


CHAKRA = TraceFormat(
    "Chakra", re.compile(r'\s*\{\s*"schema"\s*:\s*"[\w.-]*chakra'), "nodes", (), _read_chakra
)

# The flight recorder.

_RECORDER_HINT = "give a dump as torch.distributed writes it, or its JSON"
_NAME = re.compile(r"(?:\w+:)?([\w ]*?)(?: (\d{1,7})(?:->|<-)(\d{1,7}))?$")
_NS, _MS = 1e-9, 1e-3


def _read_recorder(records: Iterable[Any], source: Source) -> RankTrace:
    entries = [Fields(entry) for entry in islice(records, base.MOST_RECORDS)]
    groups = base.read_groups(Fields(source.facts))
    found = [_read_entry(entry, groups) for entry in entries]
    calls = [call for call in found if call]
    if not calls:
        raise RecordsError(f"{source.path} has no calls that can be read", _RECORDER_HINT)
    notes = ["the flight recorder keeps the last calls only, and marks no steps"]
    if unfinished := sum(not call.has_ended for call in calls):
        notes.append(f"{format_count(unfinished, 'call')} had not ended when the dump was written")
    if unknown := found.count(None):
        notes.append(f"left out {format_count(unknown, 'record')} of unknown operations")
    if all(call.time_s is None for call in calls):
        notes.append("it has no durations: set TORCH_NCCL_ENABLE_TIMING=1 where the job runs")
    return RankTrace(
        world_size=max((len(group.ranks) for group in groups.values()), default=0) or None,
        calls=tuple(calls), groups=groups,
        backend=entries[0].text("profiling_name").partition(":")[0], notes=tuple(notes),
    )  # fmt: skip


def _read_entry(entry: Fields, groups: base.TracedGroups) -> Call | None:
    found = _NAME.match(str(entry.get("profiling_name"))[:200])
    inputs, outputs = entry.get("input_sizes"), entry.get("output_sizes")
    counts = [base.count_elements(shapes) for shapes in (inputs, outputs) if shapes]
    elements = max(filter(None, counts), default=0) if counts and None not in counts else None
    types = entry.list("input_dtypes") or entry.list("output_dtypes") or [""]
    pair = entry.list("process_group")
    group, description = map(base.as_text, pair) if len(pair) == 2 else ("", "")
    call = base.make_call(
        found[1] if found else "", types[0], elements, group=group, stream=group,
        ready_s=entry.seconds("time_created_ns", _NS), time_s=entry.duration("duration_ms", _MS),
        has_ended=entry.get("state") == "completed" or entry.get("retired") is True,
    )  # fmt: skip
    if not found or not call:
        return None
    if group and group not in groups:
        groups[group] = TracedGroup(description=description)
    if call.operation == "all_to_all" and len(set(counts)) > 1:  # S is what a rank sends
        size = base.in_bytes(counts[0], call.dtype)
        call = call._replace(operation="all_to_all_v", size_bytes=size)
    return call._replace(
        tensors=max(1, len(entry.list("input_sizes"))) if "coalesced" in found[1] else 1,
        peer=int(found[3]) if call.is_message and found[3] else None,
        sequence=entry.count("p2p_seq_id" if call.is_message else "collective_seq_id"),
    )


FLIGHT_RECORDER = TraceFormat(
    "flight recorder",
    re.compile(
        r'\s*\{\s*"(?:entries|comm_lib_version|nccl_version|nccl_comm_state|pg_config|pg_status'
        r'|version)"'
    ),
    "entries", ("pg_config",), _read_recorder,
)  # fmt: skip

# NCCL Inspector.

_INSPECTOR_HINT = "give the output of NCCL's plug-in Inspector"


def _read_inspector(records: Iterable[Any], source: Source) -> RankTrace:
    groups: base.TracedGroups = {}
    ranks: dict[str, int] = {}
    objects = [Fields(values) for values in islice(records, base.MOST_RECORDS)]
    hosts = {values.fields("metadata").text("hostname") for values in objects}
    found = [_read_object(values, groups, ranks) for values in objects]
    calls = [call for call in found if call]
    if not calls:
        raise RecordsError(f"{source.path} has no collective that can be read", _INSPECTOR_HINT)
    notes = ["NCCL Inspector records sizes and times only: no steps, element types or gaps"]
    if left_out := found.count(None):
        notes.append(f"left out {format_count(left_out, 'object')}: no collective")
    largest = max(groups, key=lambda name: groups[name].size)
    size = groups[largest].size
    groups[largest] = groups[largest]._replace(ranks=tuple(range(size)))
    return RankTrace(
        rank=ranks[largest], world_size=size, calls=tuple(calls), groups=groups, backend="nccl",
        host=hosts.pop() if len(hosts) == 1 else "", notes=tuple(notes),
    )  # fmt: skip


def _read_object(values: Fields, groups: base.TracedGroups, ranks: dict[str, int]) -> Call | None:
    header, found = values.fields("header"), values.fields("coll_perf")
    operation = base.find_operation_name(found.get("coll"))
    name, rank = header.text("id"), header.rank("rank")
    number = header.rank("n_ranks", most=base.MOST_GROUP_RANKS)
    size = found.count("coll_msg_size_bytes")
    if not operation or not name or rank is None or not number:
        return None
    groups.setdefault(name, TracedGroup(size=number))
    ranks.setdefault(name, rank)
    times = [each.fields("event_trace_ts") for each in (found, values)]
    if size is not None and operation in ("all_gather", "reduce_scatter"):
        size *= number
    return Call(
        operation, name, size_bytes=base.as_count(size), sequence=found.count("coll_sn"),
        stream=name, start_s=(times[0] if times[0].values else times[1]).seconds("coll_start_ts"),
        time_s=found.duration("coll_exec_time_us"),
    )  # fmt: skip


INSPECTOR = TraceFormat(
    "NCCL Inspector", re.compile(r'\s*\{\s*"header"\s*:\s*\{'), "", (), _read_inspector
)

# The table.

Report = Callable[[str, float], None]
"""Called with the name of a file, and the part of all files that was read, 0 to 1."""
LARGEST_PICKLE_BYTES = 1 << 28
_START_BYTES = 1 << 12
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How pickles of protocol 2 and later begin."""
_SUFFIXES = (".json", ".pkl", ".pickle", ".jsonl", ".log", ".gz")
_HINT = (
    "give traces of torch.profiler (.json, .json.gz), the flight recorder, Chakra or NCCL Inspector"
)


TRACES = by_name(KINETO, FLIGHT_RECORDER, CHAKRA, INSPECTOR)


def read_traces(paths: Sequence[Path], report: Report = lambda _, __: None) -> list[RankTrace]:
    """The traces in files and in folders, one for each rank, in the order of ranks. Raises
    RecordsError for a file that is no trace, and UsageError for two traces of one rank."""
    files = find_files(paths)
    traces: list[RankTrace] = []
    for number, file in enumerate(files):

        def report_part(done: float, name: str = file.name, before: int = number) -> None:
            report(name, (before + done) / len(files))

        trace = read_trace(file, report_part)
        is_alone = trace.rank is not None or len(files) == 1
        traces.append(trace if is_alone else trace._replace(rank=number))
    _require_one_job(traces)
    return sorted(traces, key=lambda trace: trace.rank or 0)


def _require_one_job(traces: Sequence[RankTrace]) -> None:
    """Raise an error for traces of several jobs or formats, or two traces of one rank. Only that of
    torch.profiler names the world size; another one has that of the largest group of the rank."""
    first = traces[0]
    of_rank = {trace.rank: trace for trace in reversed(traces)}
    named = [trace for trace in traces if trace.world_size and trace.format == KINETO.name]
    for trace in traces:
        if (other := of_rank[trace.rank]) is not trace:
            both = f"{other.path} and {trace.path} are both of rank {trace.rank}"
            raise UsageError(both, "give one trace of each rank")
        if trace.format != first.format:
            names = " and ".join(sorted({trace.format, first.format}))
            raise UsageError(f"the traces are of different formats: {names}", "give those of one")
    for trace in named:
        if trace.world_size != named[0].world_size:
            here, there = (format_count(t.world_size or 0, "rank") for t in (named[0], trace))
            why = f"{named[0].path} is of a job with {here}, and {trace.path} of one with {there}"
            raise RecordsError(why, "give the traces of one job")


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files, and those in folders whose names end like those of traces, but for workloads."""
    files: list[Path] = []
    for path in paths:
        if not is_folder(path):
            files.append(path)
            continue
        try:
            own = sorted(each for each in path.iterdir() if each.is_file())
        except OSError as error:
            raise RecordsError(f"cannot read {path}: {error.strerror}", _HINT) from None
        # Flight recorders write pickles without a suffix.
        if not (named := [*filter(_is_trace, own)]):
            raise RecordsError(f"{path} has no traces", _HINT)
        files += named
    return files


def _is_trace(path: Path) -> bool:
    is_pickle = not path.suffix and first_bytes(path, 2) in _PICKLES
    return (path.name.endswith(_SUFFIXES) or is_pickle) and not is_workload(path)


def read_trace(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The trace in one file; RecordsError where it is none."""
    if why := why_unreadable(path):
        raise RecordsError(f"cannot read {path}: {why}", "give a trace, or a folder of traces")
    require_no_run(path)
    if is_workload(path):
        show = f"show it alone: commbench workload show {quote(str(path))}"
        raise RecordsError(f"{path} is a workload, not a trace", show)
    start = first_bytes(path, _START_BYTES)
    with Source(path, report) as source:
        is_pickle = start[:2] in _PICKLES
        text = start.decode("utf-8", "replace").removeprefix("\ufeff")
        kind = next((each for each in TRACES.values() if each.starts.match(text)), None)
        if is_pickle:
            kind = FLIGHT_RECORDER
            source.facts = _unpickle(path)
            report(1.0)
        if kind is None:
            raise RecordsError(f"{path} is not a trace that commbench knows", _HINT)
        records = source.facts[kind.key] if is_pickle else source.records(kind.key, kind.facts)
        trace = kind.read(records, source)
    damaged = f"left out {format_count(source.damaged, 'damaged record')}"
    return trace._replace(
        path=str(path), format=kind.name,
        calls=tuple(sorted(trace.calls, key=lambda call: call.begin_s or 0.0)),
        rank=rank_in_name(path.name) if trace.rank is None else trace.rank, is_cut=source.is_cut,
        notes=(*trace.notes, *([damaged] if source.damaged else ())),
    )  # fmt: skip


def _unpickle(path: Path) -> dict[str, Any]:
    """The values of a pickle of the flight recorder, with a list of records; RecordsError where it
    is damaged, or is more than plain values."""
    no_dump = f"{path} is no dump of the {FLIGHT_RECORDER.name}"
    try:
        values = read_plain_pickle(read_whole(path, LARGEST_PICKLE_BYTES, _RECORDER_HINT))
    except ValueError as error:
        hint = "commbench reads pickles of plain values only, and runs nothing in them"
        raise RecordsError(f"{no_dump}: {error}", hint) from None
    key = FLIGHT_RECORDER.key
    if not isinstance(values, dict) or not isinstance(values.get(key), (list, tuple)):
        raise RecordsError(f"{no_dump}: it has no {key}", _RECORDER_HINT)
    return values

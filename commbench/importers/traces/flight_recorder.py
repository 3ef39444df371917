"""Dumps of torch's flight recorder: the pickle of each rank, or its JSON.

A dump has the last calls of a rank with their groups, shapes and numbers. It has no steps, and
durations only with TORCH_NCCL_ENABLE_TIMING=1. Field names: FlightRecorderDetail.hpp of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from commbench.errors import RecordsError
from commbench.importers.traces.base import (
    MOST_RECORDS,
    NO_DATA,
    RankTrace,
    TracedGroup,
    TraceFormat,
    as_count,
    as_duration,
    as_seconds,
    as_text,
    count_elements,
    find_dtype_name,
    find_operation_name,
    in_bytes,
    read_groups,
)
from commbench.importers.traces.stream import Source
from commbench.spec.workload import MESSAGES, Call

_NAME = re.compile(r"(?:\w+:)?([\w ]*?)(?: (\d{1,7})(?:->|<-)(\d{1,7}))?$")
_NS, _MS = 1e-9, 1e-3
_HINT = "give a dump as torch.distributed writes it, or its JSON"


def read(records: Iterable[Any], source: Source) -> RankTrace:
    """The dump of one rank; RecordsError where it has no calls."""
    entries = list(islice(records, MOST_RECORDS))
    groups = read_groups(source.facts.get("pg_config"))
    found = [_read_entry(entry, groups) for entry in entries]
    calls = [call for call in found if call]
    if not calls:
        raise RecordsError(
            f"{source.path} is no dump of the flight recorder: it has no calls", _HINT
        )
    notes = ["the flight recorder keeps the last calls only, and marks no steps"]
    if unfinished := sum(not call.has_ended for call in calls):
        notes.append(f"{unfinished} calls had not ended when the dump was written")
    if unknown := found.count(None):
        notes.append(f"{unknown} entries are damaged or of operations that commbench has not")
    if all(call.time_s is None for call in calls):
        notes.append("it has no durations: set TORCH_NCCL_ENABLE_TIMING=1 where the job runs")
    world = max((group.ranks for group in groups.values()), key=len, default=())
    first = entries[0] if isinstance(entries[0], dict) else {"profiling_name": ""}
    return RankTrace(
        world_size=len(world) or None,
        calls=tuple(sorted(calls, key=lambda call: call.ready_s or 0.0)),
        groups=groups,
        backend=as_text(str(first.get("profiling_name")).partition(":")[0]),
        notes=tuple(notes),
    )


def _read_entry(entry: Any, groups: dict[str, TracedGroup]) -> Call | None:
    if not isinstance(entry, dict):
        return None
    found = _NAME.match(str(entry.get("profiling_name"))[:200])
    operation = find_operation_name(found[1]) if found else ""
    if not found or not operation:
        return None
    inputs, outputs = entry.get("input_sizes"), entry.get("output_sizes")
    counts = [count_elements(shapes) for shapes in (inputs, outputs) if shapes]
    types = entry.get("input_dtypes") or entry.get("output_dtypes")
    dtype = find_dtype_name(types[0]) if isinstance(types, (list, tuple)) and types else ""
    dtype = "" if operation in NO_DATA else dtype
    elements = None if not counts or None in counts else max(c for c in counts if c is not None)
    pair = entry.get("process_group")
    group, description = (
        map(as_text, pair) if isinstance(pair, (list, tuple)) and len(pair) == 2 else ("", "")
    )
    if group and group not in groups:
        groups[group] = TracedGroup(description=description)
    if operation == "all_to_all" and len(set(counts)) > 1:
        operation, elements = "all_to_all_v", counts[0]  # S is what a rank sends
    is_p2p = operation in MESSAGES
    is_coalesced = "coalesced" in found[1]
    return Call(
        operation,
        group,
        dtype,
        0 if operation in NO_DATA else in_bytes(elements, dtype),
        tensors=max(1, len(inputs)) if is_coalesced and isinstance(inputs, (list, tuple)) else 1,
        peer=int(found[3]) if is_p2p and found[3] else None,
        sequence=as_count(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id")),
        stream=group,
        ready_s=as_seconds(entry.get("time_created_ns"), _NS),
        time_s=as_duration(entry.get("duration_ms"), _MS),
        has_ended=entry.get("state") == "completed" or entry.get("retired") is True,
    )


FORMAT = TraceFormat(
    "flight recorder",
    re.compile(
        r'\s*\{\s*"(?:entries|comm_lib_version|nccl_version|nccl_comm_state|pg_config|pg_status'
        r'|version)"'
    ),
    "entries", ("pg_config",), read, _HINT,
)  # fmt: skip

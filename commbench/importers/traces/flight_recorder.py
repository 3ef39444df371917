"""Dumps of torch's flight recorder: the pickle of each rank, or its JSON.

A dump has the last calls of a rank with their groups, shapes and numbers. It has no steps, and
durations only with TORCH_NCCL_ENABLE_TIMING=1. Field names: FlightRecorderDetail.hpp of torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from commbench.errors import RecordsError
from commbench.importers.traces.base import (
    NO_DATA,
    RankTrace,
    TracedCall,
    TracedGroup,
    as_count,
    as_duration,
    as_ranks,
    as_seconds,
    as_text,
    count_elements,
    find_dtype_name,
    find_operation_name,
    in_bytes,
    rank_in_name,
)
from commbench.importers.traces.plain_pickle import read_plain_pickle
from commbench.importers.traces.stream import Source
from commbench.results.files import why_unreadable
from commbench.spec.workload import MESSAGES

NAME = "flight recorder"
LARGEST_PICKLE_BYTES = 1 << 28
MOST_ENTRIES = 1_000_000
_STARTS = re.compile(
    r'\s*\{\s*"(?:entries|comm_lib_version|nccl_version|nccl_comm_state|pg_config|pg_status|version)"'
)
_NAME = re.compile(r"(?:\w+:)?([\w ]*?)(?: (\d{1,7})(?:->|<-)(\d{1,7}))?$")
_NS, _MS = 1e-9, 1e-3
_HINT = "give a dump as torch.distributed writes it, or its JSON"


def recognises(start: str) -> bool:
    """Whether a file that begins so is a dump in JSON."""
    return bool(_STARTS.match(start))


def is_pickle(start: bytes) -> bool:
    """Whether a file that begins so is a pickle, of protocol 2 or later."""
    return start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def read_pickle(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The dump of one rank; RecordsError where it is damaged, or is more than plain values."""
    if why := why_unreadable(path, LARGEST_PICKLE_BYTES):
        raise RecordsError(f"cannot read {path}: {why}", _HINT)
    try:
        values = read_plain_pickle(path.read_bytes())
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}", _HINT) from None
    except ValueError as error:
        hint = "commbench reads pickles of plain values only, and runs nothing in them"
        raise RecordsError(f"{path} is no dump of the flight recorder: {error}", hint) from None
    report(1.0)
    if not isinstance(values, dict) or not isinstance(values.get("entries"), (list, tuple)):
        raise RecordsError(f"{path} is no dump of the flight recorder: it has no entries", _HINT)
    return _make(path, list(values["entries"]), values, is_cut=False)


def read(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The dump of one rank in JSON; RecordsError where it cannot be read."""
    entries: list[Any] = []
    facts: dict[str, Any] = {}
    with Source(path, report) as source:
        try:
            for key, value in source.members("entries"):
                if key == "entries" and value is None:
                    entries += islice(source.items(), MOST_ENTRIES)
                elif key == "pg_config":
                    facts[key] = value
        except (EOFError, ValueError):
            source.is_cut = True
    return _make(path, entries, facts, is_cut=source.is_cut)


def _make(path: Path, entries: list[Any], facts: dict[str, Any], is_cut: bool) -> RankTrace:
    groups = _read_groups(facts.get("pg_config"))
    calls, unfinished, unknown = [], 0, 0
    for entry in entries:
        call = _read_entry(entry, groups) if isinstance(entry, dict) else None
        if call:
            calls.append(call)
            unfinished += not call.has_ended
        else:
            unknown += 1
    if not calls:
        raise RecordsError(f"{path} is no dump of the flight recorder: it has no calls", _HINT)
    notes = ["the flight recorder keeps the last calls only, and marks no steps"]
    if unfinished:
        notes.append(f"{unfinished} calls had not ended when the dump was written")
    if unknown:
        notes.append(f"{unknown} entries are damaged or of operations that commbench has not")
    if all(call.time_s is None for call in calls):
        notes.append("it has no durations: set TORCH_NCCL_ENABLE_TIMING=1 where the job runs")
    world = max((group.ranks for group in groups.values()), key=len, default=())
    return RankTrace(
        path=str(path),
        format=NAME,
        rank=rank_in_name(path.name),
        world_size=len(world) or None,
        calls=tuple(sorted(calls, key=lambda call: call.issued_s or 0.0)),
        groups=groups,
        backend=as_text(str(entries[0].get("profiling_name")).partition(":")[0])
        if isinstance(entries[0], dict)
        else "",
        is_cut=is_cut,
        notes=tuple(notes),
    )


def _read_groups(config: Any) -> dict[str, TracedGroup]:
    groups = {}
    for entry in config.values() if isinstance(config, dict) else ():
        if isinstance(entry, dict) and (name := as_text(entry.get("name"))):
            ranks = as_ranks(entry.get("ranks"))
            groups[name] = TracedGroup(ranks, as_text(entry.get("desc")), len(ranks))
    return groups


def _read_entry(entry: dict[str, Any], groups: dict[str, TracedGroup]) -> TracedCall | None:
    found = _NAME.match(str(entry.get("profiling_name"))[:200])
    operation = find_operation_name(found[1]) if found else ""
    if not found or not operation:
        return None
    shapes = [_shapes(entry.get(f"{side}_sizes")) for side in ("input", "output")]
    counts = [count_elements(each) for each in shapes if each]
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
    return TracedCall(
        operation,
        group=group,
        dtype=dtype,
        size_bytes=0 if operation in NO_DATA else in_bytes(elements, dtype),
        tensors=max(1, len(shapes[0])) if is_coalesced else 1,
        peer=int(found[3]) if is_p2p and found[3] else None,
        sequence=as_count(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id")),
        stream=group,
        issued_s=as_seconds(entry.get("time_created_ns"), _NS),
        time_s=as_duration(entry.get("duration_ms"), _MS),
        has_ended=entry.get("state") == "completed" or entry.get("retired") is True,
    )


def _shapes(value: Any) -> list[Any]:
    """Shapes as lists, whether they were lists or tuples."""
    if not isinstance(value, (list, tuple)) or len(value) > 1 << 17:
        return []
    return [list(each) if isinstance(each, (list, tuple)) else each for each in value]

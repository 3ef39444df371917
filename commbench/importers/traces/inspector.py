"""Output of NCCL's plug-in Inspector: one JSON object for each collective of a rank.

It has sizes and times of each collective, and neither steps nor the ranks of a communicator. Its
size is NCCL's count in bytes: of all_gather and reduce_scatter that of one rank's block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from commbench.errors import RecordsError
from commbench.importers.traces.base import (
    MOST_RECORDS,
    RankTrace,
    TracedGroup,
    TraceFormat,
    as_count,
    as_duration,
    as_rank,
    as_seconds,
    as_text,
    find_operation_name,
)
from commbench.importers.traces.stream import Source
from commbench.spec.workload import Call

_OF_BLOCK = ("all_gather", "reduce_scatter")
_HINT = "give the output of NCCL's plug-in Inspector"


def read(records: Iterable[Any], source: Source) -> RankTrace:
    """The collectives of one rank; RecordsError where there are none."""
    groups: dict[str, TracedGroup] = {}
    ranks: dict[str, int] = {}
    calls: list[Call] = []
    left_out, hosts = 0, set()
    for values in islice(records, MOST_RECORDS):
        call = _read_object(values, groups, ranks)
        left_out += call is None
        calls += [call] if call else []
        hosts.add(as_text(_part(values, "metadata").get("hostname")))
    if not calls:
        raise RecordsError(f"{source.path} has no collective that can be read", _HINT)
    notes = ["NCCL Inspector records sizes and times only: no steps, element types or gaps"]
    if left_out:
        notes.append(f"{left_out} objects are no collectives and were left out")
    largest = max(groups, key=lambda name: groups[name].size)
    size = groups[largest].size
    groups[largest] = groups[largest]._replace(ranks=tuple(range(size)))
    return RankTrace(
        rank=ranks[largest],
        world_size=size,
        calls=tuple(sorted(calls, key=lambda call: call.start_s or 0.0)),
        groups=groups,
        backend="nccl",
        host=next(iter(hosts)) if len(hosts) == 1 else "",
        notes=tuple(notes),
    )


def _part(values: Any, name: str) -> dict[str, Any]:
    found = values.get(name) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def _read_object(values: Any, groups: dict[str, TracedGroup], ranks: dict[str, int]) -> Call | None:
    header, found = _part(values, "header"), _part(values, "coll_perf")
    operation = find_operation_name(found.get("coll"))
    name, rank = as_text(header.get("id")), as_rank(header.get("rank"))
    number = as_rank(header.get("n_ranks"))
    size = as_count(found.get("coll_msg_size_bytes"))
    if not operation or not name or rank is None or not number or number > 1 << 17:
        return None
    groups.setdefault(name, TracedGroup(size=number))
    ranks.setdefault(name, rank)
    times = _part(found, "event_trace_ts") or _part(values, "event_trace_ts")
    if size is not None and operation in _OF_BLOCK:
        size *= number
    return Call(
        operation,
        name,
        size_bytes=as_count(size),
        sequence=as_count(found.get("coll_sn")),
        stream=name,
        start_s=as_seconds(times.get("coll_start_ts")),
        time_s=as_duration(found.get("coll_exec_time_us")),
    )


FORMAT = TraceFormat(
    "NCCL Inspector", re.compile(r'\s*\{\s*"header"\s*:\s*\{'), "", (), read, _HINT,
)  # fmt: skip

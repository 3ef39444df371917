"""Chakra execution traces in JSON, as ExecutionTraceObserver of torch.profiler writes them.

They have the order of the calls, with groups and shapes, and no times. The nodes of operators and
records say what those of torch.profiler do; the number of a node takes the place of its time.
Schemas `...-chakra.0.0.4`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from math import inf
from typing import Any

from commbench.errors import RecordsError
from commbench.importers.traces.base import (
    MOST_RECORDS,
    RankTrace,
    TracedGroup,
    TraceFormat,
    as_count,
    read_groups,
)
from commbench.importers.traces.kineto_calls import make_calls
from commbench.importers.traces.stream import Source
from commbench.importers.traces.torch_calls import OPERATOR, RECORD, Event

_INIT = "process_group:init"
_TYPE = re.compile(r"Tensor\(([\w:]+(?: \w+)?)\)")
_RECORD = {
    "collective_name": "Collective name", "dtype": "dtype", "in_msg_nelems": "In msg nelems",
    "out_msg_nelems": "Out msg nelems", "in_split_size": "In split size",
    "out_split_size": "Out split size", "global_rank_start": "Global rank start",
    "global_rank_stride": "Global rank stride", "pg_name": "Process Group Name",
    "pg_desc": "Process Group Description", "pg_size": "Group size",
}  # fmt: skip
"""Attributes of a node by the names that the profiler gives them."""
_HINT = "give the trace of a rank that communicates"


def read(records: Iterable[Any], source: Source) -> RankTrace:
    """The trace of one rank; RecordsError where it has no calls."""
    groups: dict[str, TracedGroup] = {}
    events: list[Event] = []
    for node in records:
        name = node.get("name") if isinstance(node, dict) else None
        if not isinstance(name, str):
            continue
        if _INIT in name:
            _add_groups(node, groups)
        number, parent = as_count(node.get("id")), as_count(node.get("ctrl_deps"))
        if number is None or len(events) == MOST_RECORDS:
            continue
        if name.startswith("c10d::"):
            events.append(Event(OPERATOR, name, number, inf, str(number), _operator_args(node)))
        elif name == "record_param_comms":
            site = number if parent is None else parent
            events.append(Event(RECORD, name, number, number, str(site), _record_args(node)))
    calls, notes = make_calls(events, groups, None, is_complete=True)
    if not calls:
        raise RecordsError(f"{source.path} has no calls that can be read", _HINT)
    return RankTrace(
        world_size=max((group.size for group in groups.values()), default=None),
        calls=tuple(call._replace(ready_s=None, waited_s=None) for call in calls),
        groups=groups,
        notes=("a Chakra execution trace has no times, only the order of the calls", *notes),
    )


def _add_groups(node: dict[str, Any], groups: dict[str, TracedGroup]) -> None:
    values = _inputs(node).get("values")
    text = values[0] if isinstance(values, list) and values else None
    try:
        found = json.loads(text) if isinstance(text, str) else []
    except (ValueError, RecursionError):
        return
    for name, group in read_groups(found).items():
        is_whole = not group.ranks and group.size <= 1 << 17  # that of all ranks has an empty list
        groups[name] = group._replace(ranks=tuple(range(group.size))) if is_whole else group


def _inputs(node: dict[str, Any]) -> dict[str, Any]:
    inputs = node.get("inputs")
    return inputs if isinstance(inputs, dict) else {}


def _operator_args(node: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operator, by the names of torch.profiler."""
    inputs = _inputs(node)
    types = inputs.get("types")
    types = types if isinstance(types, list) else []
    names = [match[1] if (match := _TYPE.search(str(one)[:200])) else "" for one in types]
    return {
        "Input Dims": inputs.get("shapes"),
        "Input type": names,
        "Concrete Inputs": inputs.get("values"),
    }


def _record_args(node: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a record, by the names of torch.profiler. Its values have the number of the
    call in its group as [number, is it peer to peer]."""
    attributes, values = node.get("attrs"), _inputs(node).get("values")
    args = {
        _RECORD[str(entry["name"])]: entry.get("value")
        for entry in (attributes if isinstance(attributes, list) else ())
        if isinstance(entry, dict) and str(entry.get("name"))[:99] in _RECORD
    }
    for value in values if isinstance(values, list) else ():
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bool):
            return args | {"Seq": as_count(value[0])}
    return args


FORMAT = TraceFormat(
    "Chakra", re.compile(r'\s*\{\s*"schema"\s*:\s*"[\w.-]*chakra'), "nodes", (), read, _HINT
)

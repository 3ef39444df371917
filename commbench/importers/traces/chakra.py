"""Chakra execution traces in JSON, as ExecutionTraceObserver of torch.profiler writes them.

They have the order of the calls, with groups and shapes, and no times. Schemas `...-chakra.0.0.4`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from commbench.errors import RecordsError
from commbench.importers.traces.base import (
    MOST_RECORDS,
    NO_CALL,
    RankTrace,
    TracedGroup,
    TraceFormat,
    as_count,
    as_rank,
    as_ranks,
    as_text,
)
from commbench.importers.traces.stream import Source
from commbench.importers.traces.torch_calls import Operator, read_operator, read_record
from commbench.spec.workload import Call

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
    nodes: list[tuple[int, int, dict[str, Any]]] = []
    for node in records:
        _keep(node, nodes, groups)
    calls = _make_calls(nodes, groups)
    if not calls:
        raise RecordsError(f"{source.path} has no calls that can be read", _HINT)
    return RankTrace(
        world_size=max((group.size for group in groups.values()), default=None),
        calls=tuple(calls),
        groups=groups,
        notes=("a Chakra execution trace has no times, only the order of the calls",),
    )


def _keep(
    node: Any, nodes: list[tuple[int, int, dict[str, Any]]], groups: dict[str, TracedGroup]
) -> None:
    """Keep a node about communication, with its number and that of its parent."""
    name = node.get("name") if isinstance(node, dict) else None
    if not isinstance(name, str):
        return
    if _INIT in name:
        _add_groups(node, groups)
    number, parent = as_count(node.get("id")), as_count(node.get("ctrl_deps"))
    is_call = name == "record_param_comms" or name.startswith("c10d::")
    if is_call and number is not None and len(nodes) < MOST_RECORDS:
        nodes.append((number, parent or 0, node))


def _add_groups(node: dict[str, Any], groups: dict[str, TracedGroup]) -> None:
    values = _inputs(node).get("values")
    text = values[0] if isinstance(values, list) and values else None
    try:
        found = json.loads(text) if isinstance(text, str) else []
    except (ValueError, RecursionError):
        return
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and (name := as_text(entry.get("pg_name"))):
            size = as_rank(entry.get("group_size")) or 0
            ranks = as_ranks(entry.get("ranks"))
            if not ranks and size <= 1 << 17:  # the group of all ranks has an empty list
                ranks = tuple(range(size))
            groups[name] = TracedGroup(ranks, as_text(entry.get("pg_desc")), size or len(ranks))


def _make_calls(
    nodes: list[tuple[int, int, dict[str, Any]]], groups: dict[str, TracedGroup]
) -> list[Call]:
    """The calls in order. A record inside an operator describes the same call."""
    operators: dict[int, Operator] = {}
    found: dict[int, Call] = {}
    for number, _, node in nodes:
        if str(node.get("name")).startswith("c10d::") and (operator := _read_operator(node)):
            operators[number], found[number] = operator, operator.call
    for number, parent, node in nodes:
        if node.get("name") != "record_param_comms":
            continue
        attributes = node.get("attrs")
        args = {
            _RECORD[str(entry["name"])]: entry.get("value")
            for entry in (attributes if isinstance(attributes, list) else ())
            if isinstance(entry, dict) and str(entry.get("name"))[:99] in _RECORD
        }
        if str(args.get("Collective name")).replace("_", "").lower() in NO_CALL:
            continue
        call = read_record(args, groups)
        if call is None:
            continue
        if outer := operators.get(parent):
            found.pop(parent, None)
            call = call._replace(
                asynchronous=outer.call.asynchronous, root=outer.call.root, peer=outer.call.peer,
                tensors=max(call.tensors, outer.call.tensors),
            )  # fmt: skip
        found[number] = call._replace(sequence=_sequence(node))
    sized = [name for name, group in groups.items() if group.size]
    only = sized[0] if len(sized) == 1 else ""
    for number, call in found.items():
        if only and not call.group:
            own = operators.get(number)
            found[number] = own.in_group(call, only, groups) if own else call._replace(group=only)
    return [found[number] for number in sorted(found)]


def _inputs(node: dict[str, Any]) -> dict[str, Any]:
    inputs = node.get("inputs")
    return inputs if isinstance(inputs, dict) else {}


def _read_operator(node: dict[str, Any]) -> Operator | None:
    inputs = _inputs(node)
    types = inputs.get("types")
    types = types if isinstance(types, list) else []
    names = [match[1] if (match := _TYPE.search(str(one)[:200])) else "" for one in types]
    return read_operator(str(node["name"]), inputs.get("shapes"), names, inputs.get("values"))


def _sequence(node: dict[str, Any]) -> int | None:
    """The number of the call in its group: the values have it as [number, is it peer to peer]."""
    values = _inputs(node).get("values")
    for value in values if isinstance(values, list) else ():
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bool):
            return as_count(value[0])
    return None


FORMAT = TraceFormat(
    "Chakra", re.compile(r'\s*\{\s*"schema"\s*:\s*"[\w.-]*chakra'), "nodes", (), read,
    _HINT,
)  # fmt: skip

"""Chakra execution traces in JSON, as ExecutionTraceObserver of torch.profiler writes them.

They have the order of the calls, with groups and shapes, and no times. Schemas `...-chakra.0.0.4`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commbench.errors import RecordsError
from commbench.importers.traces.base import (
    NO_CALL,
    RankTrace,
    TracedCall,
    TracedGroup,
    as_count,
    as_rank,
    as_ranks,
    as_text,
    rank_in_name,
)
from commbench.importers.traces.stream import Source
from commbench.importers.traces.torch_calls import read_operator, read_record

NAME = "Chakra"
_STARTS = re.compile(r'\s*\{\s*"schema"\s*:\s*"[\w.-]*chakra')
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
_MOST_NODES = 1 << 22


def recognises(start: str) -> bool:
    """Whether a file that begins so is a Chakra execution trace in JSON."""
    return bool(_STARTS.match(start))


def read(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The trace of one rank; RecordsError where it cannot be read or has no calls."""
    groups: dict[str, TracedGroup] = {}
    nodes: list[tuple[int, int, dict[str, Any]]] = []
    with Source(path, report) as source:
        try:
            for key, value in source.members("nodes"):
                if key == "nodes" and value is None:
                    for node in source.items():
                        _keep(node, nodes, groups)
        except (EOFError, ValueError):
            source.is_cut = True
    calls = _make_calls(nodes, groups)
    if not calls:
        raise RecordsError(
            f"{path} has no calls that can be read", "give the trace of a rank that communicates"
        )
    notes = ["a Chakra execution trace has no times, only the order of the calls"]
    if source.damaged:
        notes.append(f"{source.damaged} nodes are damaged and were left out")
    return RankTrace(
        path=str(path),
        format=NAME,
        rank=rank_in_name(path.name),
        world_size=max((group.size for group in groups.values()), default=None),
        calls=tuple(calls),
        groups=groups,
        is_cut=source.is_cut,
        notes=tuple(notes),
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
    if is_call and number is not None and len(nodes) < _MOST_NODES:
        nodes.append((number, parent or 0, node))


def _add_groups(node: dict[str, Any], groups: dict[str, TracedGroup]) -> None:
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else None
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
) -> list[TracedCall]:
    """The calls in order. A record inside an operator describes the same call."""
    found: dict[int, TracedCall] = {}
    for number, _, node in nodes:
        inputs = node.get("inputs")
        inputs = inputs if isinstance(inputs, dict) else {}
        if str(node.get("name")).startswith("c10d::"):
            types = inputs.get("types")
            types = types if isinstance(types, list) else []
            names = [match[1] if (match := _TYPE.search(str(one)[:200])) else "" for one in types]
            operator = read_operator(
                str(node["name"]), inputs.get("shapes"), names, inputs.get("values")
            )
            if operator:
                found[number] = operator.call
    of_gloo = dict(found)
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
        outer = of_gloo.get(parent)
        if outer:
            found.pop(parent, None)
            call = call._replace(
                asynchronous=outer.asynchronous, root=outer.root, peer=outer.peer,
                tensors=max(call.tensors, outer.tensors),
            )  # fmt: skip
        found[number] = call._replace(sequence=_sequence(node))
    calls = [found[number] for number in sorted(found)]
    sized = {name: group for name, group in groups.items() if group.size}
    return [_in_only_group(call, sized) for call in calls]


def _in_only_group(call: TracedCall, groups: dict[str, TracedGroup]) -> TracedCall:
    """The call in the only group that there is, where it names none."""
    if call.group:
        return call
    if len(groups) != 1:
        return call._replace(candidates=tuple(groups))
    ((name, group),) = groups.items()
    size = call.size_bytes
    if size is None and call.per_block is not None:
        size = call.per_block * group.size
    return call._replace(group=name, size_bytes=size)


def _sequence(node: dict[str, Any]) -> int | None:
    """The number of the call in its group: the values have it as [number, is it peer to peer]."""
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else None
    for value in values if isinstance(values, list) else ():
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bool):
            return as_count(value[0])
    return None

"""What a recorded call of torch says: its operation, its size, its blocks, by two descriptions.

`record_param_comms` of backends such as NCCL names the operation, the elements and the group. The
operators `c10d::...` have the shapes of their tensors instead, and no group: it is what gloo has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from commbench.importers.traces.base import (
    NO_DATA,
    TracedGroup,
    as_count,
    as_counts,
    as_rank,
    as_ranks,
    as_text,
    count_elements,
    find_dtype_name,
    find_operation_name,
    in_bytes,
)
from commbench.spec.workload import MESSAGES, MOST_RANKS, SEND, Call

RECORD, OPERATOR, ANNOTATION, KERNEL, WAIT = "record", "operator", "annotation", "kernel", "wait"
_GLOO = "gloo:"


class Event(NamedTuple):
    """One event; times are in seconds."""

    kind: str
    name: str
    start_s: float
    end_s: float
    thread: str
    """Process and thread; of a kernel, device and stream."""
    args: dict[str, Any]

    @property
    def is_transfer(self) -> bool:
        """Whether it is a transfer of gloo."""
        return self.kind == ANNOTATION and self.name.startswith(_GLOO)

    def shape(self) -> tuple[str, int | None, str]:
        """The operation of an annotation, the elements of its input, and their type."""
        shapes, types = self.args.get("Input Dims"), self.args.get("Input type")
        name = find_operation_name(self.name.partition(":")[2].partition(" ")[0])
        elements = count_elements(shapes) if isinstance(shapes, list) and shapes else None
        return name, elements, _read_dtype(types[:1] if isinstance(types, list) else None)

    @property
    def external_id(self) -> Any:
        """The number that links a kernel and what launched it; None without one."""
        found = self.args.get("External id", self.args.get("external id"))
        return found if isinstance(found, (int, str)) else None


class _Tensors(NamedTuple):
    """Where the arguments of an operator are."""

    whole: tuple[int, ...] = ()
    """Positions of tensors, the largest of which has the size S."""
    block: int | None = None
    """The position of a block, where the tensors of S are nested lists, which have no shape."""
    root: int | None = None
    peer: int | None = None
    splits: tuple[int, int] | None = None
    """Positions of the splits of the output and of the input."""


_OPERATORS = {
    "allreduce_": _Tensors((0,)),
    "allreduce_coalesced_": _Tensors((0,)),
    "broadcast_": _Tensors((0,), root=2),
    "reduce_": _Tensors((0,), root=3),
    "allgather_": _Tensors(block=1),
    "_allgather_base_": _Tensors((0, 1)),
    "allgather_coalesced_": _Tensors(block=1),
    "allgather_into_tensor_coalesced_": _Tensors((0, 1)),
    "reduce_scatter_": _Tensors(block=0),
    "_reduce_scatter_base_": _Tensors((0, 1)),
    "reduce_scatter_tensor_coalesced_": _Tensors((0, 1)),
    "gather_": _Tensors(block=1, root=3),
    "scatter_": _Tensors(block=0, root=3),
    "alltoall_": _Tensors((1,)),
    "alltoall_base_": _Tensors((1,), splits=(3, 4)),
    "send": _Tensors((0,), peer=2),
    "recv_": _Tensors((0,), peer=2),
    "recv_any_source_": _Tensors((0,)),
    "barrier": _Tensors(),
    "monitored_barrier_": _Tensors(),
}
"""The operators of torch/csrc/distributed/c10d/Ops.cpp."""


class Operator(NamedTuple):
    """What an operator of c10d says."""

    call: Call
    input_elements: int | None
    """What gloo's annotation of it has, too."""
    ratio: int | None
    """The ranks of its group, where the shapes of input and output tell."""
    is_nested: bool
    """Whether it has a list of tensors for each rank, which gloo may run as several transfers; its
    input is a block then."""

    def in_group(self, call: Call, name: str, groups: dict[str, TracedGroup]) -> Call:
        """Its call in the process group of that name, with the size that follows from a block."""
        size = call.size_bytes
        block = in_bytes(self.input_elements, call.dtype) if self.is_nested else None
        if size is None and block is not None:
            size = block * groups[name].size
        return call._replace(group=name, size_bytes=size)


def read_operator(name: str, shapes: Any, types: Any, values: Any) -> Operator | None:
    """The call of an operator `c10d::...` with its `Input Dims`, `Input type` and
    `Concrete Inputs`; None for one that is no call."""
    short = name.removeprefix("c10d::")
    operation, tensors = find_operation_name(short.rstrip("_")), _OPERATORS.get(short)
    if not operation or tensors is None:
        return None
    shapes = shapes if isinstance(shapes, list) else []
    values = values if isinstance(values, list) else []
    counts = [_count_at(shapes, at) for at in tensors.whole]
    block = None if tensors.block is None else _count_at(shapes, tensors.block)
    known = [count for count in counts if count is not None]
    elements = max(known) if known and len(known) == len(counts) else None
    dtype = "" if operation in NO_DATA else _read_dtype(types)
    call = Call(
        operation,
        "",
        dtype,
        size_bytes=0 if operation in NO_DATA else in_bytes(elements, dtype),
        tensors=_count_tensors(shapes, (tensors.whole or (0,))[0]),
        asynchronous=_read_flag(values),
        root=_read_number(values, tensors.root),
        peer=_read_number(values, tensors.peer),
    )
    if tensors.splits:
        output, given = (as_counts(values[at]) if at < len(values) else () for at in tensors.splits)
        received = _count_at(shapes, 0)
        call = with_splits(call, (elements, received), (given, output))
    sent = block if tensors.block is not None else counts[-1] if counts else None
    ratio = None
    if operation in ("all_gather", "reduce_scatter") and len(known) == 2:
        large, small = max(known), min(known)
        ratio = large // small if small and large % small == 0 else None
    return Operator(call, sent, ratio, tensors.block is not None)


def read_record(args: dict[str, Any], groups: dict[str, TracedGroup]) -> Call | None:
    """The call that the arguments of `record_param_comms`, or of a kernel, describe; None for one
    that is no call, or is not known. What they say of its group is added to `groups`."""
    operation = find_operation_name(args.get("Collective name"))
    if not operation:
        return None
    dtype = "" if operation in NO_DATA else find_dtype_name(args.get("dtype"))
    sent, received = as_count(args.get("In msg nelems")), as_count(args.get("Out msg nelems"))
    elements = None if sent is None or received is None else max(sent, received)
    is_asynchronous = args.get("Is asynchronized op")
    call = Call(
        operation,
        group=add_group(args, groups),
        dtype=dtype,
        size_bytes=0 if operation in NO_DATA else in_bytes(elements, dtype),
        asynchronous=None if is_asynchronous is None else str(is_asynchronous) in ("True", "1"),
        sequence=as_count(args.get("Seq")),
    )
    if operation in MESSAGES:
        peer = as_count(args.get("Dst Rank" if operation == SEND else "Src Rank"))
        call = call._replace(peer=_place(peer, call.group, groups, as_count(args.get("Rank"))))
    if operation in ("all_to_all", "all_to_all_v"):
        splits = as_counts(args.get("In split size")), as_counts(args.get("Out split size"))
        call = with_splits(call, (sent, received), splits)
    return call


def _place(
    peer: int | None, group: str, groups: dict[str, TracedGroup], in_group: int | None
) -> int | None:
    """The peer's rank in the group. `Rank` is that rank; `Src Rank` and `Dst Rank` are global in
    newer versions, in older ones the same as `Rank`."""
    ranks = groups[group].ranks if group in groups else ()
    if in_group is not None and (not ranks or in_group < len(ranks)):
        return in_group
    if peer is not None and peer in ranks and max(ranks) >= len(ranks):
        return ranks.index(peer)
    return peer


def with_splits(
    call: Call,
    elements: tuple[int | None, int | None],
    splits: tuple[tuple[int, ...], tuple[int, ...]],
) -> Call:
    """The call with its splits in elements: torch counts rows of the first dimension. The call has
    equal blocks where all splits are equal."""
    found = []
    for count, given in zip(elements, splits, strict=True):
        total = sum(given)
        rows = count // total if count and total and count % total == 0 else 1
        found.append(tuple(number * rows for number in given))
    if not any(found) or len({number for each in found for number in each}) == 1:
        return call._replace(operation="all_to_all")
    size = in_bytes(elements[0], call.dtype)
    return call._replace(
        operation="all_to_all_v", send_splits=found[0], receive_splits=found[1], size_bytes=size
    )


def add_group(args: dict[str, Any], groups: dict[str, TracedGroup]) -> str:
    """The name of the process group of a record, with what the record says of it."""
    name = as_text(args.get("Process Group Name"))
    known = groups.get(name, TracedGroup())
    size = as_rank(args.get("Group size")) or 0
    if not name or known.ranks:
        return name
    ranks = as_ranks(args.get("Process Group Ranks"))
    start = as_rank(args.get("Global rank start"))
    stride = as_rank(args.get("Global rank stride"))
    if not ranks and start is not None and stride and start + stride * (size - 1) <= MOST_RANKS:
        ranks = tuple(range(start, start + stride * size, stride))
    described = as_text(args.get("Process Group Description")) or known.description
    groups[name] = TracedGroup(ranks, described, size or len(ranks) or known.size)
    return name


def _count_at(shapes: list[Any], at: int) -> int | None:
    return count_elements(shapes[at]) if at < len(shapes) else None


def _count_tensors(shapes: list[Any], at: int) -> int:
    found = shapes[at] if at < len(shapes) else None
    if not isinstance(found, list) or not all(isinstance(one, list) for one in found):
        return 1
    return max(1, len(found))


def _read_dtype(types: Any) -> str:
    names = [find_dtype_name(name) for name in types[:2]] if isinstance(types, list) else []
    return next(filter(None, names), "")


def _read_flag(values: list[Any]) -> bool | None:
    flags = [value for value in values if str(value) in ("True", "False")]
    return str(flags[0]) == "True" if flags else None


def _read_number(values: list[Any], at: int | None) -> int | None:
    if at is None or at >= len(values):
        return None
    text = str(values[at])
    return int(text) if text.isdecimal() and len(text) < 8 else None

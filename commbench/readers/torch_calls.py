"""What a recorded call of torch says: its operation, its size, its blocks, by two descriptions.

`record_param_comms` of backends such as NCCL names the operation, the elements and the group. The
operators `c10d::...` have the shapes of their tensors instead, and no group: it is what gloo has.

gloo's calls do not name their process groups. The threads of a process group of gloo run its
transfers and no others. They are made with the group, so the order of their numbers is the order in
which the groups were made, which is the order of the groups' names. That tells the groups apart
where only one assignment of threads to groups agrees with the shapes, the roots and the splits of
the calls.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from commbench.plan.workload import MOST_RANKS, SEND, Call
from commbench.readers import trace_base as base
from commbench.readers.trace_base import Fields, TracedGroup, TracedGroups

RECORD, OPERATOR, ANNOTATION, KERNEL, WAIT = "record", "operator", "annotation", "kernel", "wait"


class Event(NamedTuple):
    """One event; times are in seconds."""

    kind: str
    name: str
    start_s: float
    end_s: float
    thread: str
    """Process and thread; of a kernel, device and stream."""
    args: Fields

    @property
    def is_transfer(self) -> bool:
        """Whether it is a transfer of gloo."""
        return self.kind == ANNOTATION and self.name.startswith("gloo:")

    def shape(self) -> tuple[str, int | None, str]:
        """The operation of an annotation, the elements of its input, and their type."""
        shapes = self.args.list("Input Dims")
        name = base.find_operation_name(self.name.partition(":")[2].partition(" ")[0])
        dtype = _read_dtype(self.args.list("Input type")[:1])
        return name, base.count_elements(shapes) if shapes else None, dtype

    @property
    def external_id(self) -> Any:
        """The number that links a kernel and what launched it; None without one."""
        found = self.args.get("External id", "external id")
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

    def in_group(self, call: Call, name: str, groups: TracedGroups) -> Call:
        """Its call in the process group of that name, with the size that follows from a block."""
        size = call.size_bytes
        block = base.in_bytes(self.input_elements, call.dtype) if self.is_nested else None
        if size is None and block is not None:
            size = block * groups[name].size
        return call._replace(group=name, size_bytes=size)


def read_operator(event: Event) -> Operator | None:
    """The call of an operator `c10d::...`; None for one that is no call."""
    name = event.name.removeprefix("c10d::")
    if (tensors := _OPERATORS.get(name)) is None:
        return None
    shapes, values = (event.args.list(key) for key in ("Input Dims", "Concrete Inputs"))
    counts = [base.count_elements(_at(shapes, at)) for at in tensors.whole]
    known = [count for count in counts if count is not None]
    elements = max(known) if known and len(known) == len(counts) else None
    first = _at(shapes, (tensors.whole or (0,))[0])
    is_several = isinstance(first, list) and all(isinstance(one, list) for one in first)
    flags = [value for value in values if str(value) in ("True", "False")]
    call = base.make_call(
        name.rstrip("_"), _read_dtype(event.args.list("Input type")[:2]), elements, group="",
        tensors=max(1, len(first)) if is_several else 1,
        asynchronous=str(flags[0]) == "True" if flags else None,
        root=_read_number(values, tensors.root), peer=_read_number(values, tensors.peer),
    )  # fmt: skip
    if call and tensors.splits:
        output, given = (base.as_counts(_at(values, at)) for at in tensors.splits)
        call = _with_splits(call, (elements, base.count_elements(_at(shapes, 0))), (given, output))
    sent = counts[-1] if counts else None
    ratio = None
    if len(known) == 2:
        large, small = max(known), min(known)
        ratio = large // small if small and large % small == 0 else None
    if tensors.block is not None:
        sent = base.count_elements(_at(shapes, tensors.block))
    return call and Operator(call, sent, ratio, tensors.block is not None)


def read_record(args: Fields, groups: TracedGroups) -> Call | None:
    """The call that the arguments of `record_param_comms`, or of a kernel, describe; None for one
    that is no call, or is not known. What they say of its group is added to `groups`."""
    sent, received = args.count("In msg nelems"), args.count("Out msg nelems")
    elements = None if sent is None or received is None else max(sent, received)
    flag = args.get("Is asynchronized op")
    call = base.make_call(
        args.get("Collective name"), args.get("dtype"), elements,
        group=args.text("Process Group Name"),
        asynchronous=None if flag is None else str(flag) in ("True", "1"),
        sequence=args.count("Seq"),
    )  # fmt: skip
    if call is None:
        return None
    _add_group(args, groups)
    if call.is_message:
        peer = args.count("Dst Rank" if call.operation == SEND else "Src Rank")
        call = call._replace(peer=_place(peer, call.group, groups, args.count("Rank")))
    if call.operation in ("all_to_all", "all_to_all_v"):
        splits = args.counts("In split size"), args.counts("Out split size")
        call = _with_splits(call, (sent, received), splits)
    return call


def _place(peer: int | None, group: str, groups: TracedGroups, in_group: int | None) -> int | None:
    """The peer's rank in the group. `Rank` is that rank; `Src Rank` and `Dst Rank` are global in
    newer versions, in older ones the same as `Rank`."""
    ranks = groups.get(group, TracedGroup()).ranks
    if in_group is not None and (not ranks or in_group < len(ranks)):
        return in_group
    if peer is not None and peer in ranks and max(ranks) >= len(ranks):
        return ranks.index(peer)
    return peer


def _with_splits(
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
    size = base.in_bytes(elements[0], call.dtype)
    return call._replace(
        operation="all_to_all_v", send_splits=found[0], receive_splits=found[1], size_bytes=size
    )


def _add_group(args: Fields, groups: TracedGroups) -> None:
    """Add what a record says of its process group."""
    name = args.text("Process Group Name")
    known = groups.get(name, TracedGroup())
    size = args.rank("Group size") or 0
    if not name or known.ranks:
        return
    ranks = args.ranks("Process Group Ranks")
    start = args.rank("Global rank start")
    stride = args.rank("Global rank stride")
    if not ranks and start is not None and stride and start + stride * (size - 1) <= MOST_RANKS:
        ranks = tuple(range(start, start + stride * size, stride))
    described = args.text("Process Group Description") or known.description
    groups[name] = TracedGroup(ranks, described, size or len(ranks) or known.size)


def _at(values: list[Any], at: int | None) -> Any:
    return values[at] if at is not None and at < len(values) else None


def _read_dtype(types: list[Any]) -> str:
    return next(filter(None, map(base.find_dtype_name, types)), "")


def _read_number(values: list[Any], at: int | None) -> int | None:
    text = str(_at(values, at))
    return int(text) if text.isdecimal() and len(text) < 8 else None


# Transfers of gloo, and the process groups of its calls.

THREADS = 2
"""Threads of a process group of gloo, as torch.distributed makes them."""
_Key = tuple[str, int | None]


class Transfers:
    """The annotations `gloo:...`, taken by the calls that they are transfers of."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._waiting: dict[_Key, deque[tuple[Event, str]]] = defaultdict(deque)
        for event in sorted(events, key=lambda event: event.start_s):
            name, elements, dtype = event.shape()
            self._waiting[name, elements].append((event, dtype))
        self._nested: dict[_Key, list[float]] = defaultdict(list)
        """When the first transfers of calls with lists of tensors began."""

    def take(self, call: Call, operator: Operator) -> Call:
        """The call with its transfer, if there is one."""
        for key in self._keys(call, operator):
            queue = self._waiting.get(key)
            while queue and queue[0][0].start_s < (call.ready_s or 0.0):
                queue.popleft()  # of a call before the trace began
            if queue:
                event, dtype = queue.popleft()
                if operator.is_nested:
                    self._nested[key].append(event.start_s)
                filled = _with_dtype(call, operator, dtype)
                time_s = event.end_s - event.start_s
                return filled._replace(start_s=event.start_s, time_s=time_s, stream=event.thread)
        return call

    def _keys(self, call: Call, operator: Operator) -> list[_Key]:
        """What its annotation may be: gloo makes reduce_scatter of all_reduce, as torch does."""
        name = "all_to_all" if call.operation == "all_to_all_v" else call.operation
        names = [name, "all_reduce"] if name == "reduce_scatter" else [name]
        elements = operator.input_elements
        keys = [(each, elements) for each in names] + [(each, None) for each in names]
        if call.tensors > 1 or name == "scatter":  # an annotation may have other tensors of it
            begun = [(q[0][0].start_s, key) for key, q in self._waiting.items() if q]
            later = [found for found in begun if found[0] >= (call.ready_s or 0.0)]
            keys += [key for _, key in sorted(later, key=lambda f: f[0]) if key[0] in names]
        return keys

    def extend(self, calls: list[Call]) -> None:
        """A reduce_scatter of a list is several transfers of gloo: the call lasts until the last of
        them ends."""
        by_start = {call.start_s: index for index, call in enumerate(calls)}
        for key, starts in self._nested.items():
            queue = self._waiting[key]
            for start, until in pairwise([*starts, float("inf")]):
                while queue and queue[0][0].start_s < until:
                    end, index = queue.popleft()[0].end_s, by_start[start]
                    time_s = max(calls[index].time_s or 0.0, end - start)
                    calls[index] = calls[index]._replace(time_s=time_s)


def find_groups(
    calls: list[Call],
    without_group: list[tuple[int, Operator]],
    groups: TracedGroups,
    rank: int | None,
    only: str,
) -> None:
    """Write into calls that name no group the only one that is possible: that of the thread of
    their transfer; without a transfer, that of the name `only`."""
    own = [name for name, group in groups.items() if rank is None or rank in group.ranks]
    names = sorted(own, key=lambda name: (len(name), name))
    allowed: dict[str, set[str]] = {}
    for index, operator in without_group:
        if isinstance(thread := calls[index].stream, str):
            fits = {name for name in names if _fits(calls[index], operator, groups[name])}
            allowed[thread] = allowed.get(thread, fits) & fits
    assigned = assign_threads(allowed, names)
    for index, operator in without_group:
        thread = calls[index].stream
        found = assigned.get(thread, []) if isinstance(thread, str) else [only]
        if len(found) == 1 and found[0]:
            calls[index] = operator.in_group(calls[index], found[0], groups)


def _with_dtype(call: Call, operator: Operator, dtype: str) -> Call:
    """The call with the type that its transfer has; lists of tensors have none in an operator."""
    if call.dtype or not dtype:
        return call
    size = call.size_bytes
    if size is None and not operator.is_nested:
        size = base.in_bytes(operator.input_elements, dtype)
    return call._replace(dtype=dtype, size_bytes=size)


def _fits(call: Call, operator: Operator, group: TracedGroup) -> bool:
    """Whether the shapes, root, peer and splits of a call agree with a group."""
    sizes = {len(splits) for splits in (call.send_splits, call.receive_splits) if splits}
    sizes |= {operator.ratio} if operator.ratio else set()
    places = [place for place in (call.root, call.peer) if place is not None]
    return sizes <= {group.size} and all(place < group.size for place in places)


def _number(thread: str, threads: Sequence[str]) -> int:
    """The order of a thread's number after its process's: numbers start again from a low one."""
    process, _, number = thread.partition("/")
    if not (process.isdecimal() and number.isdecimal()):
        return threads.index(thread)
    return int(number) + (1 << 32) * (int(number) < int(process))


def assign_threads(allowed: dict[str, set[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """For each thread the groups to which it may belong, in all assignments that keep the order of
    threads and groups and give a group THREADS threads at most. `names` are in the order in which
    the groups were made."""
    if len(names) == 1:
        return {thread: [*names] for thread in allowed}
    # Sends and receives begin on the thread that calls them.
    is_process = {thread for thread in allowed if thread.split("/")[0] == thread.split("/")[-1]}
    found = {thread: [name for name in names if name in allowed[thread]] for thread in is_process}
    threads = sorted(allowed.keys() - is_process, key=lambda t: _number(t, list(allowed)))
    places = [name for name in names for _ in range(THREADS)]
    first = _first_places([allowed[thread] for thread in threads], places)
    last = _first_places([allowed[thread] for thread in threads[::-1]], places[::-1])
    for thread, begin, end in zip(threads, first, last[::-1], strict=True):
        between = dict.fromkeys(places[begin : len(places) - end])
        found[thread] = [name for name in between if name in allowed[thread]]
    return found


def _first_places(allowed: Sequence[set[str]], places: Sequence[str]) -> list[int]:
    """Of each thread the first place that it can have behind that of the thread before it, among
    places with the groups that they are of; behind the last place where there is none."""
    found, at = [], -1
    for names in allowed:
        at = next((i for i in range(at + 1, len(places)) if places[i] in names), len(places))
        found.append(at)
    return found

"""A workload: the collective calls of a training step, with their groups, sizes and gaps.

It is read from a trace (readers.trace_formats), or generated from a model and a layout, and stored
as a JSON file (results.files). Ranks that make the same calls share one program, so that the step
of a data parallel job is written once, whatever the number of ranks. A pipeline has a program for
each stage. A call names a set of groups, such as the groups of the dimension `tp`: each rank
makes the call in that group of the set to which it belongs.

Sizes follow nccl-tests, as everywhere in commbench (plan.operation): S is the larger of what a rank
sends and receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from commbench.errors import UsageError, name_error
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.groups import WORLD
from commbench.plan.operations import OPERATIONS
from commbench.validation import LARGEST_INTEGER, LONGEST_TEXT, brief, build

VERSION = 1
KIND = "commbench_workload"
"""The key of a workload's file that has the version of its format."""

SEND, RECV = MESSAGES = "send", "recv"
"""Calls of one rank to one other rank. All other names of operations are those of OPERATIONS."""
UNKNOWN_GROUP = "unknown"
"""The name of the set of groups of calls whose group the trace does not say; it has no groups."""

MOST_RANKS = 1 << 20
LONGEST_S = 1e7


def waited(time_s: float | None, transfer_s: float | None) -> float | None:
    """How long a call waited for other ranks, by its time; None where that is not known."""
    return None if time_s is None or transfer_s is None else max(0.0, time_s - transfer_s)


class Call(NamedTuple):
    """One call of one rank in a trace, of a program of a workload, or of the replay of a step.

    Times are in seconds, from the begin of its step; in a trace, of the clock of the trace. None is
    a fact that the source does not say."""

    operation: str
    """A name in OPERATIONS, SEND or RECV."""
    group: str = WORLD
    """A name in Workload.groups; in a trace, the name of its process group, empty where the trace
    does not say."""
    dtype: str = ""
    """torch's name, as in DTYPES; empty if not known, and for a barrier."""
    size_bytes: int | None = None
    """S of the call, all its tensors together; 0 for a barrier."""
    tensors: int = 1
    """How many tensors a coalesced call has."""
    reduce_op: str = ""
    """As in REDUCE_OPS; empty if not known, and where nothing is reduced."""
    asynchronous: bool | None = None
    root: int | None = None
    """The root's rank in the group."""
    peer: int | None = None
    """The other rank of a SEND or RECV, as its rank in the group."""
    send_splits: tuple[int, ...] = ()
    receive_splits: tuple[int, ...] = ()
    """Elements to and from each rank of the group; empty for equal blocks."""
    stream: int | str = 0
    """Calls of one stream follow one another. Numbers count from 0; in a trace it is a name."""
    waited_after: int | None = None
    """The index of the last call that the program begins before it waits for this one: its own
    index where it waits at once."""
    start_s: float | None = None
    """When it began to move data, or to wait for other ranks."""
    ready_s: float | None = None
    """When the host made the call; in a workload, only where no GPU ran it, which may come to it
    long after."""
    compute_s: float | None = None
    """For how long the rank computed before it: since the call before, or the begin of the step,
    without the time when it only waited for calls under way."""
    compute_after_s: float | None = None
    """The same behind the last call of a program, until the end of the step."""
    gap_before_s: float | None = None
    """How long no earlier call of the program was under way before this one began."""
    time_s: float | None = None
    """How long it took, with the time that it waited for other ranks."""
    transfer_s: float | None = None
    """How long it took on the rank where it was shortest: without waiting."""
    waited_s: float | None = None
    """In a trace only: when the host or a stream began to wait for it."""
    sequence: int | None = None
    """In a trace only: the number that torch gave the call in its group."""
    has_ended: bool | None = None
    """In a trace only: whether it had ended when the trace was written."""
    last_rank: int | None = None
    """In a trace only: the rank that began last, for which the others waited: the one with the
    shortest duration. None for an operation with a root, whose ranks do not end together."""

    @property
    def begin_s(self) -> float | None:
        """When it began, by the host if that is known."""
        return self.start_s if self.ready_s is None else self.ready_s

    @property
    def end_s(self) -> float | None:
        """When it ended."""
        return None if self.start_s is None or self.time_s is None else self.start_s + self.time_s

    @property
    def is_message(self) -> bool:
        """Whether it is a call of one rank to one other rank."""
        return self.operation in MESSAGES

    @property
    def interval_s(self) -> tuple[float, float]:
        """When it began and ended; what is not known counts as 0."""
        start = self.start_s or 0.0
        return start, start + (self.time_s or 0.0)

    @property
    def waiting_s(self) -> float | None:
        """How long it waited for other ranks; None where that is not known."""
        return waited(self.time_s, self.transfer_s)

    def what(self) -> tuple[Any, ...]:
        """What it does, without when and how long: equal for calls that are repetitions."""
        return self[:_FIRST_OF_ORDER]


_FIRST_OF_ORDER = Call._fields.index("receive_splits") + 1
OF_TRACE = ("waited_s", "sequence", "has_ended", "last_rank")
"""What a workload does not say of its calls."""
_DEFAULTS = Call._field_defaults
_NEEDED = object()


class Program(NamedTuple):
    """The calls that some ranks make, in order."""

    ranks: tuple[int, ...]
    """Global ranks, ascending."""
    calls: tuple[Call, ...]


class Step(NamedTuple):
    """One step of the training, or a part of a trace without steps."""

    name: str
    programs: tuple[Program, ...]
    """Each rank is in one program at most."""
    count: int = 1  # type: ignore[assignment]  # hides tuple.count
    """How many steps of the trace made these calls. Times are the medians over them."""
    time_s: float | None = None
    """How long the step took, with its computation."""


TOTALS = "totals of a step, without the calls that a replay needs"
"""What the JSON of `workload show` says of itself."""


def most_often(steps: Sequence[Step]) -> Step:
    """The step that was made most often; of several the longest."""
    return max(steps, key=lambda step: (step.count, step.time_s or 0.0))


class Workload(NamedTuple):
    """The calls of one or several different steps."""

    name: str
    source: str
    """The file and its kind, or the command that generated it."""
    world_size: int
    groups: dict[str, tuple[tuple[int, ...], ...]]
    """Sets of groups by name; global ranks, in the order of ranks of each group."""
    steps: tuple[Step, ...]
    ranks_per_node: int | None = None
    backend: str = ""
    notes: tuple[str, ...] = ()
    """What the source does not say, in sentences."""
    formulas: tuple[str, ...] = ()
    """How the sizes follow from the model, where the workload was generated."""

    def calls(self) -> list[tuple[Step, Program, Call]]:
        """Every call with its program and its step, each program once."""
        return [(step, program, call) for step in self.steps for program in step.programs
                for call in program.calls]  # fmt: skip

    def group_of(self, call: Call, rank: int) -> tuple[int, ...]:
        """The global ranks of the group in which a rank makes a call; empty where not known."""
        return next((g for g in self.groups.get(call.group, ()) if rank in g), ())


def workload_values(workload: Workload) -> dict[str, Any]:
    """The workload as plain JSON values; what a call does not say is left out."""
    return {KIND: VERSION, **_values(workload)}


def _values(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _values(each) for name, each in value.items()}
    if isinstance(value, Call):
        named = value._asdict().items()
        return {name: _values(v) for name, v in named if v != _DEFAULTS.get(name, _NEEDED)}
    if isinstance(value, (Program, Step, Workload)):
        return _values(value._asdict())
    return [_values(each) for each in value] if isinstance(value, tuple) else value


def make_workload(values: Any) -> Workload:
    """The workload that workload_values wrote. Raises ValueError, which says what is wrong, for
    values that are no workload."""
    if not isinstance(values, dict) or KIND not in values:
        raise ValueError(f"it has no key {KIND!r}")
    fields = dict(values)
    if (version := fields.pop(KIND)) != VERSION:
        raise ValueError(f"its format has version {brief(version)}; this commbench reads {VERSION}")
    try:
        made = build(Workload, fields, steps=_make_step)
        _require(1 <= made.world_size <= MOST_RANKS, "world_size", made.world_size)
        _require(1 <= (made.ranks_per_node or 1) <= MOST_RANKS, "ranks_per_node", "out of range")
        sets = {name: _make_groups(name, v, made.world_size) for name, v in made.groups.items()}
    except (TypeError, UsageError) as error:
        raise ValueError(str(error)) from None
    _check_calls(workload := made._replace(groups=sets))
    return workload


_make_step = partial(build, Step, programs=partial(build, Program, calls=partial(build, Call)))


def _require(holds: bool, name: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} is wrong: {value}")


def _is_rank(value: Any, world_size: int) -> bool:
    return type(value) is int and 0 <= value < world_size


def _make_groups(name: str, value: Any, world_size: int) -> tuple[tuple[int, ...], ...]:
    _require(len(name) <= LONGEST_TEXT and isinstance(value, list), "group", brief(name))
    for group in value:
        is_group = isinstance(group, list) and all(_is_rank(rank, world_size) for rank in group)
        _require(is_group and len({*group}) == len(group) > 0, f"group {name!r:.40}", brief(group))
    return tuple(map(tuple, value))


def _check_calls(workload: Workload) -> None:
    """Raise ValueError for a rank, a name or a number that is none."""
    for step in workload.steps:
        _require(step.count >= 1, "count", step.count)
        _require(0 <= (step.time_s or 0) <= LONGEST_S, "time_s", step.time_s)
        ranks = [rank for program in step.programs for rank in program.ranks]
        _require(all(_is_rank(rank, workload.world_size) for rank in ranks), "ranks", brief(ranks))
        _require(len(set(ranks)) == len(ranks), "ranks", "one is in two programs")
        for program in step.programs:
            for index, call in enumerate(program.calls):
                try:
                    _check_call(workload, program, call)
                except ValueError as error:
                    raise ValueError(f"call {index} of {step.name!r:.40}: {error}") from None


def _check_call(workload: Workload, program: Program, call: Call) -> None:
    for kind, name, known in (
        ("operation", call.operation, [*OPERATIONS, SEND, RECV]),
        ("dtype", call.dtype, ["", *DTYPES]),
        ("reduce operation", call.reduce_op, ["", *REDUCE_OPS]),
        ("group", call.group, [*workload.groups, UNKNOWN_GROUP]),
    ):
        if name not in known:
            raise ValueError(name_error(kind, name[:40], known).message)
    for name, value in call._asdict().items():
        numbers = value if isinstance(value, tuple) else (value,)
        most = LONGEST_S if name.endswith("_s") else LARGEST_INTEGER
        is_number = [isinstance(number, (int, float)) for number in numbers]
        if not all(0 <= n <= most for n, is_one in zip(numbers, is_number, strict=True) if is_one):
            raise ValueError(f"{name} is wrong: {brief(value)}")
    _require(call.tensors >= 1, "tensors", call.tensors)
    _require(type(call.stream) is int, "the stream", brief(call.stream))
    for name in OF_TRACE:
        _require(getattr(call, name) is None, name, "it is not that of a workload")
    if call.group == UNKNOWN_GROUP:
        return
    sizes = {len(workload.group_of(call, rank)) for rank in program.ranks}
    _require(0 not in sizes, "group", f"a rank of the program is in no group of {call.group!r:.40}")
    for name in ("root", "peer"):
        place = getattr(call, name)
        _require(place is None or place < min(sizes, default=1), name, place)
    for splits in (call.send_splits, call.receive_splits):
        _require(not splits or {len(splits)} == sizes, "splits", f"{len(splits)} of them")

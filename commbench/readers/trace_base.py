"""The common form of traces, a RankTrace of Calls, and torch's names in commbench's words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple, TypeAlias

from commbench.plan.dtypes import DTYPE_NAMES, DTYPES
from commbench.plan.operations import OPERATIONS
from commbench.plan.workload import LONGEST_S, MOST_RANKS, RECV, SEND, Call
from commbench.readers.trace_source import Source
from commbench.units import LARGEST_SIZE, MICRO

MOST_GROUP_RANKS = 1 << 17
MOST_RECORDS = 1 << 22
"""Records about communication that are kept of a file, at most."""

_OPERATIONS = {
    name.replace("_", ""): name
    for name in (
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "broadcast",
        "reduce", "gather", "scatter", "barrier", SEND, RECV,
    )
}  # fmt: skip
_ADDED = re.compile(
    r"_|base|tensor|into|coalesced|oop|single|monitored|any|source|^nccl|^i(?=send|recv)"
)
"""What torch and NCCL add to the names of operations, in lower case."""
NO_CALL = {"wait", "init", "initialize", "startcoalescing", "endcoalescing", "coalesced"}
"""What torch records under `record_param_comms` that is no call of an operation."""

_CPP = {"long int": "long", "short int": "short", "unsigned char": "byte", "signed char": "char"}
"""C++'s names of element types by those that torch has, too."""
_KERNEL_OP = re.compile(r"_(SumPostDiv|PreMulSum|Sum|Prod|MinMax|Min|Max)(?:_|$|\()")
_REDUCE_OPS = {"Sum": "sum", "Prod": "prod", "Min": "min", "Max": "max", "SumPostDiv": "avg"}
"""The reduction in the name of NCCL's kernels. PreMulSum is avg or premul_sum, so neither is
said."""


class TracedGroup(NamedTuple):
    """A process group: its global ranks, empty where the trace does not say; and what it is for."""

    ranks: tuple[int, ...] = ()
    description: str = ""
    size: int = 0


TracedGroups: TypeAlias = dict[str, TracedGroup]
"""Groups by their names in a trace."""


class TracedStep(NamedTuple):
    """A step that torch.profiler marked."""

    name: str
    start_s: float
    end_s: float


class RankTrace(NamedTuple):
    """What one file says of one rank. Its reader fills in `path`, `format` and `is_cut`."""

    path: str = ""
    format: str = ""
    rank: int | None = None
    world_size: int | None = None
    calls: tuple[Call, ...] = ()
    """In the order in which the rank made them."""
    groups: TracedGroups = {}  # noqa: RUF012 - never changed
    steps: tuple[TracedStep, ...] = ()
    backend: str = ""
    computing: Sequence[float] = ()
    """Begin and end of each interval of computation, one after the other, in seconds."""
    has_kernels: bool = False
    """Whether the computation is that of GPU kernels, not of the host."""
    host: str = ""
    is_cut: bool = False
    """Whether the file ends early."""
    cut_step: str = ""
    """The name of the step in which such a file ends; it is not in `steps`."""
    notes: tuple[str, ...] = ()


class TraceFormat(NamedTuple):
    """One format of traces."""

    name: str
    starts: re.Pattern[str]
    """What the text of a file of this format begins with."""
    key: str
    """The key of the array of records: events, entries or nodes. Empty: the file has one record
    after another."""
    facts: tuple[str, ...]
    """Other keys whose values are needed."""
    read: Callable[[Iterable[Any], Source], RankTrace]
    """Makes the trace of the records. When it has taken all of them, the source knows the facts and
    whether the file ends early. Raises RecordsError where no record says anything."""


def find_operation_name(name: Any) -> str:
    """commbench's name of an operation of torch or NCCL; empty for one that it has not."""
    return _OPERATIONS.get(_ADDED.sub("", str(name).lower()), "")


def find_dtype_name(name: Any) -> str:
    """torch's name of an element type; empty for one that is not known."""
    text = str(name).lower().removeprefix("c10::")
    return DTYPE_NAMES.get(_CPP.get(text, text), "")


def find_reduce_op(operation: str, kernel: str) -> str:
    """The reduction in the name of a kernel of an operation; empty where there is none."""
    is_reduced = operation in OPERATIONS and OPERATIONS[operation].reduces
    found = _KERNEL_OP.search(kernel) if is_reduced else None
    return _REDUCE_OPS.get(found[1], "") if found else ""


def make_call(name: Any, dtype: Any, elements: int | None, **known: Any) -> Call | None:
    """The call of an operation of torch or NCCL on so many elements; None for an operation that
    commbench has not. torch records a byte for a barrier, which moves no data."""
    operation, dtype = find_operation_name(name), find_dtype_name(dtype)
    call = Call(operation, dtype=dtype, size_bytes=in_bytes(elements, dtype), **known)
    if operation == "barrier":
        call = call._replace(dtype="", size_bytes=0)
    return call if operation else None


def as_count(value: Any, most: int = LARGEST_SIZE) -> int | None:
    """A whole number from 0 up; None for anything else."""
    return value if type(value) is int and 0 <= value <= most else None


def as_text(value: Any) -> str:
    """A short text, or a number as text."""
    is_number = type(value) is int and abs(value) <= LARGEST_SIZE
    return str(value)[:200] if isinstance(value, str) or is_number else ""


def as_counts(value: Any) -> tuple[int, ...]:
    """The whole numbers in a list, or in its text `[0, 1]`; empty for a text that was cut, and for
    all else."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not isinstance(value, list) or len(value) > MOST_GROUP_RANKS:
        return ()
    return tuple(value) if all(as_count(number) is not None for number in value) else ()


class Fields:
    """An object of JSON, which may hold anything: what is not as expected is not there."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values: dict[str, Any] = values if isinstance(values, dict) else {}

    def get(self, *names: str) -> Any:
        """The value of the first of these names that is there; None without one."""
        return next((found for n in names if (found := self.values.get(n)) is not None), None)

    def fields(self, name: str) -> Fields:
        """The object within; an empty one for anything else."""
        return Fields(self.values.get(name))

    def list(self, name: str) -> list[Any]:
        """A list; an empty one for anything else."""
        found = self.values.get(name)
        return [*found] if isinstance(found, (list, tuple)) else []

    def text(self, *names: str) -> str:
        """A short text, or a number as text."""
        return as_text(self.get(*names))

    def count(self, name: str) -> int | None:
        """A whole number from 0 up; None for anything else."""
        return as_count(self.values.get(name))

    def counts(self, name: str) -> tuple[int, ...]:
        """The whole numbers in a list or its text."""
        return as_counts(self.values.get(name))

    def rank(self, *names: str, most: int = MOST_RANKS) -> int | None:
        """A rank or a number of ranks; None for anything else."""
        return as_count(self.get(*names), most)

    def ranks(self, name: str) -> tuple[int, ...]:
        """The different ranks in a list or its text. They may be more than any job has."""
        found = self.counts(name)
        return found if len({*found}) == len(found) else ()

    def seconds(self, name: str, unit: float = MICRO) -> float | None:
        """A time or a duration in seconds; None for what is none."""
        value: Any = self.values.get(name)
        if type(value) not in (int, float) or not -1e20 < value < 1e20:
            return None
        return float(value) * unit

    def duration(self, name: str, unit: float = MICRO) -> float | None:
        """A duration in seconds; None for one that is negative or too long."""
        found = self.seconds(name, unit)
        return found if found is not None and 0 <= found <= LONGEST_S else None


def read_groups(found: Fields) -> TracedGroups:
    """Process groups by their names, from what torch writes of each under `pg_config`. Their keys
    begin with `pg_` or do not."""
    groups = {}
    for entry in map(Fields, found.list("pg_config") or found.fields("pg_config").values.values()):
        if name := entry.text("pg_name", "name"):
            ranks = entry.ranks("ranks")
            size = entry.rank("pg_size", "group_size") or len(ranks)
            groups[name] = TracedGroup(ranks, entry.text("pg_desc", "desc"), size)
    return groups


def count_elements(shape: Any) -> int | None:
    """The elements of a shape, or of several shapes together; None for what is no shape."""
    if not isinstance(shape, (list, tuple)) or len(shape) > MOST_GROUP_RANKS:
        return None
    if shape and all(isinstance(each, (list, tuple)) for each in shape):
        counts = [_elements(each) for each in shape]
        return None if None in counts else sum(filter(None, counts))
    return _elements(shape)


def _elements(shape: Sequence[Any]) -> int | None:
    if len(shape) > 64 or any(as_count(extent) is None for extent in shape):
        return None
    return as_count(prod(shape))


def in_bytes(elements: int | None, dtype: str) -> int | None:
    """So many elements in bytes; None where one of both is not known."""
    return as_count(elements * DTYPES[dtype].size_bytes) if elements is not None and dtype else None


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of intervals, as ascending intervals that do not touch."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    return sum(end - begin for begin, end in merged(intervals))


def rank_in_name(path: str) -> int | None:
    """The rank in a file's name: `rank0.json`, `trace_rank-12.json.gz`, `nccl_trace_rank_3`."""
    found = re.findall(r"rank[_.-]?(\d{1,6})(?!\d)", path.lower())
    return as_count(int(found[-1]), MOST_RANKS) if found else None

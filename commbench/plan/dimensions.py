"""The table of dimensions of a case: operation, dtype, size and so on; and that of timing modes.

A case has one value in each dimension, and no two cases of a plan have the same values. Adding a
dimension takes an entry here, a field of Case and a field of Plan; the two fields have defaults, so
that files which are older than the dimension can still be read. The columns of results.csv, the key
by which rows of two files match, titles and labels follow from the table.

A timing mode says how calls are timed. An iteration is what one pair of time stamps encloses: a
number of calls, one after another. The ranks are aligned before each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.plan import pairs
from commbench.plan.backends import ALLOCATORS, DEFAULT_MEMORY, MEMORY_CHOICES, REGISTERED
from commbench.plan.call_forms import CALL_FORMS, DIRECT, ONE_TENSOR, choose_forms
from commbench.plan.computations import AT_ONCE, COMMUNICATION, COMPUTATION, PARTS, expand_overlap
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.groups import CONCURRENCY_CHOICES, group_choices
from commbench.plan.operation import ALL_PLACEMENTS, NATURAL, PLACEMENT_CHOICES, Operation
from commbench.plan.operations import OPERATIONS
from commbench.validation import brief, by_name

if TYPE_CHECKING:
    from commbench.plan.plan import Plan

ISOLATED = "isolated"
PIPELINED = "pipelined"
BOTH = "both"


class TimingMode(NamedTuple):
    """One way of timing the calls of a case."""

    name: str
    help: str = ""
    """What it is, for `--help`, after its name."""
    tag: str = ""
    """What the title of a case says of it; empty for the usual mode."""
    heading: str = ""
    """What it is called at the head of a column that compares modes."""
    summary: str = ""
    """How calls are made, in a few words."""
    explanation: str = "An unknown timing mode."
    """What a time means, in sentences."""
    nccl_tests: str = ""
    """How it differs from what nccl-tests does."""
    most_calls: int = 1
    """Calls in one iteration, at most; the times of an iteration are divided by their number."""
    longest_s: float = 0.0
    """Seconds that those calls may last together; a longer call is made less often, at least
    twice."""
    has_entry_skew: bool = False
    """Whether the time from the first to the last rank's entry is a part of every call."""

    def summarise(self, statistic: str = "slowest rank, median") -> str:
        """What a time is, for the head of a table."""
        return f"{self.summary}, {statistic}" if self.summary else statistic

    def calls_per_iteration(self, call_s: float) -> int:
        """How many calls an iteration holds if one takes `call_s` seconds; 0: not known."""
        if self.most_calls == 1 or not call_s:
            return self.most_calls
        return max(2, int(min(self.most_calls, self.longest_s / call_s)))


TIMING_MODES = by_name(
    TimingMode(
        name=ISOLATED, help="each call alone, ranks aligned first", heading="alone",
        summary="each call alone",
        explanation="Each call is timed alone. The ranks are aligned, call once and wait for "
        "the result. The slowest rank counts, and t is the median of the calls. On a CPU this is "
        "the time that a program waits for a result, with the cost of launching the call; on a "
        "GPU it is that of the kernels, without it.",
        nccl_tests="each call alone; slowest rank of each iteration, median over iterations "
        "(nccl-tests: calls queued, mean over ranks)",
        has_entry_skew=True,
    ),
    TimingMode(
        name=PIPELINED, help="back to back, as nccl-tests does", tag="pipelined",
        heading="back to back",
        summary="calls back to back",
        explanation="Many calls are queued back to back, as in nccl-tests, and their time is "
        "divided by their number. The cost of launching a call overlaps with the call before "
        "it, so small sizes take less time than a single call.",
        nccl_tests="calls back to back, time of one; slowest rank of each iteration, median "
        "over iterations (nccl-tests: one iteration, mean over ranks)",
        most_calls=20, longest_s=20e-3,  # 20 calls, as nccl-tests
    ),
)  # fmt: skip

DEFAULT_TIMING = next(iter(TIMING_MODES))
TIMING_CHOICES = (*TIMING_MODES, BOTH)
TIMING_HELP = "; ".join(f"{mode.name}: {mode.help}" for mode in TIMING_MODES.values())


EAGER = "eager"
GRAPH = "graph"
LAUNCH_MODES = (EAGER, GRAPH)
"""How the calls of an iteration reach a device: each queued by itself, or all as one CUDA graph,
which was captured before and costs the host one launch."""
LAUNCH_CHOICES = (*LAUNCH_MODES, BOTH)


def expand(choice: str, modes: Iterable[str]) -> tuple[str, ...]:
    """The modes that a choice stands for: itself, or all of them."""
    return tuple(modes) if choice == BOTH else (choice,)


def describe_timing(name: str) -> TimingMode:
    """The mode of that name. A file may name one that is not known here: it gets an entry that
    says no more than its name."""
    return TIMING_MODES.get(name) or TimingMode(name, tag=name, nccl_tests=name)


HOT, ROTATING = "hot", "rotating"
BUFFER_MODES = (HOT, ROTATING)
"""Which memory the calls of a case use: all the same buffers, or each call the next of several, so
that its data are in no cache (Case.pieces)."""


GROUP_FIELDS = ("group", "concurrency", "group_ranks")


class Dimension(NamedTuple):
    """One dimension of a Case."""

    field: str
    """Its field of Case, its column of results.csv and its label in OpenMetrics."""
    plan_field: str
    """The field of Plan that says which values are measured."""
    option: str
    """The option of `commbench run` that sets that field."""
    values: Callable[[Plan, Operation], tuple[Any, ...]]
    """The values that the cases of one operation have, in order. An operation to which the
    dimension does not apply has one: empty text, or None for a number."""
    joint: tuple[str, ...] = ()
    """Fields whose values each of its values has, in this order, because they depend on each other;
    the dimensions of the other fields then have one value, which does not count."""
    choices: tuple[str, ...] = ()
    """What the field of Plan may hold; empty where that is no choice among names."""
    title: Callable[[Any], str] | None = str
    """How a value reads in the title of a case; None: it is no part of the title."""
    curve_names: Mapping[str, str] = {}
    """What a curve of a value is called, where that is not the title's word."""
    is_leading: bool = False
    """Whether it is at the beginning of the title, before what qualifies the call."""
    is_name: bool = False
    """Whether a short title has it, too, although it may be the same in all rows."""
    is_integer: bool = False
    """Whether its values are whole numbers; otherwise they are text."""

    @property
    def word(self) -> str:
        """What it is called in a sentence: `reduce op`, `size`."""
        return self.field.removesuffix("_bytes").replace("_", " ")


def _buffers(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if not operation.has_data or operation.registers or operation.memory:
        return (HOT,)  # the last two are bound to one allocation
    return expand(plan.buffers, BUFFER_MODES)


def _chosen(own: tuple[str, ...], choice: str) -> tuple[str, ...]:
    """The values that a choice means for an operation with these, the first of which is natural."""
    if choice == NATURAL or not any(own):
        return own[:1] or ("",)
    return own if choice in (ALL_PLACEMENTS, pairs.ALL_P2P_CALLS) else (choice,)


def _none(*_: object) -> tuple[str, ...]:
    """Of a dimension whose values come with another one, or from a workload (plan.replay)."""
    return ("",)


def _dtypes(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if operation.registers:
        return ("uint8",)
    return plan.dtypes if operation.has_data else ("",)


def _memories(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if operation.registers:
        return tuple(name for name in plan.memory if name in REGISTERED) or REGISTERED[:1]
    if operation.memory or not operation.has_data:
        return (operation.memory or DEFAULT_MEMORY,)
    return plan.memory


def _pairs(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if not operation.is_paired:
        return ("",)
    ranks = max(len(group) for found in plan.group_sets for group in found.groups)
    return pairs.expand_pairs(plan.pairs, ranks, is_one_way=operation.is_one_way)


def _sizes(plan: Plan, operation: Operation) -> tuple[int, ...]:
    if not operation.has_data:
        return (0,)
    if operation.is_latency and plan.latency_size is not None:
        return (plan.latency_size,)
    return plan.sizes


def _tensors(plan: Plan, operation: Operation) -> tuple[str, ...]:
    is_single = operation.registers or operation.prepare or not operation.has_data
    return (ONE_TENSOR,) if is_single else plan.tensors


def _forms(plan: Plan, operation: Operation) -> tuple[tuple[str, str], ...]:
    """Forms of the operation's own call, and own calls, which are direct."""
    if operation.makes_group:
        return ((DIRECT, ""),)
    found = [choose_forms(plan.forms, operation, t) for t in _tensors(plan, operation)]
    names = (name for name in CALL_FORMS if any(name in forms for forms in found))
    own = ((DIRECT, call.name) for call in plan.own if call.operation == operation.name)
    return (*((name, "") for name in names), *own)


def _overlaps(plan: Plan, operation: Operation) -> tuple[tuple[str, str], ...]:
    found = ("",) if operation.registers else expand_overlap(plan.overlap, plan.device)
    return tuple((each, part) for each in found for part in (PARTS if each else ("",)))


def _dimension(field: str, values: Any, plan_field: str = "", **others: Any) -> Dimension:
    """A dimension that has the name of its field of Plan, and of its option, unless they differ."""
    option = f"--{field.replace('_', '-')}"
    return Dimension(field, plan_field or field, **{"option": option, "values": values} | others)


def _unless(usual: str) -> Callable[[str], str]:
    """The title of a value: itself, but the usual value is not named."""
    return lambda value: "" if value == usual else value


DIMENSIONS: tuple[Dimension, ...] = (
    _dimension(
        "operation", lambda _, o: (o.name,), "operations", option="--op",
        choices=tuple(OPERATIONS), is_name=True, is_leading=True,
    ),
    _dimension("dtype", _dtypes, "dtypes", choices=tuple(DTYPES), is_leading=True),
    _dimension(
        "reduce_op", lambda plan, o: plan.reduce_ops if o.reduces else ("",), "reduce_ops",
        choices=tuple(REDUCE_OPS), is_leading=True,
    ),
    _dimension(
        "root", lambda plan, o: (plan.root if o.rooted else None,),
        title=lambda root: "" if root is None else f"root {root}", is_integer=True,
    ),
    _dimension(
        "placement", lambda plan, o: _chosen(o.placements, plan.placement),
        choices=PLACEMENT_CHOICES, is_leading=True,
    ),
    _dimension(
        "timing",
        lambda plan, o: (ISOLATED,) if o.is_timed_by_host else expand(plan.timing, TIMING_MODES),
        choices=TIMING_CHOICES, title=lambda timing: describe_timing(timing).tag,
    ),
    _dimension(
        "launch_mode",
        lambda plan, o: (EAGER,) if o.is_timed_by_host else expand(plan.launch_mode, LAUNCH_MODES),
        option="--launch", choices=LAUNCH_CHOICES, title=_unless(EAGER),
    ),
    _dimension("buffers", _buffers, choices=(*BUFFER_MODES, BOTH), title=_unless(HOT)),
    _dimension(
        "p2p_call", lambda plan, o: _chosen(o.p2p_calls, plan.p2p_call),
        choices=pairs.P2P_CALL_CHOICES, is_leading=True,
    ),
    _dimension("pairs", _pairs, title=pairs.pairs_title),
    _dimension(
        "window", lambda plan, o: (plan.window if o.has_window else None,),
        title=lambda n: "" if n in (None, pairs.DEFAULT_WINDOW) else f"window {n}", is_integer=True,
    ),
    _dimension(
        "tensors", _tensors,
        title=lambda t: "" if t == ONE_TENSOR else f"{t} tensors" if t.isdigit() else t,
        curve_names={ONE_TENSOR: "1 tensor"},
    ),
    _dimension("form", _forms, "forms", joint=("form", "call"), title=_unless(DIRECT)),
    _dimension("call", _none, "calls", is_name=True),
    _dimension(
        "memory", _memories, choices=MEMORY_CHOICES,
        title=lambda memory: memory if memory in MEMORY_CHOICES[1:] else "",
    ),
    _dimension(
        "group", lambda plan, _: group_choices(plan.group_sets, plan.concurrency), "over",
        option="--over", joint=GROUP_FIELDS, title=lambda name: f"over {name}" if name else "",
    ),
    _dimension("concurrency", _none, choices=CONCURRENCY_CHOICES),
    _dimension("group_ranks", _none, "groups", option="--groups"),
    _dimension("imbalance", lambda plan, o: plan.imbalance if o.block_counts else ("",)),
    _dimension(
        "overlap", _overlaps, joint=("overlap", "part"),
        title=lambda overlap: f"with {overlap}" if overlap else "",
    ),
    _dimension(
        "part", _none, "overlap", option="--overlap",
        curve_names={
            "": "without overlap", COMMUNICATION: "communication alone",
            COMPUTATION: "computation alone", AT_ONCE: "both at once",
        },
    ),
    _dimension("step", _none, "workload", option="--workload", is_name=True, is_leading=True),
    _dimension("variant", _none, "variants", title=lambda variant: variant.replace(":", " ")),
    _dimension("size_bytes", _sizes, "sizes", option="--sizes", title=None, is_integer=True),
)  # fmt: skip
"""The cases of a plan are the product of these values for each of its operations, in this order:
the last dimension varies fastest."""


def used_plan_fields(plan: Plan) -> set[str]:
    """The fields of a plan that choose values of dimensions, without those of dimensions that apply
    to none of its operations and may be left out of files."""
    from commbench.plan.case import Case

    leads = {field: d for d in reversed(DIMENSIONS) for field in d.joint or (d.field,)}
    return {
        dimension.plan_field
        for dimension in DIMENSIONS
        if Case._field_defaults.get(dimension.field, True)
        or any(
            any(value) if dimension.field in leads[dimension.field].joint else value
            for name in plan.operations
            for value in leads[dimension.field].values(plan, OPERATIONS[name])
        )
    }


IN_TITLE = sorted((d for d in DIMENSIONS if d.title), key=lambda d: not d.is_leading)
"""The dimensions that a title names, in its order."""
_KNOWN = {d.field: frozenset(("", *d.choices)) for d in DIMENSIONS if d.choices} | {
    "memory": frozenset(("", *ALLOCATORS))
}


def require_known(field: str, value: Any) -> None:
    """Raise ValueError for a value of a dimension that is a choice among names, and not one of
    them. Empty text stands for none."""
    if value not in _KNOWN.get(field, (value,)):
        raise ValueError(f"{field} {brief(value)} is unknown")

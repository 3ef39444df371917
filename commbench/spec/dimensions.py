"""The table of dimensions of a case: operation, dtype, size and so on.

A case has one value in each dimension, and no two cases of a plan have the same values. Adding a
dimension takes an entry here, a field of Case and a field of Plan; the two fields have defaults, so
that files which are older than the dimension can still be read. The columns of results.csv, the key
by which rows of two files match, titles and labels follow from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.spec.allocators import ALLOCATORS, DEFAULT_MEMORY, MEMORY_CHOICES, REGISTERED
from commbench.spec.call_forms import CALL_FORMS, DIRECT, ONE_TENSOR, choose_forms
from commbench.spec.computations import AT_ONCE, COMMUNICATION, PARTS, expand_overlap
from commbench.spec.dtypes import DTYPES
from commbench.spec.groups import CONCURRENCY_CHOICES
from commbench.spec.operations import ALL_PLACEMENTS, NATURAL, OPERATIONS, PLACEMENT_CHOICES
from commbench.spec.pairs import (
    ALL_P2P_CALLS,
    DEFAULT_P2P_CALL,
    DEFAULT_WINDOW,
    P2P_CALL_CHOICES,
    expand_pairs,
    pairs_title,
)
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.spec.timing_modes import (
    BOTH,
    EAGER,
    ISOLATED,
    LAUNCH_CHOICES,
    TIMING_CHOICES,
    describe_timing,
    expand_launch,
    expand_timing,
)
from commbench.validation import brief

if TYPE_CHECKING:
    from commbench.spec.operations import Operation
    from commbench.spec.plan import Plan


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
    is_qualifier: bool = False
    """Whether it is at the end of the title, after the names."""
    is_name: bool = False
    """Whether a short title has it, too, although it may be the same in all rows."""
    is_integer: bool = False
    """Whether its values are whole numbers; otherwise they are text."""

    @property
    def is_of_group(self) -> bool:
        """Whether it says which groups of ranks call."""
        return self.field in GROUP_FIELDS

    @property
    def word(self) -> str:
        """What it is called in a sentence: `reduce op`, `size`."""
        return self.field.removesuffix("_bytes").replace("_", " ")


def _buffers(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if not operation.has_data or operation.registers or operation.memory:
        return (HOT,)  # the last two are bound to one allocation
    return BUFFER_MODES if plan.buffers == BOTH else (plan.buffers,)


def _placements(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if plan.placement == NATURAL or not any(operation.placements):
        return operation.placements[:1]
    return operation.placements if plan.placement == ALL_PLACEMENTS else (plan.placement,)


def _none(plan: Plan, operation: Operation) -> tuple[str, ...]:  # noqa: ARG001
    """Of a dimension whose values come with another one, or from a workload (spec.replay)."""
    return ("",)


def _dtypes(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if operation.registers:
        return ("uint8",)
    return plan.dtypes if operation.has_data else ("",)


def _memories(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if operation.registers:
        chosen = tuple(name for name in plan.memory if name in REGISTERED)
        return chosen or REGISTERED[:1]
    if operation.memory or not operation.has_data:
        return (operation.memory or DEFAULT_MEMORY,)
    return plan.memory


def _p2p_calls(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if not operation.p2p_calls:
        return ("",)
    if plan.p2p_call == DEFAULT_P2P_CALL:
        return operation.p2p_calls[:1]
    return operation.p2p_calls if plan.p2p_call == ALL_P2P_CALLS else (plan.p2p_call,)


def _pairs(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if not operation.is_paired:
        return ("",)
    ranks = max(len(group) for found in plan.group_sets for group in found.groups)
    return expand_pairs(plan.pairs, ranks, is_one_way=operation.is_one_way)


def _sizes(plan: Plan, operation: Operation) -> tuple[int, ...]:
    if not operation.has_data:
        return (0,)
    if operation.is_latency and plan.latency_size is not None:
        return (plan.latency_size,)
    return plan.sizes


def _window_title(window: int | None) -> str:
    return "" if window in (None, DEFAULT_WINDOW) else f"window {window}"


def _tensors(plan: Plan, operation: Operation) -> tuple[str, ...]:
    is_single = operation.registers or operation.prepare or not operation.has_data
    return (ONE_TENSOR,) if is_single else plan.tensors


def _forms(plan: Plan, operation: Operation) -> tuple[str, ...]:
    if operation.makes_group:
        return (DIRECT,)
    found = [choose_forms(plan.forms, operation, t) for t in _tensors(plan, operation)]
    return tuple(name for name in CALL_FORMS if any(name in forms for forms in found))


def _overlaps(plan: Plan, operation: Operation) -> tuple[str, ...]:
    return ("",) if operation.registers else expand_overlap(plan.overlap, plan.device)


def _parts(plan: Plan, operation: Operation) -> tuple[str, ...]:
    overlaps = _overlaps(plan, operation)
    return (("",) if "" in overlaps else ()) + (PARTS if any(overlaps) else ())


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension(
        "operation", "operations", "--op",
        values=lambda _, operation: (operation.name,), choices=tuple(OPERATIONS), is_name=True,
    ),
    Dimension(
        "dtype", "dtypes", "--dtype",
        values=_dtypes, choices=tuple(DTYPES),
    ),
    Dimension(
        "reduce_op", "reduce_ops", "--reduce-op",
        values=lambda plan, operation: plan.reduce_ops if operation.reduces else ("",),
        choices=tuple(REDUCE_OPS),
    ),
    Dimension(
        "root", "root", "--root",
        values=lambda plan, operation: (plan.root if operation.rooted else None,),
        title=lambda root: "" if root is None else f"root {root}",
        is_qualifier=True, is_integer=True,
    ),
    Dimension(
        "placement", "placement", "--placement",
        values=_placements, choices=PLACEMENT_CHOICES,
    ),
    Dimension(
        "timing", "timing", "--timing",
        values=lambda plan, operation: (
            (ISOLATED,) if operation.is_timed_by_host else expand_timing(plan.timing)
        ),
        choices=TIMING_CHOICES,
        title=lambda timing: describe_timing(timing).tag, is_qualifier=True,
    ),
    Dimension(
        "launch_mode", "launch_mode", "--launch",
        values=lambda plan, operation: (
            (EAGER,) if operation.is_timed_by_host else expand_launch(plan.launch_mode)
        ),
        choices=LAUNCH_CHOICES,
        title=lambda mode: "" if mode == EAGER else mode, is_qualifier=True,
    ),
    Dimension(
        "buffers", "buffers", "--buffers",
        values=_buffers, choices=(*BUFFER_MODES, BOTH),
        title=lambda mode: "" if mode == HOT else mode, is_qualifier=True,
    ),
    Dimension(
        "p2p_call", "p2p_call", "--p2p-call", values=_p2p_calls, choices=P2P_CALL_CHOICES,
    ),
    Dimension(
        "pairs", "pairs", "--pairs",
        values=_pairs,
        title=pairs_title, is_qualifier=True,
    ),
    Dimension(
        "window", "window", "--window",
        values=lambda plan, operation: (plan.window if operation.has_window else None,),
        title=_window_title, is_qualifier=True, is_integer=True,
    ),
    Dimension(
        "tensors", "tensors", "--tensors", values=_tensors,
        title=lambda t: "" if t == ONE_TENSOR else f"{t} tensors" if t.isdigit() else t,
        is_qualifier=True,
    ),
    Dimension(
        "form", "forms", "--form", values=_forms,
        title=lambda form: "" if form == DIRECT else form, is_qualifier=True,
    ),
    Dimension(
        "memory", "memory", "--memory",
        values=_memories, choices=MEMORY_CHOICES,
        title=lambda memory: memory if memory in MEMORY_CHOICES[1:] else "", is_qualifier=True,
    ),
    Dimension(
        "group", "over", "--over",
        values=lambda plan, _: plan.group_choices(), joint=GROUP_FIELDS,
        title=lambda name: f"over {name}" if name else "", is_qualifier=True,
    ),
    Dimension(
        "concurrency", "concurrency", "--concurrency", values=_none,
        choices=CONCURRENCY_CHOICES, is_qualifier=True,
    ),
    Dimension("group_ranks", "groups", "--groups", values=_none, is_qualifier=True),
    Dimension(
        "imbalance", "imbalance", "--imbalance",
        values=lambda plan, operation: plan.imbalance if operation.block_counts else ("",),
        is_qualifier=True,
    ),
    Dimension(
        "overlap", "overlap", "--overlap", values=_overlaps,
        title=lambda overlap: f"with {overlap}" if overlap else "", is_qualifier=True,
    ),
    Dimension(
        "part", "overlap", "--overlap", values=_parts, is_qualifier=True,
        curve_names={COMMUNICATION: "alone", AT_ONCE: "at once"},
    ),
    Dimension("step", "workload", "--workload", values=_none, is_name=True),
    Dimension(
        "variant", "variants", "--variant", values=_none,
        title=lambda variant: variant.replace(":", " "), is_qualifier=True,
    ),
    Dimension(
        "size_bytes", "sizes", "--sizes",
        values=_sizes, title=None, is_integer=True,
    ),
)  # fmt: skip
"""The cases of a plan are the product of these values for each of its operations, in this order:
the last dimension varies fastest."""


def used_plan_fields(plan: Plan) -> set[str]:
    """The fields of a plan that choose values of dimensions, without those of dimensions that apply
    to none of its operations and may be left out of files."""
    from commbench.spec.case import Case

    return {
        dimension.plan_field
        for dimension in DIMENSIONS
        if Case._field_defaults.get(dimension.field, True)
        or (dimension.is_of_group and plan.has_groups)
        or any(
            any(dimension.values(plan, OPERATIONS[name]))
            for name in plan.operations
            if not dimension.is_of_group
        )
    }


IN_TITLE = sorted((d for d in DIMENSIONS if d.title), key=lambda d: d.is_qualifier)
"""The dimensions that a title names, in its order."""
_KNOWN = {d.field: frozenset(("", *d.choices)) for d in DIMENSIONS if d.choices} | {
    "memory": frozenset(("", *ALLOCATORS))
}


def require_known(field: str, value: Any) -> None:
    """Raise ValueError for a value of a dimension that is a choice among names, and not one of
    them. Empty text stands for none."""
    if value not in _KNOWN.get(field, (value,)):
        raise ValueError(f"{field} {brief(value)} is unknown")

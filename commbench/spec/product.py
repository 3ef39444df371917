"""The cases of a plan without a workload: products of the values of all dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from commbench.spec.allocators import REGISTERED
from commbench.spec.call_forms import ONE_TENSOR, choose_forms
from commbench.spec.case import READY, UNSUPPORTED, Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.groups import TOGETHER, common_blocks
from commbench.spec.operations import OPERATIONS, Operation
from commbench.spec.refusals import mark_impossible
from commbench.spec.rounding import round_size
from commbench.spec.splits import FILE

if TYPE_CHECKING:
    from commbench.spec.plan import Plan

_ALL_MAKE_GROUPS = (
    "all ranks take part in making a group: measure groups together, with each rank in one"
)


def count_product(plan: Plan) -> int:
    """How many products there are, before those of the same bytes become one case."""
    return sum(
        prod(len(dimension.values(plan, OPERATIONS[name])) for dimension in DIMENSIONS)
        for name in plan.operations
    )


def product_cases(plan: Plan) -> tuple[Case, ...]:
    """For each operation the product of its values in all DIMENSIONS, in their order. Sizes that
    round down to the same bytes become one case."""
    cases: dict[tuple[Any, ...], Case] = {}
    fields = [dimension.field for dimension in DIMENSIONS]
    joint = [dimension.joint for dimension in DIMENSIONS if dimension.joint]
    for operation, own_plan in _parts(plan):
        blocks = common_blocks(own_plan.layout, plan.world_size)
        wanted = {*plan.tensors, ONE_TENSOR}
        forms = {text: choose_forms(plan.forms, operation, text) for text in wanted}
        for values in product(*(d.values(own_plan, operation) for d in DIMENSIONS)):
            dimensions = dict(zip(fields, values, strict=True))
            for names in joint:
                dimensions |= zip(names, dimensions[names[0]], strict=True)
            case = Case(index=len(cases), **dimensions, count=0)
            if case.imbalance.startswith(FILE):
                case = case._replace(matrix=plan.matrix)
            if case.form not in forms[case.tensors] or bool(case.overlap) != bool(case.part):
                continue
            group_sizes = {len(group) for group in plan.groups_of(case)}
            case = case._replace(ranks=max(group_sizes))
            case = round_size(case, plan.rounding, forms[case.tensors], blocks[case.group])
            case = mark_impossible(case, plan.backend, plan.device, group_sizes)
            if case.status == READY and case.uses_new_group and not _has_all_ranks(plan, case):
                case = case._replace(status=UNSUPPORTED, reason=_ALL_MAKE_GROUPS)
            cases.setdefault(case.key(), case)
    return tuple(cases.values())


def _has_all_ranks(plan: Plan, case: Case) -> bool:
    """Whether each rank is in one of the groups that call at once, together with others."""
    groups = plan.groups_of(case)
    members = [rank for group in groups for rank in group]
    alone = plan.world_size > 1 and min(map(len, groups)) == 1
    return sorted(members) == list(range(plan.world_size)) and not alone


def _parts(plan: Plan) -> Iterator[tuple[Operation, Plan]]:
    """Each operation, and the plan that has its values."""
    for name in plan.operations:
        yield OPERATIONS[name], plan
    if any(name in REGISTERED for name in plan.memory):
        largest = replace(
            plan, sizes=tuple(sorted(plan.sizes)[-1:]), mesh="", mesh_order="", over=(),
            groups="", group_size=None, group_stride=None, concurrency=TOGETHER,
        )  # fmt: skip
        for operation in OPERATIONS.values():
            if operation.registers and operation.name not in plan.operations:
                yield operation, largest

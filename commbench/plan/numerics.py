"""Which sums are compared with the exact ones, and the data that they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commbench.plan.call_forms import ONE_TENSOR
from commbench.plan.compression import SUMS
from commbench.plan.dtypes import DTYPES
from commbench.plan.operations import OPERATIONS
from commbench.validation import by_name

if TYPE_CHECKING:
    from commbench.plan.case import Case
    from commbench.plan.plan import Plan

ROW = 1024
"""Elements of a row of gradients."""


class Data(NamedTuple):
    """A kind of data: normal numbers of variance 1, of which these are changed."""

    name: str
    summary: str
    row_spread: float = 0.0
    """The standard deviation of the logarithm of the scale of a row, the same on all ranks."""
    outlier_share: float = 0.0
    outlier_factor: float = 1.0


NORMAL = "normal"
DATA = by_name(
    Data(NORMAL, "independent numbers of variance 1"),
    Data("gradient", f"each row of {ROW} has a scale of its own, log-normal", row_spread=1.5),
    Data("outliers", "0.1 % of them times 100", outlier_share=1e-3, outlier_factor=100.0),
)  # fmt: skip
DATA_HELP = "; ".join(f"{data.name}: {data.summary}" for data in DATA.values())


def has_numerics(plan: Plan, case: Case) -> bool:
    """Whether the result of a case is compared with the exact sum: of one tensor of floating-point
    numbers in equal blocks, where the plan asks for it or the form is not exact."""
    operation, dtype = OPERATIONS[case.operation], DTYPES.get(case.dtype)
    is_float = dtype is not None and dtype.kind == "float" and dtype.size_bytes > 1
    is_plain = case.tensors == ONE_TENSOR and not (case.step or case.part or case.uses_new_group)
    is_plain = is_plain and not (operation.block_counts or case.own_call.send)
    is_sum = is_float and is_plain and case.reduce_op in SUMS
    return is_sum and (plan.numerics or case.call_form.compression is not None)

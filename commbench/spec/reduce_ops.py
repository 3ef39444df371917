"""The table of reduce operations: which element types each takes, and its neutral element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from commbench.errors import name_error
from commbench.spec.dtypes import Dtype

INTEGERS = ("int", "uint")


class ReduceOp(NamedTuple):
    """One reduce operation of torch.distributed (`torch.distributed.ReduceOp`)."""

    name: str
    kinds: tuple[str, ...]
    """Kinds of element type it is defined for."""
    combine: Callable[[Any, Any], Any]
    """The reduction of two tensors; where `divides` is set, the last result is divided."""
    neutral: Callable[[Dtype], int]
    """The neutral element: reducing with it changes no value."""
    values: Callable[[Dtype, int], tuple[int, ...]]
    """Test values for which reducing `contributors` of them is exact in any order."""
    contributors: Callable[[Dtype, int], int]
    """How many of n ranks may differ from the neutral element while the result stays exact."""
    divides: bool = False
    """The result is divided by the number of ranks (avg)."""
    torch_name: str = ""
    """Its attribute of torch's ReduceOp, where that is not the name in capitals."""


def _small_integers(dtype: Dtype, contributors: int) -> tuple[int, ...]:
    largest = max(1, min(dtype.exact_limit // contributors, 250))
    return tuple(range(0 if dtype.kind in ("uint", "bool") else -largest, largest + 1))


def _natural_numbers(dtype: Dtype, contributors: int) -> tuple[int, ...]:
    return tuple(range(1, max(1, min(dtype.exact_limit // contributors, 250)) + 1))


def _powers_of_two(dtype: Dtype, contributors: int) -> tuple[int, ...]:  # noqa: ARG001
    return (1, 2) if dtype.kind == "uint" else (1, 2, -1, -2)


def _all_bits(dtype: Dtype) -> int:
    return {"int": -1, "uint": dtype.exact_limit, "bool": 1}[dtype.kind]


def _lowest(dtype: Dtype) -> int:
    return 0 if dtype.kind in ("uint", "bool") else -_highest(dtype)


def _highest(dtype: Dtype) -> int:
    return min(dtype.exact_limit, 250)


def _sum_contributors(dtype: Dtype, ranks: int) -> int:
    return min(ranks, max(1, dtype.exact_limit // 4))


def _prod_contributors(dtype: Dtype, ranks: int) -> int:
    return min(ranks, dtype.exact_limit.bit_length() - 1)


def _few_contributors(dtype: Dtype, ranks: int) -> int:  # noqa: ARG001
    return min(ranks, 3)


def _avg_contributors(dtype: Dtype, ranks: int) -> int:
    # With fewer contributors, rounding is smaller against the value of each.
    return min(ranks, 3, max(1, dtype.exact_limit // 8))


_ORDERED = ("float", "int", "uint", "bool")
_BITS = ("int", "uint", "bool")

REDUCE_OPS: dict[str, ReduceOp] = {
    reduction.name: reduction
    for reduction in (
        ReduceOp(
            "sum", ("float", *INTEGERS), lambda a, b: a + b,
            lambda _: 0, _small_integers, _sum_contributors,
        ),
        ReduceOp(
            "avg", ("float",), lambda a, b: a + b,
            lambda _: 0, _natural_numbers, _avg_contributors, divides=True,
        ),
        ReduceOp(
            "prod", ("float", *INTEGERS), lambda a, b: a * b,
            lambda _: 1, _powers_of_two, _prod_contributors, torch_name="PRODUCT",
        ),
        ReduceOp(
            "min", _ORDERED, lambda a, b: a.minimum(b),
            _highest, lambda d, _: _small_integers(d, 1), _few_contributors,
        ),
        ReduceOp(
            "max", _ORDERED, lambda a, b: a.maximum(b),
            _lowest, lambda d, _: _small_integers(d, 1), _few_contributors,
        ),
        ReduceOp(
            "band", _BITS, lambda a, b: a & b,
            _all_bits, lambda d, _: _small_integers(d, 1), _few_contributors,
        ),
        ReduceOp(
            "bor", _BITS, lambda a, b: a | b,
            lambda _: 0, lambda d, _: _small_integers(d, 1), _few_contributors,
        ),
        ReduceOp(
            "bxor", _BITS, lambda a, b: a ^ b,
            lambda _: 0, lambda d, _: _small_integers(d, 1), _few_contributors,
        ),
    )
}  # fmt: skip


def find_reduce_op(name: str) -> ReduceOp:
    """The reduce operation called `name`; UsageError if there is none."""
    if name.lower() not in REDUCE_OPS:
        raise name_error("reduce op", name, list(REDUCE_OPS))
    return REDUCE_OPS[name.lower()]

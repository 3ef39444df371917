"""The tables of element types, with their sizes and how far each counts exactly, and of reduce
operations, with their neutral elements; and the kinds of data that sums are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from commbench.errors import name_error
from commbench.validation import by_name


class Dtype(NamedTuple):
    """One element type of torch."""

    name: str
    """torch's name, as in `torch.float32`."""
    size_bytes: int
    kind: str
    """`float`, `int` (signed), `uint` or `bool`."""
    exact_limit: int
    """Integers from 0 to this limit, and their sums up to it, are represented exactly."""
    epsilon: float = 0.0
    """The distance from 1 to the next larger number; 0 for integers."""
    aliases: tuple[str, ...] = ()
    """Other accepted names, those of nccl-tests among them."""
    nccl_tests: str = ""
    """nccl-tests' name, where it differs from torch's."""


DTYPES = by_name(
    Dtype("float32", 4, "float", 2**24, 2.0**-23, ("float", "fp32", "f32"), "float"),
    Dtype("float64", 8, "float", 2**53, 2.0**-52, ("double", "fp64", "f64"), "double"),
    Dtype("float16", 2, "float", 2**11, 2.0**-10, ("half", "fp16", "f16"), "half"),
    Dtype("bfloat16", 2, "float", 2**8, 2.0**-7, ("bf16",)),
    Dtype("float8_e4m3fn", 1, "float", 2**4, 2.0**-3, ("f8e4m3", "fp8_e4m3"), "f8e4m3"),
    Dtype("float8_e5m2", 1, "float", 2**3, 2.0**-2, ("f8e5m2", "fp8_e5m2"), "f8e5m2"),
    Dtype("int8", 1, "int", 2**7 - 1, aliases=("char",)),
    Dtype("int16", 2, "int", 2**15 - 1, aliases=("short",)),
    Dtype("int32", 4, "int", 2**31 - 1, aliases=("int",)),
    Dtype("int64", 8, "int", 2**63 - 1, aliases=("long",)),
    Dtype("uint8", 1, "uint", 2**8 - 1, aliases=("byte",)),
    Dtype("bool", 1, "bool", 1),
)

DTYPE_NAMES = {alias: d.name for d in DTYPES.values() for alias in (d.name, *d.aliases)}
"""torch's names by all names."""


def find_dtype(name: str) -> Dtype:
    """The dtype of that name or alias; UsageError if there is none."""
    if name.lower() not in DTYPE_NAMES:
        raise name_error("dtype", name, list(DTYPES))
    return DTYPES[DTYPE_NAMES[name.lower()]]


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
    values: Callable[[Dtype, int], Sequence[int]] = lambda dtype, _: _small_integers(dtype, 1)
    """Test values for which reducing `contributors` of them is exact in any order."""
    most_contributors: Callable[[Dtype], int] = lambda _: 3
    """How many ranks may at most differ from the neutral element while the result stays exact."""
    divides: bool = False
    """The result is divided by the number of ranks (avg)."""
    factor: int = 1
    """Every rank's tensor is multiplied by it first (premul_sum)."""
    torch_name: str = ""
    """Its attribute of torch's ReduceOp, where that is not the name in capitals."""

    def contributors(self, dtype: Dtype, ranks: int) -> int:
        """How many of the ranks may differ from the neutral element."""
        return min(ranks, self.most_contributors(dtype))


def _largest(dtype: Dtype, contributors: int = 1) -> int:
    return max(1, min(dtype.exact_limit // contributors, 250))


def _small_integers(dtype: Dtype, contributors: int) -> range:
    largest = _largest(dtype, contributors)
    return range(0 if dtype.kind in ("uint", "bool") else -largest, largest + 1)


_NUMBERS = ("float", *INTEGERS)
_ORDERED = (*_NUMBERS, "bool")
_BITS = (*INTEGERS, "bool")

REDUCE_OPS = by_name(
    ReduceOp(
        "sum", _NUMBERS, lambda a, b: a + b, lambda _: 0,
        _small_integers, lambda dtype: max(1, dtype.exact_limit // 4),
    ),
    ReduceOp(
        "avg", ("float",), lambda a, b: a + b, lambda _: 0,
        lambda dtype, contributors: range(1, _largest(dtype, contributors) + 1),
        # With fewer contributors, rounding is smaller against the value of each.
        lambda dtype: min(3, max(1, dtype.exact_limit // 8)), divides=True,
    ),
    ReduceOp(
        "prod", _NUMBERS, lambda a, b: a * b, lambda _: 1,
        lambda dtype, _: (1, 2) if dtype.kind == "uint" else (1, 2, -1, -2),
        lambda dtype: dtype.exact_limit.bit_length() - 1, torch_name="PRODUCT",
    ),
    ReduceOp("min", _ORDERED, lambda a, b: a.minimum(b), _largest),
    ReduceOp(
        "max", _ORDERED, lambda a, b: a.maximum(b),
        lambda dtype: 0 if dtype.kind in ("uint", "bool") else -_largest(dtype),
    ),
    ReduceOp(
        "premul_sum", ("float",), lambda a, b: a + b, lambda _: 0,
        lambda dtype, contributors: _small_integers(dtype, 2 * contributors),
        lambda dtype: max(1, dtype.exact_limit // 8), factor=2,
    ),
    ReduceOp(
        "band", _BITS, lambda a, b: a & b,
        lambda dtype: {"int": -1, "uint": dtype.exact_limit, "bool": 1}[dtype.kind],
    ),
    ReduceOp("bor", _BITS, lambda a, b: a | b, lambda _: 0),
    ReduceOp("bxor", _BITS, lambda a, b: a ^ b, lambda _: 0),
)  # fmt: skip


SYNONYMS = {
    "mean": "avg", "average": "avg", "add": "sum", "plus": "sum", "mul": "prod", "mult": "prod",
    "product": "prod", "minimum": "min", "amin": "min", "maximum": "max", "amax": "max",
    "mulsum": "premul_sum", "and": "band", "or": "bor", "xor": "bxor",
}  # fmt: skip
"""Names in other libraries, for the hint of a message."""


def find_reduce_op(name: str) -> ReduceOp:
    """The reduce operation called `name`; UsageError if there is none."""
    if name.lower() not in REDUCE_OPS:
        raise name_error("reduce op", name, list(REDUCE_OPS), SYNONYMS)
    return REDUCE_OPS[name.lower()]


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

"""The table of element types: torch's names, their sizes, and how far each counts exactly."""

from __future__ import annotations

from typing import NamedTuple

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

_NAMES = {alias: d.name for d in DTYPES.values() for alias in (d.name, *d.aliases)}


def find_dtype(name: str) -> Dtype:
    """The dtype of that name or alias; UsageError if there is none."""
    if name.lower() not in _NAMES:
        raise name_error("dtype", name, list(DTYPES))
    return DTYPES[_NAMES[name.lower()]]

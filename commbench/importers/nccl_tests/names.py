"""nccl-tests' names: programs, element types and reduce operations as commbench calls them."""

from __future__ import annotations

import re

from commbench.errors import UsageError
from commbench.importers.names import NCCL_TESTS
from commbench.spec.dtypes import find_dtype
from commbench.spec.reduce_ops import REDUCE_OPS

_PROGRAM = re.compile(r"(?<![\w.])([a-z]{2,20}(?:_[a-z]{2,20})?)_(?:perf|test)(?:_mpi)?(?![\w.])")
_OTHERS = ("hypercube", "alltoallv")


def programs_in(text: str) -> list[str]:
    """The programs of nccl-tests that a line names, without `_perf`: `all_reduce`, `alltoall`."""
    return [name for name in _PROGRAM.findall(text) if name in NCCL_TESTS or name in _OTHERS]


def operation_of(program: str) -> str:
    """commbench's name for a program; LookupError says that there is none."""
    if program not in NCCL_TESTS:
        raise LookupError(f"commbench has no operation for {program!r:.40}")
    return NCCL_TESTS[program]


def dtype_of(name: str) -> str:
    """commbench's name for an element type; LookupError where commbench has no such type."""
    try:
        return find_dtype(name).name
    except UsageError:
        raise LookupError(f"commbench has no element type {name!r:.40}") from None


def reduce_op_of(name: str) -> str:
    """commbench's name for a reduce operation, empty for `none`; LookupError for one it lacks."""
    if name == "none":
        return ""
    if name not in REDUCE_OPS:
        raise LookupError(f"commbench has no reduce op {name!r:.40}")
    return name


def library_version(code: str) -> str:
    """NCCL's version from its number: `22805` is 2.28.5, `2708` is 2.7.8."""
    number = int(code)
    unit = 10_000 if number >= 10_000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"

"""What the compressed forms of a call need and promise: they send fewer bytes, and their results
are not exact.

Bytes are those that a rank sends. With n ranks, an exchange moves the n - 1 parts of a tensor that
other ranks reduce; an all_reduce has a second one, in which the parts come back.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any, NamedTuple

from commbench.plan.dtypes import DTYPES
from commbench.plan.operation import Extent, Operation
from commbench.plan.operations import OPERATIONS

SCALED = 256
"""Elements that share a scale: those of a block of int8 and fp8."""
SCALE_BYTES = 4
POWERSGD_RANKS = (1, 2, 4, 8)
"""Columns of the two factors of PowerSGD; DistributedDataParallel's default is 1."""
SUMS = ("sum", "avg")


class Compression(NamedTuple):
    """What a compressed form needs beside the table of forms."""

    make: Callable[..., Any]
    """`make(worker.compression, operation, buffers, space)`: what runs it on a rank."""
    exchange_bytes: Callable[[int, int, int], int]
    """Bytes that a rank sends in an exchange: of so many elements, of so many bytes each, with so
    many ranks."""
    space_bytes: Callable[[int, int, int], int]
    """Memory that it needs at most beside the buffers, for the same."""
    dtypes: tuple[str, ...]
    """The element types that it compresses."""
    of: str = "parts"
    """What it compresses: one of Operation.compressions."""
    bound: Callable[[int, int], float] | None = None
    """The largest error of an element, for so many ranks and exchanges, over the sum over all ranks
    of the largest magnitude that each sends, without rounding to the result's element type; None
    where there is no bound."""

    def why_not(self, dtype: str, reduce_op: str) -> str:
        """Why a case has no such form; empty where it has."""
        if dtype not in self.dtypes:
            return f"the form compresses {', '.join(self.dtypes)}, not {dtype}"
        if reduce_op not in SUMS:
            return f"the form compresses sums and averages, not {reduce_op}"
        return ""

    def tolerance(self, case: Any) -> float:
        """The largest error in the result of a case with a bound, over the same; with the rounding
        to its element type."""
        bound = self.bound(case.ranks, exchanges(OPERATIONS[case.operation])) if self.bound else 0.0
        return bound + DTYPES[case.dtype].epsilon

    def of_case(self, figure: Callable[[int, int, int], int], case: Any) -> int:
        """One of its functions for the elements, their bytes and the ranks of a case; 0 for one
        without data."""
        size_bytes = DTYPES[case.dtype].size_bytes if case.dtype else 0
        return figure(case.size_bytes // size_bytes, size_bytes, case.ranks) if size_bytes else 0


def exchanges(operation: Operation) -> int:
    """1 where each rank keeps the part that it reduces, 2 where all ranks get all parts."""
    return 2 if operation.receive is Extent.WHOLE else 1


def padded(count: int) -> int:
    """The elements of a part of so many, filled up to whole blocks."""
    return -(-count // SCALED) * SCALED


def part_bytes(count: int) -> int:
    """Bytes of a part of so many elements on the wire: a byte each, and the scales."""
    return padded(count) + padded(count) // SCALED * SCALE_BYTES


def factors(count: int, columns: int) -> tuple[int, int, int]:
    """PowerSGD's matrix of so many elements, as square as can be: rows, columns, and the columns of
    its two factors. Elements beyond the matrix are sent as they are."""
    width = isqrt(count)
    height = count // width
    return height, width, min(columns, width)


def cast(dtype: str) -> Compression:
    """A cast to a shorter element type, in which the operation's own call then adds."""
    short = DTYPES[dtype]
    unit = short.epsilon / 2
    return Compression(
        lambda worker, *given: worker.cast(*given, dtype),
        lambda count, _, ranks: count // ranks * (ranks - 1) * short.size_bytes,
        lambda count, size_bytes, _: count * (2 * short.size_bytes + size_bytes),
        ("float32", "float64"),
        # A rounding when it is cast, and one for each rank that is added, or divides.
        bound=lambda ranks, _: 1.01 * (ranks + 1) * unit,
    )


LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}
"""The largest value of a block becomes this one."""


def scaled(dtype: str) -> Compression:
    """A byte for each element, and a scale for each block; sums in float32."""
    largest = LARGEST[dtype]
    unit = DTYPES[dtype].epsilon / 2 or 0.5 / largest
    return Compression(
        lambda worker, *given: worker.scaled(*given, dtype, largest),
        lambda count, _, ranks: (ranks - 1) * part_bytes(count // ranks),
        lambda count, _, ranks: 11 * ranks * padded(count // ranks),
        ("float32", "float16", "bfloat16"),
        # Each exchange rounds once; the second one rounds what the first one has enlarged.
        bound=lambda _, exchanges: 1.01 * ((1 + unit) ** exchanges - 1),
    )


def powersgd(columns: int) -> Compression:
    """Two factors of the matrix, as PowerSGD does (Vogels et al., arXiv 1905.13727)."""

    def exchange_bytes(count: int, size_bytes: int, ranks: int) -> int:
        height, width, own = factors(count, columns)
        kept = own * (height + width) + count - height * width
        return kept * size_bytes * (ranks - 1) // ranks

    def space_bytes(count: int, size_bytes: int, _: int) -> int:
        height, width, own = factors(count, columns)
        return (own * (height + 2 * width) + count - height * width) * size_bytes

    return Compression(
        lambda worker, *given: worker.powersgd(*given, columns),
        exchange_bytes, space_bytes, ("float32", "float64"), of="matrix",
    )  # fmt: skip

"""The table of computations that run beside a communication: `--overlap matmul:256x256x256`.

A computation repeats a unit of work that takes some tens of microseconds, so often that it takes as
long as the communication. The functions of an entry take the module `torch`, so that this file
needs no torch. An entry says everything about its computation, and nothing else in the program
tests its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle
from math import isqrt
from typing import Any, NamedTuple

from commbench.errors import UsageError, name_error
from commbench.units import format_size, parse_size
from commbench.validation import by_name

NO_OVERLAP = "none"
"""The choice of --overlap that measures a communication without a computation beside it."""

COMMUNICATION, COMPUTATION, AT_ONCE = "communication", "computation", "both"
PARTS = (COMMUNICATION, COMPUTATION, AT_ONCE)
"""What a case of an overlap runs: its communication alone, its computation alone, or both at once;
each is a case of its own."""

TILE = 128
"""Rows and columns of the part of a product that one thread block of a GPU computes, as the larger
kernels of NVIDIA's cuBLAS choose it for 16-bit numbers; some take 128 x 256."""
EXACT, RAGGED = "exact", "ragged"
TILED_DEPTH = 4096
"""The common dimension of a product that is cut into tiles."""
MOST_BYTES = 128 << 20
"""What such a product needs at most, on a GPU of 264 multiprocessors."""
PIECES = 32
"""A copy of memory is cut into so many pieces; a unit copies one of them."""
LEAST_COPY, MOST_COPY = 64 << 10, 64 << 30
MOST_DIMENSION = 1 << 17

MOST_UNITS = 1_000_000

Unit = Callable[[], object]


class ComputationKind(NamedTuple):
    """One kind of computation. What follows the colon of its text is its `detail`: a shape."""

    name: str
    parse: Callable[[str], str]
    """The normal form of a detail; raises UsageError for one that is wrong."""
    defaults: Callable[[str], tuple[str, ...]]
    """The details that are measured where none is given, on a kind of device."""
    bytes_of: Callable[[str], int]
    """Bytes of its tensors at most."""
    make: Callable[[Any, Any, int, str], tuple[Unit, str]]
    """`make(torch, device, multiprocessors, detail)` allocates its tensors on a torch.device; the
    function that runs a unit, and what the unit is. `multiprocessors` is 0 for a CPU."""


def _parse_matmul(detail: str) -> str:
    if detail in (EXACT, RAGGED):
        return detail
    found = re.fullmatch(r"(\d{1,7})x(\d{1,7})x(\d{1,7})", detail)
    numbers = [int(number) for number in found.groups()] if found else []
    if not numbers or not all(1 <= number <= MOST_DIMENSION for number in numbers):
        hint = "write matmul:256x256x256; on GPUs also matmul:exact or matmul:ragged"
        raise UsageError(f"--overlap matmul:{detail} has no shape MxNxK", hint)
    return "x".join(map(str, numbers))


def _matmul_bytes(detail: str) -> int:
    if detail in (EXACT, RAGGED):
        return MOST_BYTES
    m, n, k = map(int, detail.split("x"))
    return 4 * (m * k + k * n + m * n)


def tiled_shape(detail: str, multiprocessors: int) -> tuple[int, int, int]:
    """M, N, K of a product whose tiles fill a GPU. `exact`: as many tiles as multiprocessors, so
    that all compute until the end. `ragged`: a few more, so that a second wave is nearly empty. The
    tiles form a rectangle that is not more than four times as long as wide, if there is one."""
    tiles = multiprocessors
    if detail == RAGGED:
        more = range(tiles + 1, tiles + 9)
        tiles = next((n for n in more if n // _divisor(n) <= 4 * _divisor(n)), tiles + 1)
    rows = _divisor(tiles)
    return TILE * (tiles // rows), TILE * rows, TILED_DEPTH


def _divisor(number: int) -> int:
    """The largest divisor up to the root."""
    return next(d for d in range(isqrt(number), 0, -1) if number % d == 0)


def _make_matmul(torch: Any, device: Any, multiprocessors: int, detail: str) -> tuple[Unit, str]:
    if detail in (EXACT, RAGGED):
        m, n, k = tiled_shape(detail, multiprocessors or 1)
    else:
        m, n, k = map(int, detail.split("x"))
    dtype = torch.bfloat16 if multiprocessors else torch.float32
    a, b = (torch.rand(shape, dtype=dtype, device=device) for shape in ((m, k), (k, n)))
    c = torch.zeros((m, n), dtype=dtype, device=device)
    return lambda: torch.mm(a, b, out=c), f"matmul {m}x{n}x{k} {str(dtype)[6:]}"


def _parse_memory(detail: str) -> str:
    size = parse_size(detail)
    if not LEAST_COPY <= size <= MOST_COPY:
        hint = "write memory:32M"
        raise UsageError(f"--overlap memory:{detail} is not between 64K and 64G", hint)
    return format_size(size)


def _make_memory(torch: Any, device: Any, _: int, detail: str) -> tuple[Unit, str]:
    half = parse_size(detail) // 2
    source, target = (torch.zeros(half, dtype=torch.uint8, device=device) for _ in range(2))
    pieces = list(zip(target.chunk(PIECES), source.chunk(PIECES), strict=True))
    turns = cycle(pieces)

    def copy_next() -> None:
        to, from_ = next(turns)
        to.copy_(from_)

    return copy_next, f"copy of {format_size(pieces[0][0].numel())}"


# A product of matrices, M x K by K x N; on GPUs of bfloat16, else of float32. And copies of memory;
# the number is the bytes of source and target together.
COMPUTATIONS = by_name(
    ComputationKind(
        "matmul", parse=_parse_matmul, bytes_of=_matmul_bytes, make=_make_matmul,
        defaults=lambda device: ("128x128x128",) if device == "cpu" else (EXACT, RAGGED),
    ),
    ComputationKind(
        "memory", parse=_parse_memory, bytes_of=parse_size, make=_make_memory,
        defaults=lambda device: ("32M",) if device == "cpu" else ("1G",),
    ),
)  # fmt: skip


def parse_overlap(text: str) -> str:
    """The normal form of a choice of --overlap: `none`, a computation, one with its shape, or with
    its shape and the number of its units. Raises UsageError for another text."""
    name, colon, detail = text.strip().lower().partition(":")
    if name == NO_OVERLAP and not colon:
        return name
    if name not in COMPUTATIONS:
        raise name_error("computation", name, [*COMPUTATIONS, NO_OVERLAP])
    if not colon:
        return name
    detail, colon, units = detail.partition(":")
    if colon and not (units.isdecimal() and 1 <= int(units) <= MOST_UNITS):
        why = f"--overlap {text.strip()} has no number of units from 1 to {MOST_UNITS:,}"
        raise UsageError(why, "write for example matmul:128x128x128:50")
    return f"{name}:{COMPUTATIONS[name].parse(detail)}" + (colon and f":{int(units)}")


class Computation(NamedTuple):
    """What a value of Case.overlap means."""

    kind: ComputationKind
    detail: str
    units: int | None
    """How many units are computed; None: as many as take as long as the communication."""


def find_computation(overlap: str) -> Computation | None:
    """The computation of a case; None without one, and for one that is not known here."""
    name, _, rest = overlap.partition(":")
    detail, _, units = rest.partition(":")
    if name not in COMPUTATIONS:
        return None
    return Computation(COMPUTATIONS[name], detail, int(units) if units else None)


def why_no_computation(overlap: str, device: str) -> str:
    """Why a kind of device has no such computation; empty where it has."""
    found = find_computation(overlap)
    if device == "cpu" and found and found.detail in (EXACT, RAGGED):
        return f"{found.kind.name}:{found.detail} is a shape for the multiprocessors of a GPU"
    return ""


def expand_overlap(chosen: tuple[str, ...], device: str) -> tuple[str, ...]:
    """The values of Case.overlap that these choices mean on a kind of device, in order."""
    found: dict[str, None] = {}
    for text in chosen:
        name, colon, _ = text.partition(":")
        if name == NO_OVERLAP:
            found[""] = None
        elif colon:
            found[text] = None
        else:
            found.update({f"{name}:{d}": None for d in COMPUTATIONS[name].defaults(device)})
    return tuple(found)


def overlap_bytes(*overlaps: str) -> int:
    """Bytes of the tensors of all these computations. Several with other numbers of units share
    theirs. Nothing for `""`, and for a computation that is not known here."""
    found = filter(None, map(find_computation, overlaps))
    return sum({(c.kind.name, c.detail): c.kind.bytes_of(c.detail) for c in found}.values())

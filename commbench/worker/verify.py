"""Test data whose results are known in closed form, for every operation, dtype and reduce op; and
the comparison of every element of the result, on every rank, with them.

Data are periodic: element x of block b on rank r is
row_r[(x + SHIFT_BLOCK*b + seed_offset) mod PERIOD]. Each of several tensors adds SHIFT_TENSOR to
the offset of the one before. So inputs and results of any size are one row of PERIOD elements each,
repeated, and checking needs no second buffer. PERIOD is prime: blocks start at different phases.

What graphs of several calls leave is compared with what the same calls leave one by one.

Reductions are exact in any order of summation: at each element only as many ranks contribute as
the dtype can add without rounding (ReduceOp.contributors), chosen in turn, and the others hold
the neutral element. Where a result cannot be exact (avg over a number of ranks that is no power
of two) three ranks contribute, and the tolerance is the rounding error of so many terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from commbench.plan import dtypes, operation, operations
from commbench.plan.case import Case
from commbench.results.records import WrongElement
from commbench.worker.device import Call, Device

if TYPE_CHECKING:
    from commbench.worker.buffers import Buffers
    from commbench.worker.own_calls import Witness

PERIOD = 2039
SHIFT_RANK = 631
SHIFT_BLOCK = 1381
SHIFT_TENSOR = 1193


class _ReducedRows(NamedTuple):
    """Unshifted rows of a reduction, as int64 or float64."""

    sent: Callable[[int], torch.Tensor]
    """The row of a rank."""
    result: torch.Tensor
    tolerance: float
    largest: float  # what the magnitudes of all ranks' elements can add up to


class VerificationData(NamedTuple):
    """The data of one case as seen from one rank; every row has PERIOD elements of its dtype."""

    case: Case
    rank: int
    ranks: int
    seed_offset: int
    device: torch.device

    def sent(self, block: int) -> torch.Tensor:
        """The row that `block` of this rank's send buffer repeats."""
        if self.case.reduce_op:
            return self._row(self._reduced.sent(self.rank), block)
        return self._row(_base(self.case.dtype), block, SHIFT_RANK * self.rank)

    def expected(self, source: operation.BlockOrigin) -> torch.Tensor:
        """The row that a block of the receive buffer must repeat."""
        if source.rank is None:
            return self._row(self._reduced.result, source.block)
        return self._row(_base(self.case.dtype), source.block, SHIFT_RANK * source.rank)

    @property
    def tolerance(self) -> float:
        """The largest allowed difference of an element; 0 where the arithmetic is exact."""
        own = self._reduced.tolerance if self.case.reduce_op else 0.0
        form = self.case.call_form.compression
        return own + form.tolerance(self.case) * self._reduced.largest if form else own

    @property
    def _reduced(self) -> _ReducedRows:
        return _reduced_rows(self.case.dtype, self.case.reduce_op, self.ranks)

    def _row(self, row: torch.Tensor, block: int, shift: int = 0) -> torch.Tensor:
        shifted = row.roll(-((shift + SHIFT_BLOCK * block + self.seed_offset) % PERIOD))
        return shifted.to(getattr(torch, self.case.dtype)).to(self.device)


def prepare(cases: Iterable[Case]) -> None:
    """Compute the rows that these cases need before ranks are forked, so that all ranks share
    them."""
    for case in cases:
        if case.reduce_op:
            _reduced_rows(case.dtype, case.reduce_op, case.ranks)
        elif case.dtype:
            _base(case.dtype)


@lru_cache(maxsize=128)  # more than there are pairs of dtype and reduce op
def _reduced_rows(dtype_name: str, reduce_op: str, ranks: int) -> _ReducedRows:
    dtype, reduction = dtypes.DTYPES[dtype_name], dtypes.REDUCE_OPS[reduce_op]
    contributors = reduction.contributors(dtype, ranks)
    values = _draw(reduction.values(dtype, contributors))
    neutral = reduction.neutral(dtype)

    def sent(rank: int) -> torch.Tensor:
        turn = (torch.arange(PERIOD) + rank) % ranks
        return torch.where(turn < contributors, values.roll(-SHIFT_RANK * rank), neutral)

    result = torch.full((PERIOD,), neutral, dtype=torch.int64)
    for rank in range(ranks):
        result = reduction.combine(result, sent(rank))
    result *= reduction.factor
    tolerance, largest = 0.0, contributors * reduction.factor * float(values.abs().max())
    if reduction.divides:
        result, largest = result.double() / ranks, largest / ranks
        if ranks & (ranks - 1):
            tolerance = (contributors + 1) * dtype.epsilon / 2 * largest
    return _ReducedRows(sent, result, tolerance, largest)


@lru_cache(maxsize=128)
def _base(dtype_name: str) -> torch.Tensor:
    largest = min(dtypes.DTYPES[dtype_name].exact_limit, 250)
    return _draw(range(largest + 1))


def _draw(values: Sequence[int]) -> torch.Tensor:
    """PERIOD values drawn at random, the same in every process."""
    generator = torch.Generator().manual_seed(20_261_121)
    picks = torch.randint(len(values), (PERIOD,), generator=generator)
    return torch.tensor(values, dtype=torch.int64)[picks]


CHUNK_PERIODS = 64
"""Elements are compared in chunks of 64 periods (130,496 elements): they and what comparing them
needs stay in a core's cache, and below 16 MiB for every dtype."""

SHIFT_GROUP = 1009
"""Elements by which the test data of a group are shifted against those of the one before."""
COMPARED = 8 * PERIOD
"""Elements of each block that are compared with a copy."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class CheckResult(NamedTuple):
    """What checking a case found: on one rank, and then over all ranks."""

    failed: str = ""
    """Why the case cannot go on: on which rank memory ran out."""
    wrong: int | None = None
    """How many elements are wrong; None where none were checked."""
    first: WrongElement | None = None
    """The first wrong element of the lowest rank that has any."""
    seconds: float = 0.0
    """About how long a call took, of all ranks on the slowest; 0 without a check."""
    first_call: int = 0
    """Which of the case's checked calls `first` is of, from 1."""
    calls: int = 1
    """How many calls were checked."""
    elapsed_s: float = 0.0
    """How long that took, with filling and comparing."""
    wrong_ranks: tuple[int, ...] = ()
    """Of all ranks: those that have wrong elements."""
    wrong_elements: tuple[int, ...] = ()
    """How many each of them has."""
    fault: str = ""
    """What a call of the user's own did wrong, on which rank."""


Parts: TypeAlias = "list[tuple[Buffers, VerificationData]]"
"""The buffers of each tensor of a case, and its data: each tensor has others."""
Seeded: TypeAlias = "Sequence[tuple[Buffers, int]]"
"""The buffers of calls, each with the offset of its data."""


def verify(
    buffers: Buffers, seed_offset: int, call: Call, device: Device, witness: Witness | None = None
) -> CheckResult:
    """Fill the buffers with new data, call the operation once, and compare the result; of a call of
    the user's own, a witness sees what else it does."""
    parts = make_data(buffers, seed_offset)
    device.in_stream(lambda: poison(parts, buffers.flat))()
    device.in_stream(lambda: fill_all(parts))()
    device.synchronize()
    if witness:
        witness.begins()
    start = time.perf_counter()
    call()
    if witness:
        witness.returned()
    device.synchronize()
    seconds = time.perf_counter() - start
    if witness:
        return witness.judge(parts, seconds)
    return CheckResult("", *inspect(parts), seconds)


def combine(results: Sequence[CheckResult]) -> CheckResult:
    """What a rank found in all calls and pieces of a case; the seconds are those of one call."""
    first = next((result for result in results if result.first), CheckResult())
    return first._replace(
        wrong=sum(result.wrong or 0 for result in results),
        seconds=sum(result.seconds for result in results) / max(1, len(results)),
        fault=next((result.fault for result in results if result.fault), ""),
    )


def fill_inputs(buffers: Buffers, seed_offset: int) -> None:
    """Fill the send buffers with the case's data, or those of all calls of a step."""
    for own in buffers.replayed:
        fill_inputs(own, seed_offset)
    if buffers.case.dtype:
        fill_all(make_data(buffers, seed_offset))


def make_data(buffers: Buffers, seed_offset: int) -> Parts:
    """The data of each tensor of a case."""
    case, rank, ranks, device = buffers.case, buffers.rank, buffers.ranks, buffers.send.device
    # What one group sends to another by mistake must be seen.
    seed_offset = (seed_offset + SHIFT_GROUP * buffers.group_number) % PERIOD
    return [
        (part, VerificationData(case, rank, ranks, seed_offset + SHIFT_TENSOR * number, device))
        for number, part in enumerate(buffers.tensors)
    ]


def results(parts: Parts) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, float]]:
    """The blocks of the receive buffers whose result is defined: the number of the first element,
    which counts those of the tensors before it, the block, the row that it must repeat, and how far
    an element may be off."""
    before = 0
    for own, data in parts:
        for block, origin in own.results(operations.OPERATIONS[data.case.operation]):
            start = before + block.storage_offset() - own.receive.storage_offset()
            yield start, block, data.expected(origin), data.tolerance
        before += own.receive.numel()


def inspect(parts: Parts) -> tuple[int, WrongElement | None]:
    """Compare this rank's receive buffers with what the operation must have left in them: how many
    elements are wrong, and the first of them."""
    wrong, first = 0, None
    for start, block, row, tolerance in results(parts):
        count, index = compare(block, row, tolerance)
        wrong += count
        if count and first is None:
            expected, got = str(row[index % PERIOD].item()), str(block[index].item())
            first = WrongElement(parts[0][0].rank, start + index, expected, got)
    return wrong, first


def fill_all(parts: Parts) -> None:
    """Fill the send buffer of each tensor."""
    for buffers, data in parts:
        for block, part in enumerate(buffers.send_blocks or ()):
            fill(part, data.sent(block))


def poison(parts: Parts, flat: Buffers | None) -> None:
    """Fill the receive buffer of each tensor with the complement of the result, so that every
    element has to be written; not needed where it is the send buffer too. Of the flat tensor, if
    there is one, change every element."""
    for buffers, data in parts:
        if not buffers.has_one_memory:
            for _, block, row, _ in results([(buffers, data)]):
                fill(block, invert(row.clone()))
    if flat:
        invert(flat.receive)


def invert(buffer: torch.Tensor) -> torch.Tensor:
    """Change every element of a buffer, whatever it has."""
    if buffer.dtype == torch.bool:
        return buffer.logical_not_()
    return buffer.view(_INTEGERS[buffer.element_size()]).bitwise_not_().view(buffer.dtype)


def fill(buffer: torch.Tensor, row: torch.Tensor) -> None:
    """Repeat `row` over the whole of `buffer`."""
    whole = buffer.numel() // PERIOD * PERIOD
    buffer[:whole].view(-1, PERIOD).copy_(row)
    buffer[whole:].copy_(row[: buffer.numel() - whole])


def compare(buffer: torch.Tensor, row: torch.Tensor, tolerance: float) -> tuple[int, int]:
    """How many elements of `buffer` differ from the repeated `row`, and the index of the first.

    NaN differs from everything. Memory: one chunk at a time, and the rows that it must be.
    """
    wrong, first, size = 0, -1, CHUNK_PERIODS * PERIOD
    repeated = row.repeat(min(CHUNK_PERIODS, -(-buffer.numel() // PERIOD)))
    for start in range(0, buffer.numel(), size):
        chunk = buffer[start : start + size]
        expected = repeated[: len(chunk)]
        if not same_bits(chunk, expected):
            unlike = differs(chunk, expected, tolerance).nonzero()
            if len(unlike) and first < 0:
                first = start + int(unlike[0])
            wrong += len(unlike)
    return wrong, first


def same_bits(part: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether all bits are as expected: the usual case, found four times as fast."""
    bits = _INTEGERS[part.element_size()]
    return bool(torch.equal(part.view(bits), expected.view(bits)))


def differs(part: torch.Tensor, expected: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Which elements differ by more than the tolerance."""
    if part.element_size() == 1 and part.is_floating_point():  # float8 has no comparison
        part, expected = part.to(torch.bfloat16), expected.to(torch.bfloat16)
    if not tolerance:
        return part != expected
    return ~((part.double() - expected.double()).abs() <= tolerance)


def verify_together(
    parts: Seeded, calls: int, one_by_one: Call, together: Call, device: Device
) -> CheckResult:
    """Compare what so many calls leave that are queued together with what they leave one by one,
    each time with the same new data: sums in place grow with every call, and have no closed form.
    """
    case, wrong, first = parts[0][0].case, 0, None
    rounding = calls * case.ranks * dtypes.DTYPES[case.dtype].epsilon if case.reduce_op else 0.0
    expected, found = (_left_by(call, parts, device) for call in (one_by_one, together))
    for (*_, row), (rank, start, block) in zip(expected, found, strict=True):
        if same_bits(block, row):
            continue
        # Sums of few digits are rounded many times; one call less or more halves or doubles them.
        indices = _unlike(block, row, min(rounding, 0.25)).nonzero()
        wrong += len(indices)
        if len(indices) and first is None:
            at = int(indices[0])
            first = WrongElement(rank, start + at, str(row[at].item()), str(block[at].item()))
    return CheckResult("", wrong, first)


def _left_by(call: Call, parts: Seeded, device: Device) -> list[tuple[int, int, torch.Tensor]]:
    """What a call leaves at the beginning of each block of the result: the rank, the number of the
    first element, and a copy."""
    filled = [(make_data(buffers, offset), buffers.flat) for buffers, offset in parts]

    def renew() -> None:
        for data, flat in filled:
            poison(data, flat)
            fill_all(data)

    device.in_stream(renew)()
    device.synchronize()
    call()
    device.synchronize()
    left = ((data[0][0].rank, found) for data, _ in filled for found in results(data))
    return [(rank, start, block[:COMPARED].clone()) for rank, (start, block, *_) in left]


def _unlike(found: torch.Tensor, expected: torch.Tensor, rounding: float) -> torch.Tensor:
    """Which elements differ by more than that part of the expected one and of the median. A number
    near the largest may be infinite on one side only."""
    most = torch.finfo(found.dtype).max if found.is_floating_point() else 0.0
    wide = found.double(), expected.double()
    own, other = (each.nan_to_num(0.0, most, -most) for each in wide)
    is_close = torch.isclose(own, other, rounding, rounding * float(other.abs().median()))
    return ~is_close | (wide[0].isnan() != wide[1].isnan())

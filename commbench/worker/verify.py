"""Compares every element of the result, on every rank, with the closed form of the operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from commbench.results.schema import WrongElement
from commbench.spec.case import Case
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS, BlockPosition
from commbench.worker.buffers import Buffers
from commbench.worker.device import Device
from commbench.worker.verification_data import PERIOD, SHIFT_TENSOR, VerificationData

CHUNK_PERIODS = 64
"""Elements are compared in chunks of 64 periods (130,496 elements): they and what comparing them
needs stay in a core's cache, and below 16 MiB for every dtype."""

SHIFT_GROUP = 1009
"""Elements by which the test data of a group are shifted against those of the one before."""
COMPARED = 8 * PERIOD
"""Elements of each block that are compared with a copy."""
MOST_ROUNDING = 0.25
"""Two ways to make the same calls may differ by this part at most, also where sums of few digits
are rounded many times: one call less or more halves or doubles them at least."""
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


def verify(
    case: Case,
    buffers: Buffers,
    seed_offset: int,
    call: Callable[[], object],
    device: Device,
) -> CheckResult:
    """Fill the buffers with new data, call the operation once, and compare the result."""
    parts = _make_data(case, buffers, seed_offset)
    device.in_stream(lambda: _poison_all(parts, buffers.flat))()
    device.in_stream(lambda: _fill_all(parts))()
    device.synchronize()
    if objects := buffers.objects:
        objects.load()
    start = time.perf_counter()
    call()
    device.synchronize()
    seconds = time.perf_counter() - start
    if objects:
        objects.collect()
    return CheckResult("", *_inspect_all(parts), seconds)


def verify_together(
    parts: Sequence[tuple[Case, Buffers, int]],
    calls: int,
    one_by_one: Callable[[], object],
    together: Callable[[], object],
    device: Device,
) -> CheckResult:
    """Compare what so many calls leave that are queued together with what they leave one by one,
    each time with the same new data: sums in place grow with every call, and have no closed form.

    `parts` has the buffers of these calls, each with its case and the offset of its data.
    """
    case, wrong, first = parts[0][0], 0, None
    rounding = calls * case.ranks * DTYPES[case.dtype].epsilon if case.reduce_op else 0.0
    expected, found = (_left_by(call, parts, device) for call in (one_by_one, together))
    for (*_, row), (rank, start, block) in zip(expected, found, strict=True):
        if _same_bits(block, row):
            continue
        indices = _unlike(block, row, min(rounding, MOST_ROUNDING)).nonzero()
        wrong += len(indices)
        if len(indices) and first is None:
            at = int(indices[0])
            first = WrongElement(rank, start + at, str(row[at].item()), str(block[at].item()))
    return CheckResult("", wrong, first)


def _left_by(
    call: Callable[[], object], parts: Sequence[tuple[Case, Buffers, int]], device: Device
) -> list[tuple[int, int, torch.Tensor]]:
    """What a call leaves at the beginning of each block of the result: the rank, the number of the
    first element, and a copy."""
    filled = [(_make_data(case, own, offset), own.flat) for case, own, offset in parts]

    def renew() -> None:
        for data, flat in filled:
            _poison_all(data, flat)
            _fill_all(data)

    device.in_stream(renew)()
    device.synchronize()
    call()
    device.synchronize()
    left = []
    for data, _ in filled:
        before = 0
        for own, rows in data:
            start = before - own.receive.storage_offset()
            left += [
                (own.rank, start + block.storage_offset(), block[:COMPARED].clone())
                for block, _ in _expected_rows(own, rows)
            ]
            before += own.receive.numel()
    return left


def combine(results: Sequence[CheckResult]) -> CheckResult:
    """What a rank found in all calls and pieces of a case; the seconds are those of one call."""
    first = next((result for result in results if result.first), CheckResult())
    return first._replace(
        wrong=sum(result.wrong or 0 for result in results),
        seconds=sum(result.seconds for result in results) / max(1, len(results)),
    )


def fill_inputs(case: Case, buffers: Buffers, seed_offset: int) -> None:
    """Fill the send buffers with the case's data, or those of all calls of a step."""
    for own in buffers.replayed:
        fill_inputs(*own, seed_offset)
    if case.dtype:
        _fill_all(_make_data(case, buffers, seed_offset))


def _make_data(
    case: Case, buffers: Buffers, seed_offset: int
) -> list[tuple[Buffers, VerificationData]]:
    """The buffers of each tensor of the case, and its data: each tensor has others."""
    rank, ranks, device = buffers.rank, buffers.ranks, buffers.send.device
    # What one group sends to another by mistake must be seen.
    seed_offset = (seed_offset + SHIFT_GROUP * buffers.group_number) % PERIOD
    return [
        (part, VerificationData(case, rank, ranks, seed_offset + SHIFT_TENSOR * number, device))
        for number, part in enumerate(buffers.tensors)
    ]


def _inspect_all(
    parts: Sequence[tuple[Buffers, VerificationData]],
) -> tuple[int, WrongElement | None]:
    """Compare the receive buffer of each tensor. The number of a wrong element counts those of the
    tensors before it."""
    wrong, first, before = 0, None, 0
    for part, data in parts:
        count, found = inspect(part, data)
        wrong += count
        if found and first is None:
            first = found._replace(element=before + found.element)
        before += part.receive.numel()
    return wrong, first


def _fill_all(parts: Sequence[tuple[Buffers, VerificationData]]) -> None:
    """Fill the send buffer of each tensor."""
    for buffers, data in parts:
        for block, part in enumerate(buffers.send_blocks or ()):
            fill(part, data.sent(block))


def inspect(buffers: Buffers, data: VerificationData) -> tuple[int, WrongElement | None]:
    """Compare this rank's receive buffer with what the operation must have left in it."""
    wrong, first = 0, None
    for part, row in _expected_rows(buffers, data):
        count, index = compare(part, row, data.tolerance)
        wrong += count
        if count and first is None:
            first = WrongElement(
                rank=buffers.rank,
                element=part.storage_offset() - buffers.receive.storage_offset() + index,
                expected=str(row[index % PERIOD].item()),
                got=str(part[index].item()),
            )
    return wrong, first


def fill(buffer: torch.Tensor, row: torch.Tensor) -> None:
    """Repeat `row` over the whole of `buffer`."""
    whole = buffer.numel() // PERIOD * PERIOD
    buffer[:whole].view(-1, PERIOD).copy_(row)
    buffer[whole:].copy_(row[: buffer.numel() - whole])


def compare(buffer: torch.Tensor, row: torch.Tensor, tolerance: float) -> tuple[int, int]:
    """How many elements of `buffer` differ from the repeated `row`, and the index of the first.

    NaN differs from everything. Memory: one chunk at a time.
    """
    wrong, first = 0, -1
    for start in range(0, buffer.numel(), CHUNK_PERIODS * PERIOD):
        chunk = buffer[start : start + CHUNK_PERIODS * PERIOD]
        whole = chunk.numel() // PERIOD * PERIOD
        for offset, part, expected in (
            (0, chunk[:whole].view(-1, PERIOD), row),
            (whole, chunk[whole:], row[: chunk.numel() - whole]),
        ):
            if _same_bits(part, expected):
                continue
            differs = _differs(part, expected, tolerance)
            count = int(torch.count_nonzero(differs))
            if count and first < 0:
                first = start + offset + int(differs.reshape(-1).nonzero()[0])
            wrong += count
    return wrong, first


def _same_bits(part: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether all bits are as expected: the usual case, found four times as fast."""
    bits = _INTEGERS[part.element_size()]
    part, expected = part.view(bits), expected.view(bits)
    if part.device.type != "cpu":
        return bool(torch.equal(part, expected.expand_as(part)))
    repeated = np.broadcast_to(expected.numpy(), tuple(part.shape))
    return np.array_equal(part.numpy(), repeated)


def _differs(part: torch.Tensor, expected: torch.Tensor, tolerance: float) -> torch.Tensor:
    if part.element_size() == 1 and part.is_floating_point():  # float8 has no comparison
        part, expected = part.to(torch.bfloat16), expected.to(torch.bfloat16)
    if not tolerance:
        return part != expected
    return ~((part.double() - expected.double()).abs() <= tolerance)


def _unlike(found: torch.Tensor, expected: torch.Tensor, rounding: float) -> torch.Tensor:
    """Which elements differ by more than that part of the expected one and of the median. A number
    near the largest may be infinite on one side only."""
    most = torch.finfo(found.dtype).max if found.is_floating_point() else 0.0
    wide = found.double(), expected.double()
    own, other = (each.nan_to_num(0.0, most, -most) for each in wide)
    is_close = torch.isclose(own, other, rounding, rounding * float(other.abs().median()))
    return ~is_close | (wide[0].isnan() != wide[1].isnan())


def _poison_all(parts: Sequence[tuple[Buffers, VerificationData]], flat: Buffers | None) -> None:
    """Change the receive buffer of each tensor, and the flat one if there is one."""
    for buffers, data in parts:
        _poison(buffers, data)
    if flat:
        _invert(flat.receive)


def _poison(buffers: Buffers, data: VerificationData) -> None:
    """Fill the receive buffer with the complement of the result, so that every element has to be
    written; not needed where it is the send buffer too."""
    covered = (
        buffers.receive.data_ptr() == buffers.send.data_ptr()
        and buffers.receive.numel() == buffers.send.numel()
    )
    if covered:
        return
    for part, row in _expected_rows(buffers, data):
        fill(part, ~row if row.dtype == torch.bool else _complement(row))


def _invert(buffer: torch.Tensor) -> None:
    """Change every element of a buffer, whatever it has."""
    if buffer.dtype == torch.bool:
        buffer.logical_not_()
    else:
        buffer.view(_INTEGERS[buffer.element_size()]).bitwise_not_()


def _complement(row: torch.Tensor) -> torch.Tensor:
    return (~row.view(_INTEGERS[row.element_size()])).view(row.dtype)


def _expected_rows(
    buffers: Buffers, data: VerificationData
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The blocks of the receive buffer whose result is defined, and the row each must repeat."""
    operation = OPERATIONS[data.case.operation]
    for block, part in enumerate(buffers.receive_blocks or ()):
        source = operation.expected(
            BlockPosition(buffers.rank, block, buffers.ranks, buffers.root, buffers.peer)
        )
        if source is not None:
            yield part, data.expected(source)

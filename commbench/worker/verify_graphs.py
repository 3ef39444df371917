"""The check of graphs of several calls: what they leave is compared with what the same calls leave
one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from commbench.plan.case import Case
from commbench.plan.dtypes import DTYPES
from commbench.results.records import WrongElement
from commbench.worker.buffers import Buffers
from commbench.worker.device import Device
from commbench.worker.verify import (
    COMPARED,
    CheckResult,
    fill_all,
    make_data,
    poison,
    results,
    same_bits,
)

MOST_ROUNDING = 0.25
"""Two ways to make the same calls may differ by this part at most, also where sums of few digits
are rounded many times: one call less or more halves or doubles them at least."""


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
        if same_bits(block, row):
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
    filled = [(make_data(*part), part[1].flat) for part in parts]

    def renew() -> None:
        for data, flat in filled:
            poison(data, flat)
            fill_all(data)

    device.in_stream(renew)()
    device.synchronize()
    call()
    device.synchronize()
    return [
        (data[0][0].rank, start, block[:COMPARED].clone())
        for data, _ in filled
        for start, block, *_ in results(data)
    ]


def _unlike(found: torch.Tensor, expected: torch.Tensor, rounding: float) -> torch.Tensor:
    """Which elements differ by more than that part of the expected one and of the median. A number
    near the largest may be infinite on one side only."""
    most = torch.finfo(found.dtype).max if found.is_floating_point() else 0.0
    wide = found.double(), expected.double()
    own, other = (each.nan_to_num(0.0, most, -most) for each in wide)
    is_close = torch.isclose(own, other, rounding, rounding * float(other.abs().median()))
    return ~is_close | (wide[0].isnan() != wide[1].isnan())

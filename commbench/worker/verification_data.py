"""Test data whose results are known in closed form, for every operation, dtype and reduce op.

Data are periodic: element x of block b on rank r is
row_r[(x + SHIFT_BLOCK*b + seed_offset) mod PERIOD]. Each of several tensors adds SHIFT_TENSOR to
the offset of the one before. So inputs and results of any size are one row
of PERIOD elements each, repeated, and checking needs no second buffer. PERIOD is prime, so that
blocks of any size start at different phases.

Reductions are exact in any order of summation: at each element only as many ranks contribute as
the dtype can add without rounding (ReduceOp.contributors), chosen in turn, and the others hold
the neutral element. Where a result cannot be exact (avg over a number of ranks that is no power
of two) three ranks contribute, and the tolerance is the rounding error of so many terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from commbench.spec.case import Case
from commbench.spec.dtypes import DTYPES, Dtype
from commbench.spec.operations import BlockOrigin
from commbench.spec.reduce_ops import REDUCE_OPS, ReduceOp

PERIOD = 2039
SHIFT_RANK = 631
SHIFT_BLOCK = 1381
SHIFT_TENSOR = 1193
SHARED_ROWS = 128
"""Rows kept, more than there are pairs of dtype and reduce op."""
_SEED = 20_261_121


@dataclass(frozen=True, slots=True)
class VerificationData:
    """The data of one case as seen from one rank; every row has PERIOD elements of its dtype."""

    case: Case
    rank: int
    ranks: int
    seed_offset: int
    device: torch.device

    def sent(self, block: int) -> torch.Tensor:
        """The row that `block` of this rank's send buffer repeats."""
        if self.case.reduce_op:
            rows, shift = _reduced_rows(self.case.dtype, self.case.reduce_op, self.ranks), 0
            return self._row(rows.of_rank(self.rank), shift, block)
        return self._row(_base(self.case.dtype), SHIFT_RANK * self.rank, block)

    def expected(self, source: BlockOrigin) -> torch.Tensor:
        """The row that a block of the receive buffer must repeat."""
        if source.rank is None:
            rows = _reduced_rows(self.case.dtype, self.case.reduce_op, self.ranks)
            return self._row(rows.result, 0, source.block)
        return self._row(_base(self.case.dtype), SHIFT_RANK * source.rank, source.block)

    @property
    def tolerance(self) -> float:
        """The largest allowed difference of an element; 0 where the arithmetic is exact."""
        if not self.case.reduce_op:
            return 0.0
        return _reduced_rows(self.case.dtype, self.case.reduce_op, self.ranks).tolerance

    def _row(self, row: torch.Tensor, shift: int, block: int) -> torch.Tensor:
        shifted = row.roll(-((shift + SHIFT_BLOCK * block + self.seed_offset) % PERIOD))
        return shifted.to(getattr(torch, self.case.dtype)).to(self.device)


@dataclass(frozen=True, slots=True)
class _ReducedRows:
    """Unshifted rows of a reduction over `ranks`, as int64 or float64."""

    dtype: Dtype
    reduction: ReduceOp
    ranks: int
    values: torch.Tensor
    contributors: int
    result: torch.Tensor
    tolerance: float

    def of_rank(self, rank: int) -> torch.Tensor:
        return _contribution(
            self.values, rank, self.ranks, self.contributors, self.reduction.neutral(self.dtype)
        )


def prepare(cases: Iterable[Case]) -> None:
    """Compute the rows that these cases need before ranks are forked, so that all ranks share
    them."""
    kinds = {(case.dtype, case.reduce_op, case.ranks) for case in cases if case.dtype}
    for dtype, reduce_op, ranks in kinds:
        if reduce_op:
            _reduced_rows(dtype, reduce_op, ranks)
        else:
            _base(dtype)


@lru_cache(maxsize=SHARED_ROWS)
def _reduced_rows(dtype_name: str, reduce_op: str, ranks: int) -> _ReducedRows:
    dtype, reduction = DTYPES[dtype_name], REDUCE_OPS[reduce_op]
    contributors = reduction.contributors(dtype, ranks)
    values = _draw(reduction.values(dtype, contributors))
    neutral = reduction.neutral(dtype)
    result = torch.full((PERIOD,), neutral, dtype=torch.int64)
    for rank in range(ranks):
        result = reduction.combine(
            result, _contribution(values, rank, ranks, contributors, neutral)
        )
    result *= reduction.factor
    tolerance = 0.0
    if reduction.divides:
        result = result.double() / ranks
        if ranks & (ranks - 1):
            largest = contributors * float(values.max()) / ranks
            tolerance = (contributors + 1) * dtype.epsilon / 2 * largest
    return _ReducedRows(dtype, reduction, ranks, values, contributors, result, tolerance)


def _contribution(
    values: torch.Tensor, rank: int, ranks: int, contributors: int, neutral: int
) -> torch.Tensor:
    turn = (torch.arange(PERIOD) + rank) % ranks
    return torch.where(turn < contributors, values.roll(-SHIFT_RANK * rank), neutral)


@lru_cache(maxsize=SHARED_ROWS)
def _base(dtype_name: str) -> torch.Tensor:
    largest = min(DTYPES[dtype_name].exact_limit, 250)
    return _draw(range(largest + 1))


def _draw(values: Sequence[int]) -> torch.Tensor:
    """PERIOD values drawn at random, the same in every process."""
    generator = torch.Generator().manual_seed(_SEED)
    picks = torch.randint(len(values), (PERIOD,), generator=generator)
    return torch.tensor(values, dtype=torch.int64)[picks]

"""Test data: results in closed form against exact arithmetic done another way."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
import torch

from commbench.spec.case import Case
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import BlockOrigin
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.worker.verification_data import PERIOD, VerificationData

CPU = torch.device("cpu")
torch.set_num_threads(1)  # as a rank on the CPU has it
NUMBERS_OF_RANKS = (*range(1, 10), 16, 64)
COMBINATIONS = [
    (reduction, dtype)
    for reduction, dtype in product(REDUCE_OPS, DTYPES)
    if DTYPES[dtype].kind in REDUCE_OPS[reduction].kinds
]


def pattern(
    dtype: str, reduction: str = "", rank: int = 0, ranks: int = 2, seed_offset: int = 5
) -> VerificationData:
    case = Case(
        index=0, operation="synthetic", dtype=dtype, reduce_op=reduction, root=None,
        placement="out_of_place", timing="isolated", size_bytes=0, count=0,
    )  # fmt: skip
    return VerificationData(case, rank, ranks, seed_offset, CPU)


def exact(row: torch.Tensor) -> torch.Tensor:
    """The same numbers as int64, or as float64 where they may have a fraction."""
    return row.to(torch.float64) if row.is_floating_point() else row.to(torch.int64)


def sent_by_all(dtype: str, reduction: str, ranks: int, block: int) -> torch.Tensor:
    """What every rank sends in a block, exactly: [ranks, PERIOD]."""
    rows = (pattern(dtype, reduction, rank, ranks).sent(block) for rank in range(ranks))
    return torch.stack([exact(row) for row in rows])


def reduced(sent: torch.Tensor, reduction: str) -> torch.Tensor:
    """The reduction of all rows in int64 or float64: exact as long as numbers stay below 2^53."""
    if reduction == "sum":
        return sent.sum(dim=0)
    if reduction == "premul_sum":  # 2 is the factor
        return 2 * sent.sum(dim=0)
    if reduction == "avg":
        return sent.sum(dim=0) / len(sent)
    if reduction == "prod":
        return sent.prod(dim=0)
    if reduction == "min":
        return sent.amin(dim=0)
    if reduction == "max":
        return sent.amax(dim=0)
    result = sent[0].numpy().copy()
    for row in sent[1:].numpy():
        result = {"band": result & row, "bor": result | row, "bxor": result ^ row}[reduction]
    return torch.from_numpy(result)


@pytest.mark.parametrize(("reduction", "dtype"), COMBINATIONS)
def test_the_expected_result_is_the_exact_reduction_of_what_all_ranks_send(
    reduction: str, dtype: str
) -> None:
    for ranks in NUMBERS_OF_RANKS:
        mine = pattern(dtype, reduction, ranks=ranks)
        for block in {0, ranks - 1}:
            expected = mine.expected(BlockOrigin(block=block))
            assert expected.dtype == getattr(torch, dtype)
            assert expected.shape == (PERIOD,)
            result = reduced(sent_by_all(dtype, reduction, ranks, block), reduction)
            assert result.abs().max() < 2**53
            if mine.tolerance:
                assert (exact(expected) - result).abs().max() <= mine.tolerance
            else:
                assert torch.equal(exact(expected).to(result.dtype), result)


def test_results_are_exact_but_for_averages_over_ranks_that_are_no_power_of_two() -> None:
    for (reduction, dtype), ranks in product(COMBINATIONS, (1, 2, 3, 8, 9)):
        rounds = reduction == "avg" and ranks in (3, 9)
        tolerance = pattern(dtype, reduction, ranks=ranks).tolerance
        assert (tolerance > 0) == rounds, (reduction, dtype, ranks)


@pytest.mark.parametrize("dtype", [name for name, d in DTYPES.items() if d.kind == "float"])
def test_an_average_is_within_tolerance_whether_divided_last_or_first(dtype: str) -> None:
    """Rounded after every step: the sum divided, and as NCCL does it, the sum of n-ths."""
    narrow = getattr(torch, dtype)

    def rounded(row: torch.Tensor) -> torch.Tensor:
        return exact(row.to(narrow))

    for ranks in NUMBERS_OF_RANKS:
        mine = pattern(dtype, "avg", ranks=ranks)
        expected = exact(mine.expected(BlockOrigin(block=0)))
        sent = sent_by_all(dtype, "avg", ranks, block=0)
        share = rounded(torch.tensor([1 / ranks], dtype=torch.float64))
        divided_first, multiplied = torch.zeros(PERIOD).double(), torch.zeros(PERIOD).double()
        for row in sent:
            divided_first = rounded(divided_first + rounded(row / ranks))
            multiplied = rounded(multiplied + rounded(row * share))
        for result in (rounded(sent.sum(dim=0) / ranks), divided_first, multiplied):
            assert (result - expected).abs().max() <= mine.tolerance, ranks


@pytest.mark.parametrize(("reduction", "dtype"), COMBINATIONS)
def test_no_partial_result_is_rounded_whatever_the_order_of_ranks(
    reduction: str, dtype: str
) -> None:
    """Combine in the element type itself: one after the other, and in a tree."""
    step = "sum" if reduction in ("avg", "premul_sum") else reduction
    narrow = getattr(torch, dtype)

    def combine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return exact(reduced(torch.stack([one, other]), step).to(narrow))

    for ranks in (2, 3, 8, 64):
        sent = sent_by_all(dtype, reduction, ranks, block=0) * REDUCE_OPS[reduction].factor
        order = torch.randperm(ranks, generator=torch.Generator().manual_seed(ranks)).tolist()
        whole = reduced(sent, step)
        chain = sent[order[0]]
        for rank in order[1:]:
            chain = combine(chain, sent[rank])
        tree = [sent[rank] for rank in order]
        while len(tree) > 1:
            pairs = zip(tree[::2], tree[1::2], strict=False)
            tree = [combine(*pair) for pair in pairs] + tree[len(tree) // 2 * 2 :]
        assert torch.equal(chain, whole)
        assert torch.equal(tree[0], whole)


@pytest.mark.parametrize(("reduction", "dtype"), COMBINATIONS)
def test_a_rank_that_is_left_out_shows_in_the_result(reduction: str, dtype: str) -> None:
    for ranks in (2, 3, 8):
        mine = pattern(dtype, reduction, ranks=ranks)
        expected = exact(mine.expected(BlockOrigin(block=0)))
        sent = sent_by_all(dtype, reduction, ranks, block=0)
        for missing in {0, ranks // 2, ranks - 1}:
            # Its place taken by another's data, or just nothing there.
            others = torch.cat([sent[:missing], sent[missing + 1 :]])
            twice = torch.cat([others, others[:1]])
            for wrong in (reduced(others, reduction), reduced(twice, reduction)):
                assert ((expected - wrong).abs() > mine.tolerance).any(), (ranks, missing)


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_of_different_ranks_and_blocks_differ(dtype: str) -> None:
    for ranks in (2, 3, 9, 16):
        rows = {
            exact(pattern(dtype, rank=rank, ranks=ranks).sent(block)).numpy().tobytes()
            for rank in range(ranks)
            for block in range(ranks)
        }
        assert len(rows) == ranks * ranks


@pytest.mark.parametrize(("reduction", "dtype"), COMBINATIONS)
def test_data_to_reduce_differ_between_ranks_and_between_blocks(reduction: str, dtype: str) -> None:
    for ranks in (2, 3, 9):
        of_ranks = sent_by_all(dtype, reduction, ranks, block=0)
        assert len({row.numpy().tobytes() for row in of_ranks}) == ranks
        mine = pattern(dtype, reduction, ranks=ranks)
        of_blocks = {exact(mine.sent(b)).numpy().tobytes() for b in range(ranks)}
        assert len(of_blocks) == ranks
        results = {exact(mine.expected(BlockOrigin(b))).numpy().tobytes() for b in range(ranks)}
        assert len(results) == ranks


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_that_are_not_reduced_arrive_as_they_were_sent(dtype: str) -> None:
    for ranks, rank, block in ((1, 0, 0), (2, 1, 0), (3, 2, 1), (64, 63, 63)):
        sender = pattern(dtype, rank=rank, ranks=ranks)
        receiver = pattern(dtype, rank=0, ranks=ranks)
        arrived = receiver.expected(BlockOrigin(block=block, rank=rank))
        assert torch.equal(exact(arrived), exact(sender.sent(block)))
        assert receiver.tolerance == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_vary_and_are_small_whole_numbers(dtype: str) -> None:
    row = exact(pattern(dtype).sent(0))
    assert torch.equal(row, row.round())
    assert 0 <= row.min() < row.max() <= 250
    assert len(row.unique()) >= min(DTYPES[dtype].exact_limit, 200)


def test_another_seed_offset_turns_the_data() -> None:
    def sent(seed_offset: int) -> torch.Tensor:
        return pattern("int32", seed_offset=seed_offset).sent(0)

    for seed_offset in (0, 1, PERIOD - 1):
        assert torch.equal(sent(seed_offset), sent(0).roll(-seed_offset))
    assert not torch.equal(sent(1), sent(2))


def test_an_average_of_three_ranks_is_a_third_of_their_sum_to_the_last_digit() -> None:
    sent = sent_by_all("float64", "avg", 3, block=0)
    expected = pattern("float64", "avg", ranks=3).expected(BlockOrigin(block=0))
    for column in range(0, PERIOD, 97):
        third = sum((Fraction(int(value)) for value in sent[:, column]), Fraction()) / 3
        assert float(expected[column]) == float(third)


def test_the_period_is_prime_so_that_blocks_of_any_size_lie_on_other_phases() -> None:
    assert PERIOD > 1000
    assert all(PERIOD % divisor for divisor in range(2, int(PERIOD**0.5) + 1))

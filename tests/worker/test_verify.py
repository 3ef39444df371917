"""Test data, their results in closed form against exact arithmetic done another way; and checking
results, on plain tensors of one process, with every exchange written out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import start_command
from fake_device import Fake, FakeDevice
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.plan.case import READY, Case
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.operation import BlockOrigin
from commbench.plan.operations import OPERATIONS, SINGLE_CALLS
from commbench.plan.own_calls import describe_calls, parse_calls
from commbench.plan.plan import Plan
from commbench.results.records import WrongElement
from commbench.worker import verify
from commbench.worker.buffers import Arena, Buffers
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.own_calls import Witness
from commbench.worker.verify import PERIOD, VerificationData, compare, fill, inspect

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
    if reduction.startswith("b"):
        bits = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}[reduction]
        return torch.from_numpy(bits.reduce(sent.numpy(), axis=0))
    total = sent.sum(dim=0)
    found: dict[str, torch.Tensor] = {
        "sum": total, "premul_sum": 2 * total, "avg": total / len(sent), "prod": sent.prod(dim=0),
        "min": sent.amin(dim=0), "max": sent.amax(dim=0),
    }  # fmt: skip
    return found[reduction]


@pytest.mark.parametrize(("reduction", "dtype"), COMBINATIONS)
def test_the_expected_result_is_the_exact_reduction_of_all(reduction: str, dtype: str) -> None:
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
def test_no_partial_result_is_rounded_in_any_order(reduction: str, dtype: str) -> None:
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


CHUNK = verify.CHUNK_PERIODS * PERIOD


def row_of(dtype: str) -> torch.Tensor:
    limit = min(DTYPES[dtype].exact_limit, 250)
    numbers = torch.arange(PERIOD) % (limit + 1)
    return numbers.to(getattr(torch, dtype))


def repeated(row: torch.Tensor, size: int) -> torch.Tensor:
    buffer = torch.empty(size, dtype=row.dtype)
    fill(buffer, row)
    return buffer


def flip(buffer: torch.Tensor, index: int) -> None:
    """Make one element another."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[buffer.element_size()]
    element = buffer[index : index + 1]
    element.copy_(~element) if buffer.dtype == torch.bool else element.view(bits).bitwise_xor_(1)


SIZES = st.one_of(
    st.integers(1, 3 * CHUNK + PERIOD),
    st.sampled_from([1, PERIOD, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + PERIOD, 3 * CHUNK + 1]),
)


@settings(deadline=None, max_examples=80)
@given(SIZES, st.sampled_from(sorted(DTYPES)), st.data())
def test_one_wrong_element_is_found_anywhere(size: int, dtype: str, data: st.DataObject) -> None:
    index = data.draw(
        st.one_of(
            st.integers(0, size - 1),
            st.sampled_from([i for i in (0, size - 1, CHUNK - 1, CHUNK, PERIOD) if i < size]),
        )
    )
    row = row_of(dtype)
    buffer = repeated(row, size)
    assert compare(buffer, row, 0.0) == (0, -1)
    flip(buffer, index)
    assert compare(buffer, row, 0.0) == (1, index)


def test_large_integers_are_compared_to_the_last_bit() -> None:
    row = torch.full((PERIOD,), 2**53, dtype=torch.int64)
    buffer = repeated(row, PERIOD)
    buffer[1] += 1
    assert compare(buffer, row, 0.0) == (1, 1)


PEAK = """
import torch
from commbench.worker.verify import PERIOD, compare, fill

torch.set_num_threads(1)

def mib(name):
    with open("/proc/self/status") as status:
        return int(status.read().split(name + ":")[1].split()[0]) / 1024

def compare_thrice(buffer):
    right = compare(buffer, row, 0.0)[0]
    buffer.add_(1)
    wrong = compare(buffer, row, 0.0)[0]
    narrow = buffer.view(torch.bfloat16)
    return right, wrong, compare(narrow, row.to(torch.bfloat16), 0.5)[0]

row = torch.arange(PERIOD).remainder(7).to(torch.float32)
small = torch.empty(3 * PERIOD + 1)
fill(small, row)
compare_thrice(small)  # whatever is loaded on first use
buffer = torch.empty(16 << 20)
fill(buffer, row)
before = mib("VmHWM")
assert before - mib("VmRSS") < 4, "a peak before this one would hide it"
found = compare_thrice(buffer)
print(*found, mib("VmHWM") - before)
"""


def test_comparing_64_mib_takes_less_than_16_mib_more(tmp_path: Path) -> None:
    ended = start_command(tmp_path, program=PEAK).finish().good()
    right, wrong, narrow, more_mib = ended.out.split()
    assert (int(right), int(wrong)) == (0, 16 << 20)
    assert int(narrow) > 16 << 20
    assert float(more_mib) < 16


def ranks_of(case: Case, ranks: int) -> list[Buffers]:
    """The buffers of every rank, all in this process; there is no group."""
    return [
        Arena(Communicator(rank, ranks, Device()), (case,)).of_groups(case)[0]
        for rank in range(ranks)
    ]


def exchange(case: Case, everyone: list[Buffers], sent: list[torch.Tensor]) -> None:
    """What the operation must do, written out: `sent` holds a copy of what each rank sends."""
    ranks, root = len(everyone), case.root or 0

    def block(rank: int, number: int) -> torch.Tensor:
        return sent[rank][number * case.count : (number + 1) * case.count]

    def total(number: int | None = None) -> torch.Tensor:
        parts = sent if number is None else [block(rank, number) for rank in range(ranks)]
        return torch.stack(parts).sum(dim=0).to(parts[0].dtype)

    def unequal(rank: int, number: int) -> torch.Tensor:
        counts, _ = case.block_counts(rank)
        return sent[rank].split(list(counts))[number]

    half = ranks // 2
    pairs = {i: i + half for i in range(half)} | {i + half: i for i in range(half)}
    for rank, buffers in enumerate(everyone):
        result = {
            "all_reduce": lambda: total(),
            "all_gather": lambda: torch.cat(sent),
            "reduce_scatter": lambda rank=rank: total(rank),
            "broadcast": lambda: sent[root],
            "all_to_all": lambda rank=rank: torch.cat([block(r, rank) for r in range(ranks)]),
            "reduce": lambda rank=rank: total() if rank == root else sent[rank],
            "gather": lambda rank=rank: torch.cat(sent) if rank == root else sent[rank][:0],
            "scatter": lambda rank=rank: block(root, rank),
            "send_recv": lambda rank=rank: sent[(rank - 1) % ranks],
            "barrier": lambda rank=rank: sent[rank],
            "ping_pong": lambda rank=rank: sent[pairs.get(rank, rank)],
            "exchange": lambda rank=rank: sent[pairs.get(rank, rank)],
            "stream": lambda rank=rank: sent[rank if rank < half else pairs.get(rank, rank)],
            "pipeline": lambda: sent[0],
            "ring_exchange": lambda: torch.cat(sent),
            "new_group": lambda rank=rank: sent[rank],
            "all_to_all_v": lambda rank=rank: torch.cat([unequal(r, rank) for r in range(ranks)]),
            "all_gather_v": lambda: torch.cat(sent),
            "reduce_scatter_v": lambda rank=rank: (
                torch.stack([unequal(r, rank) for r in range(ranks)]).sum(dim=0).to(sent[0].dtype)
            ),
        }[case.operation]()
        buffers.receive.copy_(result)


def every_case(ranks: int, sizes: tuple[int, ...], dtype: str = "int32") -> Iterator[Case]:
    plan = Plan(
        operations=tuple(SINGLE_CALLS), sizes=sizes, dtypes=(dtype,), root=ranks - 1,
        placement="both", imbalance=("zipf:1:2",), backend="gloo", device="cpu",
        world_size=ranks,
    )  # fmt: skip
    # What gloo alone refuses has a closed form all the same.
    return (c for c in plan.cases() if c.status == READY or "equal blocks only" in c.reason)


def run_by_hand(
    case: Case, ranks: int, seed_offset: int
) -> tuple[list[Buffers], list[VerificationData]]:
    everyone = ranks_of(case, ranks)
    patterns = [VerificationData(case, rank, ranks, seed_offset, CPU) for rank in range(ranks)]
    for buffers, pattern in zip(everyone, patterns, strict=True):
        for number, part in enumerate(buffers.send_blocks or ()):
            fill(part, pattern.sent(number))
    sent = [buffers.send.clone() for buffers in everyone]
    exchange(case, everyone, sent)
    return everyone, patterns


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_what_every_operation_must_do_is_what_its_closed_form_expects(ranks: int) -> None:
    names = set()
    for case in every_case(ranks, sizes=(4 * ranks, 4000, 70_001)):
        everyone, patterns = run_by_hand(case, ranks, seed_offset=case.index)
        for buffers, pattern in zip(everyone, patterns, strict=True):
            assert inspect([(buffers, pattern)]) == (0, None), case.name
        names.add((case.operation, case.placement))
    # A CPU has no memory of torch's symmetric memory, registers none, and gloo splits no group.
    here = [
        o
        for o in SINGLE_CALLS.values()
        if not (o.memory or o.registers or (o.makes_group and o.backends))
    ]
    expected = {(o.name, placement) for o in here for placement in o.placements}
    if ranks == 1:
        expected -= {(o.name, "out_of_place") for o in here if o.min_ranks == 2}
    assert {pair for pair in names if pair[1] in OPERATIONS[pair[0]].placements} == expected


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_wrong_element_is_named_by_rank_element_and_values(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 4))
    case = data.draw(st.sampled_from([c for c in every_case(ranks, (4000, 70_001)) if c.dtype]))
    rank = data.draw(st.integers(0, ranks - 1))
    if case.operation in ("gather", "reduce", "pipeline"):
        rank = ranks - 1  # the root, or the last stage, gets something
    if OPERATIONS[case.operation].is_paired:
        rank = ranks // 2  # the first of those that are not first in their pair
    everyone, patterns = run_by_hand(case, ranks, seed_offset=3)
    received = everyone[rank].receive
    element = data.draw(st.integers(0, received.numel() - 1))
    if case.operation == "ring_exchange" and element // case.count == rank:
        element = (element + case.count) % received.numel()  # nobody sends it its own block
    right = int(received[element])
    received[element] = right + 1000
    verdicts = [inspect([(b, p)]) for b, p in zip(everyone, patterns, strict=True)]
    assert verdicts.pop(rank) == (
        1,
        WrongElement(rank=rank, element=element, expected=str(right), got=str(right + 1000)),
    )
    assert verdicts == [(0, None)] * (ranks - 1)


def test_what_a_rank_that_gets_nothing_holds_is_nobodys_business() -> None:
    for case in (case for case in every_case(3, (4000,)) if case.operation == "reduce"):
        everyone, patterns = run_by_hand(case, 3, seed_offset=0)
        everyone[0].receive.zero_()
        assert inspect([(everyone[0], patterns[0])]) == (0, None)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float8_e5m2", "bfloat16", "float64"])
def test_an_operation_that_does_nothing_is_found_out(dtype: str) -> None:
    for ranks in (2, 3):
        for case in every_case(ranks, (4096,), dtype):
            if not case.dtype:
                continue
            wrong = [
                verify.verify(buffers, 11, lambda: None, Device()).wrong
                for buffers in ranks_of(case, ranks)
            ]
            assert sum(wrong) > case.count / 2, case.name


class Copies:
    """An all_reduce of one rank."""

    operation = "all_reduce"

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        output.copy_(input)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_call_that_does_not_wait_for_the_stream_has_wrong_results(is_ordered: bool) -> None:
    (source,) = calls = parse_calls(Copies)
    plan = Plan(
        operations=("all_reduce",), sizes=(4096,), placement="out_of_place", backend="gloo",
        device="cpu", world_size=1, calls=calls, own_calls=describe_calls(calls),
    )  # fmt: skip
    (case,) = (case for case in plan.cases() if case.call)
    device = FakeDevice(0, Fake())
    comm = Communicator(0, 1, device)
    arena = Arena(comm, (case,))
    buffers = arena.of_groups(case)[0]
    run = make_call(buffers)
    call = device.in_stream(lambda: run()) if is_ordered else run
    found = verify.verify(buffers, 7, call, device, Witness(buffers, comm))
    if is_ordered:
        assert (found.wrong, found.fault) == (0, "")
    else:
        assert found.wrong and found.wrong > 500
        assert found.fault.startswith("the call Copies on rank 0 ")
    assert source.endswith(":Copies")

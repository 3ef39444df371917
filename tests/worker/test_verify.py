"""Checking results: on plain tensors of one process, with every exchange written out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from commands import start_command
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commbench.results.schema import WrongElement
from commbench.spec.case import READY, Case
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS, SINGLE_CALLS
from commbench.spec.plan import Plan
from commbench.worker.buffers import Arena, Buffers
from commbench.worker.communicator import Communicator
from commbench.worker.device import Cpu
from commbench.worker.verification_data import PERIOD, VerificationData
from commbench.worker.verify import CHUNK_PERIODS, compare, fill, inspect, verify

CPU = torch.device("cpu")
torch.set_num_threads(1)  # as a rank on the CPU has it
CHUNK = CHUNK_PERIODS * PERIOD


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


@pytest.mark.parametrize("size", [0, 1, PERIOD - 1, PERIOD, PERIOD + 1, 3 * PERIOD + 7])
def test_a_filled_buffer_repeats_its_row_to_the_last_element(size: int) -> None:
    row = row_of("int32")
    expected = row.repeat(size // PERIOD + 1)[:size]
    assert torch.equal(repeated(row, size), expected)


SIZES = st.one_of(
    st.integers(1, 3 * CHUNK + PERIOD),
    st.sampled_from([1, PERIOD, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + PERIOD, 3 * CHUNK + 1]),
)


@settings(deadline=None, max_examples=80)
@given(SIZES, st.sampled_from(sorted(DTYPES)), st.data())
def test_one_wrong_element_is_found_wherever_it_is(
    size: int, dtype: str, data: st.DataObject
) -> None:
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


@settings(deadline=None, max_examples=40)
@given(SIZES, st.sets(st.integers(0, 3 * CHUNK + PERIOD - 1), min_size=1, max_size=20))
@example(3 * CHUNK, {CHUNK - 1, CHUNK, 2 * CHUNK, 3 * CHUNK - 1})
def test_all_wrong_elements_are_counted_and_the_first_is_named(size: int, places: set[int]) -> None:
    wrong = sorted({place % size for place in places})
    row = row_of("float32")
    buffer = repeated(row, size)
    for index in wrong:
        flip(buffer, index)
    assert compare(buffer, row, 0.0) == (len(wrong), wrong[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_that_is_wrong_everywhere_is_counted_whole(dtype: str) -> None:
    row = row_of(dtype)
    size = CHUNK + PERIOD + 5
    other = ~row if row.dtype == torch.bool else row.roll(1)
    assert compare(repeated(other, size), row, 0.0) == (size, 0)


FLOATS = [name for name, dtype in DTYPES.items() if dtype.kind == "float"]


@pytest.mark.parametrize(("dtype", "tolerance"), [*product(FLOATS, (0.0, 0.5))])
def test_nan_is_wrong_whatever_the_tolerance(dtype: str, tolerance: float) -> None:
    row = row_of(dtype)
    buffer = repeated(row, CHUNK + 10)
    buffer[CHUNK + 3] = float("nan")
    assert compare(buffer, row, tolerance) == (1, CHUNK + 3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "float8_e5m2"])
def test_infinity_is_wrong_whatever_the_tolerance(dtype: str) -> None:
    row = row_of(dtype)
    buffer = repeated(row, PERIOD)
    buffer[7] = float("inf")
    buffer[9] = float("-inf")
    assert compare(buffer, row, 0.0) == compare(buffer, row, 0.5) == (2, 7)


@pytest.mark.parametrize("dtype", FLOATS)
def test_minus_zero_is_zero(dtype: str) -> None:
    row = torch.zeros(PERIOD).to(getattr(torch, dtype))
    buffer = repeated((-torch.zeros(PERIOD)).to(row.dtype), PERIOD + 3)
    assert torch.signbit(buffer.float()).all()
    assert compare(buffer, row, 0.0) == (0, -1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_within_the_tolerance_is_right_and_beyond_it_is_wrong(dtype: str) -> None:
    row = row_of(dtype).clamp(max=100)
    buffer = repeated(row, 2 * PERIOD)
    buffer[3] += 0.5
    buffer[4] -= 0.5
    assert compare(buffer, row, 0.5) == (0, -1)
    buffer[PERIOD + 50] += 0.75
    buffer[PERIOD + 51] -= 0.75
    assert compare(buffer, row, 0.5) == (2, PERIOD + 50)


def test_a_tolerance_finer_than_float32_is_kept_for_float64() -> None:
    row = torch.full((PERIOD,), 100.0, dtype=torch.float64)
    buffer = repeated(row, PERIOD)
    buffer[11] += 1e-9
    assert compare(buffer, row, 1e-12) == (1, 11)
    assert compare(buffer, row, 1e-8) == (0, -1)


def test_large_integers_are_compared_to_the_last_bit() -> None:
    row = torch.full((PERIOD,), 2**53, dtype=torch.int64)
    buffer = repeated(row, PERIOD)
    buffer[1] += 1
    assert compare(buffer, row, 0.0) == (1, 1)


PEAK = """
import torch
from commbench.worker.verification_data import PERIOD
from commbench.worker.verify import compare, fill

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
    ended = start_command(tmp_path, program=PEAK).finish()
    assert ended.code == 0, ended.err
    right, wrong, narrow, more_mib = ended.out.split()
    assert (int(right), int(wrong)) == (0, 16 << 20)
    assert int(narrow) > 16 << 20
    assert float(more_mib) < 16


def ranks_of(case: Case, ranks: int) -> list[Buffers]:
    """The buffers of every rank, all in this process; there is no group."""
    return [Arena(Communicator(rank, ranks, Cpu()), (case,)).buffers(case) for rank in range(ranks)]


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
            "all_gather_object": lambda: torch.cat(sent),
            "broadcast_object_list": lambda: sent[root],
            "monitored_barrier": lambda rank=rank: sent[rank],
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
            assert inspect(buffers, pattern) == (0, None), case.name
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
def test_a_wrong_element_on_any_rank_is_named_by_rank_element_and_values(
    data: st.DataObject,
) -> None:
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
    verdicts = [inspect(b, p) for b, p in zip(everyone, patterns, strict=True)]
    assert verdicts.pop(rank) == (
        1,
        WrongElement(rank=rank, element=element, expected=str(right), got=str(right + 1000)),
    )
    assert verdicts == [(0, None)] * (ranks - 1)


def test_what_a_rank_that_gets_nothing_holds_is_nobodys_business() -> None:
    for case in every_case(3, (4000,)):
        if case.operation == "reduce":
            everyone, patterns = run_by_hand(case, 3, seed_offset=0)
            everyone[0].receive.zero_()
            assert inspect(everyone[0], patterns[0]) == (0, None)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float8_e5m2", "bfloat16", "float64"])
def test_an_operation_that_does_nothing_is_found_out(dtype: str) -> None:
    for ranks in (2, 3):
        for case in every_case(ranks, (4096,), dtype):
            if not case.dtype:
                continue
            wrong = [
                verify(case, buffers, 11, lambda: None, Cpu()).wrong
                for buffers in ranks_of(case, ranks)
            ]
            assert sum(wrong) > case.count / 2, case.name


def gets_nothing(case: Case, buffers: Buffers) -> bool:
    """Whether nothing is expected on this rank, which sends."""
    return buffers.rank == 0 and case.operation in ("stream", "pipeline")


def test_leftovers_of_the_last_check_are_never_taken_for_a_result() -> None:
    # Out of place, the receive buffer holds the right result of a check before.
    for case in every_case(2, (4096,)):
        if case.placement == "out_of_place":
            everyone, _ = run_by_hand(case, 2, seed_offset=11)
            for buffers in everyone:
                if buffers.receive.numel() and not gets_nothing(case, buffers):
                    assert verify(case, buffers, 11, lambda: None, Cpu()).wrong > 0


def test_the_call_is_made_once_on_fresh_data_and_waited_for() -> None:
    (case,) = (c for c in every_case(1, (4096,)) if c.title == "all_gather int32 out_of_place")
    (buffers,) = ranks_of(case, 1)
    happened = []

    class RecordedCpu(Cpu):
        def synchronize(self) -> None:
            happened.append(("synchronize", 0))

    def call() -> None:
        happened.append(("call", int(buffers.send.sum())))
        buffers.receive.copy_(buffers.send)

    verdict = verify(case, buffers, 0, call, RecordedCpu())
    first = happened.copy()
    verify(case, buffers, 1000, call, RecordedCpu())
    assert (verdict.wrong, verdict.first) == (0, None)
    assert verdict.seconds > 0
    assert [name for name, _ in happened] == ["synchronize", "call", "synchronize"] * 2
    assert happened[4] != first[1]

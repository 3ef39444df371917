"""The memory of a rank: one arena, and what in place means for every operation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from commands import Commbench

from commbench.spec.case import MOST_PIECES, READY, ROTATED_BYTES, Case
from commbench.spec.operations import SINGLE_CALLS
from commbench.spec.plan import Plan
from commbench.worker.buffers import ALIGNMENT, Arena, Buffers
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Cpu

RANKS, ROOT, COUNT = 3, 1, 100
PLAN = Plan(
    operations=tuple(SINGLE_CALLS), sizes=(COUNT * RANKS * 4,), placement="both", root=ROOT,
    backend="gloo", device="cpu", world_size=RANKS,
)  # fmt: skip
CASES = tuple(case for case in PLAN.cases() if case.status == READY)


def arena(rank: int, cases: tuple[Case, ...] = CASES) -> Arena:
    return Arena(Communicator(rank, RANKS, Cpu()), cases)


def offset(buffers: Buffers) -> int:
    """Elements from the beginning of the send buffer to that of the receive buffer."""
    return buffers.receive.storage_offset() - buffers.send.storage_offset()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_buffers_have_the_bytes_of_the_plan_and_the_type_of_the_case(case: Case) -> None:
    for rank in range(RANKS):
        buffers = arena(rank).buffers(case)
        sizes = buffers.send.nbytes, buffers.receive.nbytes
        assert sizes == case.buffer_bytes(rank)
        assert buffers.send.dtype == (torch.float32 if case.dtype else torch.uint8)
        assert (buffers.rank, buffers.ranks, buffers.root) == (rank, RANKS, case.root or 0)


def test_in_place_the_smaller_buffer_is_the_ranks_own_block_of_the_larger() -> None:
    found = {
        case.operation: [offset(arena(rank).buffers(case)) for rank in range(RANKS)]
        for case in CASES
        if case.placement == "in_place"
    }
    own, root_only = [0, COUNT, 2 * COUNT], [0, COUNT, 0]
    assert found == {
        "all_reduce": [0, 0, 0],
        "all_gather": [-elements for elements in own],
        "reduce_scatter": own,
        "broadcast": [0, 0, 0],
        "reduce": [0, 0, 0],
        "gather": [-elements for elements in root_only],
        "scatter": root_only,
        "broadcast_object_list": [0, 0, 0],
    }


def test_out_of_place_buffers_share_no_byte_and_begin_on_a_page() -> None:
    for case in CASES:
        if case.placement != "in_place" and case.dtype:
            for rank in range(RANKS):
                buffers = arena(rank).buffers(case)
                assert offset(buffers) * 4 >= buffers.send.nbytes
                assert offset(buffers) * 4 % ALIGNMENT == 0


def test_blocks_are_the_buffer_cut_into_one_per_rank() -> None:
    for case in CASES:
        buffers = arena(ROOT).buffers(case)
        for whole, blocks in (
            (buffers.send, buffers.send_blocks),
            (buffers.receive, buffers.receive_blocks),
        ):
            if not whole.numel():
                assert blocks is None
                continue
            assert blocks is not None
            assert torch.cat(blocks).numel() == whole.numel()
            assert {block.numel() for block in blocks} == {case.count}
            assert blocks[0].data_ptr() == whole.data_ptr()


def test_a_rank_that_is_no_root_has_no_blocks_to_scatter_or_to_gather() -> None:
    for case in CASES:
        buffers = arena(rank=0).buffers(case)
        if case.operation == "scatter":
            assert buffers.send_blocks is None
        if case.operation == "gather":
            assert buffers.receive_blocks is None


def test_the_reduce_operation_is_torchs() -> None:
    plan = Plan(
        operations=("all_reduce",), sizes=(64,), reduce_ops=("sum", "avg", "prod", "min", "max"),
        backend="gloo", device="cpu", world_size=RANKS,
    )  # fmt: skip
    ops = torch.distributed.ReduceOp
    assert [arena(0).buffers(case).reduce_op for case in plan.cases()] == [
        ops.SUM, ops.AVG, ops.PRODUCT, ops.MIN, ops.MAX,
    ]  # fmt: skip


def rotating(size: int) -> tuple[Case, ...]:
    plan = replace(PLAN, sizes=(size,), buffers="rotating")
    return tuple(case for case in plan.cases() if case.status == READY and case.dtype)


@pytest.mark.parametrize("size", [RANKS * 4, 100_000 * RANKS])
def test_pieces_of_a_case_share_no_byte_and_each_begins_on_a_page(size: int) -> None:
    for case in rotating(size):
        for rank in range(RANKS):
            pieces = arena(rank, (case,)).pieces(case)
            assert len(pieces) == case.pieces == MOST_PIECES
            spans = []
            for ((_, piece),) in pieces:
                tensors = [tensor for tensor in (piece.send, piece.receive) if tensor.numel()]
                starts = [tensor.storage_offset() * 4 for tensor in tensors]
                ends = [s + t.nbytes for s, t in zip(starts, tensors, strict=True)]
                assert min(starts, default=0) % ALIGNMENT == 0
                spans.append((min(starts, default=0), max(ends, default=0)))
            used = [span for span in spans if span[1]]
            assert all(one[1] <= next_[0] for one, next_ in pairwise(used))


@pytest.mark.parametrize(
    ("size", "pieces"), [(1 << 10, 32), (16 << 20, 32), (64 << 20, 8), (300 << 20, 2), (1 << 30, 1)]
)
def test_rotating_calls_use_more_memory_than_any_cache_has(size: int, pieces: int) -> None:
    case = rotating(size)[0]
    assert case.pieces == pieces
    assert case.needed_bytes(0) == pieces * case.size_bytes
    if size >= 16 << 20:
        assert case.needed_bytes(0) >= ROTATED_BYTES - RANKS * 4 * pieces
    hot = case._replace(buffers="hot")
    assert (hot.pieces, hot.needed_bytes(0)) == (1, case.size_bytes)


class SecondDevice(Cpu):
    """A device with a number, whose memory nobody needs."""

    torch_device = torch.device("meta", 1)


def test_a_barrier_is_told_the_device_of_its_rank(tmp_path: Path) -> None:
    (barrier,) = (case for case in CASES if case.operation == "barrier")
    assert arena(0).buffers(barrier).device_ids is None
    found = Arena(Communicator(0, RANKS, SecondDevice()), CASES).buffers(barrier)
    assert found.device_ids == [1]
    dist.init_process_group(
        "gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "s"), 1)
    )
    try:
        make_call(barrier, found)()
        # torch looks at what it is given, so it was given.
        with pytest.raises(TypeError, match="BarrierOptions"):
            make_call(barrier, replace(found, device_ids=["x"]))()  # type: ignore[list-item]
    finally:
        dist.destroy_process_group()


def test_every_case_uses_the_same_memory() -> None:
    shared = arena(0)
    found = [shared.buffers(case) for case in CASES]
    tensors = [tensor for b in found for tensor in (b.send, b.receive)]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def test_an_arena_for_no_case_is_made_too() -> None:
    (barrier,) = (case for case in CASES if case.operation == "barrier")
    assert arena(0, ()).buffers(barrier).send.numel() == 0


PIECES_USED = """
import os
from commbench.worker import coordinator
make_call = coordinator.make_call
def noted(case, buffers):
    call, piece = make_call(case, buffers), buffers.receive.storage_offset() * 4 // 4096
    def run():
        call()
        if piece == {corrupted}:
            buffers.receive[-1] += 1
        with open("used-" + os.environ["RANK"], "a") as file:
            print(piece, file=file)
    return run
coordinator.make_call = noted
"""


def test_rotating_calls_of_real_ranks_use_one_piece_after_another(
    program: Commbench, tmp_path: Path
) -> None:
    ended = program(
        PIECES_USED.format(corrupted=-1), "--sizes", "1K", "--iters", "40", "--warmup", "0",
        "--buffers", "rotating", "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = ended.rows()
    assert (row["wrong"], row["buffers"]) == ("0", "rotating")
    for rank in range(2):
        used = [int(line) for line in (tmp_path / f"used-{rank}").read_text().splitlines()]
        # The check, the timed calls, and the last check.
        checked = list(range(MOST_PIECES))
        timed = [call % MOST_PIECES for call in range(40)]
        assert used == [*checked, *timed, *checked]


def test_a_wrong_result_in_one_of_many_pieces_is_found(program: Commbench) -> None:
    ended = program(
        PIECES_USED.format(corrupted=29), "--sizes", "1K", "--iters", "2",
        "--buffers", "rotating", "--no-plots",
    )  # fmt: skip
    assert ended.code == 5
    (case,) = ended.cases()
    assert (case["wrong"], case["first_wrong"]["element"]) == (2, 255)

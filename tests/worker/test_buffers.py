"""The memory of a rank: one arena, and what in place means for every operation."""

from __future__ import annotations

import pytest
import torch

from commbench.spec.case import READY, Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.worker.buffers import ALIGNMENT, Arena, Buffers
from commbench.worker.communicator import Communicator
from commbench.worker.device import Cpu

RANKS, ROOT, COUNT = 3, 1, 100
PLAN = Plan(
    operations=tuple(OPERATIONS), sizes=(COUNT * RANKS * 4,), placement="both", root=ROOT,
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


def test_every_case_uses_the_same_memory() -> None:
    shared = arena(0)
    found = [shared.buffers(case) for case in CASES]
    tensors = [tensor for b in found for tensor in (b.send, b.receive)]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def test_an_arena_for_no_case_is_made_too() -> None:
    (barrier,) = (case for case in CASES if case.operation == "barrier")
    assert arena(0, ()).buffers(barrier).send.numel() == 0

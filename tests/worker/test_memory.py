"""The memory of a rank: one arena, what in place means for every operation, what does not fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from commands import Commbench

import commbench
from commbench.plan.case import MOST_PIECES, READY, Case
from commbench.plan.cases import find_oversized
from commbench.plan.operations import SINGLE_CALLS
from commbench.plan.plan import Plan
from commbench.worker.buffers import ALIGNMENT, Arena, Buffers
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.feasibility import is_out_of_memory, is_refusal

RANKS, ROOT, COUNT = 3, 1, 100
PLAN = Plan(
    operations=tuple(SINGLE_CALLS), sizes=(COUNT * RANKS * 4,), placement="both", root=ROOT,
    backend="gloo", device="cpu", world_size=RANKS,
)  # fmt: skip
CASES = tuple(case for case in PLAN.cases() if case.status == READY)


def arena(rank: int, cases: tuple[Case, ...] = CASES) -> Arena:
    return Arena(Communicator(rank, RANKS, Device()), cases)


def offset(buffers: Buffers) -> int:
    """Elements from the beginning of the send buffer to that of the receive buffer."""
    return buffers.receive.storage_offset() - buffers.send.storage_offset()


def test_out_of_place_buffers_share_no_byte_and_begin_on_a_page() -> None:
    for case in CASES:
        if case.placement != "in_place" and case.dtype:
            for rank in range(RANKS):
                buffers = arena(rank).of_groups(case)[0]
                assert offset(buffers) * 4 >= buffers.send.nbytes
                assert offset(buffers) * 4 % ALIGNMENT == 0


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
            for (piece,) in pieces:
                tensors = [tensor for tensor in (piece.send, piece.receive) if tensor.numel()]
                starts = [tensor.storage_offset() * 4 for tensor in tensors]
                ends = [s + t.nbytes for s, t in zip(starts, tensors, strict=True)]
                assert min(starts, default=0) % ALIGNMENT == 0
                spans.append((min(starts, default=0), max(ends, default=0)))
            used = [span for span in spans if span[1]]
            assert all(one[1] <= next_[0] for one, next_ in pairwise(used))


class SecondDevice(Device):
    """A device with a number, whose memory nobody needs."""

    torch_device = torch.device("meta", 1)


def test_a_barrier_is_told_the_device_of_its_rank(tmp_path: Path) -> None:
    (barrier,) = (case for case in CASES if case.operation == "barrier")
    assert arena(0).of_groups(barrier)[0].device_ids is None
    found = Arena(Communicator(0, RANKS, SecondDevice()), CASES).of_groups(barrier)[0]
    assert found.device_ids == [1]
    dist.init_process_group(
        "gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "s"), 1)
    )
    try:
        make_call(found)()
        # torch looks at what it is given, so it was given.
        with pytest.raises(TypeError, match="BarrierOptions"):
            make_call(found._replace(device_ids=["x"]))()  # type: ignore[list-item]
    finally:
        dist.destroy_process_group()


PIECES_USED = """
import os
from commbench.worker import coordinator
make_call = coordinator.make_call
def noted(buffers):
    call, piece = make_call(buffers), buffers.receive.storage_offset() * 4 // 4096
    def run():
        call()
        if piece == {corrupted}:
            buffers.receive[-1] += 1
        with open("used-" + os.environ["RANK"], "a") as file:
            print(piece, file=file)
    return run
coordinator.make_call = noted
"""


def test_rotating_calls_use_one_piece_after_another(program: Commbench, tmp_path: Path) -> None:
    ended = program(
        PIECES_USED.format(corrupted=-1), "--sizes", "1K", "--iters", "40", "--warmup", "0",
        "--buffers", "rotating", "--no-plots",
    ).good()  # fmt: skip
    (row,) = ended.rows()
    assert (row["wrong"], row["buffers"]) == ("0", "rotating")
    for rank in range(2):
        used = [int(line) for line in (tmp_path / f"used-{rank}").read_text().splitlines()]
        # The check, the timed calls, and the last check.
        checked = list(range(MOST_PIECES))
        timed = [call % MOST_PIECES for call in range(40)]
        assert used == [*checked, *timed, *checked]


def test_a_wrong_result_in_one_of_many_pieces_is_found_and_listed(
    program: Commbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = program(
        PIECES_USED.format(corrupted=29), "--sizes", "1K", "--iters", "2",
        "--buffers", "rotating", "--no-plots",
    )  # fmt: skip
    assert ended.code == 5
    (case,) = ended.cases()
    assert (case["wrong"], case["first_wrong"]["element"]) == (2, 255)
    (tmp_path / "results").mkdir()
    (tmp_path / "run").rename(tmp_path / "results" / "bad")
    monkeypatch.chdir(tmp_path)
    assert commbench.list_runs().text().rstrip().endswith("wrong results")


def test_a_size_that_no_host_has_room_for_is_skipped_with_the_figures(commbench: Commbench) -> None:
    ended = commbench("run", "--sizes", "1K,1024G", "--iters", "4", "--no-plots").good()
    assert [row["status"] for row in ended.rows()] == ["ok", "skipped"]
    reason = ended.cases()[1]["reason"]
    assert reason.startswith("2.0 TiB needed, ") and " GiB free on " in reason


def test_a_size_without_memory_on_a_rank_fails_alone(program: Commbench) -> None:
    limit = (
        "import resource, commbench.worker.feasibility as memory\n"
        "memory.free_bytes = lambda device: None  # as where nothing can be known\n"
        "resource.setrlimit(resource.RLIMIT_AS, (5 << 30, 5 << 30))\n"
    )
    ended = program(limit, "--sizes", "1K,2K,8G", "--iters", "4", "--no-plots").good()
    assert [row["status"] for row in ended.rows()] == ["ok", "ok", "failed"]
    assert ended.cases()[2]["reason"].startswith("out of memory on rank 0 (")


RUNS_OUT = """
import torch
from commbench.worker import coordinator
verify = coordinator.verify.verify
def exhausted(buffers, *rest):
    found = verify(buffers, *rest)
    if buffers.case.size_bytes == 2048 and buffers.rank == 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return found
coordinator.verify.verify = exhausted
"""


def test_a_case_in_which_memory_runs_out_ends_alone(program: Commbench) -> None:
    ended = program(RUNS_OUT, "--sizes", "1K-4K", "--iters", "4", "--no-plots").good()
    assert [row["status"] for row in ended.rows()] == ["ok", "failed", "ok"]
    told = "out of memory on rank 1 (CUDA out of memory. Tried to allocate 2.00 GiB)"
    assert ended.cases()[1]["reason"] == told


@pytest.mark.parametrize(
    ("error", "is_it"),
    [(MemoryError(), True), (torch.OutOfMemoryError("CUDA out of memory"), True),
     (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
     (RuntimeError("Connection closed by peer"), False),
     (ValueError("can't allocate memory"), False)],
)  # fmt: skip
def test_errors_of_exhausted_memory_are_known(error: Exception, is_it: bool) -> None:
    assert is_out_of_memory(error) is is_it


def nccl_error(kind: str) -> dist.DistBackendError:
    return dist.DistBackendError(
        f"NCCL error in: ../torch/csrc/NCCLUtils.cpp:77, {kind} (run with NCCL_DEBUG=WARN for "
        "details), NCCL version 2.28.9\nLast error:\nnot supported by this NIC"
    )


@pytest.mark.parametrize(
    ("error", "is_it"),
    [(ValueError("Cannot use ReduceOp.BAND with NCCL"), True),
     (TypeError("Input tensor data type is not supported for NCCL process group: Short"), True),
     (NotImplementedError("a CPU has no graphs"), True),
     (AttributeError("module has no attribute 'split_group'"), True),
     (RuntimeError("Invalid scalar type"), True),
     (RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo"), True),
     (RuntimeError("setBoundDeviceId must have an index"), True),
     (RuntimeError("Backend ucc does not support reduce_scatter"), True),
     (RuntimeError("No backend type associated with device type cuda"), True),
     (RuntimeError("CUDA error: operation not permitted when stream is capturing\nx"), True),
     (nccl_error("invalid usage"), True), (nccl_error("invalid argument"), True),
     (nccl_error("unhandled system error"), False), (nccl_error("unhandled cuda error"), False),
     (nccl_error("internal error"), False),
     (nccl_error("remote process exited or there was a network error"), False),
     (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
     (RuntimeError("CUDA error: the provided PTX was compiled with an unsupported one"), False),
     (RuntimeError("CUDA driver error: unspecified launch failure"), False),
     (torch.OutOfMemoryError("CUDA out of memory. Memory must be freed"), False),
     (RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:4711"), False),
     (RuntimeError("Timed out waiting 1000ms for recv operation to complete"), False),
     (dist.DistStoreError("wait timeout after 1000ms, expected keys: /0"), False),
     (RuntimeError("something that nobody has seen"), False)],
)  # fmt: skip
def test_a_fault_is_told_from_a_refusal(error: Exception, is_it: bool) -> None:
    assert is_refusal(error) is is_it


def test_each_kind_of_memory_and_its_registration_need_memory_of_their_own() -> None:
    why = "4.0 GiB needed for 4 allocations (--memory default: 1), 3.5 GiB free on node cuda:0"
    for kinds, reasons in ((("default",), []), (("default", "registered", "symmetric"), [why])):
        asked = replace(
            PLAN, operations=("all_reduce",), sizes=(1 << 30,), placement="in_place", root=0,
            backend="nccl", device="cuda", world_size=2, memory=kinds,
        )  # fmt: skip
        found = find_oversized(asked, asked.cases(), "node cuda:0", [0], 7 << 29)
        assert [*found.values()] == reasons * len(asked.cases())

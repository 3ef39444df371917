"""What does not fit is left out, what finds no memory fails alone; on real ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from commands import Commbench

from commbench.spec.memory_needs import find_oversized
from commbench.spec.plan import Plan
from commbench.worker.feasibility import is_out_of_memory, is_refusal


def test_a_size_that_no_host_has_room_for_is_skipped_with_the_figures(
    commbench: Commbench,
) -> None:
    ended = commbench("run", "--sizes", "1K,1024G", "--iters", "4", "--no-plots")
    assert ended.code == 0, ended.err
    assert [row["status"] for row in ended.rows()] == ["ok", "skipped"]
    reason = ended.cases()[1]["reason"]
    assert reason.startswith("2048 GiB needed, ") and " GiB free on " in reason


def test_where_nothing_fits_nothing_is_measured(commbench: Commbench) -> None:
    ended = commbench("run", "--sizes", "1024G", "--no-plots")
    assert ended.code == 3
    error, hint = ended.err.splitlines()[-2:]
    told = "error: nothing is left to measure; all_reduce float32 sum in_place: 2048 GiB needed, "
    assert error.startswith(told)
    assert hint == "hint: ask for smaller --sizes or fewer ranks: --dry-run prints what each needs"
    assert not ended.folder.exists()


def test_a_size_for_which_a_rank_gets_no_memory_fails_and_the_others_go_on(
    program: Commbench,
) -> None:
    limit = (
        "import resource, commbench.worker.feasibility as memory\n"
        "memory.free_bytes = lambda device: None  # as where nothing can be known\n"
        "resource.setrlimit(resource.RLIMIT_AS, (5 << 30, 5 << 30))\n"
    )
    ended = program(limit, "--sizes", "1K,2K,8G", "--iters", "4", "--no-plots")
    assert ended.code == 0, ended.err
    assert [row["status"] for row in ended.rows()] == ["ok", "ok", "failed"]
    assert ended.cases()[2]["reason"].startswith("out of memory on rank 0 (")


RUNS_OUT = """
import torch
from commbench.worker import coordinator
verify = coordinator.verify
def exhausted(case, buffers, *rest):
    found = verify(case, buffers, *rest)
    if case.size_bytes == 2048 and buffers.rank == 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return found
coordinator.verify = exhausted
"""


def test_a_case_in_which_memory_runs_out_ends_alone(program: Commbench) -> None:
    ended = program(RUNS_OUT, "--sizes", "1K-4K", "--iters", "4", "--no-plots")
    assert ended.code == 0, ended.err
    assert [row["status"] for row in ended.rows()] == ["ok", "failed", "ok"]
    told = "out of memory on rank 1 (CUDA out of memory. Tried to allocate 2.00 GiB)"
    assert ended.cases()[1]["reason"] == told


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("Connection closed by peer"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_errors_of_exhausted_memory_are_known(error: Exception, is_it: bool) -> None:
    assert is_out_of_memory(error) is is_it


def nccl_error(kind: str) -> dist.DistBackendError:
    return dist.DistBackendError(
        f"NCCL error in: ../torch/csrc/NCCLUtils.cpp:77, {kind} (run with NCCL_DEBUG=WARN for "
        "details), NCCL version 2.28.9\nLast error:\nnot supported by this NIC"
    )


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (ValueError("Cannot use ReduceOp.BAND with NCCL"), True),
        (TypeError("Input tensor data type is not supported for NCCL process group: Short"), True),
        (NotImplementedError("a CPU has no graphs"), True),
        (AttributeError("module has no attribute 'split_group'"), True),
        (RuntimeError("Invalid scalar type"), True),
        (RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo"), True),
        (RuntimeError("setBoundDeviceId must have an index"), True),
        (RuntimeError("Backend ucc does not support reduce_scatter"), True),
        (RuntimeError("No backend type associated with device type cuda"), True),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing\nx"), True),
        (nccl_error("invalid usage"), True),
        (nccl_error("invalid argument"), True),
        (nccl_error("unhandled system error"), False),
        (nccl_error("unhandled cuda error"), False),
        (nccl_error("internal error"), False),
        (nccl_error("remote process exited or there was a network error"), False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("CUDA error: the provided PTX was compiled with an unsupported one"), False),
        (RuntimeError("CUDA driver error: unspecified launch failure"), False),
        (torch.OutOfMemoryError("CUDA out of memory. Memory must be freed"), False),
        (RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:4711"), False),
        (RuntimeError("Timed out waiting 1000ms for recv operation to complete"), False),
        (dist.DistStoreError("wait timeout after 1000ms, expected keys: /0"), False),
        (RuntimeError("something that nobody has seen"), False),
    ],
)
def test_a_fault_is_told_from_a_refusal(error: Exception, is_it: bool) -> None:
    assert is_refusal(error) is is_it


def test_a_connection_that_gloo_loses_is_no_refusal() -> None:
    store = dist.HashStore()

    def make(rank: int) -> dist.ProcessGroupGloo:
        return dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=20))

    with ThreadPoolExecutor(2) as pool:
        left, lost = pool.map(make, range(2))
    del lost
    with pytest.raises(RuntimeError) as caught:
        left.allreduce([torch.zeros(1)]).wait()
    assert not is_refusal(caught.value)


def test_pieces_of_memory_that_do_not_fit_are_counted_in_the_reason() -> None:
    plan = Plan(
        operations=("all_reduce",), sizes=(1 << 20, 1 << 24), buffers="both",
        backend="gloo", device="cpu", world_size=2,
    )  # fmt: skip
    found = find_oversized(plan, plan.cases(), "node1", [0, 1], 256 << 20)
    names = {plan.cases()[index].name: reason for index, reason in found.items()}
    assert names == {
        "all_reduce float32 sum in_place rotating 16 MiB": (
            "1.00 GiB needed for 32 pieces (--buffers hot: 1), 256 MiB free on node1"
        )
    }


def test_each_kind_of_memory_and_its_registration_need_memory_of_their_own() -> None:
    size, free = 1 << 30, 7 << 29  # 3.5 GiB
    for kinds, reason in (
        (("default",), ""),
        (("default", "registered", "symmetric"),
         "4.00 GiB needed for 4 allocations (--memory default: 1), 3.50 GiB free on node cuda:0"),
    ):  # fmt: skip
        plan = Plan(
            operations=("all_reduce",), sizes=(size,), backend="nccl", device="cuda",
            world_size=2, memory=kinds,
        )  # fmt: skip
        found = find_oversized(plan, plan.cases(), "node cuda:0", [0], free)
        assert set(found.values()) == ({reason} if reason else set())
        assert len(found) == (len(plan.cases()) if reason else 0)

"""What does not fit is left out, what finds no memory fails alone; on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import Commbench

from commbench.worker import memory_check as memory
from commbench.worker.memory_check import free_bytes, is_out_of_memory


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
        "import resource, commbench.worker.memory_check as memory\n"
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


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of 16 GiB, of which 8 are available, in files of a folder."""
    (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n")
    (tmp_path / "cgroup").write_text("0::/job/step\n")
    (tmp_path / "groups" / "job" / "step").mkdir(parents=True)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_HIERARCHY", tmp_path / "groups")
    return tmp_path


def group(folder: Path, most: str, taken: int, cached: int) -> None:
    (folder / "memory.max").write_text(most + "\n")
    (folder / "memory.current").write_text(f"{taken}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


def free() -> int | None:
    return free_bytes(torch.device("cpu"))


def test_without_limits_all_that_is_available_is_free(host: Path) -> None:
    assert free() == 8 << 30
    group(host / "groups" / "job" / "step", "max", 1 << 30, 0)
    assert free() == 8 << 30


def test_a_group_leaves_its_limit_less_what_cannot_be_dropped(host: Path) -> None:
    group(host / "groups" / "job" / "step", str(4 << 30), 3 << 30, 1 << 30)
    assert free() == 2 << 30


def test_groups_above_count_too(host: Path) -> None:
    group(host / "groups" / "job" / "step", str(4 << 30), 0, 0)
    group(host / "groups" / "job", str(1 << 30), 1 << 29, 0)
    assert free() == 1 << 29


def test_version_1_of_control_groups(host: Path) -> None:
    (host / "cgroup").write_text("5:cpu,cpuacct:/x\n4:memory:/job\n")
    folder = host / "groups" / "memory" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{3 << 30}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{1 << 30}\n")
    (folder / "memory.stat").write_text("inactive_file 0\n")
    assert free() == 2 << 30


def test_a_host_that_tells_nothing_has_an_unknown_amount_free(host: Path) -> None:
    for name in ("meminfo", "cgroup"):
        (host / name).unlink()
    assert free() is None


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

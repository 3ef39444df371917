"""NCCL's log, its options and its memory, on stand-ins for torch.cuda, for the backend of a group
and for ProcessGroupNCCL: a torch for CPUs has none of them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from commands import Commbench
from synthetic_rows import plan

from commbench.errors import UnavailableError
from commbench.worker.device import NcclPool
from commbench.worker.groups import FILE, NcclLog, find_reset, make_nccl_options


@pytest.mark.parametrize("where", ["libnccl.so.2", "librccl.so.1", "libtorch_cuda.so", None])
def test_the_reset_is_found_in_the_library_of_either_vendor_and_in_torch(
    where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, name: str | None, mode: int) -> None:
            assert mode & os.RTLD_NOLOAD
            if name not in (where, None):
                raise OSError("not loaded")
            if name == where:
                self.ncclResetDebugInit = lambda: where

    monkeypatch.setattr(ctypes, "CDLL", Library)
    reset = find_reset()
    assert reset is not None
    assert reset() == where


@pytest.mark.parametrize("wanted", [None, "WARN"])
def test_lines_are_read_once_and_variables_are_the_users_again(
    wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    if wanted:
        monkeypatch.setenv("NCCL_DEBUG", wanted)
    path, resets = tmp_path / "nccl.log", []
    log = NcclLog(path, "TUNING", lambda: resets.append(os.environ.get("NCCL_DEBUG")))
    told = [os.environ[name] for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", FILE)]
    assert told == ["INFO", "TUNING", str(path)]
    assert log.read_more() == []  # NCCL has not made the file yet
    path.write_text("first\nsecond\n")
    assert log.read_more() == ["first", "second"]
    warning = "node1:7:9 [0] init.cc:7 NCCL WARN third"
    with path.open("a") as file:
        file.write(f"{warning}\n")
    assert log.remove() == [warning]
    assert (warning in capsys.readouterr().err) == bool(wanted)
    assert resets == [wanted]
    assert os.environ.get("NCCL_DEBUG") == wanted
    assert FILE not in os.environ
    assert not path.exists()


def torch_with(*config: str) -> Any:
    """A ProcessGroupNCCL whose config has these fields."""

    class Config:
        def __init__(self) -> None:
            for name in config:
                setattr(self, name, -1)

    class Options:
        def __init__(self) -> None:
            self.is_high_priority_stream = False
            self.config = Config()

    return SimpleNamespace(Options=Options)


def test_each_option_is_set_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan(
        backend="nccl", device="cuda",
        nccl_options=("cta_policy=zero", "max_ctas=8", "net_name=IB", "is_high_priority_stream=1"),
    )  # fmt: skip
    torch_here = torch_with("cta_policy", "max_ctas", "min_ctas", "net_name")
    monkeypatch.setattr(dist, "ProcessGroupNCCL", torch_here, raising=False)
    options = make_nccl_options(asked, timedelta(seconds=90))
    found = {"cta_policy": 2, "max_ctas": 8, "min_ctas": -1, "net_name": "IB"}
    assert vars(options.config) == found
    assert options.is_high_priority_stream is True
    assert options._timeout == timedelta(seconds=90)


def test_an_option_that_this_torch_lacks_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist, "ProcessGroupNCCL", torch_with("max_ctas"), raising=False)
    asked = plan(backend="nccl", device="cuda", nccl_options=("cta_policy=zero",))
    with pytest.raises(UnavailableError) as refused:
        make_nccl_options(asked)
    assert refused.value.message.endswith("has no NCCL option cta_policy")
    assert refused.value.message.startswith("torch 2.")


def test_a_run_and_a_sweep_of_gloo_refuse_them_before_they_measure(commbench: Commbench) -> None:
    for words in (
        ("run", "--nccl-option", "max_ctas=8", "--output", "x"),
        ("sweep", "--vary", "nccl-option=-,max_ctas=8", "--output", "x"),
    ):
        ended = commbench(*words, "--sizes", "1K", "--backend", "gloo")
        assert ended.code == 2
        assert ended.err.startswith(
            "error: --nccl-option max_ctas=8 needs the backend nccl, and this is gloo\n"
        )


CPU = torch.device("cpu")


class Cuda:
    """What is used of torch.cuda, on the CPU; it notes what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def MemPool(self, allocator: str) -> str:  # noqa: N802 - as torch calls it
        self.calls.append(f"pool of {allocator}")
        return "the pool"

    @contextmanager
    def use_mem_pool(self, pool: str) -> Iterator[None]:
        self.calls.append(f"into {pool}")
        yield
        self.calls.append(f"out of {pool}")

    def empty_cache(self) -> None:
        self.calls.append("empty cache")


class Backend:
    """The backend of a group, as torch has it since 2.9."""

    mem_allocator = "ncclMemAlloc"

    def __init__(self, cuda: Cuda) -> None:
        self._calls = cuda.calls

    def register_mem_pool(self, pool: str, symm: bool = False) -> None:
        self._calls.append(f"register {pool}{' as windows' if symm else ''}")

    def deregister_mem_pool(self, pool: str) -> None:
        self._calls.append(f"deregister {pool}")


class BackendOf28(Backend):
    """Torch 2.7 and 2.8 have no windows."""

    def register_mem_pool(self, pool: str) -> None:  # type: ignore[override]
        super().register_mem_pool(pool)


class BackendOf26(BackendOf28):
    """Torch 2.6 does not offer NCCL's allocator."""

    mem_allocator = None  # type: ignore[assignment]


def make(backend: type[Backend], symm: bool, groups: int = 1) -> tuple[NcclPool, list[str]]:
    cuda = Cuda()

    class Group:
        def _get_backend(self, device: torch.device) -> Any:
            assert device == CPU
            return backend(cuda)

    return NcclPool(cuda, 4096, CPU, [Group()] * groups, symm), cuda.calls  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("backend", "symm"), [(Backend, True), (Backend, False), (BackendOf28, False)]
)
def test_a_pool_is_registered_when_it_has_its_memory(backend: type[Backend], symm: bool) -> None:
    memory, calls = make(backend, symm)
    assert (memory.tensor.dtype, memory.tensor.shape) == (torch.uint8, (4096,))
    allocated = ["pool of ncclMemAlloc", "into the pool", "out of the pool"]
    assert calls == allocated
    memory.register()
    memory.release()
    registered = "register the pool as windows" if symm else "register the pool"
    assert calls[3:] == [registered, "deregister the pool", "empty cache"]


@pytest.mark.parametrize(
    ("backend", "symm", "lacks"),
    [(BackendOf28, True, "registers no symmetric windows; 2.9 does"),
     (BackendOf26, False, "offers no allocator of NCCL")],
)  # fmt: skip
def test_what_an_older_torch_lacks_is_said(backend: type[Backend], symm: bool, lacks: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        make(backend, symm)[0].register()
    assert str(refused.value) == f"torch {torch.__version__} {lacks}"

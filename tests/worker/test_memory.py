"""Memory that is registered with NCCL, on stand-ins for torch.cuda and for the backend of a group:
in which order they are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from commbench.worker.memory import NcclPool

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


def test_memory_that_was_not_registered_is_only_given_up() -> None:
    memory, calls = make(Backend, symm=True)
    memory.release()
    assert calls[3:] == ["empty cache"]
    with pytest.raises(AttributeError):
        memory.tensor  # noqa: B018


@pytest.mark.parametrize(
    ("backend", "symm", "lacks"),
    [
        (BackendOf28, True, "registers no symmetric windows; 2.9 does"),
        (BackendOf26, False, "offers no allocator of NCCL"),
    ],
)
def test_what_an_older_torch_lacks_is_said_with_its_version(
    backend: type[Backend], symm: bool, lacks: str
) -> None:
    with pytest.raises(RuntimeError) as refused:
        make(backend, symm)[0].register()
    assert str(refused.value) == f"torch {torch.__version__} {lacks}"


def test_a_pool_is_registered_with_each_group_that_uses_it() -> None:
    memory, calls = make(Backend, symm=True, groups=2)
    memory.register()
    memory.release()
    assert calls[3:] == [
        *["register the pool as windows"] * 2, *["deregister the pool"] * 2, "empty cache"
    ]  # fmt: skip

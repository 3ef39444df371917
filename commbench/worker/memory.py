"""Memory for buffers: from torch's allocator, registered with NCCL, or shared through torch's
symmetric memory.

Allocating and registering are two steps: registering may involve all ranks, which come to it only
when each of them has got its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch


class Memory:
    """One allocation of a rank; what is here is that of torch's allocator."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        """Its bytes: uint8, one-dimensional."""

    def register(self) -> None:
        """Make it known to the communicator or to the other ranks. Raises RuntimeError where that
        is impossible."""

    def release(self) -> None:
        """Undo that, and give the memory up. Nothing under way may use it."""
        del self.tensor


class NcclPool(Memory):
    """Memory of NCCL's allocator in a pool of its own, which is registered with the communicator of
    each of the groups, which exist.

    `module` is torch.cuda. The pool is registered when it has its memory: what it allocates later,
    torch after 2.13 does not register as symmetric windows (pytorch#192112). Raises RuntimeError
    where this torch cannot do it: 2.6 does not offer NCCL's allocator, and 2.8 no windows.
    """

    def __init__(
        self, module: ModuleType, size: int, device: torch.device, groups: Sequence[Any], symm: bool
    ) -> None:
        self._module, self._symm = module, symm
        self._backends = [group._get_backend(device) for group in groups]
        self._registered: list[Any] = []
        allocator = getattr(self._backends[0], "mem_allocator", None)
        if allocator is None:
            raise NotImplementedError(f"torch {torch.__version__} offers no allocator of NCCL")
        self._pool = module.MemPool(allocator)
        with module.use_mem_pool(self._pool):
            super().__init__(torch.empty(size, dtype=torch.uint8, device=device))

    def register(self) -> None:
        for backend in self._backends:
            if not self._symm:
                backend.register_mem_pool(self._pool)
            else:
                try:
                    backend.register_mem_pool(self._pool, symm=True)
                except TypeError:
                    raise NotImplementedError(
                        f"torch {torch.__version__} registers no symmetric windows; 2.9 does"
                    ) from None
            self._registered.append(backend)

    def release(self) -> None:
        while self._registered:
            self._registered.pop().deregister_mem_pool(self._pool)
        super().release()
        del self._pool
        self._module.empty_cache()  # where destroying a pool does not free its memory


class SymmMem(Memory):
    """Symmetric memory of torch, which the kernels of all ranks of the groups can read and
    write."""

    def __init__(self, size: int, device: torch.device, groups: Sequence[Any]) -> None:
        from torch.distributed import _symmetric_memory

        self._module, self._groups = _symmetric_memory, groups
        super().__init__(_symmetric_memory.empty(size, dtype=torch.uint8, device=device))

    def register(self) -> None:
        for group in self._groups:
            self._module.rendezvous(self.tensor, group)

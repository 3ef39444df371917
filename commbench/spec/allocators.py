"""The table of kinds of memory that buffers can be in. Adding a kind is adding one entry here.

The functions of an entry take the rank's device (worker.device), so that this file needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from commbench.spec.backends import BACKENDS
from commbench.validation import by_name


class Allocator(NamedTuple):
    """One kind of memory."""

    name: str
    help: str
    """What it is, for `--help`, after its name."""
    make: Callable[[Any, int, Sequence[Any]], Any]
    """`make(device, bytes, groups)` gives a worker.memory.Memory, not registered yet, for the
    process groups that use it."""
    devices: tuple[str, ...] = ()
    """The device types that have it; empty: all."""
    needs_nccl: bool = False
    """Whether it is registered with the communicator of NCCL."""
    is_symmetric: bool = False
    """Whether every rank must allocate as many bytes as the others."""
    is_choice: bool = True
    """Whether `--memory` offers it. Otherwise some operations have it, and no others."""
    nccl_tests: str = ""
    """The value of nccl-tests' -R that means it."""

    def why_unavailable(self, backend: str, device: str) -> str:
        """Why buffers of this backend and device cannot be in it; empty where they may, and where
        they are not known."""
        if device and self.devices and device not in self.devices:
            return f"memory of the kind {self.name} needs a {' or '.join(self.devices)} device"
        known = BACKENDS.get(backend)
        if self.needs_nccl and known and not known.is_nccl:
            return f"memory of the kind {self.name} needs NCCL, and {backend} is another backend"
        return ""


DEFAULT_MEMORY = "default"

ALLOCATORS = by_name(
    Allocator(
        DEFAULT_MEMORY, "torch's allocator", nccl_tests="0",
        make=lambda device, size, _: device.plain_memory(size),
    ),
    Allocator(
        "registered", "NCCL's allocator, registered with the communicator", nccl_tests="1",
        make=lambda device, size, groups: device.registered_memory(size, groups, symm=False),
        devices=("cuda",), needs_nccl=True,
    ),
    Allocator(
        "symmetric", "the same, registered as symmetric windows of all ranks", nccl_tests="2",
        make=lambda device, size, groups: device.registered_memory(size, groups, symm=True),
        devices=("cuda",), needs_nccl=True, is_symmetric=True,
    ),
    Allocator(
        "symm_mem", "symmetric memory of torch",
        make=lambda device, size, groups: device.symm_mem(size, groups),
        devices=("cuda",), is_symmetric=True, is_choice=False,
    ),
)  # fmt: skip

MEMORY_CHOICES = tuple(name for name, entry in ALLOCATORS.items() if entry.is_choice)
REGISTERED = tuple(name for name, entry in ALLOCATORS.items() if entry.needs_nccl)
MEMORY_HELP = "; ".join(f"{name}: {ALLOCATORS[name].help}" for name in MEMORY_CHOICES)

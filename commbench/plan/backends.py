"""The tables of communication backends, with their devices and what each is known to refuse, and of
kinds of memory.

The table holds what a backend always refuses, so that this is known before any rank starts. The
worker finds what else a backend cannot do: it tries each combination once before it measures.
The refusals were observed with torch 2.6 to 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from commbench.validation import by_name


class Backend(NamedTuple):
    """One backend of torch.distributed."""

    name: str
    devices: tuple[str, ...]
    """The device types whose data it moves; the first is the default."""
    refused_dtypes: tuple[str, ...] = ()
    refused_reduce_ops: tuple[str, ...] = ()
    is_nccl: bool = False
    """Whether it is NCCL, which has a log (worker.groups) and can be asked what its communicators
    do (worker.watchdog.hangs)."""
    calls_at_once: int = 1
    """How many calls of one group with async_op=True it works on at once; others wait."""
    launch_spread: float = 0.03
    """The usual standard deviation of the log medians of launches that differ in nothing. Gloo's
    was measured: the median of 120 rows of 24 runs of 2 ranks on 2 cores. The others are
    assumptions, as no run on their devices has been recorded."""


BACKENDS = by_name(
    Backend(
        "gloo", ("cpu", "cuda"), ("int16", "float8_e4m3fn", "float8_e5m2"), ("premul_sum",),
        calls_at_once=2,  # threads of ProcessGroupGloo.Options by default
        launch_spread=0.04,
    ),
    Backend("nccl", ("cuda",), ("int16",), ("band", "bor", "bxor"), is_nccl=True),
    Backend("xccl", ("xpu",), refused_reduce_ops=("band", "bor", "bxor", "premul_sum")),
    Backend("mpi", ("cpu",), refused_reduce_ops=("premul_sum",)),
    Backend("ucc", ("cpu", "cuda"), refused_reduce_ops=("premul_sum",)),
)  # fmt: skip
"""The backends that torch names. Others may be registered with torch; they are not checked."""


def usual_launch_spread(backend: str) -> float:
    """The usual spread of launches of a backend, also of one that torch does not name."""
    known = BACKENDS.get(backend)
    return known.launch_spread if known else Backend._field_defaults["launch_spread"]


class Allocator(NamedTuple):
    """One kind of memory."""

    name: str
    help: str
    """What it is, for `--help`, after its name."""
    make: Callable[[Any, int, Sequence[Any]], Any]
    """`make(device, bytes, groups)` gives a worker.device.Memory, not registered yet, for the
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

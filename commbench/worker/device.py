"""The device of a rank, and memory for buffers on it.

An accelerator runs what it is given later, in the order of its stream; a CPU runs it at once.
DEVICES is the one place where a kind of device is known.

Memory is from torch's allocator, registered with NCCL, or shared through torch's symmetric memory.
Allocating and registering are two steps: registering may involve all ranks, which come to it only
when each of them has got its memory.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

import torch

from commbench.host import environment, gpus, procfs

Call = Callable[[], object]


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
        options = {"symm": True} if self._symm else {}
        for backend in self._backends:
            try:
                backend.register_mem_pool(self._pool, **options)
            except TypeError:
                if not options:
                    raise
                why = f"torch {torch.__version__} registers no symmetric windows; 2.9 does"
                raise NotImplementedError(why) from None
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


_C_LIBRARY = ctypes.CDLL(None)
SPIN_CYCLES = 1_000_000
"""Cycles of the spin whose duration tells how many of them a second has."""


Event: TypeAlias = Any
"""A point in the stream of an accelerator, as torch.cuda.Event: `record`, `query`, `synchronize`,
and `elapsed_time` in milliseconds."""


class Device:
    """The device that one rank measures. What is here is that of the host's processor, which runs
    at once what it is given, and has only plain memory."""

    torch_device = torch.device("cpu")
    """Where its tensors are."""
    is_async = False
    """Whether it runs later what it is given, in the order of a stream."""
    name = "cpu"
    """Such as `cpu` or `cuda:0 NVIDIA H200`."""
    uuid = ""
    """Identifies it among all devices of its host, also where a rank sees only some of them; empty
    for a CPU."""
    pci_bus_id = ""
    """Such as `0000:1b:00.0`; empty where it is unknown."""
    part = ""
    """Which part of a GPU it is, where its parts may have one UUID and PCI address: see find_part.
    Empty for a whole one."""
    multiprocessors = 0
    """How many it has; 0 for a CPU."""

    @property
    def identity(self) -> list[str]:
        """The same on two ranks only where they have the same device of one boot of a host."""
        host = environment.boot_id() or socket.gethostname()
        return [host, self.uuid, self.pci_bus_id, self.part]

    def synchronize(self) -> None:
        """Wait until it has finished all that it was given."""

    def free_bytes(self) -> int | None:
        """Bytes of memory that processes can still take; None where that is unknown."""
        return procfs.read_free_bytes()

    def held_bytes(self) -> int | None:
        """Bytes of memory that this process has on a CPU, or that all processes have on an
        accelerator; None where that is unknown."""
        if hasattr(_C_LIBRARY, "malloc_trim"):
            _C_LIBRARY.malloc_trim(0)  # what was freed must not serve what comes next
        pages = (procfs.read_text(Path("/proc/self/statm")) or "").split()
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None

    def make_event(self) -> Event:
        """A new event; only where `is_async`."""
        raise NotImplementedError("a CPU has no events")

    def spin(self, seconds: float) -> None:
        """Keep the stream busy for about that long; returns at once. Without effect where torch
        has no such kernel for this device."""

    def compute(self, seconds: float) -> None:
        """Be busy for that long, as with the computation of a program: a CPU before this returns,
        an accelerator in the order of its stream."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    def in_stream(self, call: Call) -> Call:
        """A function that runs `call` in the order of the stream."""
        return call  # of an accelerator: torch queues it in the current stream

    def current_stream(self) -> Any:
        """The stream that takes what is queued next; None for a CPU."""
        return None

    def restore_stream(self, stream: Any) -> None:
        """Make it the current one again."""

    def beside(self, call: Call) -> None:
        """Run `call` in the order of a second stream, which does not wait for the first one."""
        raise NotImplementedError("a CPU has no streams")

    def capture(self, calls: Sequence[Call]) -> Call:
        """A function that queues these calls with one launch. Raises RuntimeError where the
        device, or what is called, cannot be captured."""
        raise NotImplementedError("a CPU has no graphs")

    def release_graphs(self) -> None:
        """End what `capture` made, whoever still refers to it: a traceback may."""

    def plain_memory(self, size: int) -> Memory:
        """So many bytes of torch's allocator."""
        return Memory(torch.empty(size, dtype=torch.uint8, device=self.torch_device))

    def release_cached_memory(self) -> None:
        """Give back memory that torch keeps for later allocations."""

    def read_state(self) -> gpus.GpuState | None:
        """Its clock, power, temperature and why it is throttled; None where that is unknown."""
        return None


class Accelerator(Device):
    """A GPU, through torch's module for its kind, such as torch.cuda."""

    is_async = True

    def __init__(self, kind: str, index: int) -> None:
        """Make it the current device of this process."""
        self.torch_device = torch.device(kind, index)
        self._module = torch.get_device_module(kind)
        self._module.set_device(index)
        properties = self._module.get_device_properties(index)
        self.name = f"{self.torch_device} {self._module.get_device_name(index)}"
        self.pci_bus_id = _pci_bus_id(properties)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # where torch knows no other identity
        self.uuid = str(getattr(properties, "uuid", "")) or self.pci_bus_id or f"{visible}:{index}"
        self.part = find_part(index, os.environ, is_amd=bool(torch.version.hip))
        # Intel's GPUs call them Xe cores, and torch subslices.
        counts = (getattr(properties, f"{n}_count", 0) for n in ("multi_processor", "gpu_subslice"))
        self.multiprocessors = int(max(1, *counts))
        self._side_stream: Any = None
        self._graphs: WeakSet[Any] = WeakSet()
        self._cycles_per_s = 0.0
        self._gpu: gpus.NvmlGpu | None = gpus.find_gpu(self.pci_bus_id, self.uuid)

    def synchronize(self) -> None:
        self._module.synchronize()

    def free_bytes(self) -> int | None:
        return int(self._module.mem_get_info(self.torch_device)[0])

    def held_bytes(self) -> int | None:
        free, total = self._module.mem_get_info(self.torch_device)
        return int(total - free)

    def make_event(self) -> Event:
        return self._module.Event(enable_timing=True)

    def spin(self, seconds: float) -> None:
        sleep = getattr(self._module, "_sleep", None)
        if sleep is None:
            return
        if not self._cycles_per_s:
            self._cycles_per_s = self._measure_clock(sleep)
        sleep(round(seconds * self._cycles_per_s))

    def compute(self, seconds: float) -> None:
        self.spin(seconds)

    def current_stream(self) -> Any:
        return self._module.current_stream()

    def restore_stream(self, stream: Any) -> None:
        self._module.set_stream(stream)

    def beside(self, call: Call) -> None:
        if self._side_stream is None:
            self._side_stream = self._module.Stream()
        with self._module.stream(self._side_stream):
            call()

    def capture(self, calls: Sequence[Call]) -> Call:
        """As torch documents it for a process group of NCCL: warmed up on a stream of its own,
        captured on that stream, while the group's other threads may go on calling CUDA."""
        if not hasattr(self._module, "CUDAGraph"):
            raise NotImplementedError(f"torch has no graphs for {self.torch_device.type}")
        stream, current = self._module.Stream(), self._module.current_stream()
        stream.wait_stream(current)
        with self._module.stream(stream):
            calls[0]()
        current.wait_stream(stream)
        self.synchronize()
        graph = self._module.CUDAGraph()
        self._graphs.add(graph)
        # A capture that fails leaves its stream the current one; the outer context does not.
        with (
            self._module.stream(current),
            self._module.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            for call in calls:
                call()
        return graph.replay  # type: ignore[no-any-return]

    def release_graphs(self) -> None:
        for graph in self._graphs:
            with suppress(RuntimeError):  # its capture may have failed
                graph.reset()

    def registered_memory(self, size: int, groups: Sequence[Any], symm: bool) -> Memory:
        """So many bytes for registering with the communicators of groups, `symm` as windows."""
        return NcclPool(self._module, size, self.torch_device, groups, symm)

    def symm_mem(self, size: int, groups: Sequence[Any]) -> Memory:
        """So many bytes of torch's symmetric memory, to share with the ranks of groups."""
        return SymmMem(size, self.torch_device, groups)

    def release_cached_memory(self) -> None:
        self._module.empty_cache()

    def read_state(self) -> gpus.GpuState | None:
        return self._gpu.read_state() if self._gpu else None

    def _measure_clock(self, sleep: Callable[[int], object]) -> float:
        """Cycles per second, after the first spin has raised the clock of an idle device."""
        for _ in range(2):
            self.synchronize()
            began = time.perf_counter()
            sleep(SPIN_CYCLES)
            self.synchronize()
            seconds = time.perf_counter() - began
        return SPIN_CYCLES / seconds


def _pci_bus_id(properties: Any) -> str:
    """Domain, bus and device as NCCL and nvidia-smi print them. Torch has them since 2.8."""
    with suppress(AttributeError):
        numbers = (getattr(properties, f"pci_{part}_id") for part in ("domain", "bus", "device"))
        return "{:04x}:{:02x}:{:02x}.0".format(*numbers)
    return ""


def find_part(index: int, variables: Mapping[str, str], is_amd: bool) -> str:
    """Which part of a GPU a process has as its device `index`: the UUID of a MIG device, or an AMD
    device's number on the host, for its partitions look alike otherwise. Empty elsewhere.

    A list of visible devices numbers those that the lists below it, in the order here, show.
    """
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in variables else "CUDA_VISIBLE_DEVICES"
    found = str(index)
    for name in (hip, "ROCR_VISIBLE_DEVICES") if is_amd else ("CUDA_VISIBLE_DEVICES",):
        shown = variables.get(name, "").split(",")
        if found.isdigit() and int(found) < len(shown):
            found = shown[int(found)].strip() or found
    return found if is_amd or found.startswith("MIG-") else ""


class DeviceKind(NamedTuple):
    """A value of --device."""

    number: Callable[[], int]
    """How many of them this process sees. Does not initialise them: ranks can be forked after."""
    open: Callable[[int], Device]
    """Make the one with that index the device of this process."""


def _count(kind: str) -> int:
    module = getattr(torch, kind, None)
    return int(module.device_count()) if module else 0


DEVICES = {
    "cpu": DeviceKind(lambda: 1, lambda _: Device()),
    "cuda": DeviceKind(partial(_count, "cuda"), partial(Accelerator, "cuda")),
    "xpu": DeviceKind(partial(_count, "xpu"), partial(Accelerator, "xpu")),
}


def open_device(kind: str, local_rank: int) -> Device:
    """The device of the rank with that number on its host."""
    return DEVICES[kind].open(local_rank % DEVICES[kind].number())

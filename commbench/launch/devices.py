"""Prepares this process for ranks (imports torch, raises the limit of open files), detects devices
and backends, and chooses the default backend, device and number of ranks."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from commbench.errors import UnavailableError, UsageError, closest
from commbench.host.gpus import count_gpus
from commbench.host.procfs import ask_child
from commbench.plan.backends import BACKENDS
from commbench.plan.plan import Plan

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FILES_OF_A_PROCESS = 32
"""Measured with torch 2.13 and gloo: 16, and so many again for other versions and devices."""
FILES_OF_A_LAUNCHED_RANK = 4
"""Pipes between the launcher and a rank, which the ranks that are forked later inherit."""
CONNECTIONS_TO_A_STORE = 2
"""Of each rank to rank 0's: those of its groups, and that of its watchdog."""
SUGGESTED_LIMIT = 4096


def import_torch() -> None:
    """Import torch, once for this process and all ranks forked from it.

    One compute thread per process: torchrun's default, and a thread of a numeric library would make
    forking unsafe. Garbage is not collected meanwhile, which takes a fifth of the time of an import
    and finds little.
    """
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    # Its warnings about nodes that join and leave would come between the lines of commbench.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.enable()


def raise_nofile_limit(plan: Plan, launched: int = 0, *, has_store: bool = False) -> None:
    """Raise the limit of open files to what this process and the ranks it launches need: it counts
    connections and pipes too. `has_store`: all ranks connect to a store in this process.

    Raises UnavailableError where the hard limit is lower.
    """
    import resource

    # gloo connects every rank with every other. What NCCL opens is not counted.
    connections = (plan.device == "cpu") + CONNECTIONS_TO_A_STORE * has_store
    needed = FILES_OF_A_PROCESS + FILES_OF_A_LAUNCHED_RANK * launched
    needed += connections * plan.world_size
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        why = f"{plan.world_size} ranks need {needed} open files, but only {hard} are allowed"
        todo = "start fewer ranks (--nproc-per-node), or allow more open files: ulimit -n"
        raise UnavailableError(why, f"{todo} {max(needed, SUGGESTED_LIMIT)}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


CPU_RANKS = 2


class Capabilities(NamedTuple):
    """Devices and backends of this host, as torch finds them."""

    backends: tuple[str, ...]
    """Backends this torch was built with, and that are registered with it."""
    devices: dict[str, int]
    """Number of devices by type that this process sees; the CPU counts as one."""
    host_gpus: int = 0
    """GPUs of the host, also those that this process does not see."""
    registered: Mapping[str, tuple[str, ...]] = {}
    """The device types of backends that were registered with torch."""

    def devices_of(self, backend: str) -> tuple[str, ...]:
        """The device types that a backend serves and that are here, its default first."""
        return tuple(device for device in self.served_by(backend) if device in self.devices)

    def served_by(self, backend: str) -> tuple[str, ...]:
        """The device types that a backend serves."""
        known = BACKENDS.get(backend)
        return known.devices if known else self.registered.get(backend, ("cpu",))

    @property
    def backends_text(self) -> str:
        """The backends for a message, without `fake`, with which torch tests itself."""
        return ", ".join(name for name in self.backends if name != "fake") or "none"


class Target(NamedTuple):
    """The backend, device type and number of ranks to measure with."""

    backend: str
    device: str
    ranks_per_node: int
    why: str
    """Why this device, as a clause."""
    gpu_shared: bool = False
    """Ranks that commbench starts here are more than the GPUs. Ranks of another launcher find out
    for themselves whether they share one (worker.groups.find_shared_gpus)."""


def detect_capabilities() -> Capabilities:
    """What this host offers. Imports torch, but does not initialise CUDA: ranks can be forked."""
    # Without it counting GPUs initialises the driver, and a forked rank could not use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch.distributed as dist

    from commbench.worker.device import DEVICES

    def count() -> dict[str, int]:
        return {kind: entry.number() for kind, entry in DEVICES.items()}

    # NVML starts a thread when torch counts GPUs (seen with driver 580), and from a process with
    # several threads no rank can be forked.
    has_threads = len([*Path("/proc/self/task").iterdir()]) > 1
    counted = (None if has_threads else ask_child(count)) or count()
    devices = {kind: number for kind, number in counted.items() if number}
    if not dist.is_available():
        return Capabilities(backends=(), devices=devices)
    found = [name for name in BACKENDS if dist.is_backend_available(name)]
    found += [n for n in dist.Backend.backend_list if n not in (*found, *BACKENDS, "undefined")]
    capability = dist.Backend.backend_capability
    registered = {n: tuple(capability[n]) for n in {*found} & {*capability} - {*BACKENDS}}
    return Capabilities(tuple(found), devices, count_gpus(), registered)


def find_common_device(capabilities: Capabilities, backends: Sequence[str]) -> str | None:
    """The device type on which backends can be compared; None where their default is the same, or
    where one of them or its devices are not here. Raises UsageError where they have none in
    common."""
    if any(backend not in capabilities.backends for backend in backends):
        return None
    served = [capabilities.devices_of(backend) for backend in backends]
    if not all(served) or len({devices[0] for devices in served}) < 2:
        return None
    common = [device for device in served[0] if all(device in devices for devices in served)]
    if not common:
        each = zip(backends, served, strict=True)
        hint = "; ".join(f"{backend} serves {', '.join(devices)}" for backend, devices in each)
        raise UsageError(f"the backends {', '.join(backends)} serve no device in common", hint)
    return common[0]


def choose_target(
    capabilities: Capabilities, backend: str | None, device: str | None,
    ranks_per_node: int | None, *, is_external: bool = False, nodes: int = 1,
) -> Target:  # fmt: skip
    """Fill in what was not requested. Raises UnavailableError for what this host does not have.

    `is_external`: another launcher has started the ranks, `ranks_per_node` of them on this host. It
    may show each of them only its own GPU.
    """
    if backend and backend not in capabilities.backends:
        close = closest(backend, capabilities.backends)
        hint = f"did you mean {close}? " * bool(close) + f"it has: {capabilities.backends_text}"
        hint += f"; for {backend} install a torch that is built with it" * (backend in BACKENDS)
        raise UnavailableError(f"this torch has no backend {backend!r}", hint)
    if device and device not in capabilities.devices:
        what = f"there is no device {device!r} here"
        raise UnavailableError(what, f"there are: {', '.join(capabilities.devices)}")
    own_ranks = ranks_per_node if is_external else None
    chosen_device, why = _choose_device(capabilities, device, backend, own_ranks, nodes)
    chosen_backend = backend or _choose_backend(capabilities, chosen_device)
    number = capabilities.devices[chosen_device]
    ranks = ranks_per_node or (CPU_RANKS if chosen_device == "cpu" else number)
    gpu_shared = chosen_device != "cpu" and ranks > number and not is_external
    return Target(chosen_backend, chosen_device, ranks, why, gpu_shared)


def _choose_device(
    capabilities: Capabilities, device: str | None, backend: str | None, own_ranks: int | None,
    nodes: int,
) -> tuple[str, str]:  # fmt: skip
    """The device and why. `own_ranks` is the number of ranks that another launcher has started on
    this host, None where they are started here."""
    if device:
        return device, "as requested"
    if backend:
        served = capabilities.devices_of(backend)
        if not served:
            devices = " or ".join(capabilities.served_by(backend))
            why = f"backend {backend} needs a {devices} device, and there is none here"
            raise UnavailableError(why, "use --backend gloo, which runs on the CPU")
        return served[0], "the backend's device"
    accelerators = {kind: n for kind, n in capabilities.devices.items() if kind != "cpu"}
    for kind, number in accelerators.items():
        if number >= 2:
            return kind, f"there are {number} GPUs"
        if own_ranks:  # the ranks find out whether it is the same one
            return kind, "every rank sees a GPU"
        if nodes > 1:
            return kind, "every node has a GPU"
        return "cpu", f"there is only one GPU: --device {kind} measures on it"
    if gpus := capabilities.host_gpus:
        seen_by = "this rank" if own_ranks else "torch"
        return "cpu", f"{seen_by} sees no GPU, though the host has {gpus}: see `commbench env`"
    return "cpu", "there is no GPU"


def _choose_backend(capabilities: Capabilities, device: str) -> str:
    for backend in BACKENDS.values():
        if backend.devices[0] == device and backend.name in capabilities.backends:
            return backend.name
    hint = f"it has: {capabilities.backends_text}; --device cpu measures with gloo"
    raise UnavailableError(f"this torch has no backend for {device}", hint)

"""What NVIDIA's management library (NVML) knows of GPUs, through the package nvidia-ml-py where it
is installed. Reading needs no CUDA and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
}
"""The bits of nvmlClocksEventReasons that mean a clock below the usual one, in NVML's order. Not
among them: an idle GPU, and clocks that a person has set."""
MOST_NVLINKS = 36
"""Links of a GPU that are asked for: NVML_NVLINK_MAX_LINKS of nvml.h of CUDA 13."""
MOST_XIDS = 100
SWITCH = "switch"
P2P_READ = 0
"""NVML_P2P_CAPS_INDEX_READ of nvml.h; in the package it is a tuple by mistake."""
REASON_FUNCTIONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
"""The function that returns these bits, in drivers from 535 on and in older ones."""


class GpuState(NamedTuple):
    """The state of a GPU at one moment; None is unknown."""

    clock_mhz: int | None = None
    """Of its streaming multiprocessors."""
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Of THROTTLE_REASONS."""


def describe_reasons(bits: int) -> tuple[str, ...]:
    """The reasons whose bits are set."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


class NvmlGpu:
    """One GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def ask(self, function: str, *arguments: Any) -> Any:
        """What a function of NVML returns of this GPU; None where the driver, the GPU or the
        package does not have it. A text among the arguments names a constant of NVML."""
        found = (getattr(self._nvml, a) if isinstance(a, str) else a for a in arguments)
        return call(self._nvml, function, self._handle, *found)

    def read_state(self) -> GpuState:
        """Its state now. Four queries of the driver."""
        clock = self.ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")
        power_mw = self.ask("nvmlDeviceGetPowerUsage")
        temperature = self.ask("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU")
        answers = (self.ask(function) for function in REASON_FUNCTIONS)
        bits = next((answer for answer in answers if answer is not None), 0)
        return GpuState(
            clock_mhz=clock,
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=temperature,
            throttle_reasons=describe_reasons(bits),
        )

    def read_nvlinks(self) -> list[str] | None:
        """What each active NVLink leads to: the address of a GPU, or `switch`; None where the GPU
        has no NVLinks."""
        states = [self.ask("nvmlDeviceGetNvLinkState", link) for link in range(MOST_NVLINKS)]
        if all(state is None for state in states):
            return None
        return [self._peer(link) for link, state in enumerate(states) if state]

    def _peer(self, link: int) -> str:
        kind = self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link)
        if kind == self._nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return SWITCH
        remote = self.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
        return short_address(remote.busId) if remote else ""

    def watch_xids(self) -> Callable[[], list[int]] | None:
        """A function that returns the faults (Xid) that the driver has reported of it since it was
        last called; None where NVML does not tell them."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
        except (AttributeError, nvml.NVMLError):
            return None
        waits = partial(call, nvml, "nvmlEventSetWait", events, 0)
        return lambda: [int(event.eventData) for event in islice(iter(waits, None), MOST_XIDS)]

    def can_read(self, other: NvmlGpu) -> bool | None:
        """Whether it can read the memory of another GPU directly (P2P)."""
        status = self.ask("nvmlDeviceGetP2PStatus", other._handle, P2P_READ)
        return None if status is None else status == self._nvml.NVML_P2P_STATUS_OK


def short_address(bus_id: str | bytes) -> str:
    """NVML's `00000000:1B:00.0` as Linux writes it: `0000:1b:00.0`."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def read_driver() -> str | None:
    """The version of NVIDIA's driver."""
    nvml = load()
    version: str | None = call(nvml, "nvmlSystemGetDriverVersion") if nvml else None
    return version


def call(nvml: Any, function: str, *arguments: Any) -> Any:
    """What a function of NVML returns; None where it is missing or refuses."""
    found: Callable[..., Any] | None = getattr(nvml, function, None)
    if found is None:
        return None
    try:
        return found(*arguments)
    except nvml.NVMLError:
        return None


def find_gpu(pci_bus_id: str, uuid: str = "") -> NvmlGpu | None:
    """The GPU with this PCI address, or else this UUID; None where NVML or the GPU is missing.

    The address comes first: that of a part of a GPU (MIG) is its GPU's, which has the clocks.
    """
    nvml = load()
    if nvml is None:
        return None
    handle = call(nvml, "nvmlDeviceGetHandleByPciBusId", pci_bus_id) if pci_bus_id else None
    if handle is None and uuid:
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"  # torch has no prefix
        handle = call(nvml, "nvmlDeviceGetHandleByUUID", name)
    return None if handle is None else NvmlGpu(nvml, handle)


def load() -> Any:
    """The module pynvml, initialised in this process; None without the package or the driver."""
    return _load(os.getpid())


@lru_cache(maxsize=2)
def _load(pid: int) -> Any:  # noqa: ARG001 - a forked process needs an initialisation of its own
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml

"""The GPUs of the host, also those that this process may not use: as the PCI bus shows them, and
what NVIDIA's management library (NVML) adds through the package nvidia-ml-py where it is installed.
Reading needs no CUDA, wakes no GPU and changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from commbench.host import procfs

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
"""Links of a GPU that are asked for: NVML_NVLINK_MAX_LINKS of h of CUDA 13."""
MOST_XIDS = 100
SWITCH = "switch"
P2P_READ = 0
"""NVML_P2P_CAPS_INDEX_READ of h; in the package it is a tuple by mistake."""
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
        power_w = None if power_mw is None else power_mw / 1000
        reasons = tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
        return GpuState(clock, power_w, temperature, reasons)

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


def call(nvml: Any, function: str, *arguments: Any) -> Any:
    """What a function of NVML returns; None where it is missing or refuses."""
    found: Callable[..., Any] | None = getattr(nvml, function, None)
    with suppress(nvml.NVMLError):
        return found(*arguments) if found else None
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
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            return pynvml
    return None


VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes: VGA controller, 3D controller, other display controller, and processing accelerator,
which AMD's Instinct MI200 and MI300 are."""


class Gpu(NamedTuple):
    """A GPU. What follows `most_link_speed` is known of NVIDIA's with nvidia-ml-py."""

    address: str
    name: str
    numa_node: int | None
    link_width: int | None
    """PCIe lanes in use; an idle GPU may lower their speed, but not their number."""
    most_width: int | None
    """PCIe lanes that it could use."""
    link_speed: str | None
    near_cores: int | None
    """How many of the usable cores are on the GPU's NUMA node."""
    most_link_speed: str | None = None
    uuid: str | None = None
    power_cap_w: float | None = None
    default_power_cap_w: float | None = None
    ecc: bool | None = None
    """Whether its memory corrects errors."""
    ecc_errors: int | None = None
    """Errors since the driver was loaded that could not be corrected."""
    mig: bool | None = None
    """Whether it can be divided into parts (MIG)."""
    persistence: bool | None = None
    """Whether the driver keeps it initialised while nobody uses it."""
    clock_mhz: int | None = None
    """Its SM clock now."""
    most_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    nvlinks: int | None = None
    """NVLinks that are active."""
    nvlink_peers: tuple[str, ...] = ()
    """What each active NVLink leads to: the address of a GPU, or `switch`."""
    unreachable: tuple[str, ...] = ()
    """The addresses of the GPUs whose memory it cannot read directly."""


def count_gpus(host: Path = procfs.HOST) -> int:
    """How many GPUs have a driver. Does not ask NVML, which starts a thread."""
    return sum(map(_is_gpu, (host / "sys/bus/pci/devices").glob("*")))


def read_gpus(usable: Sequence[int], host: Path = procfs.HOST) -> tuple[Gpu, ...]:
    """The GPUs that have a driver, in the order of their addresses. NVML knows those of this host
    only, so it is not asked about another `host`."""
    devices = sorted((host / "sys/bus/pci/devices").glob("*"))
    found = tuple(_read_gpu(device, usable, host) for device in devices if _is_gpu(device))
    if host != procfs.HOST:
        return found
    known = {gpu.address: find_gpu(gpu.address) for gpu in found}
    return add_nvml(found, {address: gpu for address, gpu in known.items() if gpu})


def add_nvml(gpus: Sequence[Gpu], known: Mapping[str, NvmlGpu]) -> tuple[Gpu, ...]:
    """The GPUs with what NVML knows of those that are in `known`, by their addresses."""
    facts = {address: _nvml_facts(address, known) for address in known}
    return tuple(gpu._replace(**facts.get(gpu.address, {})) for gpu in gpus)


_ASKED: dict[str, tuple[Callable[[Any], Any], str, tuple[str, ...]]] = {
    "uuid": (str, "nvmlDeviceGetUUID", ()),
    "power_cap_w": (lambda mw: mw / 1000, "nvmlDeviceGetEnforcedPowerLimit", ()),
    "default_power_cap_w": (
        lambda mw: mw / 1000, "nvmlDeviceGetPowerManagementDefaultLimit", ()
    ),
    "ecc": (lambda modes: bool(modes[0]), "nvmlDeviceGetEccMode", ()),
    "ecc_errors": (
        int, "nvmlDeviceGetTotalEccErrors",
        ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
    ),
    "mig": (lambda modes: bool(modes[0]), "nvmlDeviceGetMigMode", ()),
    "persistence": (bool, "nvmlDeviceGetPersistenceMode", ()),
    "most_clock_mhz": (int, "nvmlDeviceGetMaxClockInfo", ("NVML_CLOCK_SM",)),
}  # fmt: skip
"""Fields of a Gpu that are the answer of one function of NVML: what makes the field of the answer,
the function, and the names of the constants that it takes."""


def _nvml_facts(address: str, known: Mapping[str, NvmlGpu]) -> dict[str, Any]:
    """The fields of a Gpu that NVML knows."""
    own = known[address]
    asked = {name: (read, own.ask(f, *names)) for name, (read, f, names) in _ASKED.items()}
    state, links = own.read_state()._asdict(), own.read_nvlinks()
    others = {other: gpu for other, gpu in known.items() if other != address}
    return {name: None if x is None else read(x) for name, (read, x) in asked.items()} | {
        **{name: found for name, found in state.items() if name in Gpu._fields},
        "nvlinks": None if links is None else len(links),
        "nvlink_peers": tuple(links or ()),
        "unreachable": tuple(o for o, gpu in others.items() if own.can_read(gpu) is False),
    }


def _is_gpu(device: Path) -> bool:
    """Whether a device is a GPU with a driver. Graphics chips of server consoles do not count: they
    are of other vendors; nor GPUs inside the processor: they are on the first bus."""
    kind, vendor = procfs.read_text(device / "class") or "", procfs.read_text(device / "vendor")
    is_built_in = vendor == "0x8086" and device.name.startswith("0000:00:")
    has_driver = (device / "driver").exists()
    return kind[:6] in CLASSES and vendor in VENDORS and has_driver and not is_built_in


def _read_gpu(device: Path, usable: Sequence[int], host: Path) -> Gpu:
    node, near = read_place(device.name, host)
    return Gpu(
        address=device.name,
        name=_read_model(device, host) or VENDORS[procfs.read_text(device / "vendor") or ""],
        numa_node=node,
        link_width=procfs.read_number(device / "current_link_width") or None,
        most_width=procfs.read_number(device / "max_link_width") or None,
        link_speed=procfs.read_text(device / "current_link_speed"),
        near_cores=len(near & set(usable)) if near else None,
        most_link_speed=procfs.read_text(device / "max_link_speed"),
    )


def read_place(address: str, host: Path = procfs.HOST) -> tuple[int | None, set[int]]:
    """The NUMA node of the PCI device with this address, None where it is unknown, and the cores
    near it."""
    device = host / "sys/bus/pci/devices" / (address or "none")
    node = procfs.read_number(device / "numa_node")
    near = procfs.parse_cores(procfs.read_text(device / "local_cpulist") or "")
    return (None if node is None or node < 0 else node), set(near)


def bind_near(address: str, host: Path = procfs.HOST) -> None:
    """Let this process run only on the cores near the GPU with this address, if it may run on all
    cores of the host: otherwise somebody has bound it."""
    allowed = os.sched_getaffinity(0)
    online = procfs.parse_cores(procfs.read_text(host / "sys/devices/system/cpu/online") or "")
    near = read_place(address, host)[1] & allowed
    if near and allowed == set(online):
        os.sched_setaffinity(0, near)


def _read_model(device: Path, host: Path) -> str | None:
    """The name of the model, if NVIDIA's driver gives it."""
    path = host / "proc/driver/nvidia/gpus" / device.name / "information"
    found = re.search(r"^Model:\s*(\S.*)$", procfs.read_text(path) or "", re.M)
    return found[1].strip() if found else None

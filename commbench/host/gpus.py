"""The GPUs of the host, also those that this process may not use: as the PCI bus shows them, and
what NVIDIA's management library adds where nvidia-ml-py is installed. Wakes and uses none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commbench.host import nvml, procfs

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


def read_gpus(usable: Sequence[int], host: Path = procfs.HOST) -> tuple[Gpu, ...]:
    """The GPUs that have a driver, in the order of their addresses. NVML knows those of this host
    only, so it is not asked about another `host`."""
    devices = sorted((host / "sys/bus/pci/devices").glob("*"))
    found = tuple(_read_gpu(device, usable, host) for device in devices if _is_gpu(device))
    if host != procfs.HOST:
        return found
    known = {gpu.address: nvml.find_gpu(gpu.address) for gpu in found}
    return add_nvml(found, {address: gpu for address, gpu in known.items() if gpu})


def add_nvml(gpus: Sequence[Gpu], known: Mapping[str, nvml.NvmlGpu]) -> tuple[Gpu, ...]:
    """The GPUs with what NVML knows of those that are in `known`, by their addresses."""
    return tuple(
        gpu._replace(**_nvml_facts(gpu.address, known)) if gpu.address in known else gpu
        for gpu in gpus
    )


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


def _nvml_facts(address: str, known: Mapping[str, nvml.NvmlGpu]) -> dict[str, Any]:
    """The fields of a Gpu that NVML knows."""
    own = known[address]
    asked = {name: (read, own.ask(f, *names)) for name, (read, f, names) in _ASKED.items()}
    state, links = own.read_state(), own.read_nvlinks()
    others = {other: gpu for other, gpu in known.items() if other != address}
    return {name: None if x is None else read(x) for name, (read, x) in asked.items()} | {
        "clock_mhz": state.clock_mhz,
        "temperature_c": state.temperature_c,
        "throttle_reasons": state.throttle_reasons,
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

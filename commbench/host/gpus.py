"""The GPUs of the host as the PCI bus shows them, also those that this process may not use. Wakes
and uses none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commbench.host import procfs

VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes: VGA controller, 3D controller, other display controller, and processing accelerator,
which AMD's Instinct MI200 and MI300 are."""


class Gpu(NamedTuple):
    """A GPU as the PCI bus shows it."""

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


def read_gpus(usable: Sequence[int], host: Path = procfs.HOST) -> tuple[Gpu, ...]:
    """The GPUs that have a driver, in the order of their addresses."""
    devices = sorted((host / "sys/bus/pci/devices").glob("*"))
    return tuple(_read_gpu(device, usable, host) for device in devices if _is_gpu(device))


def _is_gpu(device: Path) -> bool:
    """Whether a device is a GPU with a driver. Graphics chips of server consoles do not count: they
    are of other vendors; nor GPUs inside the processor: they are on the first bus."""
    kind, vendor = procfs.read_text(device / "class") or "", procfs.read_text(device / "vendor")
    is_built_in = vendor == "0x8086" and device.name.startswith("0000:00:")
    has_driver = (device / "driver").exists()
    return kind[:6] in CLASSES and vendor in VENDORS and has_driver and not is_built_in


def _read_gpu(device: Path, usable: Sequence[int], host: Path) -> Gpu:
    node = procfs.read_number(device / "numa_node")
    near = procfs.read_text(device / "local_cpulist")
    return Gpu(
        address=device.name,
        name=_read_model(device, host) or VENDORS[procfs.read_text(device / "vendor") or ""],
        numa_node=node if node is not None and node >= 0 else None,
        link_width=procfs.read_number(device / "current_link_width") or None,
        most_width=procfs.read_number(device / "max_link_width") or None,
        link_speed=procfs.read_text(device / "current_link_speed"),
        near_cores=len(set(procfs.parse_cores(near)) & set(usable)) if near else None,
    )


def _read_model(device: Path, host: Path) -> str | None:
    """The name of the model, if NVIDIA's driver gives it."""
    path = host / "proc/driver/nvidia/gpus" / device.name / "information"
    found = re.search(r"^Model:\s*(\S.*)$", procfs.read_text(path) or "", re.M)
    return found[1].strip() if found else None

"""What the kernel tells of GPUs: their place, their way to the host. Nothing wakes or uses one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commbench.host.procfs import HOST, parse_cores, read_number, read_text

VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
DISPLAYS = ("0x0300", "0x0302", "0x0380")
"""PCI classes: a display that shows a picture, a 3D controller, another display controller."""


class Gpu(NamedTuple):
    """A GPU as the PCI bus shows it."""

    address: str
    name: str
    numa_node: int | None
    link_width: int | None
    """Lanes in use; a GPU at rest may lower their speed, but not their number."""
    most_width: int | None
    """Lanes that it could use."""
    link_speed: str | None
    near_cores: int | None
    """Of the cores that this process may use, those close to the GPU."""


def read_gpus(usable: Sequence[int], host: Path = HOST) -> tuple[Gpu, ...]:
    """The GPUs that a driver serves, in the order of their addresses."""
    devices = sorted((host / "sys/bus/pci/devices").glob("*"))
    return tuple(_gpu(device, usable, host) for device in devices if _is_gpu(device))


def _is_gpu(device: Path) -> bool:
    """Whether it is a display controller with memory of its own; those of servers' consoles and of
    processors have other vendors, or sit on the first bus."""
    kind, vendor = read_text(device / "class") or "", read_text(device / "vendor")
    built_in = vendor == "0x8086" and device.name.startswith("0000:00:")
    served = (device / "driver").exists()
    return kind[:6] in DISPLAYS and vendor in VENDORS and served and not built_in


def _gpu(device: Path, usable: Sequence[int], host: Path) -> Gpu:
    node = read_number(device / "numa_node")
    near = read_text(device / "local_cpulist")
    return Gpu(
        address=device.name,
        name=_model(device, host) or VENDORS[read_text(device / "vendor") or ""],
        numa_node=node if node is not None and node >= 0 else None,
        link_width=read_number(device / "current_link_width") or None,
        most_width=read_number(device / "max_link_width") or None,
        link_speed=read_text(device / "current_link_speed"),
        near_cores=len(set(parse_cores(near)) & set(usable)) if near else None,
    )


def _model(device: Path, host: Path) -> str | None:
    """The model, where NVIDIA's driver tells it."""
    told = read_text(host / "proc/driver/nvidia/gpus" / device.name / "information") or ""
    for line in told.splitlines():
        key, _, value = line.partition(":")
        if key == "Model":
            return value.strip()
    return None

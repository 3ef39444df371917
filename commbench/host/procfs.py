"""Readers of small files of /proc and /sys below a root `host`; what is not there is None.

psutil, which takes 25 ms to import, could replace two functions here: it reads no control groups,
no scheduler statistics and no caches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HOST = Path("/")


def read_text(path: Path | str) -> str | None:
    """The text of a file, stripped; None where it cannot be read or is empty. Without the buffers
    of `Path.read_text`, which take most of its time for so small a file."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read().decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The whole number in a file; None where it holds something else."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def read_switch(path: Path) -> bool | None:
    """Whether a file holds 1; None where it holds neither 0 nor 1."""
    return {"0": False, "1": True}.get(read_text(path) or "")


def read_statistics(path: Path) -> dict[str, int]:
    """The whole numbers in a file of lines `name value`, such as a control group's cpu.stat."""
    pairs = (line.split() for line in (read_text(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def parse_cores(listed: str) -> tuple[int, ...]:
    """The cores in the kernel's list format: `0-2,8` is 0, 1, 2, 8."""
    found: list[int] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def parse_size(written: str) -> int | None:
    """Bytes of a cache size in the kernel's format: `32768K`."""
    digits, unit = written[:-1], written[-1:]
    shift = {"K": 10, "M": 20, "G": 30}.get(unit)
    return int(digits) << shift if shift and digits.isdigit() else None


def read_available_bytes(host: Path = HOST) -> int | None:
    """Memory that processes can still take on this host: MemAvailable of /proc/meminfo."""
    found = re.search(r"^MemAvailable:\s+(\d+)", read_text(host / "proc/meminfo") or "", re.M)
    return int(found[1]) << 10 if found else None


class CpuTicks(NamedTuple):
    """Clock ticks that some cores have spent since the host started; proc(5)."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    stolen: int

    @property
    def programs(self) -> int:
        """Ticks spent on programs and on the kernel's work for them."""
        return self.user + self.nice + self.system

    @property
    def busy(self) -> int:
        """Ticks in which a core of this host worked."""
        return self.programs + self.irq + self.softirq


def read_cpu_ticks(cores: Sequence[int] | None = None, host: Path = HOST) -> CpuTicks | None:
    """Ticks of these cores together, or of all cores of the host; None where they are not known."""
    wanted = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    found: list[list[int]] = []
    try:
        with open(host / "proc/stat", "rb") as file:  # noqa: PTH123
            for line in file:
                name, *values = line.decode("utf-8", "replace").split() or [""]
                if name in wanted and len(values) >= len(CpuTicks._fields):
                    found.append([int(value) for value in values[: len(CpuTicks._fields)]])
                if len(found) == len(wanted) or not name.startswith("cpu"):
                    break
    except (OSError, ValueError):
        return None
    return CpuTicks(*map(sum, zip(*found, strict=True))) if found else None

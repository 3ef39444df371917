"""Readers of small files of /proc and /sys below a root `host`, and the limits of the control
groups (versions 1 and 2) of this process; what is not there is None. And what a forked process
finds out.

psutil, which takes 25 ms to import, could replace two functions here: it reads no control groups,
no scheduler statistics and no caches.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HOST = Path("/")
_KINDS_OF_TICKS = 8


def read_text(path: Path | str) -> str | None:
    """The text of a file, stripped; None where it cannot be read or is empty. Without the buffers
    of `Path.read_text`, which take most of its time for so small a file."""
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read().decode("utf-8", "replace").strip() or None
    return None


def read_number(path: Path) -> int | None:
    """The whole number in a file; None where it holds something else."""
    with suppress(ValueError):
        return int(read_text(path) or "")
    return None


def read_stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, from the state on; empty where it is gone."""
    return (read_text(HOST / f"proc/{pid}/stat") or "").rpartition(")")[2].split()


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


def ask_child(function: Callable[[], Any]) -> Any:
    """What a function returns in a forked process, of the types of JSON; None where it fails."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        with suppress(Exception):
            os.write(write_end, json.dumps(function()).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


class CpuTicks(NamedTuple):
    """Clock ticks that some cores have spent since the host started; proc(5)."""

    programs: int
    """On programs and on the kernel's work for them."""
    busy: int
    """In which a core of this host worked."""
    stolen: int
    total: int


def read_cpu_ticks(cores: Sequence[int] | None = None, host: Path = HOST) -> CpuTicks | None:
    """Ticks of these cores together, or of all cores of the host; None where they are not known."""
    wanted = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    found: list[list[int]] = []
    try:
        with open(host / "proc/stat", "rb") as file:  # noqa: PTH123
            for line in file:
                name, *values = line.decode("utf-8", "replace").split() or [""]
                if name in wanted and len(values) >= _KINDS_OF_TICKS:
                    found.append([int(value) for value in values[:_KINDS_OF_TICKS]])
                if len(found) == len(wanted) or not name.startswith("cpu"):
                    break
    except (OSError, ValueError):
        return None
    if not found:
        return None
    user, nice, system, idle, iowait, irq, softirq, stolen = map(sum, zip(*found, strict=True))
    programs = user + nice + system
    busy = programs + irq + softirq
    return CpuTicks(programs, busy, stolen, busy + idle + iowait + stolen)


MOUNT = Path("sys/fs/cgroup")
MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a group with its limit and its use in bytes, in version 2 and 1."""


def read_cpu_limit(host: Path) -> tuple[float | None, float | None]:
    """The tightest processor limit of this process's group and those above it: processors' time per
    period, None without a limit; and the share of the periods so far in which the group had used up
    its time."""
    groups = list(find_groups("cpu", host))
    limits = [limit for group in groups if (limit := _cpu_limit(group)) is not None]
    statistics = [read_statistics(group / "cpu.stat") for group in groups]
    shares = [s.get("nr_throttled", 0) / s["nr_periods"] for s in statistics if s.get("nr_periods")]
    return min(limits, default=None), max(shares, default=None)


def read_free_bytes(host: Path = HOST) -> int | None:
    """Memory that this process can still use: that of the host, or less if its control groups limit
    it; None if it is not known. Cached files that the kernel can drop count as free."""
    text = read_text(host / "proc/meminfo") or ""
    free = [int(kib) << 10 for kib in re.findall(r"^MemAvailable:\s+(\d+)", text, re.M)]
    for group in find_groups("memory", host):
        for limit, used in MEMORY:
            most = read_number(group / limit)
            taken = None if most is None else read_number(group / used)
            if most is not None and taken is not None:
                kinds = read_statistics(group / "memory.stat")
                free.append(max(0, most - taken + kinds.get("inactive_file", 0)))
    return min(free, default=None)


def find_cpu_statistics(host: Path = HOST) -> Path | None:
    """The cpu.stat of the innermost group that counts throttled time; None if there is none."""
    files = (group / "cpu.stat" for group in find_groups("cpu", host))
    return next((file for file in files if read_throttled_ns(file) is not None), None)


def read_throttled_ns(file: Path) -> int | None:
    """Time for which a group had used up its processor time, from its cpu.stat: in microseconds in
    version 2, in nanoseconds in version 1."""
    statistics = read_statistics(file)
    if "throttled_usec" in statistics:
        return statistics["throttled_usec"] * 1000
    return statistics.get("throttled_time")


def find_groups(controller: str, host: Path = HOST) -> Iterator[Path]:
    """The folders of this process's group and of those above it, innermost first, as far as they
    can be seen from here: inside a container its path may not exist."""
    for line in (read_text(host / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            top = host / MOUNT / controllers
            inner = top / path.lstrip("/")
            yield from (f for f in (inner, *inner.parents) if f.is_relative_to(top))


def _cpu_limit(group: Path) -> float | None:
    written = (read_text(group / "cpu.max") or "").split()
    if len(written) == 2 and written[0].isdigit():
        return int(written[0]) / int(written[1])
    quota = read_number(group / "cpu.cfs_quota_us")
    period = read_number(group / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None

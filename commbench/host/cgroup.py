"""Reads the processor and memory limits of the control groups of this process, versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commbench.host import procfs

MOUNT = Path("sys/fs/cgroup")
MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a group with its limit and its use in bytes, in version 2 and 1."""


class CgroupLimit(NamedTuple):
    """The tightest processor limit of the group and those above it."""

    cores: float | None
    """Processors' time per period; None: no limit was found."""
    throttled_share: float | None
    """Share of the periods so far in which the group had used up its time."""


def read_cpu_limit(host: Path = procfs.HOST) -> CgroupLimit:
    """The processor limit of this process."""
    groups = list(find_groups("cpu", host))
    limits = [limit for group in groups if (limit := _cpu_limit(group)) is not None]
    statistics = [procfs.read_statistics(group / "cpu.stat") for group in groups]
    shares = [s.get("nr_throttled", 0) / s["nr_periods"] for s in statistics if s.get("nr_periods")]
    return CgroupLimit(min(limits, default=None), max(shares, default=None))


def read_free_bytes(host: Path = procfs.HOST) -> int | None:
    """Memory that this process can still use: that of the host, or less if its control groups limit
    it; None if it is not known. Cached files that the kernel can drop count as free."""
    free = [procfs.read_available_bytes(host)]
    for group in find_groups("memory", host):
        for limit, used in MEMORY:
            most = procfs.read_number(group / limit)
            taken = None if most is None else procfs.read_number(group / used)
            if most is not None and taken is not None:
                kinds = procfs.read_statistics(group / "memory.stat")
                free.append(max(0, most - taken + kinds.get("inactive_file", 0)))
    return min((found for found in free if found is not None), default=None)


def find_cpu_statistics(host: Path = procfs.HOST) -> Path | None:
    """The cpu.stat of the innermost group that counts throttled time; None if there is none."""
    files = (group / "cpu.stat" for group in find_groups("cpu", host))
    return next((file for file in files if read_throttled_ns(file) is not None), None)


def read_throttled_ns(file: Path) -> int | None:
    """Time for which a group had used up its processor time, from its cpu.stat: in microseconds in
    version 2, in nanoseconds in version 1."""
    statistics = procfs.read_statistics(file)
    if "throttled_usec" in statistics:
        return statistics["throttled_usec"] * 1000
    return statistics.get("throttled_time")


def find_groups(controller: str, host: Path = procfs.HOST) -> Iterator[Path]:
    """The folders of this process's group and of those above it, innermost first, as far as they
    can be seen from here: inside a container its path may not exist."""
    for line in (procfs.read_text(host / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = host / MOUNT / controllers
        inner = top / path.lstrip("/")
        yield from (
            folder for folder in (inner, *inner.parents) if folder == top or top in folder.parents
        )


def _cpu_limit(group: Path) -> float | None:
    written = (procfs.read_text(group / "cpu.max") or "").split()
    if len(written) == 2 and written[0].isdigit():
        return int(written[0]) / int(written[1])
    quota = procfs.read_number(group / "cpu.cfs_quota_us")
    period = procfs.read_number(group / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None

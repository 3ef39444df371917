"""What this process's control group allows of processors and memory: versions 1 and 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commbench.host.procfs import HOST, number, text

MOUNT = Path("sys/fs/cgroup")


class CgroupLimit(NamedTuple):
    """The tightest limit of the group and those above it."""

    cores: float | None
    """So many processors' time per period; None: no limit was found."""
    throttled_share: float | None
    """Share of the periods so far in which the group had used up its time."""


def cpu_limit(host: Path = HOST) -> CgroupLimit:
    """The limit that holds for this process."""
    groups = list(_groups("cpu", host))
    limits = [limit for group in groups if (limit := _limit(group)) is not None]
    shares = [share for group in groups if (share := _throttled(group)) is not None]
    return CgroupLimit(min(limits, default=None), max(shares, default=None))


def free_bytes(host: Path = HOST) -> int:
    """Memory that this process can have: of the host, and of its control group; 0: not known."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text(host / "proc/meminfo") or "", re.M)
    free = [int(found[1]) << 10] if found else []
    for group in _groups("memory", host):
        for limit, used in MEMORY:
            most, now = number(group / limit), number(group / used)
            free += [most - now] if most is not None and now is not None else []
    return max(0, min(free, default=0))


MEMORY = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Files of a group with its limit and use, in version 2 and 1."""


def _groups(controller: str, host: Path) -> Iterator[Path]:
    """Folders of the group and those above it, as far as they can be seen from here."""
    for line in (text(host / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = host / MOUNT / controllers
        inner = top / path.lstrip("/")
        yield from (
            folder for folder in (inner, *inner.parents) if folder == top or top in folder.parents
        )


def _limit(group: Path) -> float | None:
    written = (text(group / "cpu.max") or "").split()
    if len(written) == 2 and written[0].isdigit():
        return int(written[0]) / int(written[1])
    quota, period = number(group / "cpu.cfs_quota_us"), number(group / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _throttled(group: Path) -> float | None:
    values = dict(
        line.split(" ", 1)
        for line in (text(group / "cpu.stat") or "").splitlines()
        if line.count(" ") == 1
    )
    periods = int(values.get("nr_periods", 0))
    return int(values.get("nr_throttled", 0)) / periods if periods else None

"""Is the host in the way? What the kernel knows of this rank's waiting, read before and after a
block of iterations, never within."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

UNKNOWN = -1
FIELDS = ("elapsed_s", "queued_s", "switches", "throttled_s", "stolen_s")
"""What `CpuCounters.since` tells, in order; all but the switches in nanoseconds."""
_TASKS = Path("/proc/self/task")
_STAT = Path("/proc/stat")


class CpuCounters:
    """Reads what the kernel counts; differences of two readings are what happened in between."""

    def __init__(self) -> None:
        self._throttling = _throttling_file()

    def read(self) -> list[int]:
        """Values by FIELDS since some beginning; UNKNOWN where this host does not tell."""
        return [
            time.perf_counter_ns(),
            _queued_ns(),
            resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            _throttled_ns(self._throttling),
            _stolen_ns(),
        ]

    def since(self, before: list[int]) -> list[int]:
        """What happened since a reading; UNKNOWN where this host does not tell."""
        return [
            max(0, now - then) if then != UNKNOWN and now != UNKNOWN else UNKNOWN
            for then, now in zip(before, self.read(), strict=True)
        ]


def _queued_ns() -> int:
    """Time that all threads of this process were ready to run and did not."""
    total = 0
    try:
        for task in os.listdir(_TASKS):  # noqa: PTH208 - a Path each costs more than the reading
            try:
                with open(f"{_TASKS}/{task}/schedstat") as file:  # noqa: PTH123
                    total += int(file.read().split()[1])
            except FileNotFoundError:
                continue  # the thread has ended
            except ProcessLookupError:
                continue
    except (OSError, IndexError, ValueError):
        return UNKNOWN
    return total


def _stolen_ns() -> int:
    """Time that the hypervisor gave this host's processors to others: all of them together."""
    try:
        with _STAT.open() as file:
            ticks = int(file.readline().split()[8])
    except (OSError, IndexError, ValueError):
        return UNKNOWN
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _throttling_file() -> tuple[Path, str, int] | None:
    """Where this process's control group tells of throttling, under which name, in how many ns."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for group in groups:
        _, controllers, path = group.split(":", 2)
        for file, key, unit in (
            (Path("/sys/fs/cgroup") / path.lstrip("/") / "cpu.stat", "throttled_usec", 1000),
            (Path("/sys/fs/cgroup/cpu") / path.lstrip("/") / "cpu.stat", "throttled_time", 1),
        ):
            if (not controllers or "cpu" in controllers.split(",")) and file.exists():
                return file, key, unit
    return None


def _throttled_ns(source: tuple[Path, str, int] | None) -> int:
    if source is None:
        return UNKNOWN
    file, key, unit = source
    try:
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value) * unit
    except (OSError, ValueError):
        pass
    return UNKNOWN

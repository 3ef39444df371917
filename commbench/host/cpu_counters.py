"""Reads how long this process waited for processors: around a batch, never within one."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from commbench.host.cgroup import find_cpu_statistics, read_throttled_ns
from commbench.host.procfs import HOST, read_cpu_ticks

UNKNOWN = -1
FIELDS = ("elapsed_s", "queued_s", "switches", "throttled_s", "stolen_s")
"""The values of `CpuCounters.since` in order; all but the switches are in nanoseconds."""


class CpuCounters:
    """Reads the kernel's counters; the difference of two readings is what happened in between."""

    def __init__(self, host: Path = HOST) -> None:
        self._host = host
        self._cpu_statistics = find_cpu_statistics(host)

    def read(self) -> list[int]:
        """Values of FIELDS, each from a start of its own; UNKNOWN where this host has none."""
        ticks = read_cpu_ticks(host=self._host)
        throttled = read_throttled_ns(self._cpu_statistics) if self._cpu_statistics else None
        return [
            time.perf_counter_ns(),
            _queued_ns(self._host / "proc/self/task"),
            resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            UNKNOWN if throttled is None else throttled,
            UNKNOWN if ticks is None else ticks.stolen * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),
        ]

    def since(self, before: list[int]) -> list[int]:
        """The differences to an earlier reading; UNKNOWN where one of the two is."""
        return [
            max(0, now - then) if then != UNKNOWN and now != UNKNOWN else UNKNOWN
            for then, now in zip(before, self.read(), strict=True)
        ]


def _queued_ns(tasks: Path) -> int:
    """Time for which threads of this process were ready to run but did not run, summed over
    threads."""
    total = 0
    try:
        # Paths and buffered files would cost more than the reading, and ranks may be many.
        for task in os.listdir(tasks):  # noqa: PTH208
            try:
                file = os.open(f"{tasks}/{task}/schedstat", os.O_RDONLY)
                try:
                    total += int(os.read(file, 100).split()[1])
                finally:
                    os.close(file)
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended
    except (OSError, IndexError, ValueError):
        return UNKNOWN
    return total

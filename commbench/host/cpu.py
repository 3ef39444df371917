"""CPU modes: on which cores and under which scheduling policy a rank runs; and how long this
process waited for processors: read around a batch, never within one.

A mode is applied before the process group is created, so that the threads of the backend inherit
it. gloo's loop thread spins while the other rank's thread waits for a time slice; under the default
policy an iteration then costs microseconds or several milliseconds, by chance. SCHED_BATCH keeps
the spinning thread from being preempted at every wake-up, and a core of its own keeps a rank from
waiting for another one. Neither needs a privilege.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from commbench.errors import UnavailableError
from commbench.host.procfs import HOST, find_cpu_statistics, read_cpu_ticks, read_throttled_ns


class CpuMode(NamedTuple):
    """How the threads of a rank are scheduled."""

    is_pinned: bool
    """Whether each rank keeps to one core, round robin by its local rank."""
    policy: str = ""
    """The scheduling policy, by its name in the module os; empty: it is not changed."""
    priority: int = 0


PLAIN = "plain"
"""The mode that the others are compared with: ranks without any setting."""
MODES = {
    "quiet": CpuMode(is_pinned=True, policy="SCHED_BATCH"),
    PLAIN: CpuMode(is_pinned=False),
    "realtime": CpuMode(is_pinned=True, policy="SCHED_FIFO", priority=10),
    "batch": CpuMode(is_pinned=False, policy="SCHED_BATCH"),
    "pinned": CpuMode(is_pinned=True),
}
"""By name, in the order of plan.plan.CPU_MODES."""


def describe_cpu_mode(name: str) -> str:
    """What a mode does: `bound to cores (cpu mode quiet)`."""
    bound = "bound to cores" if MODES[name].is_pinned else "not bound to cores"
    return f"{bound} (cpu mode {name})"


def cpu_mode_calls(name: str) -> list[str]:
    """What a program calls to be scheduled so: lines of Python."""
    mode = MODES[name]
    calls = ["os.sched_setaffinity(0, [local_rank])"] if mode.is_pinned else []
    policy = f"os.{mode.policy}, os.sched_param({mode.priority})"
    return [*calls, f"os.sched_setscheduler(0, {policy})"] if mode.policy else calls


def apply_cpu_mode(cpu_mode: str, local_rank: int) -> CpuMode:
    """Apply a CPU mode to this process, and return it.

    Raises UnavailableError where SCHED_FIFO is not permitted.
    """
    mode, cores = MODES[cpu_mode], sorted(os.sched_getaffinity(0))
    if mode.is_pinned:
        os.sched_setaffinity(0, [cores[local_rank % len(cores)]])
    try:
        if mode.policy:
            os.sched_setscheduler(0, getattr(os, mode.policy), os.sched_param(mode.priority))
    except PermissionError:
        raise UnavailableError(
            f"this user may not use SCHED_FIFO, which --cpu-mode {cpu_mode} needs",
            "use sudo, CAP_SYS_NICE or `ulimit -r 10`; in a new run --cpu-mode quiet needs none",
        ) from None
    return mode


UNKNOWN = -1
FIELDS = ("elapsed_s", "queued_s", "switches", "throttled_s", "stolen_s")
"""The values of `CpuCounters.since` in order; all but the switches are in nanoseconds."""


class Reading(NamedTuple):
    """What the kernel has counted until now, each from a start of its own."""

    counted: list[int]
    """The time, and what FIELDS have after `queued_s`; UNKNOWN where this host has none."""
    waits_ns: dict[str, int] | None
    """For how long each thread of this process was ready to run but did not run."""
    ran_ns: int
    """For how long threads of this process ran."""


class CpuCounters:
    """Reads the kernel's counters; the difference of two readings is what happened in between."""

    def __init__(self, host: Path = HOST) -> None:
        self._host = host
        self._cpu_statistics = find_cpu_statistics(host)

    def read(self) -> Reading:
        """All counters now."""
        ticks = read_cpu_ticks(host=self._host)
        throttled = read_throttled_ns(self._cpu_statistics) if self._cpu_statistics else None
        counted = [
            time.perf_counter_ns(),
            resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            UNKNOWN if throttled is None else throttled,
            UNKNOWN if ticks is None else ticks.stolen * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),
        ]
        return Reading(counted, _waits_ns(self._host / "proc/self/task"), time.process_time_ns())

    def since(self, before: Reading) -> list[int]:
        """Values of FIELDS: the differences to an earlier reading; UNKNOWN where one of the two is.

        The thread that waited longest counts. Threads of a process also wait for each other, as
        gloo's for the rank's own on the one core of both: others had the cores for at most the time
        in which no thread of this process ran.
        """
        now = self.read()
        elapsed, *others = (
            UNKNOWN if UNKNOWN in pair else max(0, pair[1] - pair[0])
            for pair in zip(before.counted, now.counted, strict=True)
        )
        if before.waits_ns is None or now.waits_ns is None:
            return [elapsed, UNKNOWN, *others]
        waits = (ns - before.waits_ns.get(task, 0) for task, ns in now.waits_ns.items())
        idle = elapsed * len(os.sched_getaffinity(0)) - (now.ran_ns - before.ran_ns)
        return [elapsed, max(0, min(max(waits, default=0), idle)), *others]


def _waits_ns(tasks: Path) -> dict[str, int] | None:
    """Of each thread how long it was ready to run but did not run; None where that is not known."""
    found = {}
    try:
        # Paths and buffered files would cost more than the reading, and ranks may be many.
        for task in os.listdir(tasks):  # noqa: PTH208
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                file = os.open(f"{tasks}/{task}/schedstat", os.O_RDONLY)
                try:
                    found[task] = int(os.read(file, 100).split()[1])
                finally:
                    os.close(file)
    except (OSError, IndexError, ValueError):
        return None
    return found

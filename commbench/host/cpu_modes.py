"""Where a rank runs on the CPU: done before its process group exists, so that its threads inherit.

gloo's loop thread spins while the other rank's thread waits for a time slice; under the default
policy an iteration then costs microseconds or several milliseconds, by chance. SCHED_BATCH keeps
the spinning thread from being preempted at every wake-up, a core of its own keeps ranks from
queueing behind each other; neither needs a privilege.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from commbench.errors import UnavailableError

REALTIME_PRIORITY = 10


class CpuMode(NamedTuple):
    """How a rank is kept apart from other work."""

    policy: int | None
    """Scheduling policy; None: left as it is."""
    pinned: bool
    """Each rank keeps to one core, round robin."""


MODES = {
    "quiet": CpuMode(os.SCHED_BATCH, pinned=True),
    "plain": CpuMode(None, pinned=False),
    "realtime": CpuMode(os.SCHED_FIFO, pinned=True),
    "batch": CpuMode(os.SCHED_BATCH, pinned=False),
    "pinned": CpuMode(None, pinned=True),
}
"""By the names of plan.CPU_MODES."""


def apply_cpu_mode(cpu_mode: str, local_rank: int) -> tuple[int, ...]:
    """Put this process where `cpu_mode` says; the cores it may then use.

    Raises UnavailableError where SCHED_FIFO is not permitted.
    """
    mode, cores = MODES[cpu_mode], sorted(os.sched_getaffinity(0))
    if mode.pinned:
        cores = [cores[local_rank % len(cores)]]
        os.sched_setaffinity(0, cores)
    if mode.policy is None:
        return tuple(cores)
    realtime = mode.policy == os.SCHED_FIFO
    try:
        os.sched_setscheduler(0, mode.policy, os.sched_param(REALTIME_PRIORITY * realtime))
    except PermissionError:
        raise UnavailableError(
            f"this user may not use SCHED_FIFO, which --cpu-mode {cpu_mode} asks for",
            "allow it (ulimit -r, CAP_SYS_NICE), or use --cpu-mode quiet, which needs no privilege",
        ) from None
    return tuple(cores)

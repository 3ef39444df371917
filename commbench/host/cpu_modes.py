"""CPU modes: on which cores and under which scheduling policy a rank runs.

A mode is applied before the process group is created, so that the threads of the backend inherit
it. gloo's loop thread spins while the other rank's thread waits for a time slice; under the default
policy an iteration then costs microseconds or several milliseconds, by chance. SCHED_BATCH keeps
the spinning thread from being preempted at every wake-up, and a core of its own keeps a rank from
waiting for another one. Neither needs a privilege.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from commbench.errors import UnavailableError

REALTIME_PRIORITY = 10


class CpuMode(NamedTuple):
    """How the threads of a rank are scheduled."""

    policy: int | None
    """The scheduling policy; None: it is not changed."""
    is_pinned: bool
    """Whether each rank keeps to one core, round robin by its local rank."""


MODES = {
    "quiet": CpuMode(os.SCHED_BATCH, is_pinned=True),
    "plain": CpuMode(None, is_pinned=False),
    "realtime": CpuMode(os.SCHED_FIFO, is_pinned=True),
    "batch": CpuMode(os.SCHED_BATCH, is_pinned=False),
    "pinned": CpuMode(None, is_pinned=True),
}
"""By name, in the order of spec.plan.CPU_MODES."""


def apply_cpu_mode(cpu_mode: str, local_rank: int) -> tuple[int, ...]:
    """Apply a CPU mode to this process; returns the cores it may then use.

    Raises UnavailableError where SCHED_FIFO is not permitted.
    """
    mode, cores = MODES[cpu_mode], sorted(os.sched_getaffinity(0))
    if mode.is_pinned:
        cores = [cores[local_rank % len(cores)]]
        os.sched_setaffinity(0, cores)
    if mode.policy is None:
        return tuple(cores)
    realtime = mode.policy == os.SCHED_FIFO
    try:
        os.sched_setscheduler(0, mode.policy, os.sched_param(REALTIME_PRIORITY * realtime))
    except PermissionError:
        raise UnavailableError(
            f"this user may not use SCHED_FIFO, which --cpu-mode {cpu_mode} needs",
            "allow it (ulimit -r, CAP_SYS_NICE), or use --cpu-mode quiet, which needs no privilege",
        ) from None
    return tuple(cores)

"""How the kernel shares cores among tasks, and what this user may ask of it."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

from commbench.errors import CommbenchError
from commbench.host.cpu_modes import apply_cpu_mode
from commbench.host.procfs import read_number, read_text

SLICES = (
    "sys/kernel/debug/sched/base_slice_ns",
    "sys/kernel/debug/sched/min_granularity_ns",
    "proc/sys/kernel/sched_min_granularity_ns",
)
"""Where kernels of different age tell of their least time slice; the first two need root."""


def scheduler_facts(host: Path) -> dict[str, Any]:
    """Facts of the scheduler, by the names of Facts."""
    slices_ns = [found for place in SLICES if (found := read_number(host / place))]
    budget = read_number(host / "proc/sys/kernel/sched_rt_runtime_us")
    period = read_number(host / "proc/sys/kernel/sched_rt_period_us")
    return {
        "fifo_permitted": permitted("realtime"),
        "batch_permitted": permitted("batch"),
        "tick_hz": _tick_hz(host),
        "slice_s": slices_ns[0] * 1e-9 if slices_ns else None,
        "realtime_share": budget / period if budget and period and budget > 0 else None,
    }


def permitted(cpu_mode: str) -> bool:
    """Whether a rank could settle in this mode: tried in a forked process."""
    child = os.fork()
    if not child:
        try:
            apply_cpu_mode(cpu_mode, 0)
        except (CommbenchError, OSError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _tick_hz(host: Path) -> int | None:
    """Ticks of the scheduler per second, as the kernel was built."""
    try:
        built = gzip.decompress((host / "proc/config.gz").read_bytes()).decode()
    except (OSError, EOFError, ValueError):
        built = read_text(host / f"boot/config-{os.uname().release}") or ""
    found = re.search(r"^CONFIG_HZ=(\d+)$", built, re.M)
    return int(found[1]) if found else None

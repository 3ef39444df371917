"""The clock that durations are read from: its source, its step, and what reading it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from commbench.host.procfs import read_text

PARTS = 10
READINGS = 2000
"""Readings in each part."""


def clock_facts(host: Path) -> dict[str, Any]:
    """Facts of the monotonic clock, by the names of Facts."""
    folder = host / "sys/devices/system/clocksource/clocksource0"
    step_s, read_s = clock_figures(time.perf_counter_ns)
    return {
        "clock_source": read_text(folder / "current_clocksource"),
        "clock_sources": tuple((read_text(folder / "available_clocksource") or "").split()),
        "clock_step_s": step_s,
        "clock_read_s": read_s,
    }


def clock_figures(clock: Callable[[], int]) -> tuple[float | None, float]:
    """The least step between two readings in ns that differ, and what a reading from Python costs:
    the median over the parts, so that an interruption does not count."""
    costs, steps = [], []
    for _ in range(PARTS):
        stamps = [clock() for _ in range(READINGS)]
        costs.append((stamps[-1] - stamps[0]) / (READINGS - 1))
        steps += [b - a for a, b in pairwise(stamps) if b > a]
    return min(steps) * 1e-9 if steps else None, sorted(costs)[PARTS // 2] * 1e-9

"""The use of the cores: shares of their time from /proc/stat, and processes from /proc/PID/stat."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from commbench.host.procfs import HOST, CpuTicks, read_text

NOTEWORTHY_CORES = 0.05
MOST_NAMED = 3
USER, SYSTEM, STARTED = 11, 12, 19
"""Fields 14, 15 and 22 of /proc/PID/stat, counted after the name; proc(5)."""


class Process(NamedTuple):
    """A process, and the clock ticks that it has used."""

    name: str
    ticks: int


class CpuUse(NamedTuple):
    """The use of some cores between two readings, as shares of their time."""

    busy_share: float
    stolen_share: float
    programs_share: float


def measure_use(before: CpuTicks | None, after: CpuTicks | None) -> CpuUse | None:
    """The use between two readings; None where one is missing or no time has passed."""
    if before is None or after is None:
        return None
    passed = CpuTicks(*(max(0, b - a) for a, b in zip(before, after, strict=True)))
    total = sum(passed)
    if not total:
        return None
    return CpuUse(passed.busy / total, passed.stolen / total, passed.programs / total)


def read_processes(host: Path = HOST) -> dict[tuple[int, int], Process]:
    """All visible processes except this one, by process id and start time in clock ticks."""
    found = {}
    for folder in host.glob("proc/[0-9]*"):
        line = read_text(folder / "stat")
        if line is None or int(folder.name) == os.getpid():
            continue
        name, _, rest = line.partition("(")[2].rpartition(")")
        values = rest.split()
        if len(values) > STARTED:
            ticks = int(values[USER]) + int(values[SYSTEM])
            found[int(folder.name), int(values[STARTED])] = Process(name, ticks)
    return found


def find_busiest(
    before: Mapping[tuple[int, int], Process],
    after: Mapping[tuple[int, int], Process],
    elapsed_s: float,
) -> tuple[tuple[str, float], ...]:
    """The programs that used most between two readings, with the number of cores that each used."""
    spent: Counter[str] = Counter()
    for key, process in after.items():
        spent[process.name] += process.ticks - (before[key].ticks if key in before else 0)
    total = elapsed_s * os.sysconf("SC_CLK_TCK")
    shares = [(name, ticks / total) for name, ticks in spent.most_common(MOST_NAMED)]
    return tuple((name, share) for name, share in shares if share >= NOTEWORTHY_CORES)

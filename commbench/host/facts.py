"""Facts of this host, its load, clock, scheduler and GPUs; read or measured, never guessed."""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from commbench.host import procfs
from commbench.host.cpu import apply_cpu_mode
from commbench.host.environment import host_facts

NOTEWORTHY_CORES = 0.05
MOST_NAMED = 3
USER, SYSTEM, STARTED = 11, 12, 19
"""Fields 14, 15 and 22 of /proc/PID/stat, counted after the name; proc(5)."""
WATCH_S = 0.5
"""Seconds for which the use of the cores is watched."""
CPU = Path("sys/devices/system/cpu")
CLOCK_PARTS = 10
CLOCK_READINGS = 2000
"""Readings in each part."""
SLICES = (
    "sys/kernel/debug/sched/base_slice_ns",
    "sys/kernel/debug/sched/min_granularity_ns",
    "proc/sys/kernel/sched_min_granularity_ns",
)
"""Files with the shortest time slice, in kernels of different age; the first two need root."""


class Program(NamedTuple):
    """All processes of one name that used processor time."""

    name: str
    cores: float
    """How many cores they used together."""
    pids: tuple[int, ...]
    """The process that used most first."""


class HostFacts(NamedTuple):
    """What is known of the host; None is not known. Shares are of the time of the usable cores."""

    host: str
    cores: tuple[int, ...]
    """Cores that this process may use, here called usable."""
    host_cores: int
    processor: str | None = None
    virtual: bool | None = None
    machine: str | None = None
    kernel: str | None = None
    physical_cores: int | None = None
    """Of the usable cores, without those that are a second hardware thread of another."""
    simultaneous_threads: bool | None = None
    cpu_limit: float | None = None
    """Processors that the control group allows."""
    throttled_share: float | None = None
    """Share of the control group's periods so far in which it had used up its time."""
    isolated_cores: str | None = None
    clock_source: str | None = None
    clock_read_s: float | None = None
    frequency_driver: str | None = None
    governors: tuple[str, ...] = ()
    fifo_permitted: bool | None = None
    batch_permitted: bool | None = None
    realtime_share: float | None = None
    """Share of each second that realtime tasks may use."""
    tick_hz: int | None = None
    slice_s: float | None = None
    """The shortest time for which the scheduler lets a task run."""
    load: tuple[float, ...] = ()
    """Tasks that ran or were ready to, on average over 1, 5 and 15 minutes."""
    busy_share: float | None = None
    stolen_share: float | None = None
    waiting_share: float | None = None
    """Share of the last 10 s in which some task of the host waited for a processor."""
    busiest: tuple[Program, ...] = ()
    """Programs that ran during WATCH_S."""
    cache_bytes: int | None = None
    """The last-level cache of the first core."""
    cache_cores: int | None = None
    """How many of the usable cores share it."""

    @property
    def ranks_fit(self) -> int:
        """How many ranks can have a physical core each, within the processor limit."""
        most = self.physical_cores or len(self.cores)
        return max(1, min(most, int(self.cpu_limit)) if self.cpu_limit else most)


Processes = Mapping[tuple[int, int], tuple[str, int]]
"""By process id and start time in clock ticks: the name, and the clock ticks used."""


class CpuUse(NamedTuple):
    """The use of some cores between two readings, as shares of their time."""

    programs_share: float
    busy_share: float
    stolen_share: float


def measure_use(before: procfs.CpuTicks | None, after: procfs.CpuTicks | None) -> CpuUse | None:
    """The use between two readings; None where one is missing or no time has passed."""
    if before is None or after is None or after.total <= before.total:
        return None
    *passed, total = (max(0, now - then) for then, now in zip(before, after, strict=True))
    return CpuUse(*(ticks / total for ticks in passed))


def read_processes(host: Path = procfs.HOST) -> Processes:
    """All visible processes except this one."""
    found = {}
    for folder in host.glob("proc/[0-9]*"):
        line = procfs.read_text(folder / "stat")
        if line is None or int(folder.name) == os.getpid():
            continue
        name, _, rest = line.partition("(")[2].rpartition(")")
        values = rest.split()
        if len(values) > STARTED:
            ticks = int(values[USER]) + int(values[SYSTEM])
            found[int(folder.name), int(values[STARTED])] = name, ticks
    return found


def find_busiest(before: Processes, after: Processes, elapsed_s: float) -> tuple[Program, ...]:
    """The programs that used most between two readings."""
    total = elapsed_s * os.sysconf("SC_CLK_TCK")
    spent: dict[str, dict[int, float]] = {}
    for key, (name, ticks) in after.items():
        if used := ticks - before.get(key, ("", 0))[1]:
            spent.setdefault(name, {})[key[0]] = used / total
    programs = [
        Program(name, sum(own.values()), tuple(sorted(own, key=lambda pid: -own[pid])))
        for name, own in spent.items()
    ]
    programs.sort(key=lambda program: -program.cores)
    return tuple(each for each in programs[:MOST_NAMED] if each.cores >= NOTEWORTHY_CORES)


def read_facts(host: Path = procfs.HOST) -> HostFacts:
    """Read everything that can be found; takes a little more than WATCH_S."""
    usable = tuple(sorted(os.sched_getaffinity(0)))
    cpu_limit, throttled_share = procfs.read_cpu_limit(host)
    own = host_facts()
    known: dict[str, Any] = {
        **{name: own[name] or None for name in ("host", "machine", "kernel", "processor")},
        "cores": usable,
        "host_cores": os.sysconf("SC_NPROCESSORS_ONLN"),
        "cpu_limit": cpu_limit,
        "clock_read_s": measure_clock(time.perf_counter_ns),
        "throttled_share": throttled_share,
        "load": os.getloadavg(),
    }
    known |= _read_processors(host, usable) | _read_scheduler(host)
    return HostFacts(**known | _read_load(host, usable))


def _read_processors(host: Path, usable: tuple[int, ...]) -> dict[str, Any]:
    folders = [host / CPU / f"cpu{core}" for core in usable]
    siblings = {procfs.read_text(folder / "topology/thread_siblings_list") for folder in folders}
    governors = {procfs.read_text(folder / "cpufreq/scaling_governor") for folder in folders}
    cpuinfo = procfs.read_text(host / "proc/cpuinfo") or ""
    threads = procfs.read_text(host / CPU / "smt/active")
    clocks = host / "sys/devices/system/clocksource/clocksource0"
    return {
        "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M)) or None,
        "physical_cores": None if None in siblings else len(siblings),
        "simultaneous_threads": {"0": False, "1": True}.get(threads or ""),
        "isolated_cores": procfs.read_text(host / CPU / "isolated"),
        "clock_source": procfs.read_text(clocks / "current_clocksource"),
        "frequency_driver": procfs.read_text(folders[0] / "cpufreq/scaling_driver"),
        "governors": tuple(sorted(governor for governor in governors if governor)),
    } | _read_cache(folders[0] / "cache", usable)


def _read_cache(folder: Path, usable: tuple[int, ...]) -> dict[str, Any]:
    """The last-level cache of a core, from its folder of caches."""
    levels = [(procfs.read_number(cache / "level"), cache) for cache in folder.glob("index*")]
    known = [(level, cache) for level, cache in levels if level]
    if not known:
        return {}
    last = max(known)[1]
    sharing = procfs.parse_cores(procfs.read_text(last / "shared_cpu_list") or "")
    size_bytes = procfs.parse_size(procfs.read_text(last / "size") or "")
    return {"cache_bytes": size_bytes, "cache_cores": len({*sharing} & {*usable}) or None}


def _read_load(host: Path, usable: tuple[int, ...]) -> dict[str, Any]:
    """What uses the cores while this process sleeps for WATCH_S."""
    processes, start = read_processes(host), time.monotonic()
    ticks = procfs.read_cpu_ticks(usable, host)
    time.sleep(WATCH_S)
    use = measure_use(ticks, procfs.read_cpu_ticks(usable, host))
    elapsed = time.monotonic() - start
    pressure = re.search(r"some avg10=([\d.]+)", procfs.read_text(host / "proc/pressure/cpu") or "")
    return {
        "busy_share": use.busy_share if use else None,
        "stolen_share": use.stolen_share if use else None,
        "waiting_share": float(pressure[1]) / 100 if pressure else None,
        "busiest": find_busiest(processes, read_processes(host), elapsed),
    }


def measure_clock(clock: Callable[[], int]) -> float:
    """Seconds that a reading of a clock of nanoseconds takes: the median of CLOCK_PARTS, so that an
    interruption does not count."""
    costs = []
    for _ in range(CLOCK_PARTS):
        stamps = [clock() for _ in range(CLOCK_READINGS)]
        costs.append((stamps[-1] - stamps[0]) / (CLOCK_READINGS - 1))
    return sorted(costs)[CLOCK_PARTS // 2] * 1e-9


def _read_scheduler(host: Path) -> dict[str, Any]:
    """Facts of the scheduler, named by fields of HostFacts."""
    slices_ns = [found for path in SLICES if (found := procfs.read_number(host / path))]
    budget = procfs.read_number(host / "proc/sys/kernel/sched_rt_runtime_us")
    period = procfs.read_number(host / "proc/sys/kernel/sched_rt_period_us")
    return {
        "fifo_permitted": bool(procfs.ask_child(lambda: apply_cpu_mode("realtime", 0))),
        "batch_permitted": bool(procfs.ask_child(lambda: apply_cpu_mode("batch", 0))),
        "tick_hz": _read_tick_hz(host),
        "slice_s": slices_ns[0] * 1e-9 if slices_ns else None,
        "realtime_share": budget / period if budget and period and budget > 0 else None,
    }


def _read_tick_hz(host: Path) -> int | None:
    """Ticks of the scheduler per second, from the configuration of the kernel's build."""
    try:
        built = gzip.decompress((host / "proc/config.gz").read_bytes()).decode()
    except (OSError, EOFError, ValueError):
        built = procfs.read_text(host / f"boot/config-{os.uname().release}") or ""
    found = re.search(r"^CONFIG_HZ=(\d+)$", built, re.M)
    return int(found[1]) if found else None

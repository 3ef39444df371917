"""What this host is and does right now: everything found, nothing guessed; None is not known."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from commbench.doctor.clock import clock_facts
from commbench.doctor.cpu_usage import busiest, read_processes, use_between
from commbench.doctor.scheduler import scheduler_facts
from commbench.host.cgroup import read_cpu_limit
from commbench.host.environment import host_facts
from commbench.host.procfs import (
    HOST,
    parse_cores,
    parse_size,
    read_cpu_ticks,
    read_number,
    read_switch,
    read_text,
)

LOOK_S = 0.5
"""For so long it is watched what uses the cores."""
CPU = Path("sys/devices/system/cpu")


class HostFacts(NamedTuple):
    """What is known of the host. Shares are of the time of the cores that may be used."""

    host: str
    cores: tuple[int, ...]
    """Cores that this process may use."""
    host_cores: int
    processor: str | None = None
    virtual: bool | None = None
    machine: str | None = None
    kernel: str | None = None
    physical_cores: int | None = None
    """Of the cores that may be used, those that do not share their parts with another one."""
    simultaneous_threads: bool | None = None
    cpu_limit: float | None = None
    """Processors that the control group allows."""
    throttled_share: float | None = None
    """Share of the control group's periods so far in which it had used up its time."""
    isolated_cores: str | None = None
    clock_source: str | None = None
    clock_sources: tuple[str, ...] = ()
    clock_step_s: float | None = None
    clock_read_s: float | None = None
    frequency_driver: str | None = None
    governors: tuple[str, ...] = ()
    fifo_permitted: bool | None = None
    batch_permitted: bool | None = None
    realtime_share: float | None = None
    """Share of each second that realtime work may have."""
    tick_hz: int | None = None
    slice_s: float | None = None
    """The least time for which the scheduler lets a task run."""
    load: tuple[float, ...] = ()
    """Tasks that ran or wanted to, on average over 1, 5 and 15 minutes."""
    busy_share: float | None = None
    stolen_share: float | None = None
    waiting_share: float | None = None
    """Share of the last 10 s in which some task of the host waited for a processor."""
    busiest: tuple[tuple[str, float], ...] = ()
    """Programs that ran meanwhile, and how many cores each used."""
    cache_bytes: int | None = None
    """The last-level cache of the first core."""
    cache_cores: int | None = None
    """How many of the cores share it."""
    loopback_mtu: int | None = None

    @property
    def ranks_fit(self) -> int:
        """How many ranks have a processor each: cores that share no parts, within the limit."""
        most = self.physical_cores or len(self.cores)
        return max(1, min(most, int(self.cpu_limit)) if self.cpu_limit else most)


def read_facts(host: Path = HOST) -> HostFacts:
    """Everything that can be found, in a little more than LOOK_S."""
    usable = tuple(sorted(os.sched_getaffinity(0)))
    limit = read_cpu_limit(host)
    own = host_facts()
    known: dict[str, Any] = {
        "host": own["host"],
        "machine": own["machine"],
        "kernel": own["kernel"],
        "processor": own["processor"] or None,
        "cores": usable,
        "host_cores": os.sysconf("SC_NPROCESSORS_ONLN"),
        "cpu_limit": limit.cores,
        "throttled_share": limit.throttled_share,
        "load": os.getloadavg(),
    }
    known |= _processors(host, usable) | clock_facts(host) | scheduler_facts(host)
    return HostFacts(**known | _now(host, usable))


def _processors(host: Path, usable: tuple[int, ...]) -> dict[str, Any]:
    folders = [host / CPU / f"cpu{core}" for core in usable]
    siblings = {read_text(folder / "topology/thread_siblings_list") for folder in folders}
    governors = {read_text(folder / "cpufreq/scaling_governor") for folder in folders}
    cpuinfo = read_text(host / "proc/cpuinfo") or ""
    return {
        "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M)) or None,
        "physical_cores": None if None in siblings else len(siblings),
        "simultaneous_threads": read_switch(host / CPU / "smt/active"),
        "isolated_cores": read_text(host / CPU / "isolated"),
        "frequency_driver": read_text(folders[0] / "cpufreq/scaling_driver"),
        "governors": tuple(sorted(governor for governor in governors if governor)),
        "loopback_mtu": read_number(host / "sys/class/net/lo/mtu"),
    } | _cache(folders[0] / "cache", usable)


def _cache(folder: Path, usable: tuple[int, ...]) -> dict[str, Any]:
    """The largest level among the caches of a core."""
    levels = [(read_number(cache / "level"), cache) for cache in folder.glob("index*")]
    known = [(level, cache) for level, cache in levels if level]
    if not known:
        return {}
    last = max(known)[1]
    sharing = set(parse_cores(read_text(last / "shared_cpu_list") or "")) & set(usable)
    return {
        "cache_bytes": parse_size(read_text(last / "size") or ""),
        "cache_cores": len(sharing) or None,
    }


def _now(host: Path, usable: tuple[int, ...]) -> dict[str, Any]:
    """What uses the cores while this process sleeps."""
    processes, began = read_processes(host), time.monotonic()
    ticks = read_cpu_ticks(usable, host)
    time.sleep(LOOK_S)
    use = use_between(ticks, read_cpu_ticks(usable, host))
    elapsed = time.monotonic() - began
    pressure = re.search(r"some avg10=([\d.]+)", read_text(host / "proc/pressure/cpu") or "")
    return {
        "busy_share": use.busy_share if use else None,
        "stolen_share": use.stolen_share if use else None,
        "waiting_share": float(pressure[1]) / 100 if pressure else None,
        "busiest": busiest(processes, read_processes(host), elapsed),
    }

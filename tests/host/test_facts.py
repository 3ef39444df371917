"""Facts of made-up hosts, read from folders that look like theirs; and of the real one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from synthetic_files import lay, put

from commbench.host import facts as host_facts
from commbench.host.facts import (
    HostFacts,
    find_busiest,
    is_permitted,
    measure_clock,
    measure_use,
    read_facts,
    read_processes,
)
from commbench.host.procfs import CpuTicks, read_cpu_ticks

# pytest's own threads do not matter to what is forked here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def test_the_clock_steps_by_its_least_step_and_costs_its_usual_cost() -> None:
    state = {"now": 0, "calls": 0}

    def clock() -> int:
        state["calls"] += 1
        state["now"] += 100 if state["calls"] % 7000 else 10_000_000
        return state["now"] // 40 * 40

    step_s, read_s = measure_clock(clock)
    assert step_s == pytest.approx(80e-9)
    assert read_s == pytest.approx(100e-9, rel=0.01)
    assert measure_clock(lambda: 5) == (None, 0.0)


def test_any_rank_may_be_left_alone_or_keep_to_a_core() -> None:
    before = os.sched_getaffinity(0)
    assert is_permitted("plain") and is_permitted("pinned")
    assert os.sched_getaffinity(0) == before


@pytest.fixture
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_facts, "WATCH_S", 0.05)


@pytest.mark.usefixtures("short_watch")
def test_a_host_that_tells_nothing_leaves_everything_out(tmp_path: Path) -> None:
    found = read_facts(tmp_path)
    assert found.cores == tuple(sorted(os.sched_getaffinity(0)))
    unknown = {name for name, value in found._asdict().items() if value in (None, ())}
    assert unknown >= {
        "cpu_limit", "clock_source", "governors", "simultaneous_threads", "tick_hz", "slice_s",
        "busy_share", "waiting_share", "busiest", "cache_bytes", "loopback_mtu",
    }  # fmt: skip


@pytest.mark.usefixtures("short_watch")
def test_a_host_that_tells_all_is_read(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    cpu = "sys/devices/system/cpu"
    for core in os.sched_getaffinity(0):
        put(tmp_path, f"{cpu}/cpu{core}/topology/thread_siblings_list", "0-1")
        put(tmp_path, f"{cpu}/cpu{core}/cpufreq/scaling_governor", "powersave\n")
    for level, size in (("2", "512K"), ("3", "32M")):
        put(tmp_path, f"{cpu}/cpu{first}/cache/index{level}/level", level)
        put(tmp_path, f"{cpu}/cpu{first}/cache/index{level}/size", size)
        put(tmp_path, f"{cpu}/cpu{first}/cache/index{level}/shared_cpu_list", f"{first}")
    put(tmp_path, f"{cpu}/smt/active", "1")
    put(tmp_path, "sys/kernel/debug/sched/base_slice_ns", "3000000")
    put(tmp_path, "proc/pressure/cpu", "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\n")
    put(tmp_path, "proc/cpuinfo", "flags\t\t: fpu hypervisor tsc\n")
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_HZ_250=y\nCONFIG_HZ=250\n"))
    found = read_facts(tmp_path)
    assert (found.physical_cores, found.ranks_fit) == (1, 1)
    assert (found.governors, found.simultaneous_threads) == (("powersave",), True)
    assert (found.cache_bytes, found.cache_cores) == (32 << 20, 1)
    assert (found.slice_s, found.tick_hz, found.waiting_share) == (0.003, 250, 0.125)
    assert found.virtual is True


@pytest.mark.parametrize(
    ("physical", "limit", "fit"), [(None, None, 4), (2, None, 2), (2, 1.5, 1), (4, 0.5, 1)]
)
def test_ranks_fit_where_each_has_a_core_of_its_own(
    physical: int | None, limit: float | None, fit: int
) -> None:
    found = HostFacts("host", (0, 1, 2, 3), 4, physical_cores=physical, cpu_limit=limit)
    assert found.ranks_fit == fit


def test_facts_of_this_host_can_be_read() -> None:
    found = read_facts()
    assert found.host_cores >= len(found.cores) >= found.ranks_fit >= 1
    assert found.batch_permitted is not None and found.clock_read_s


def test_shares_of_the_cores_that_were_asked_for(tmp_path: Path) -> None:
    lay(tmp_path, proc__stat="cpu 9 9 9 9 9 9 9 9\ncpu0 1 0 0 9 0 0 0 0\ncpu1 2 0 0 8 0 0 0 0 0\n")
    before = read_cpu_ticks((1,), tmp_path)
    assert before == CpuTicks(2, 0, 0, 8, 0, 0, 0, 0)
    lay(tmp_path, proc__stat="cpu1 22 10 10 48 0 5 5 10 0 0\n")
    use = measure_use(before, read_cpu_ticks((1,), tmp_path))
    assert use is not None
    assert (use.busy_share, use.stolen_share, use.programs_share) == (0.5, 0.1, 0.4)


def test_without_ticks_nothing_is_said_of_use(tmp_path: Path) -> None:
    some = CpuTicks(1, 0, 0, 0, 0, 0, 0, 0)
    assert read_cpu_ticks((0,), tmp_path) is None
    assert measure_use(None, some) is None and measure_use(some, some) is None


def test_programs_are_named_by_what_they_used_meanwhile(tmp_path: Path) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    tail = "S 1 1 1 0 -1 0 0 0 0 0 {} {} 0 0 20 0 1 0 {} 0 0"
    for pid, user, system, started in ((7, 10, 5, 99), (8, 0, 0, 50), (9, 3 * hertz, 0, 7)):
        put(tmp_path, f"proc/{pid}/stat", f"{pid} (a (b) c) " + tail.format(user, system, started))
    found = read_processes(tmp_path)
    assert found[7, 99] == ("a (b) c", 15)
    old = {(7, 99): ("make", 15), (9, 7): ("cc", 0)}
    new = {(7, 99): ("make", 15 + hertz), (9, 9): ("cc", hertz)}
    assert find_busiest(old, new, elapsed_s=2.0) == (("make", 0.5), ("cc", 0.5))

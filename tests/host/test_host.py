"""Facts of a host: of folders that look like its /proc and /sys, and of the real one."""

from __future__ import annotations

import gzip
import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_files import lay, put

from commbench import __version__
from commbench.host import environment
from commbench.host import facts as facts_module
from commbench.host.cpu import FIELDS, UNKNOWN, CpuCounters
from commbench.host.environment import (
    NetworkInterface,
    addresses,
    gather_facts,
    host_facts,
    nccl_settings,
    read_interface_speeds,
    relevant_variables,
    torch_facts,
)
from commbench.host.facts import (
    HostFacts,
    find_busiest,
    measure_clock,
    measure_use,
    read_facts,
    read_processes,
)
from commbench.host.gpu_system import gpu_facts
from commbench.host.procfs import (
    CgroupLimit,
    CpuTicks,
    find_cpu_statistics,
    read_cpu_limit,
    read_cpu_ticks,
    read_free_bytes,
    read_number,
    read_text,
    read_throttled_ns,
)
from commbench.worker.entrypoint import RankContext
from commbench.worker.introduction import find_interface


def test_what_is_not_there_or_not_readable_as_that_is_none(tmp_path: Path) -> None:
    lay(tmp_path, word="performance\n", empty="", one="1\n", two="2")
    texts = [read_text(tmp_path / name) for name in ("word", "empty", "none")]
    assert texts == ["performance", None, None]
    assert (read_number(tmp_path / "two"), read_number(tmp_path / "word")) == (2, None)


def test_ticks_are_of_the_cores_that_were_named_or_of_all(tmp_path: Path) -> None:
    assert read_cpu_ticks(host=tmp_path) is None
    lines = ("cpu 3 0 0 17 0 0 0 4 0 0", "cpu0 1 0 0 9 0 0 0 1", "cpu1 2 0 0 8 0 0 0 3", "intr 5 6")
    lay(tmp_path, proc__stat="\n".join(lines) + "\n")
    assert read_cpu_ticks(host=tmp_path) == CpuTicks(3, 3, 4, 24)
    assert read_cpu_ticks((1,), tmp_path) == CpuTicks(2, 2, 3, 13)
    assert read_cpu_ticks((0, 1, 2), tmp_path) == CpuTicks(3, 3, 4, 24)
    assert read_cpu_ticks((7,), tmp_path) is None
    lay(tmp_path, proc__stat="cpu 1 2 3\n")
    assert read_cpu_ticks(host=tmp_path) is None


def test_the_tightest_limit_counts_in_version_2(tmp_path: Path) -> None:
    lay(tmp_path, proc__self__cgroup="0::/outer/inner\n")
    put(tmp_path, "sys/fs/cgroup/outer/inner/cpu.max", "400000 100000\n")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.max", "250000 100000\n")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.stat", "usage_usec 5\nnr_periods 200\nnr_throttled 50\n")
    assert read_cpu_limit(tmp_path) == CgroupLimit(2.5, 0.25)


def test_version_1_and_a_path_that_is_not_visible_here(tmp_path: Path) -> None:
    lay(tmp_path, proc__self__cgroup="3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1000")
    put(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "400")
    put(tmp_path, "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:       8 kB\n")
    assert read_cpu_limit(tmp_path) == CgroupLimit(1.5, None)
    assert read_free_bytes(tmp_path) == 600


@pytest.mark.parametrize("quota", ["-1", "max 100000"])
def test_no_limit_is_none(tmp_path: Path, quota: str) -> None:
    lay(tmp_path, proc__self__cgroup="1:cpu:/\n0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota)
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu.max", quota)
    assert read_cpu_limit(tmp_path) == CgroupLimit(None, None)
    assert read_cpu_limit(tmp_path / "nowhere") == CgroupLimit(None, None)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host of 16 GiB, of which 8 are available, in files of a folder."""
    lay(
        tmp_path,
        proc__meminfo="MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n",
        proc__self__cgroup="0::/job/step\n",
    )
    return tmp_path


def set_memory(host: Path, group: str, limit: str, used: int, cached: int) -> None:
    put(host, f"sys/fs/cgroup/{group}/memory.max", limit + "\n")
    put(host, f"sys/fs/cgroup/{group}/memory.current", f"{used}\n")
    put(host, f"sys/fs/cgroup/{group}/memory.stat", f"anon 5\ninactive_file {cached}\n")


def test_without_limits_all_that_is_available_is_free(host: Path) -> None:
    assert read_free_bytes(host) == 8 << 30
    set_memory(host, "job/step", "max", 1 << 30, 0)
    assert read_free_bytes(host) == 8 << 30


def test_a_group_leaves_its_limit_less_what_cannot_be_dropped(host: Path) -> None:
    set_memory(host, "job/step", str(4 << 30), 3 << 30, 1 << 30)
    assert read_free_bytes(host) == 2 << 30
    set_memory(host, "job", str(1 << 30), 1 << 29, 0)  # groups above count too
    assert read_free_bytes(host) == 1 << 29
    assert read_free_bytes(host / "nowhere") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("nr_periods 5\nthrottled_usec 1234\n", 1_234_000),
     ("nr_throttled 2\nthrottled_time 987654\n", 987_654),
     ("throttled_usec many\n\nthree 1 2\n", None)],
)  # fmt: skip
def test_throttling_of_either_version_is_read(text: str, found: int | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu.stat"
    file.write_text(text)
    assert read_throttled_ns(file) == found
    assert read_throttled_ns(tmp_path / "gone") is None


def test_throttling_is_counted_by_the_innermost_group_that_tells_it(tmp_path: Path) -> None:
    lay(tmp_path, proc__self__cgroup="0::/job/step\n")
    assert find_cpu_statistics(tmp_path) is None
    put(tmp_path, "sys/fs/cgroup/job/step/cpu.stat", "usage_usec 5\n")
    put(tmp_path, "sys/fs/cgroup/job/cpu.stat", "throttled_usec 5\n")
    assert find_cpu_statistics(tmp_path) == tmp_path / "sys/fs/cgroup/job/cpu.stat"


def test_readings_go_up_and_their_difference_is_never_negative() -> None:
    reader = CpuCounters()
    before = reader.read()
    sum(range(100_000))
    after = reader.read()
    assert len(before) == len(FIELDS)
    assert all(UNKNOWN <= then <= now for then, now in zip(before, after, strict=True))
    since = reader.since(before)
    assert since[0] > 0
    assert all(value >= 0 for value, then in zip(since, before, strict=True) if then != UNKNOWN)


def test_a_host_that_tells_nothing_leaves_everything_but_time_and_switches_unknown() -> None:
    reader = CpuCounters(Path("/nowhere"))
    elapsed, queued, switches, throttled, stolen = reader.read()
    assert (queued, throttled, stolen) == (UNKNOWN,) * 3
    assert min(elapsed, switches) >= 0


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


@pytest.fixture
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "WATCH_S", 0.05)


@pytest.mark.usefixtures("short_watch")
def test_a_host_that_tells_nothing_leaves_everything_out(tmp_path: Path) -> None:
    found = read_facts(tmp_path)
    assert found.cores == tuple(sorted(os.sched_getaffinity(0)))
    unknown = {name for name, value in found._asdict().items() if value in (None, ())}
    assert unknown >= {
        "cpu_limit", "clock_source", "governors", "simultaneous_threads", "tick_hz", "slice_s",
        "busy_share", "waiting_share", "busiest", "cache_bytes",
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
def test_ranks_fit_with_a_core_each(physical: int | None, limit: float | None, fit: int) -> None:
    found = HostFacts("host", (0, 1, 2, 3), 4, physical_cores=physical, cpu_limit=limit)
    assert found.ranks_fit == fit


def test_shares_of_the_cores_that_were_asked_for(tmp_path: Path) -> None:
    lay(tmp_path, proc__stat="cpu 9 9 9 9 9 9 9 9\ncpu0 1 0 0 9 0 0 0 0\ncpu1 2 0 0 8 0 0 0 0 0\n")
    before = read_cpu_ticks((1,), tmp_path)
    assert before == CpuTicks(2, 2, 0, 10)
    lay(tmp_path, proc__stat="cpu1 22 10 10 48 0 5 5 10 0 0\n")
    use = measure_use(before, read_cpu_ticks((1,), tmp_path))
    assert use is not None
    assert (use.busy_share, use.stolen_share, use.programs_share) == (0.5, 0.1, 0.4)


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


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(relevant_variables()):
        monkeypatch.delenv(name)


def test_variables_of_libraries_are_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {
        "CUDA_VISIBLE_DEVICES": "0,1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1", "TORCH_NCCL_BLOCKING_WAIT": "1", "UCX_TLS": "all",
    }  # fmt: skip
    for name, value in {**wanted, "NCCL_VERSION": "2.28.3-1", "SECRET": "1"}.items():
        monkeypatch.setenv(name, value)
    assert relevant_variables() == wanted
    assert list(relevant_variables()) == sorted(wanted)


def test_settings_in_nccls_own_files_are_read_the_users_before_the_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "etc/nccl.conf", "# of the cluster\nNCCL_IB_HCA=mlx5\nNCCL_DEBUG=WARN\nNCCL_X\n")
    put(tmp_path, "home/.nccl.conf", "NCCL_DEBUG=INFO\nOTHER=1\n")
    put(tmp_path, "named", "NCCL_ALGO=Ring")
    monkeypatch.setattr(environment, "HOST", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert nccl_settings() == {"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"}
    assert gather_facts()["nccl_conf"] == nccl_settings()
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "named"))
    assert nccl_settings() == {"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"}


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "PATH", "HOME", "USER",
     "SSH_AUTH_SOCK", "MY_NCCL_SECRET", "nccl_secret", "HTTPS_PROXY", "TORCH_HOME",
     "SLURM_JWT", "CUDA_HOME"],
)  # fmt: skip
def test_no_other_variable_is_ever_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "a secret")
    assert relevant_variables() == {}
    assert "a secret" not in json.dumps(gather_facts())


def test_facts_of_the_host_are_named_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "example")
    facts = host_facts()
    assert list(facts) == [
        "host", "boot_id", "kernel", "machine", "processor", "cores", "governor", "python",
        "commbench",
    ]  # fmt: skip
    assert facts["host"] == "example"
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["commbench"] == __version__
    assert facts["processor"]


def test_all_facts_together_go_through_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    facts = gather_facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    known = {**host_facts(), **gpu_facts(), **torch_facts(), "variables": {"NCCL_DEBUG": "WARN"}}
    assert facts == known


LOOPBACK = NetworkInterface("lo", "127.0.0.1")
RANK_CONTEXT = RankContext(
    rank=1, world_size=2, local_rank=0, local_world_size=1, launcher="mpirun",
    init_method="tcp://127.0.0.1:29500",
)  # fmt: skip


def test_every_interface_with_an_address_is_found() -> None:
    found = addresses()
    assert LOOPBACK in found
    assert {way.interface for way in found} <= {name for _, name in socket.if_nameindex()}


def test_only_devices_that_are_up_have_a_speed(tmp_path: Path) -> None:
    for name, speed, is_device in (
        ("eth0", "10000", True), ("eth1", "-1", True), ("veth0", "10000", False), ("eth2", "", True)
    ):  # fmt: skip
        put(tmp_path, f"sys/class/net/{name}/speed", f"{speed}\n")
        if is_device:
            (tmp_path / f"sys/class/net/{name}/device").mkdir()
    assert read_interface_speeds(tmp_path) == {"eth0": "10000 Mbit/s"}
    assert read_interface_speeds(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("backend", "variables", "way"),
    [("gloo", {"GLOO_SOCKET_IFNAME": "lo"}, LOOPBACK),
     ("gloo", {"GLOO_SOCKET_IFNAME": "lo,eth7"}, LOOPBACK),
     ("gloo", {"GLOO_SOCKET_IFNAME": "l"}, NetworkInterface()),
     ("nccl", {"NCCL_SOCKET_IFNAME": "lo"}, LOOPBACK),
     ("nccl", {"NCCL_SOCKET_IFNAME": "nowhere,l"}, LOOPBACK),
     ("nccl", {"NCCL_SOCKET_IFNAME": "=lo"}, LOOPBACK),
     ("nccl", {"NCCL_SOCKET_IFNAME": "=l"}, NetworkInterface()),
     ("nccl", {"GLOO_SOCKET_IFNAME": "nowhere"}, LOOPBACK),
     ("mpi", {"GLOO_SOCKET_IFNAME": "nowhere"}, LOOPBACK)],
)  # fmt: skip
def test_a_variable_names_the_interface_and_otherwise_the_way_to_rank_0(
    backend: str, variables: dict[str, str], way: NetworkInterface
) -> None:
    assert find_interface(backend, RANK_CONTEXT, variables) == way


def test_an_interface_that_must_not_be_taken_is_not() -> None:
    others = [way for way in addresses() if way.interface != "lo"]
    found = find_interface("nccl", RANK_CONTEXT, {"NCCL_SOCKET_IFNAME": "^lo"})
    assert found == (others[0] if others else NetworkInterface())


def test_gloo_takes_the_address_of_this_hosts_name() -> None:
    found = find_interface("gloo", RANK_CONTEXT, {})
    known = {place[4][0] for place in socket.getaddrinfo(socket.gethostname(), None)}
    assert found.address in known | {"127.0.0.1"}
    assert found in addresses()


def test_torchruns_variable_says_where_rank_0_is() -> None:
    rank_context = replace(RANK_CONTEXT, init_method="env://", launcher="torchrun")
    assert find_interface("nccl", rank_context, {"MASTER_ADDR": "127.0.0.1"}) == LOOPBACK
    assert (
        find_interface("nccl", rank_context, {"MASTER_ADDR": "no.such.host.invalid"})
        == NetworkInterface()
    )


def test_on_one_host_only_a_variable_tells() -> None:
    rank_context = replace(RANK_CONTEXT, local_world_size=2, init_method="file:/dev/shm/ranks")
    assert find_interface("gloo", rank_context, {}) == NetworkInterface()
    assert find_interface("gloo", rank_context, {"GLOO_SOCKET_IFNAME": "lo"}) == LOOPBACK

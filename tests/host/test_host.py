"""Facts of a host: of folders that look like its /proc and /sys, and of the real one."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from synthetic_files import lay, put

from commbench import __version__
from commbench.host import environment, facts, procfs
from commbench.host.cpu import FIELDS, UNKNOWN, CpuCounters
from commbench.host.environment import NetworkInterface
from commbench.host.gpu_system import gpu_facts
from commbench.host.procfs import CpuTicks
from commbench.worker.entrypoint import RankContext
from commbench.worker.introduction import find_interface

# pytest's own threads do not matter to what is forked here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def test_what_is_not_there_or_not_readable_as_that_is_none(tmp_path: Path) -> None:
    lay(tmp_path, {"word": "performance\n", "empty": "", "two": "2"})
    texts = [procfs.read_text(tmp_path / name) for name in ("word", "empty", "none")]
    assert texts == ["performance", None, None]
    assert [procfs.read_number(tmp_path / name) for name in ("two", "word")] == [2, None]


def test_ticks_are_of_the_cores_that_were_named_or_of_all(tmp_path: Path) -> None:
    assert procfs.read_cpu_ticks(host=tmp_path) is None
    lines = "cpu 3 0 0 17 0 0 0 4 0 0\ncpu0 1 0 0 9 0 0 0 1\ncpu1 2 0 0 8 0 0 0 3\nintr 5 6\n"
    put(tmp_path, "proc/stat", lines)
    for cores, ticks in (
        (None, CpuTicks(3, 3, 4, 24)), ((1,), CpuTicks(2, 2, 3, 13)),
        ((0, 1, 2), CpuTicks(3, 3, 4, 24)), ((7,), None),
    ):  # fmt: skip
        assert procfs.read_cpu_ticks(cores, tmp_path) == ticks
    put(tmp_path, "proc/stat", "cpu 1 2 3\n")
    assert procfs.read_cpu_ticks(host=tmp_path) is None


GROUPS = "sys/fs/cgroup"
CPU_1 = f"{GROUPS}/cpu,cpuacct/cpu.cfs"
PERIOD_1 = {f"{CPU_1}_period_us": "100000"}
IN_GROUP_1 = {"proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n0::/\n"}
IN_GROUP_2 = {"proc/self/cgroup": "0::/outer/inner\n"}
INNER, OUTER = f"{GROUPS}/outer/inner", f"{GROUPS}/outer"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, (None, None)),
        (IN_GROUP_2 | {f"{OUTER}/cpu.max": "max 100000"}, (None, None)),
        # The tightest of the group and those above it.
        (IN_GROUP_2 | {f"{INNER}/cpu.max": "400000 100000\n", f"{OUTER}/cpu.max": "250000 100000\n",
                       f"{OUTER}/cpu.stat": "usage_usec 5\nnr_periods 200\nnr_throttled 50\n"},
         (2.5, 0.25)),
        # Version 1, and a path that is not visible here.
        (IN_GROUP_1 | PERIOD_1 | {f"{CPU_1}_quota_us": "150000\n"}, (1.5, None)),
        (IN_GROUP_1 | PERIOD_1 | {f"{CPU_1}_quota_us": "-1"}, (None, None)),
    ],
)  # fmt: skip
def test_the_processor_limit_of_either_version(
    files: dict[str, str], limit: tuple[float | None, float | None], tmp_path: Path
) -> None:
    assert procfs.read_cpu_limit(lay(tmp_path, files)) == limit


def memory(group: str, limit: str, used_mib: int, cached_mib: int) -> dict[str, str]:
    return {
        f"{group}/memory.max": limit, f"{group}/memory.current": f"{used_mib * MIB}\n",
        f"{group}/memory.stat": f"anon 5\ninactive_file {cached_mib * MIB}\n",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("files", "free_mib"),
    [
        (IN_GROUP_2, 8192),
        (IN_GROUP_2 | memory(INNER, "max", 1024, 0), 8192),
        # What cannot be dropped counts; so do groups above.
        (IN_GROUP_2 | memory(INNER, str(4096 * MIB), 3072, 1024), 2048),
        (IN_GROUP_2 | memory(INNER, str(4096 * MIB), 3072, 1024)
         | memory(OUTER, str(1024 * MIB), 512, 0), 512),
        (IN_GROUP_1 | {f"{GROUPS}/memory/memory.limit_in_bytes": str(1000 * MIB),
                       f"{GROUPS}/memory/memory.usage_in_bytes": str(400 * MIB)}, 600),
    ],
)  # fmt: skip
def test_a_group_leaves_less_memory_than_its_host_has(
    files: dict[str, str], free_mib: int, tmp_path: Path
) -> None:
    host = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n"}
    assert procfs.read_free_bytes(lay(tmp_path, files | host)) == free_mib * MIB
    assert procfs.read_free_bytes(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("nr_periods 5\nthrottled_usec 1234\n", 1_234_000),
     ("nr_throttled 2\nthrottled_time 987654\n", 987_654),
     ("throttled_usec many\n\nthree 1 2\n", None)],
)  # fmt: skip
def test_throttling_is_counted_by_the_innermost_group_that_tells_it(
    text: str, found: int | None, tmp_path: Path
) -> None:
    lay(tmp_path, IN_GROUP_2 | {f"{INNER}/cpu.stat": "usage_usec 5\n", f"{OUTER}/cpu.stat": text})
    file = tmp_path / OUTER / "cpu.stat"
    assert procfs.read_throttled_ns(file) == found
    assert procfs.find_cpu_statistics(tmp_path) == (file if found else None)


def test_readings_go_up_and_their_difference_is_never_negative() -> None:
    reader = CpuCounters()
    before = reader.read()
    sum(range(100_000))
    after = reader.read()
    pairs = zip(before.counted, after.counted, strict=True)
    assert all(UNKNOWN <= then <= now for then, now in pairs)
    assert before.waits_ns and after.waits_ns and before.ran_ns < after.ran_ns
    assert all(before.waits_ns.get(task, 0) <= ns for task, ns in after.waits_ns.items())
    since = reader.since(before)
    assert len(since) == len(FIELDS) and since[0] > 0
    known = [since[0], *since[2:]]
    assert since[1] >= 0
    assert all(
        found >= 0 for found, then in zip(known, before.counted, strict=True) if then != UNKNOWN
    )


def test_threads_of_one_rank_that_wait_for_each_other_do_not_wait_for_others() -> None:
    reader, block = CpuCounters(), bytes(1 << 20)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(cores)])
    try:
        before, ran = reader.read(), time.process_time_ns()
        # hashlib leaves the interpreter to others, so that both threads are ready to run.
        work = [
            threading.Thread(target=lambda: [hashlib.sha256(block) for _ in range(100)])
            for _ in range(2)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        elapsed, queued, *_ = reader.since(before)
        ran = time.process_time_ns() - ran
    finally:
        os.sched_setaffinity(0, cores)
    assert ran > 0.03e9 and queued + ran <= 1.02 * elapsed


def test_a_host_that_tells_nothing_leaves_everything_but_time_and_switches_unknown() -> None:
    reader = CpuCounters(Path("/nowhere"))
    before = reader.read()
    elapsed, switches, throttled, stolen = before.counted
    assert (throttled, stolen, before.waits_ns) == (UNKNOWN, UNKNOWN, None)
    assert reader.since(before)[1] == UNKNOWN
    assert min(elapsed, switches) >= 0


def test_a_reading_of_the_clock_costs_its_usual_cost() -> None:
    state = {"now": 0, "calls": 0}

    def clock() -> int:
        state["calls"] += 1
        state["now"] += 100 if state["calls"] % 7000 else 10_000_000
        return state["now"] // 40 * 40

    assert facts.measure_clock(clock) == pytest.approx(100e-9, rel=0.01)


def test_a_host_that_tells_nothing_leaves_everything_out_and_one_that_tells_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "WATCH_S", 0.05)
    cores = tuple(sorted(os.sched_getaffinity(0)))
    found = facts.read_facts(tmp_path)
    assert found.cores == cores
    unknown = {name for name, value in found._asdict().items() if value in (None, ())}
    assert unknown >= {
        "cpu_limit", "clock_source", "governors", "simultaneous_threads", "tick_hz", "slice_s",
        "busy_share", "waiting_share", "busiest", "cache_bytes",
    }  # fmt: skip
    cpu = "sys/devices/system/cpu"
    of_core = {"topology/thread_siblings_list": "0-1", "cpufreq/scaling_governor": "powersave\n"}
    for core in cores:
        lay(tmp_path, of_core, f"{cpu}/cpu{core}")
    for level, size in (("2", "512K"), ("3", "32M")):
        cache = {"level": level, "size": size, "shared_cpu_list": f"{cores[0]}"}
        lay(tmp_path, cache, f"{cpu}/cpu{cores[0]}/cache/index{level}")
    lay(tmp_path, {
        f"{cpu}/smt/active": "1", "sys/kernel/debug/sched/base_slice_ns": "3000000",
        "proc/pressure/cpu": "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\n",
        "proc/cpuinfo": "flags\t\t: fpu hypervisor tsc\n",
    })  # fmt: skip
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_HZ_250=y\nCONFIG_HZ=250\n"))
    found = facts.read_facts(tmp_path)
    assert (found.physical_cores, found.ranks_fit) == (1, 1)
    assert (found.governors, found.simultaneous_threads) == (("powersave",), True)
    assert (found.cache_bytes, found.cache_cores) == (32 << 20, 1)
    assert (found.slice_s, found.tick_hz, found.waiting_share) == (0.003, 250, 0.125)
    assert found.virtual is True


@pytest.mark.parametrize(
    ("physical", "limit", "fit"), [(None, None, 4), (2, None, 2), (2, 1.5, 1), (4, 0.5, 1)]
)
def test_ranks_fit_with_a_core_each(physical: int | None, limit: float | None, fit: int) -> None:
    found = facts.HostFacts("host", (0, 1, 2, 3), 4, physical_cores=physical, cpu_limit=limit)
    assert found.ranks_fit == fit


def test_shares_of_the_cores_that_were_asked_for(tmp_path: Path) -> None:
    use = facts.measure_use(CpuTicks(2, 2, 0, 10), CpuTicks(42, 52, 10, 110))
    assert use and (use.busy_share, use.stolen_share, use.programs_share) == (0.5, 0.1, 0.4)
    put(tmp_path, "proc/stat", "cpu1 22 10 10 48 0 5 5 10 0 0\n")
    assert procfs.read_cpu_ticks((1,), tmp_path) == CpuTicks(42, 52, 10, 110)


def test_programs_are_named_by_what_they_used_meanwhile(tmp_path: Path) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    put(tmp_path, "proc/7/stat", "7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 10 5 0 0 20 0 1 0 99 0 0")
    assert facts.read_processes(tmp_path) == {(7, 99): ("a (b) c", 15)}
    old = {(7, 99): ("make", 15), (9, 7): ("cc", 0)}
    new = {(7, 99): ("make", 15 + hertz), (9, 9): ("cc", hertz)}
    assert facts.find_busiest(old, new, elapsed_s=2.0) == (("make", 0.5, (7,)), ("cc", 0.5, (9,)))


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.relevant_variables():
        monkeypatch.delenv(name)


def test_variables_of_libraries_are_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {
        "CUDA_VISIBLE_DEVICES": "0,1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1", "TORCH_NCCL_BLOCKING_WAIT": "1", "UCX_TLS": "all",
    }  # fmt: skip
    for name, value in {**wanted, "NCCL_VERSION": "2.28.3-1", "SECRET": "1"}.items():
        monkeypatch.setenv(name, value)
    assert [*environment.relevant_variables().items()] == sorted(wanted.items())


def test_settings_in_nccls_own_files_are_read_the_users_before_the_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lay(tmp_path, {
        "etc/nccl.conf": "# of the cluster\nNCCL_IB_HCA=mlx5\nNCCL_DEBUG=WARN\nNCCL_X\n",
        "home/.nccl.conf": "NCCL_DEBUG=INFO\nOTHER=1\n", "named": "NCCL_ALGO=Ring",
    })  # fmt: skip
    monkeypatch.setattr(environment, "HOST", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = environment.nccl_settings()
    assert found == {"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"}
    assert environment.gather_facts()["nccl_conf"] == found
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "named"))
    named = {"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"}
    assert environment.nccl_settings() == named


def test_no_other_variable_is_ever_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "PATH", "HOME", "USER",
        "SSH_AUTH_SOCK", "MY_NCCL_SECRET", "nccl_secret", "HTTPS_PROXY", "TORCH_HOME",
        "SLURM_JWT", "CUDA_HOME",
    ):  # fmt: skip
        monkeypatch.setenv(name, "a secret")
    assert environment.relevant_variables() == {}
    assert "a secret" not in json.dumps(environment.gather_facts())


def test_all_facts_together_are_named_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "example")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    host = environment.host_facts()
    assert list(host) == [
        "host", "boot_id", "kernel", "machine", "processor", "cores", "governor", "python",
        "commbench",
    ]  # fmt: skip
    own = ("example", len(os.sched_getaffinity(0)), __version__)
    assert (host["host"], host["cores"], host["commbench"]) == own and host["processor"]
    found = environment.gather_facts()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    others = gpu_facts() | environment.torch_facts()
    assert found == host | others | {"variables": {"NCCL_DEBUG": "WARN"}}


LOOPBACK = NetworkInterface("lo", "127.0.0.1")
RANK_CONTEXT = RankContext(
    rank=1, world_size=2, local_rank=0, local_world_size=1, launcher="mpirun",
    init_method="tcp://127.0.0.1:29500",
)  # fmt: skip


def test_only_devices_that_are_up_have_a_speed(tmp_path: Path) -> None:
    for name, speed in (("eth0", "10000"), ("eth1", "-1"), ("veth0", "10000"), ("eth2", "")):
        put(tmp_path, f"sys/class/net/{name}/speed", f"{speed}\n")
        if name != "veth0":
            (tmp_path / f"sys/class/net/{name}/device").mkdir()
    assert environment.read_interface_speeds(tmp_path) == {"eth0": "10000 Mbit/s"}
    assert environment.read_interface_speeds(tmp_path / "nowhere") == {}


def interface_with(
    variables: dict[str, str], backend: str, context: RankContext = RANK_CONTEXT
) -> NetworkInterface:
    """What is found with these environment variables and no other ones of interfaces."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "MASTER_ADDR"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        return find_interface(backend, context)


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
    assert interface_with(variables, backend) == way


def test_every_interface_with_an_address_is_found_and_one_that_must_not_be_taken_is_not() -> None:
    known = [*environment.addresses()]
    assert LOOPBACK in known
    assert {way.interface for way in known} <= {name for _, name in socket.if_nameindex()}
    others = [way for way in known if way.interface != "lo"]
    found = interface_with({"NCCL_SOCKET_IFNAME": "^lo"}, "nccl")
    assert found == (others[0] if others else NetworkInterface())


def test_gloo_takes_the_address_of_this_hosts_name() -> None:
    found = interface_with({}, "gloo")
    known = {place[4][0] for place in socket.getaddrinfo(socket.gethostname(), None)}
    assert found.address in known | {"127.0.0.1"}
    assert found in environment.addresses()


def test_torchruns_variable_says_where_rank_0_is_and_on_one_host_only_a_variable_tells() -> None:
    torchrun = RANK_CONTEXT._replace(init_method="env://", launcher="torchrun")
    alone = RANK_CONTEXT._replace(local_world_size=2, init_method="file:/dev/shm/ranks")
    for context, backend, variables, way in (
        (torchrun, "nccl", {"MASTER_ADDR": "127.0.0.1"}, LOOPBACK),
        (torchrun, "nccl", {"MASTER_ADDR": "no.such.host.invalid"}, NetworkInterface()),
        (alone, "gloo", {}, NetworkInterface()),
        (alone, "gloo", {"GLOO_SOCKET_IFNAME": "lo"}, LOOPBACK),
    ):
        assert interface_with(variables, backend, context) == way

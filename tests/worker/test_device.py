"""The whole way of a run on an accelerator, on a stand-in for the device and with real gloo ranks;
and how errors of NCCL are read."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import SHORT_DELAYS, Commbench, free_port, start_command
from fake_device import Fake, FakeDevice, program_text
from fake_device import run_on_fake as run
from ras_server import RasServer
from synthetic_files import put
from synthetic_workload import TWO_RANKS

from commbench.analysis.nccl_log import SELECTIONS
from commbench.errors import reason_of
from commbench.results.files import write_workload
from commbench.worker.communicator import Communicator
from commbench.worker.device import find_part
from commbench.worker.measure import DeviceEventTimer, timed_loop
from commbench.worker.watchdog.rank_state import make_failure, open_state

SHM = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call "
    "(e.g. socket, malloc) or external library call failed or device error. \nLast error:\n"
    "Error while creating shared memory segment /dev/shm/nccl-LeXlEJ (size 9637888)"
)
"""As torch prints it where /dev/shm is too small."""


SEGMENT = "Error while creating shared memory segment /dev/shm/nccl-LeXlEJ (size 9637888)"


def memory_steps(log: Path, rank: int) -> list[tuple[str, ...]]:
    """What happened to the memory of a rank: the step, the kind of memory, its bytes."""
    return [tuple(line.split()) for line in Path(f"{log}.{rank}").read_text().splitlines()]


def nccl_variables(header: dict[str, Any], prefix: str = "NCCL_") -> dict[str, str]:
    found = header["environment"]["variables"].items()
    return {name: value for name, value in found if name.startswith(prefix)}


@pytest.mark.parametrize("spins", [True, False])
def test_a_duration_is_the_operations_and_not_the_hosts(spins: bool) -> None:
    device = FakeDevice(0, Fake(enqueue_s=2e-3, spins=spins))
    timer = DeviceEventTimer(Communicator(0, 1, device))
    timer.aligner = device.in_stream(lambda: None)
    timer._spin_s = spin_s = 50e-3
    ran: list[int] = []
    queued: list[int] = []
    call = noted(device.in_stream(noted(lambda: time.sleep(4e-3), ran)), queued)
    timed_loop(call, timer.align, *timer.prepare(8), 8, open_state(None, 0))
    durations = timer.collect()[0]
    assert min(timer.enqueue_ns) > 4e6  # the call and the event after it
    # Without the spin the device waits for the host between the first event and the call.
    # A busy host makes single iterations longer with the spin, and shorter without it.
    waited = sorted((d - own) / host for d, own, host in zip(durations, ran, queued, strict=True))
    assert (0 <= waited[0 if spins else 4] < 0.5) == spins
    in_time = (not spins or ns < 1e9 * spin_s for ns in timer._spans)  # by the host
    late = sum(a and b for a, b in zip(timer.late, in_time, strict=True))
    assert (late < 2) == spins


def noted(call: Callable[[], object], spent_ns: list[int]) -> Callable[[], None]:
    """A call that notes how long it takes each time."""

    def note() -> None:
        began = time.perf_counter_ns()
        call()
        spent_ns.append(time.perf_counter_ns() - began)

    return note


def test_a_device_that_cannot_spin_is_launch_bound_and_the_row_says_so(program: Commbench) -> None:
    fake = Fake(enqueue_s=3e-3, spins=False)
    ended = run(program, fake, "--sizes", "1K", "--iters", "10").good()
    assert sum(batch["late_iterations"] for batch in ended.batches(0)) > 5
    assert "launch_bound" in ended.rows()[0]["warnings"]


DIRECT = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
DETOUR = {
    "NCCL_HOSTID": "commbench-rank0", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
    "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo",
}  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "nccl", "shared", "variables"),
    [
        (None, (2, 29, 7), False, {}),  # each sees one GPU of its own
        (("", ""), (2, 29, 7), True, DETOUR),
        (("", ""), (2, 30, 3), True, DIRECT),
        (("0", "1"), (2, 29, 7), False, {}),  # AMD's partitions have one UUID, and RCCL knows them
        (("3", "3"), (2, 29, 7), True, DETOUR),
        # To NCCL, MIG devices look like their GPU: it refuses them, and sockets measure nothing.
        (("MIG-a", "MIG-b"), (2, 29, 7), True, DETOUR),
        (("MIG-a", "MIG-b"), (2, 30, 3), False, DIRECT),
        (("MIG-a", "MIG-a"), (2, 30, 3), True, DIRECT),
    ],
)
def test_ranks_share_a_gpu_and_its_memory_unless_each_has_a_part_of_its_own(
    program: Commbench, parts: tuple[str, str] | None, nccl: tuple[int, ...], shared: bool,
    variables: dict[str, str],
) -> None:  # fmt: skip
    gpus: Any = {"uuids": ("GPU-0", "GPU-0"), "parts": parts} if parts else {"visible": 1}
    fake = Fake(free_bytes=3 << 20, nccl=nccl, **gpus)
    ended = run(program, fake, "--sizes", "1K,2M", "--iters", "4", "--nproc-per-node", "2").good()
    header = ended.journal()[0]
    assert header["gpu_shared"] == shared
    assert nccl_variables(header) == variables
    # Each part has memory of its own.
    fits = "skipped" if parts and parts[0] == parts[1] else "ok"
    assert [row["status"] for row in ended.rows()] == ["ok", fits]


@pytest.mark.parametrize(
    ("variables", "index", "is_amd", "part"),
    [({}, 1, False, ""), ({"CUDA_VISIBLE_DEVICES": "2,3"}, 1, False, ""),
     ({"CUDA_VISIBLE_DEVICES": "GPU-8932"}, 0, False, ""),
     ({"CUDA_VISIBLE_DEVICES": "MIG-41b3"}, 0, False, "MIG-41b3"),
     ({"CUDA_VISIBLE_DEVICES": ""}, 0, False, ""), ({}, 3, True, "3"),
     ({"HIP_VISIBLE_DEVICES": "5", "CUDA_VISIBLE_DEVICES": "6"}, 0, True, "5"),
     ({"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "4, 7"}, 0, True, "7"),
     ({"ROCR_VISIBLE_DEVICES": "GPU-123"}, 0, True, "GPU-123"),
     ({"HIP_VISIBLE_DEVICES": "0,1"}, 2, True, "2")],
)  # fmt: skip
def test_the_part_of_a_gpu_follows_from_the_lists_of_visible_devices(
    variables: dict[str, str], index: int, is_amd: bool, part: str
) -> None:
    assert find_part(index, variables, is_amd) == part


RECORDED = """
from functools import partial
from pathlib import Path
from commbench.host.gpu_system import FaultWatch
from commbench.host.gpus import bind_near, read_place
from commbench.worker import communicator, introduction, rank
HOST = Path({host!r})
PORT = HOST / "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
class Rising(FaultWatch):
    def read_risen(self):
        if self._has_ports:
            PORT.write_text(str(int(PORT.read_text()) + 2))
        return super().read_risen()
rank.FaultWatch = partial(Rising, host=HOST)
introduction.read_place = partial(read_place, host=HOST)
communicator.bind_near = partial(bind_near, host=HOST)
"""
"""The ranks find this host; a link goes down twice while they measure."""
ADDRESS = "0000:1b:00.0"
CORES = sorted(os.sched_getaffinity(0))


def lay_host(host: Path) -> str:
    put(host, "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "1")
    put(host, "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "4")
    put(host, f"sys/bus/pci/devices/{ADDRESS}/numa_node", "1")
    put(host, f"sys/bus/pci/devices/{ADDRESS}/local_cpulist", str(CORES[-1]))
    put(host, "sys/devices/system/cpu/online", ",".join(map(str, CORES)))
    return RECORDED.format(host=str(host))


def test_faults_during_a_run_are_in_every_row(program: Commbench, tmp_path: Path) -> None:
    options = ("--sizes", "1K,4K", "--iters", "4", "--launches", "2")
    ended = run(program, Fake(), *options, change=lay_host(tmp_path / "host")).good()
    ends = [line for line in ended.journal() if line["kind"] == "end"]
    (host,) = ends[0]["risen"]
    assert [end["risen"] for end in ends] == [{host: {"mlx5_0:1 link_downed": 2}}] * 2
    found = f"{host} mlx5_0:1 link_downed rose by 4; the link went down: check the cable"
    assert found in " ".join(ended.out.split())
    assert all("faults" in row["warnings"].split() for row in ended.rows())


@pytest.mark.skipif(len(CORES) < 2, reason="there is only one core")
@pytest.mark.parametrize("is_ours", [True, False])
def test_ranks_are_bound_near_their_gpu_or_the_row_says_that_they_are_not(
    program: Commbench, tmp_path: Path, is_ours: bool
) -> None:
    change = lay_host(tmp_path / "host")
    if not is_ours:  # as where the user has bound them: one core is not allowed
        put(tmp_path / "host", "sys/devices/system/cpu/online", f"{CORES[-1]},4000")
    fake, options = Fake(address=ADDRESS), ("--sizes", "1K", "--iters", "4")
    ended = run(program, fake, *options, change=change).good()
    for rank in ended.journal()[0]["ranks"]:
        assert rank["cores"] == ([CORES[-1]] if is_ours else CORES)
        assert (rank["numa_node"], rank["near_cores"]) == (1, 1)
    assert ("far_from_gpu" in ended.rows()[0]["warnings"]) == (not is_ours)
    assert ("rank 0 and 1 more may run far from its GPU" in ended.out) == (not is_ours)


LIKE_NCCL = """
import threading, fake_device, torch.distributed as dist
from commbench.worker import communicator
leave, abort = dist.destroy_process_group, communicator._abort
def wait_for_graphs():
    if fake_device.GRAPHS:
        threading.Event().wait()
def destroy_process_group(*arguments):
    wait_for_graphs()
    leave(*arguments)
def abort_groups(comm):
    {release}abort(comm)
    wait_for_graphs()
dist.destroy_process_group, communicator._abort = destroy_process_group, abort_groups
"""
"""Ending a group waits for all graphs that are alive."""
WAITING, HANGING = (LIKE_NCCL.format(release=r) for r in ("", "threading.Event().wait(); "))
MADE = rf"could make no gloo communicator: .*{re.escape(SEGMENT)}"
FAILED = rf"DistBackendError: NCCL unhandled system error: {re.escape(SEGMENT)}"
CASE = "all_reduce float32 sum in_place"


@pytest.mark.parametrize(
    ("ranks", "fails_at", "launch", "change", "code", "error"),
    [((0, 1), 0, "eager", "", 3, f"rank 0 on .* {MADE}"),
     ((1,), 0, "eager", "", 3, f"rank 1 on .* {MADE}"),
     ((1,), 1, "eager", "", 4, f"rank 1 on .* while trying {CASE}.*{FAILED}"),
     ((1,), 1, "graph", "", 4, f"rank 1 on .* while trying {CASE}.*{FAILED}"),
     # The first operation is the trial, the second one the check.
     ((1,), 1, "graph", WAITING, 4, f"rank 1 on .* ended with exit code 1 while .*{FAILED}"),
     ((1,), 2, "graph", WAITING, 4, f"rank 1 on .* ended with exit code 1 while .*{FAILED}"),
     ((1,), 2, "eager", HANGING, 4, f"rank 1 on .* failed, last seen checking {CASE}.*{FAILED}")],
)  # fmt: skip
def test_a_fault_on_a_rank_ends_the_run_with_what_nccl_says(
    program: Commbench, ranks: tuple[int, ...], fails_at: int, launch: str, change: str, code: int,
    error: str,
) -> None:  # fmt: skip
    fake = Fake(failing_ranks=ranks, failure=SHM, fails_at=fails_at)
    options = ("--sizes", "1K", "--iters", "200", "--launch", launch, "--timeout", "2")
    ended = run(program, fake, *options, change=change, **SHORT_DELAYS)
    assert ended.code == code
    told, hint = ended.err.splitlines()[-2:]
    assert re.fullmatch(f"error: {error}", told), told
    assert ("commbench doctor" in hint) == (code == 3)


def test_what_nccl_calls_invalid_usage_is_unsupported(program: Commbench) -> None:
    usage = SHM.replace("unhandled system error", "invalid usage")
    fake = Fake(failing_ranks=(0, 1), failure=usage, fails_at=1)
    ended = run(program, fake, "--op", "all_reduce,all_gather", "--sizes", "1K", "--iters", "2")
    assert ended.code == 0, ended.err
    assert [row["status"] for row in ended.rows()] == ["unsupported", "ok"]
    assert ended.cases()[0]["reason"].startswith("NCCL invalid usage: Error while creating shared")


def test_a_first_call_that_connects_does_not_spoil_the_schedule(program: Commbench) -> None:
    # One size and one timing: its check makes the first call of that size.
    fake = Fake(first_call_s=0.1, fill_s=0.1)
    ended = run(program, fake, "--sizes", "1K", "--timing", "pipelined").good()
    batch = ended.batches(0)[0]
    assert batch["warmup"] > 1
    assert batch["calls"] > 4


def test_calls_in_a_graph_are_rows_of_their_own(program: Commbench) -> None:
    options = ("--sizes", "1K", "--iters", "8", "--launch", "both", "--timing", "pipelined")
    ended = run(program, Fake(enqueue_s=0.3e-3), *options, is_hot=False).good()
    found = [(row["buffers"], row["launch_mode"], row["wrong"]) for row in ended.rows()]
    assert found == [("rotating", "eager", "0"), ("rotating", "graph", "0")]
    # The host queues 2 or more calls by themselves, but a graph with one launch.
    eager, graph = (min(batch["enqueue_s"] for batch in ended.batches(case)) for case in (0, 1))
    assert graph < eager
    assert [case["case"]["launch_mode"] for case in ended.cases()] == ["eager", "graph"]


def test_an_overlap_is_measured_by_events_in_two_streams(program: Commbench) -> None:
    options = ("--sizes", "4M", "--overlap", "matmul:256x256x256", "--overlap-ratio", "6")
    ended = run(program, Fake(), *options, "--iters", "8").good()
    rows = {row["part"]: row for row in ended.rows()}
    assert [*rows] == ["communication", "computation", "both"]
    assert rows["computation"]["wrong"] == "" and rows["both"]["wrong"] == "0"
    both = rows["both"]
    # Both end within the time of both, and neither before it has begun. The communication does not
    # wait for the computation: that takes longer by much more than a thread waits for a core.
    ends = [float(both[f"{part}_at_once_us"]) for part in ("communication", "computation")]
    assert 0 < ends[0] < 0.9 * ends[1] < float(both["time_us"])
    assert both["work"].endswith("x matmul 256x256x256 bfloat16")
    assert "over alone" in ended.out


def test_a_step_is_replayed_with_its_gaps_in_order(program: Commbench, tmp_path: Path) -> None:
    write_workload(tmp_path / "step.json", TWO_RANKS)
    options = ("--workload", str(tmp_path / "step.json"), "--iters", "6")
    ended = run(program, Fake(), *options, is_hot=False).good()
    rows = {row["variant"]: row for row in ended.rows() if row["step"]}
    assert [*rows] == ["calls", "gaps"]
    # 2 ms before each reduction of rank 1, 1 ms before its message and 3 ms behind it.
    # On a busy host some steps without gaps take longer, but not each.
    assert float(rows["gaps"]["time_us"]) > 8000 > float(rows["calls"]["time_min_us"])
    checked = {row["wrong"] for row in ended.rows() if not row["step"]}
    assert checked == {"0"}


@pytest.mark.parametrize("how", ["--timing=isolated", "--timing=pipelined", "--launch=graph"])
def test_results_are_checked_once_more_after_the_timed_calls(program: Commbench, how: str) -> None:
    fake = Fake(corrupts_after=25)
    ended = run(program, fake, "--sizes", "1K", "--iters", "30", "--buffers", "hot", how)
    assert ended.code == 5
    (case,) = ended.cases()
    assert case["status"] == "wrong"
    assert case["wrong"] > 0 and ", in checked call " in case["reason"]
    assert sum(len(batch["samples_s"]) for batch in ended.batches(0)) == 30


def test_clocks_are_read_once_a_batch_and_throttling_is_warned_about(program: Commbench) -> None:
    fake = Fake(clocks_mhz=(1980, 1900), throttle_reasons=("power cap",))
    ended = run(program, fake, "--sizes", "1K", "--iters", "20", "--warmup", "0").good()
    first, second = ended.batches(0)
    assert (first["clock_mhz"], second["clock_mhz"]) == (1900, 1710)
    for batch in (first, second):
        assert (batch["power_w"], batch["temperature_c"]) == (101.0, 40)
        assert batch["throttle_reasons"] == ["power cap"]
    warnings = ended.rows()[0]["warnings"].split()
    assert warnings[0] == "gpu_throttled" and "gpu_clocks" not in warnings  # which it explains
    assert "a GPU was throttled (power cap)" in ended.out


def test_registered_memory_makes_rows_and_is_released(program: Commbench, tmp_path: Path) -> None:
    log = tmp_path / "memory"
    fake = Fake(memory_log=str(log), register_s=2e-3)
    options = ("--op", "gather,barrier", "--iters", "4", "--warmup", "0")
    ended = run(program, fake, "--sizes", "1K,64K", "--memory", "all", *options).good()
    rows = {(row["operation"], row["memory"], row["size_bytes"]): row for row in ended.rows()}
    kinds = ("default", "registered", "symmetric")
    assert set(rows) == {  # registering the largest size
        *(("gather", kind, size) for kind in kinds for size in ("1024", "65536")),
        ("barrier", "default", "0"),
        *(("register", kind, "65536") for kind in kinds[1:]),
    }  # fmt: skip
    for kind in kinds[1:]:
        row = rows["register", kind, "65536"]
        # The slowest rank, rank 1, needs 4 ms.
        assert 4000 <= float(row["time_us"]) < 40_000
        assert (row["algbw_GBps"], row["busbw_GBps"], row["wrong"]) == ("", "", "")
        assert row["iterations"] == "4"
    for rank in range(2):
        steps = memory_steps(log, rank)
        names = [step for step, *_ in steps]
        assert names.count("allocated") == names.count("registered") == names.count("released")
        made, given = (sorted(memory for step, *memory in steps if step == name)
                       for name in ("allocated", "released"))  # fmt: skip
        assert made == given
        # Checked, timed and checked again: every call had memory of its case's kind.
        assert {kind for step, kind, _ in steps if step == "used"} == {"pool", "windows"}
    assert "register uint8 registered" in ended.out


def test_operations_of_symmetric_memory_are_checked(program: Commbench, tmp_path: Path) -> None:
    log = tmp_path / "memory"
    options = ("--sizes", "8,100040", "--iters", "2", "--reduce-op", "sum,max")
    ended = run(program, Fake(memory_log=str(log)), "--op", "all_reduce,symm_mem", *options).good()
    rows = [row for row in ended.rows() if row["operation"] != "all_reduce"]
    assert {row["memory"] for row in rows} == {"symm_mem"}
    found = {(r["operation"], r["reduce_op"], r["status"]): r["size_bytes"] for r in rows}
    assert found == {  # blocks of a multiple of 16 bytes
        **{(f"{name}_all_reduce", "sum", "ok"): "100032"
           for name in ("one_shot", "two_shot", "multimem")},
        ("multimem_all_gather", "", "ok"): "100032",
        **{(f"{name}_all_reduce", reduce_op, "skipped"): "8"
           for name in ("one_shot", "two_shot", "multimem") for reduce_op in ("sum", "max")},
        ("multimem_all_gather", "", "skipped"): "8",
        **{(f"{name}_all_reduce", "max", "unsupported"): "100032"
           for name in ("one_shot", "two_shot", "multimem")},
    }  # fmt: skip
    assert {row["wrong"] for row in rows if row["status"] == "ok"} == {"0"}
    reasons = {c["reason"] for c in ended.cases() if c["status"] == "unsupported"}
    assert reasons == {"only sum is supported for now"}
    for rank in range(2):
        steps = memory_steps(log, rank)
        assert {kind for _, kind, _ in steps} == {"symm_mem"}
        names = [step for step, *_ in steps]
        assert names.count("allocated") == names.count("released") > 1


def test_memory_is_registered_with_its_groups(program: Commbench, tmp_path: Path) -> None:
    log = tmp_path / "memory"
    fake = Fake(uuids=tuple(f"GPU-{n}" for n in range(4)), memory_log=str(log))
    options = ("--sizes", "1K", "--iters", "2", "--warmup", "0", "--nproc-per-node", "4")
    groups = ("--group-size", "2", "--concurrency", "both", "--memory", "symmetric")
    ended = run(program, fake, *options, *groups).good()
    assert {row["status"] for row in ended.rows()} == {"ok"}
    groups = {(row["operation"], row["group"] != "") for row in ended.rows()}
    assert groups == {("all_reduce", True), ("register", False)}
    for rank in range(4):
        names = [step for step, *_ in memory_steps(log, rank)]
        assert names.count("allocated") == names.count("registered") == names.count("released")
        assert "used" in names


def test_memory_that_cannot_be_registered_is_unsupported(program: Commbench) -> None:
    options = ("--sizes", "1K", "--iters", "2", "--warmup", "0", "--memory", "default,symmetric")
    ended = run(program, Fake(registers=False), *options).good()
    found = {(c["case"]["memory"], c["case"]["operation"]): c for c in ended.cases()}
    assert found.pop(("default", "all_reduce"))["status"] == "ok"
    assert set(found) == {("symmetric", "all_reduce"), ("symmetric", "register")}
    assert {case["reason"] for case in found.values()} == {"this backend registers no windows"}


NCCL_LOG = (
    "node1:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
    "node1:7:9 [0] NCCL INFO Using network IB\n"
    "node1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
)


def test_what_nccl_logs_of_its_communicator_is_recorded(program: Commbench) -> None:
    ended = run(program, Fake(nccl_log=NCCL_LOG), "--sizes", "1K", "--iters", "4").good()
    environment = ended.journal()[0]["environment"]
    assert environment["nccl_log"] == {
        "version": "2.28.9+cuda12.9", "network": "IB", "transports": {"P2P/CUMEM": 1}
    }  # fmt: skip
    assert environment["nccl_init_mode"] == "lazy"
    assert not nccl_variables(ended.journal()[0], "NCCL_DEBUG")


TUNING = (
    "node1:7:9 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n"
    "node1:7:9 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n"
    "node1:7:9 [0] NCCL INFO AllReduce: 65536 Bytes -> Algo RING proto LL128 "
    "channel{Lo..Hi}={0..7}\n"
)
BY_CASE = (
    "[direct] node1:7:9 [0] NCCL INFO AllReduce: 65536 Bytes -> Algo RING proto LL128 "
    "channel{Lo..Hi}={0..7}\n"
    "[windows] node1:7:9 [0] NCCL INFO AllReduce [Symmetric]: 65536 Bytes -> Kernel "
    "AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1\n"
    "[async] node1:7:9 [0] NCCL INFO AllReduce: 65536 Bytes -> Algo NVLS proto SIMPLE "
    "channel{Lo..Hi}={0..15}\n"
    "[separate] node1:7:9 [0] NCCL INFO AllReduce: 16384 Bytes -> Algo TREE proto LL "
    "channel{Lo..Hi}={0..1}\n"
)


def test_what_nccl_selects_is_learned_for_each_form_but_in_graphs(program: Commbench) -> None:
    fake = Fake(nccl_tuning=BY_CASE)
    options = ("--sizes", "64K", "--iters", "1", "--warmup", "0", "--launch", "both")
    forms = ("--tensors", "1,4", "--form", "async,separate", "--timing", "both")
    ended = run(program, fake, *options, *forms).good()
    found = {
        (r["form"], r["tensors"], r["launch_mode"]): (r["nccl_algorithm"], r["nccl_channels"])
        for r in ended.rows()
    }
    assert found == {
        ("direct", "1", "eager"): ("RING", "8"), ("flat", "4", "eager"): ("RING", "8"),
        ("async", "1", "eager"): ("NVLS", "16"), ("async", "4", "eager"): ("", ""),
        ("separate", "4", "eager"): ("TREE", "2"),
        **{(form, tensors, "graph"): ("", "") for form, tensors in (
            ("direct", "1"), ("flat", "4"), ("async", "1"), ("async", "4"), ("separate", "4"))},
    }  # fmt: skip
    assert len(ended.rows()) == 2 * len(found)


def test_symmetric_memory_that_nccl_does_not_use_is_warned_about(program: Commbench) -> None:
    fake = Fake(nccl_tuning=BY_CASE)
    options = ("--iters", "2", "--warmup", "0", "--memory", "default,registered,symmetric")
    ended = run(program, fake, "--sizes", "64K,128K", *options).good()
    rows = {
        (r["memory"], r["size_bytes"]): (r["nccl_algorithm"], "not_symmetric" in r["warnings"])
        for r in ended.rows()
        if r["operation"] == "all_reduce"
    }
    assert rows == {
        ("default", "65536"): ("RING", False), ("default", "131072"): ("", False),
        ("registered", "65536"): ("RING", False), ("registered", "131072"): ("", False),
        ("symmetric", "65536"): ("RING and SYMMETRIC", True),
        ("symmetric", "131072"): ("", True),
    }  # fmt: skip


def test_ranks_of_another_launcher_learn_what_nccl_selects(tmp_path: Path) -> None:
    port, fake = str(free_port()), Fake(nccl_tuning=TUNING + BY_CASE)
    text = program_text(fake) + "\nfrom commbench.cli.main import main\nmain()\n"
    options = ("--backend", "gloo", "--device", "fake", "--no-plots", "--buffers", "hot",
               "--sizes", "1K,64K", "--iters", "4", "--launch", "both", "--form", "async",
               "--output", "run")  # fmt: skip
    ranks = [
        start_command(
            tmp_path, "run", *options, program=text, RANK=str(rank),
            WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank in range(2)
    ]  # fmt: skip
    first, second = (process.finish() for process in ranks)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    header, *lines = map(json.loads, (tmp_path / "run/run.jsonl").read_text().splitlines())
    assert header["launcher"] == "torchrun"
    # The log was on in these calls alone: neither in a trial of 4 bytes nor while calls were timed.
    assert header["environment"][SELECTIONS] == {
        "all_reduce float32 sum in_place 1024": [["TREE", "LL", "1"]],
        "all_reduce float32 sum in_place 65536": [["RING", "LL128", "8"]],
        "all_reduce float32 sum in_place async 1024": [["TREE", "LL", "1"]],
        "all_reduce float32 sum in_place async 65536": [
            ["RING", "LL128", "8"], ["NVLS", "SIMPLE", "16"],
        ],
    }  # fmt: skip
    assert not nccl_variables(header, "NCCL_DEBUG")
    assert sum(len(line["samples_s"]) for line in lines if line["kind"] == "batch") == 32
    rows = (tmp_path / "run/results.csv").read_text().splitlines()
    assert [",RING and NVLS,LL128 and SIMPLE,8 and 16," in row for row in rows].count(True) == 1
    assert [",RING,LL128,8," in row for row in rows].count(True) == 1


@pytest.mark.parametrize(
    ("options", "variables"),
    [(("--no-nccl-log",), {}), ((), {"NCCL_DEBUG": "INFO"}), ((), {"NCCL_DEBUG_SUBSYS": "COLL"})],
)
def test_nccls_log_is_left_alone_where_that_is_asked_for(
    program: Commbench, options: tuple[str, ...], variables: dict[str, str]
) -> None:
    fake = Fake(nccl_log=NCCL_LOG)
    ended = run(program, fake, "--sizes", "1K", "--iters", "4", *options, **variables).good()
    environment = ended.journal()[0]["environment"]
    assert "nccl_log" not in environment
    assert nccl_variables(ended.journal()[0], "NCCL_DEBUG") == variables


@pytest.mark.parametrize("resets", [True, False])
def test_warnings_that_are_wanted_are_printed_too(program: Commbench, resets: bool) -> None:
    warning = "node1:7:9 [0] transport/nvls.cc:342 NCCL WARN Failed to bind NVLink SHARP memory"
    fake = Fake(nccl_log=f"{NCCL_LOG}\n{warning}\n", nccl_tuning=TUNING, resets=resets)
    ended = run(program, fake, "--sizes", "1K", "--iters", "4", NCCL_DEBUG="WARN").good()
    environment = ended.journal()[0]["environment"]
    # Without a reset, NCCL could not be told to print its warnings again.
    assert ("nccl_log" in environment) == (warning in ended.err) == resets
    assert ended.rows()[0]["nccl_algorithm"] == ("TREE" if resets else "")
    assert nccl_variables(ended.journal()[0], "NCCL_DEBUG") == {"NCCL_DEBUG": "WARN"}


def test_a_hang_is_seen_soon_and_nccl_is_asked_about_it(program: Commbench) -> None:
    # At 10 MB/s the bytes of these queued iterations alone would take minutes.
    report = "NCCL version 2.28.9\nWarnings\n  Rank 1 launched fewer\n"
    fake, address = Fake(hangs_after=30, ras_report=report), f"127.0.0.1:{free_port()}"
    asked = ("--sizes", "16M", "--iters", "1000", "--timeout", "1")
    began = time.monotonic()
    ended = run(program, fake, *asked, NCCL_RAS_ADDR=address, **SHORT_DELAYS)
    assert ended.code == 4
    assert time.monotonic() - began < 30
    assert "measuring all_reduce" in ended.err
    lines = [line.strip() for line in ended.err.splitlines()]
    at = lines.index(f"NCCL's RAS at {address} says:")
    said = ["NCCL version 2.28.9", "Warnings", "Rank 1 launched fewer"]
    assert lines[at + 1 : at + 4] == said
    assert lines[-2].startswith("error: ")


def test_the_ras_of_another_job_is_not_asked_about_a_hang(program: Commbench) -> None:
    asked = ("--sizes", "1K", "--iters", "1000", "--timeout", "1")
    with RasServer(b"NCCL version 2.28.9\n") as ras:  # not in a rank
        told = SHORT_DELAYS | {"NCCL_RAS_ADDR": ras.address}
        ended = run(program, Fake(hangs_after=30), *asked, **told)
    assert ended.code == 4
    assert "RAS" not in ended.err
    assert ras.requests == []


DUPLICATE = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 6000"
GONE = "remote process exited or there was a network error"
COMPLETION = "NET/IB: Got completion from peer 10.0.0.7<41234> with status=12"
IN_NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d"


@pytest.mark.parametrize(
    ("error", "reason", "is_secondary"),
    [
        (SHM, f"NCCL unhandled system error: {SEGMENT}", False),
        (f"{IN_NCCL}/NCCLUtils.cpp:77, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL "
         "version 2.26.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
         f"Last error:\n{DUPLICATE}", f"NCCL invalid usage: {DUPLICATE}", False),
        (f"{IN_NCCL}/ProcessGroupNCCL.cpp:1970, {GONE}, NCCL version 2.20.5\nncclRemoteError: A "
         "call failed possibly due to a network error or a remote process exiting prematurely."
         f"\nLast error:\n{COMPLETION}", f"NCCL {GONE}: {COMPLETION}", True),
        (SHM.partition("\nncclSystemError")[0], SHM.partition("\nncclSystemError")[0], True),
        ("first\nsecond", "first", False),
    ],
)  # fmt: skip
def test_what_nccl_itself_says_is_kept(error: str, reason: str, is_secondary: bool) -> None:
    assert reason_of(RuntimeError(error)) == reason
    failure = make_failure(RuntimeError(error))
    assert (failure.text, failure.is_secondary) == (f"RuntimeError: {reason}", is_secondary)


def test_first_calls_on_a_device_end_when_it_has_done_them(program: Commbench) -> None:
    fake = Fake(enqueue_s=0.0)
    options = ("--op", "new_group,all_reduce", "--form", "first", "--sizes", "8M")
    ended = run(program, fake, *options, "--iters", "3", "--warmup", "0").good()
    found = {(row["operation"], row["form"], row["size_bytes"]): row for row in ended.rows()}
    assert {row["status"] for row in found.values()} == {"ok"}
    # The host has queued it after a few microseconds; gloo needs milliseconds.
    assert float(found["all_reduce", "first", str(8 << 20)]["time_min_us"]) > 500
    # The device takes a MiB for each group, of which a new group and its calls make one.
    assert {(op, form): row["group_bytes"] for (op, form, _), row in found.items()} == {
        ("new_group", "direct"): str(1 << 20),
        ("all_reduce", "first"): str(1 << 20),
        ("all_reduce", "direct"): "",
    }

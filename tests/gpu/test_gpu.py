"""NCCL on real GPUs, through the real entry point; with one GPU its ranks share it.

Run by scripts/gpu_check, with whatever torch the machine has. The tests of that script run some of
these on a stand-in for a GPU.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import commbench
from commbench.analysis.nccl_log import parse_communicator, parse_selections
from commbench.results.schema import RankInfo

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
ON_DEVICE = (
    "--backend", os.environ.get("GPU_CHECK_BACKEND", "nccl"), "--device", DEVICE, "--no-plots",
    "--launches", "1",
)  # fmt: skip


def run(
    folder: Path, *options: str, ranks: int = 2, logs: bool = False, code: int | None = 0,
    **variables: str,
) -> tuple[list[dict[str, str]], str]:  # fmt: skip
    """The rows of a run and what it said. `logs`: NCCL logs, also in ranks of its own. `code`: how
    it must end, 0 or with wrong results if None."""
    output = folder / "run"
    command = [
        sys.executable, "-m", "commbench", "run", *ON_DEVICE, "--verbose", "--output", str(output),
        f"--nproc-per-node={ranks}", *([] if logs else ["--no-nccl-log"]),
        *(["--buffers", "hot"] if ranks > 1 and "--workload" not in options else []), *options,
    ]  # fmt: skip
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | variables
    )
    assert ended.returncode in ((0, 5) if code is None else (code,)), ended.stderr
    with (output / "results.csv").open() as file:
        return list(csv.DictReader(file)), ended.stderr


def cases_of(folder: Path) -> list[dict]:
    return [line for line in journal(folder) if line["kind"] == "case"]


def right_or_refused(folder: Path) -> list[dict]:
    """The cases of a run, of which each is right or has a reason why it cannot be."""
    cases = cases_of(folder)
    assert {case["status"] for case in cases} <= {"ok", "unsupported"}
    assert all(case["reason"] for case in cases if case["status"] == "unsupported")
    return cases


def sweep(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A sweep of two ranks, into the folder `swept`."""
    command = [
        sys.executable, "-m", "commbench", "sweep", "--rounds", "1", "--buffers", "hot",
        "--nproc-per-node", "2", "--no-plots", "--output", "swept", *options,
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended


def gpus() -> int:
    program = "import sys; from commbench.worker.device import DEVICES as d"
    program += "; print(d[sys.argv[1]].number())"
    return int(subprocess.check_output([sys.executable, "-c", program, DEVICE], text=True))


@pytest.mark.parametrize(
    "options",
    [
        ["--op", "all"],
        ["--op", "p2p", "--p2p-call", "all", "--pairs", "halves,1-0"],
        ["--op", "ping_pong,stream", "--p2p-call", "batch", "--pairs", "all", "--window", "1"],
        ["--op", "uneven", "--imbalance", "uniform,zipf:1,w5,hot:4:3"],
    ],
    ids=lambda options: options[1],
)
def test_every_operation_gives_right_results_and_a_time(tmp_path: Path, options: list[str]) -> None:
    rows, _ = run(tmp_path, *options, "--sizes", "8,100000", "--iters", "3")
    ok = [row for row in rows if row["status"] == "ok"]
    assert {row["operation"] for row in ok} == {row["operation"] for row in rows}
    assert all(float(row["time_us"]) > 0 for row in ok)
    assert all(row["wrong"] in ("0", "") for row in ok)
    assert {row["status"] for row in rows} <= {"ok", "skipped"}


def test_what_nccl_logs_of_its_communicator_is_recorded(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "--op", "all_reduce", "--sizes", "1K,1M", "--iters", "2", logs=True)
    environment = journal(tmp_path)[0]["environment"]
    assert environment["nccl_log"]["version"][0].isdigit()
    assert sum(environment["nccl_log"]["transports"].values()) > 0
    assert "NCCL_DEBUG" not in environment["variables"]
    assert environment["gpus"] and environment["gpu_driver"]
    if nccl_version(environment) >= (2, 24):
        assert {row["nccl_algorithm"] for row in rows} <= {"RING", "TREE", "NVLS", "NVLS_TREE"}
        assert {row["nccl_protocol"] for row in rows} <= {"LL", "LL128", "SIMPLE"}
        assert all(int(row["nccl_channels"]) > 0 for row in rows)


def nccl_version(environment: dict) -> tuple[int, ...]:
    return tuple(int(part) for part in environment["nccl"].split(".")[:2])


def test_the_log_of_nccl_has_the_lines_that_are_read(tmp_path: Path) -> None:
    run(
        tmp_path, "--op", "all_reduce,all_gather,broadcast", "--sizes", "1K,1M", "--iters", "1",
        NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,TUNING",
        NCCL_DEBUG_FILE=str(tmp_path / "nccl.%p.log"),
    )  # fmt: skip
    text = "".join(path.read_text(errors="replace") for path in tmp_path.glob("nccl.*.log"))
    (tmp_path / "nccl-log.txt").write_text(text)  # evidence, and lines for tests without a GPU
    found = parse_communicator(text.splitlines())
    assert {"version", "network", "transports", "init_s"} <= set(found)
    if nccl_version(journal(tmp_path)[0]["environment"]) >= (2, 24):
        functions = {each.function for each in parse_selections(text.splitlines())}
        assert functions == {"AllReduce", "AllGather", "Broadcast"}


def test_right_results_come_from_every_piece_of_memory_and_from_graphs(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path, "--op", "all_gather", "--sizes", "1K,1M,64M", "--iters", "40",
        "--buffers", "both", "--launch", "both", "--timing", "both", ranks=1,
    )  # fmt: skip
    assert len(rows) == 24
    assert {(row["status"], row["wrong"]) for row in rows} == {("ok", "0")}


def test_right_results_come_from_registered_memory_or_it_says_why_not(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path, "--op", "all_gather", "--sizes", "1K,1M,16M", "--iters", "10",
        "--memory", "all", "--launch", "both", ranks=1,
    )  # fmt: skip
    right_or_refused(tmp_path)
    of_kind = {row["memory"]: row["status"] for row in rows}
    assert of_kind["default"] == "ok"
    registering = [row for row in rows if row["operation"] == "register"]
    assert {row["memory"] for row in registering} == {"registered", "symmetric"}
    for row in registering:
        assert (row["size_bytes"], row["busbw_GBps"]) == (str(16 << 20), "")
        assert row["status"] == of_kind[row["memory"]]
        assert row["status"] != "ok" or float(row["time_us"]) > 0


def test_right_results_come_from_symmetric_memory_of_torch_or_it_says_why_not(
    tmp_path: Path,
) -> None:
    run(
        tmp_path, "--op", "all_reduce,symm_mem", "--sizes", "1K,1M", "--iters", "10",
        "--dtype", "float32,bfloat16", "--timeout", "30", ranks=2 if gpus() > 1 else 1,
    )  # fmt: skip
    cases = right_or_refused(tmp_path)
    assert {case["wrong"] for case in cases if case["status"] == "ok"} == {0}


def test_right_results_come_with_options_of_the_communicator(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path, "--op", "all_reduce", "--sizes", "64M", "--iters", "3",
        "--nccl-option", "max_ctas=1", "--nccl-option", "min_ctas=1", logs=True,
    )  # fmt: skip
    header = journal(tmp_path)[0]
    assert header["plan"]["nccl_options"] == ["max_ctas=1", "min_ctas=1"]
    assert [row["status"] for row in rows] == ["ok"]
    if nccl_version(header["environment"]) >= (2, 24):
        assert {row["nccl_channels"] for row in rows} == {"1"}


def test_a_sweep_of_backends_has_gloo_and_nccl_on_gpus(tmp_path: Path) -> None:
    options = ("--op", "all_reduce", "--sizes", "4K,1M", "--iters", "6")
    sweep(tmp_path, "--vary", "backend=nccl,gloo", *options)
    for backend in ("nccl", "gloo"):
        with (tmp_path / f"swept/backend={backend}/round-1/results.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert {(row["backend"], row["device"], row["status"]) for row in rows} == {
            (backend, "cuda", "ok")
        }


def test_right_results_of_ranks_that_share_a_gpu_come_from_graphs_or_say_why_not(
    tmp_path: Path,
) -> None:
    run(
        tmp_path, "--op", "all_reduce,send_recv", "--sizes", "1K,1M", "--iters", "20",
        "--launch", "both", "--timeout", "30",
    )  # fmt: skip
    cases = right_or_refused(tmp_path)
    eager = [case for case in cases if case["case"]["launch_mode"] == "eager"]
    assert {case["status"] for case in eager} == {"ok"}


def test_every_dtype_and_reduce_op_is_right_or_refused_with_a_reason(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path, "--op", "all_reduce,reduce_scatter,all_gather", "--sizes", "1K",
        "--dtype", "all", "--reduce-op", "all", "--placement", "both", "--iters", "1",
        code=None,
    )  # fmt: skip
    # Torch gives NCCL a float as the factor of bfloat16, of which NCCL reads the lower half: 0
    # (unpackPreMulSum<float, ncclBfloat16> in NCCLUtils or ProcessGroupNCCL, seen in 2.11).
    known = {("bfloat16", "premul_sum")}
    wrong = {(row["dtype"], row["reduce_op"]) for row in rows if row["status"] == "wrong"}
    assert wrong <= known
    assert {row["status"] for row in rows} <= {"ok", "unsupported", "wrong"}
    measured = {row["dtype"] for row in rows if row["status"] == "ok"}
    assert {"float32", "float64", "float16", "bfloat16", "int32", "int64"} <= measured
    fp8 = [row for row in rows if row["dtype"] == "float8_e4m3fn" and not row["reduce_op"]]
    program = "import torch; print(*torch.cuda.get_device_capability())"
    capability = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    if int(capability[0]) >= 9:
        assert {row["status"] for row in fp8} == {"ok"}


def test_ranks_that_start_on_one_gpu_are_marked(tmp_path: Path) -> None:
    rows, said = run(tmp_path, "--op", "all_reduce", "--sizes", "1K", ranks=gpus() + 1)
    assert {row["gpu_shared"] for row in rows} == {"1"}
    assert "ranks share a GPU" in said


def test_one_rank_starts_alone_and_is_forked(tmp_path: Path) -> None:
    rows, said = run(tmp_path, "--op", "all_reduce,broadcast", "--sizes", "1K-1M:x4", ranks=1)
    assert {row["gpu_shared"] for row in rows} == {"0"}
    assert all(float(row["time_us"]) > 0 for row in rows)
    assert "ranks are forked" in said


def test_ranks_that_torchrun_starts_are_measured(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "--op", "all_reduce", "--sizes", "1K,1M", "--launcher", "torchrun")
    assert [row["status"] for row in rows] == ["ok", "ok"]


def test_a_sweep_of_algorithms_learns_what_nccl_chose(tmp_path: Path) -> None:
    ended = sweep(
        tmp_path, "--env", "NCCL_ALGO=RING,TREE", "--op", "all_reduce,broadcast", "--sizes",
        "4K,1M", "--iters", "3", "--backend", "nccl", "--export", "nccl-tuner",
    )  # fmt: skip
    assert "NCCL selected" in ended.stdout
    lines = (tmp_path / "swept" / "nccl-tuner.csv").read_text().splitlines()
    assert any(line.startswith("allreduce,0,") for line in lines)


FORKABLE = """
from commbench.launch.devices import import_torch
import_torch()
"""
"""Imports torch in a way that lets ranks be forked: ranks that are spawned lack what a program
changes."""


def start(
    folder: Path, *options: str, program: str = "", **variables: str
) -> "subprocess.Popen[str]":
    """A run whose output goes to pipes. `program` is run before commbench, and its ranks are forked
    from it."""
    text = FORKABLE + program + "\nfrom commbench.cli.main import main\nmain()\n"
    command = [
        sys.executable, "-c", text, "run", *ON_DEVICE, "--no-nccl-log",
        "--output", str(folder / "run"), *options,
    ]  # fmt: skip
    return subprocess.Popen(
        command, env=os.environ | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def end(
    folder: Path, *options: str, ranks: int = 1, code: int | tuple[int, ...] = 0,
    within_s: float = 100, **more: str,
) -> str:  # fmt: skip
    """What such a run printed that must end so."""
    process = start(folder, "--nproc-per-node", str(ranks), *options, **more)
    _, err = process.communicate(timeout=within_s)
    assert process.returncode in (code if isinstance(code, tuple) else (code,)), err
    return err


def journal(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "run" / "run.jsonl").read_text().splitlines()]


def ranks_of(folder: Path) -> tuple[RankInfo, ...]:
    run = commbench.load(folder / "run")
    return run.header.ranks


FLIPS = """
from commbench.worker import coordinator
make_call = coordinator.make_call
def flip(buffers):
    call = make_call(buffers)
    bits = buffers.receive.view(__import__("torch").uint8)
    index = {index}
    def run():
        call()
        bits[index] ^= 1
    return run
coordinator.make_call = flip
"""


def test_a_wrong_bit_is_found_in_every_dtype(tmp_path: Path) -> None:
    end(
        tmp_path, "--op", "all_gather", "--dtype", "all", "--sizes", "1K", "--iters", "1",
        "--buffers", "hot", program=FLIPS.format(index=-1), code=5,
    )  # fmt: skip
    cases = cases_of(tmp_path)
    assert {case["status"] for case in cases} <= {"wrong", "unsupported"}
    found = {case["case"]["dtype"]: case["wrong"] for case in cases if case["status"] == "wrong"}
    assert {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"} <= set(found)
    assert set(found.values()) == {1}


def test_a_wrong_element_is_found_beyond_element_two_to_the_32(tmp_path: Path) -> None:
    index = (1 << 32) + 5
    options = ("--op", "all_gather", "--dtype", "uint8", "--sizes", "5G", "--iters", "1")
    end(tmp_path, *options, program=FLIPS.format(index=index), code=5)
    (case,) = cases_of(tmp_path)
    assert (case["wrong"], case["first_wrong"]["element"]) == (1, index)


def test_ranks_start_where_the_gpu_is_named_by_its_uuid(tmp_path: Path) -> None:
    program = "import torch; print(torch.cuda.get_device_properties(0).uuid)"
    uuid = subprocess.check_output([sys.executable, "-c", program], text=True).strip()
    end(tmp_path, "--sizes", "1M", CUDA_VISIBLE_DEVICES=f"GPU-{uuid}")
    assert ranks_of(tmp_path)[0].device_uuid == uuid


def test_ranks_start_by_spawn_where_the_driver_is_initialised(tmp_path: Path) -> None:
    program = "import torch; torch.cuda.init()"
    assert "ranks are spawned" in end(tmp_path, "--sizes", "1M", "--verbose", program=program)


SKIPS = """
import os
from commbench.worker import coordinator
make_call = coordinator.make_call
def skip(buffers):
    call, made = make_call(buffers), []
    def run():
        made.append(1)
        if len(made) != 30 or os.environ["RANK"] != "1":
            call()
    return run
coordinator.make_call = skip
"""


def test_a_fault_of_a_rank_that_skips_a_call_ends_the_run_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    options = ("--sizes", "1M", "--iters", "400", "--buffers", "hot", "--timeout", "20")
    # It hangs, or a later result is wrong.
    err = end(tmp_path, *options, ranks=gpus() + 1, program=SKIPS, code=(4, 5), within_s=90)
    assert "rank" in err.splitlines()[-2]
    assert time.monotonic() - began < 80
    pids = [rank.pid for rank in ranks_of(tmp_path)]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_fault_of_the_network_interface_is_told_by_nccl(tmp_path: Path) -> None:
    options = ("--sizes", "1M", "--timeout", "20")
    err = end(tmp_path, *options, ranks=gpus() + 1, code=3, NCCL_SOCKET_IFNAME="nope")
    assert "could make no nccl communicator" in " ".join(err.split())
    assert "interface" in err  # what NCCL says


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["SIGKILL", "SIGSTOP"])
def test_a_fault_of_one_rank_names_it_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start(
        tmp_path, "--sizes", "1M", "--budget", "60", "--precision", "0.01%", "--timeout", "20",
        "--buffers", "hot", "--nproc-per-node", str(gpus() + 1),
    )  # fmt: skip
    path, deadline = tmp_path / "run" / "run.jsonl", time.monotonic() + 60
    while not (path.exists() and path.read_text().count("\n") > 1):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    pids = [rank.pid for rank in ranks_of(tmp_path)]
    os.kill(pids[1], number)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 4, err
    assert "rank 1 on " in err
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


ERRS = """
import itertools
from commbench.worker import coordinator
time_batch, calls = coordinator.measure.time_batch, itertools.count(1)
def err(*arguments):
    if next(calls) == 3:
        raise RuntimeError("an error that was planted")
    return time_batch(*arguments)
coordinator.measure.time_batch = err
"""


def test_an_error_under_graphs_is_told_within_seconds(tmp_path: Path) -> None:
    began = time.monotonic()
    options = ("--op", "all_gather", "--sizes", "1K,4K,16K,64K", "--iters", "20")
    err = end(tmp_path, *options, "--launch", "graph", program=ERRS, code=4, within_s=35)
    assert "an error that was planted" in err
    assert time.monotonic() - began < 30


SYNCHRONISES = """
import torch
from commbench.worker import feasibility
make_call = feasibility.make_call
def make(buffers):
    call = make_call(buffers)
    if buffers.case.operation != "broadcast" or not torch.cuda.is_available():
        return call
    return lambda: (call(), torch.cuda.synchronize())
feasibility.make_call = make
"""


def test_what_cannot_be_captured_is_refused_and_the_next_case_is_right(tmp_path: Path) -> None:
    end(
        tmp_path, "--op", "barrier,broadcast,all_gather", "--sizes", "1M", "--iters", "20",
        "--launch", "graph", "--order", "ascending", program=SYNCHRONISES, within_s=35,
    )  # fmt: skip
    cases = cases_of(tmp_path)
    found = {case["case"]["operation"]: (case["status"], case["wrong"]) for case in cases}
    assert found["all_gather"] == ("ok", 0)
    assert found["barrier"][0] == "unsupported"
    assert found["broadcast"][0] == ("unsupported" if DEVICE == "cuda" else "ok")


def test_timing_of_a_communication_and_a_computation_at_once(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path, "--op", "all_gather", "--sizes", "256M", "--overlap", "matmul,memory",
        "--iters", "20", ranks=1,
    )  # fmt: skip
    found = {(row["overlap"], row["part"]): row for row in rows}
    assert {row["status"] for row in rows} == {"ok"}
    program = "import torch; print(torch.cuda.get_device_properties(0).multi_processor_count)"
    units = int(subprocess.check_output([sys.executable, "-c", program], text=True))
    for overlap in ("matmul:exact", "matmul:ragged", "memory:1G"):
        alone = {p: float(found[overlap, p]["time_us"]) for p in ("communication", "computation")}
        both = found[overlap, "both"]
        assert both["wrong"] == "0"
        ends = [float(both[f"{part}_at_once_us"]) for part in alone]
        assert all(end > 0.8 * time for end, time in zip(ends, alone.values(), strict=True))
        assert float(both["time_us"]) > 0.95 * max(ends)
        assert alone["computation"] == pytest.approx(alone["communication"], rel=0.5)
        if overlap == "matmul:exact":
            m, n, _ = map(int, both["work"].split()[3].split("x"))
            assert m * n == units * 128 * 128


def test_a_replay_of_a_step_on_nccl_takes_as_long_as_its_calls(tmp_path: Path) -> None:
    from commbench import workload

    made = workload.ddp("gpt-2-xl", ranks=2, bucket="100M")
    (step,) = made.steps
    (program,) = step.programs
    gaps = [
        call._replace(start_s=5e-3 * (index + 1), time_s=0.0)
        for index, call in enumerate(program.calls)
    ]
    last_s = 5e-3 * (len(gaps) + 1)
    timed = step._replace(programs=(program._replace(calls=tuple(gaps)),), time_s=last_s)
    workload.save(made._replace(steps=(timed,)), tmp_path / "step.json")
    rows, _ = run(tmp_path, "--workload", str(tmp_path / "step.json"), "--variant", "calls,gaps",
                  "--iters", "6")  # fmt: skip
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["wrong"] for row in rows if not row["step"]} == {"0"}
    calls, gaps_row = (float(row["time_us"]) * 1e-6 for row in rows if row["step"])
    # The kernels follow one another in a stream, and the spins are in between.
    assert gaps_row > last_s - 5e-3
    assert 0 < calls < gaps_row


def test_a_replay_of_a_pipeline_on_nccl_ends(tmp_path: Path) -> None:
    from commbench import workload

    made = workload.megatron("gpt-2-xl", mesh="pp=2", micro_batches=4, sequence=256)
    workload.save(made, tmp_path / "step.json")
    rows, _ = run(tmp_path, "--workload", str(tmp_path / "step.json"), "--variant", "calls",
                  "--iters", "3")  # fmt: skip
    assert {row["status"] for row in rows} == {"ok"}


OWN_CALLS = """
import torch
import torch.distributed as dist
class Own:
    operation = "all_reduce"
    def setup(self, group, device, dtype, count):
        self.group, self.side = group, torch.cuda.Stream()
    def __call__(self, output, input):
        if output is not input:
            output.copy_(input)
        dist.all_reduce(output, group=self.group)
class Early(Own):
    def __call__(self, output, input):
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(100_000_000)
            super().__call__(output, input)
class Stream(Own):
    def __call__(self, output, input):
        super().__call__(output, input)
        torch.cuda.set_stream(self.side)
"""


@pytest.mark.parametrize("name", ["Own", "Early", "Stream"])
def test_an_own_call_is_right_or_it_is_told_what_it_does(tmp_path: Path, name: str) -> None:
    (tmp_path / "own.py").write_text(OWN_CALLS)
    rows, said = run(
        tmp_path, "--call", f"{tmp_path}/own.py:{name}", "--sizes", "64K", "--iters", "3",
        code=0 if name == "Own" else None,
    )  # fmt: skip
    own = [row for row in rows if row["call"]]
    assert [row["status"] for row in own] == ["ok" if name == "Own" else "wrong"]
    if name != "Own":
        assert name in said

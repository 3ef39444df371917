"""NCCL on real GPUs, through the real entry point; with one GPU its ranks share it.

Run by scripts/gpu_check, with whatever torch the machine has.
"""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


def run(folder: Path, *options: str, ranks: int = 2) -> tuple[list[dict[str, str]], str]:
    output = folder / "run"
    command = [
        sys.executable, "-m", "commbench", "run", "--backend", "nccl", "--no-plots", "--verbose",
        "--output", str(output), f"--nproc-per-node={ranks}", *options,
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    with (output / "results.csv").open() as file:
        return list(csv.DictReader(file)), ended.stderr


def gpus() -> int:
    program = "import torch; print(torch.cuda.device_count())"
    return int(subprocess.check_output([sys.executable, "-c", program], text=True))


def test_every_operation_gives_right_results_and_a_time(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "--op", "all", "--sizes", "8,1K,100000,1M", "--iters", "3")
    ok = [row for row in rows if row["status"] == "ok"]
    assert {row["operation"] for row in ok} == {row["operation"] for row in rows}
    assert all(float(row["time_us"]) > 0 for row in ok)
    assert all(row["wrong"] in ("0", "") for row in ok)
    assert {row["status"] for row in rows} <= {"ok", "skipped"}


def test_every_dtype_and_reduce_op_is_right_or_refused_with_a_reason(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path, "--op", "all_reduce,reduce_scatter,all_gather", "--sizes", "1K",
        "--dtype", "all", "--reduce-op", "all", "--placement", "both", "--iters", "1",
    )  # fmt: skip
    assert {row["status"] for row in rows} <= {"ok", "unsupported"}
    measured = {row["dtype"] for row in rows if row["status"] == "ok"}
    assert {"float32", "float64", "float16", "bfloat16", "int32", "int64"} <= measured


def test_three_ranks_are_right_with_odd_sizes(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "--op", "all", "--sizes", "1000,99999", "--iters", "2", ranks=3)
    assert {row["status"] for row in rows} == {"ok"}


def test_ranks_that_share_a_gpu_are_marked(tmp_path: Path) -> None:
    rows, said = run(tmp_path, "--op", "all_reduce", "--sizes", "1K", ranks=gpus() + 1)
    assert {row["gpu_shared"] for row in rows} == {"1"}
    assert "ranks share a GPU" in said


def test_one_rank_runs_alone(tmp_path: Path) -> None:
    rows, said = run(tmp_path, "--op", "all_reduce,broadcast", "--sizes", "1K-1M:x4", ranks=1)
    assert {row["gpu_shared"] for row in rows} == {"0"}
    assert all(float(row["time_us"]) > 0 for row in rows)
    assert "ranks are forked" in said or "ranks are spawned" in said


def test_ranks_launched_by_torchrun_itself_work(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "--op", "all_reduce", "--sizes", "1K,1M", "--launcher", "torchrun")
    assert [row["status"] for row in rows] == ["ok", "ok"]


def test_both_timings_are_measured_by_events(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "--op", "all_reduce", "--sizes", "1K,1M", "--timing", "both")
    assert [row["timing"] for row in rows] == ["isolated"] * 2 + ["pipelined"] * 2
    assert {row["status"] for row in rows} == {"ok"}
    assert [int(row["calls"]) > 1 for row in rows] == [False, False, True, True]


def test_a_sweep_of_algorithms_learns_what_nccl_chose(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "commbench", "sweep", "--env", "NCCL_ALGO=RING,TREE",
        "--op", "all_reduce,broadcast", "--sizes", "4K,1M", "--iters", "3", "--rounds", "1",
        "--backend", "nccl", "--nproc-per-node", "2", "--output", "swept",
        "--export", "nccl-tuner",
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "NCCL selected" in ended.stdout
    lines = (tmp_path / "swept" / "nccl-tuner.csv").read_text().splitlines()
    assert any(line.startswith("allreduce,0,") for line in lines)


def test_the_smoke_test_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "commbench", "smoke", "--backend", "nccl"]
    command += ["--nproc-per-node", "2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr

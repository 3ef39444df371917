"""For scripts/gpu_check: commbench.measure and plain loops, in turn on the same rank or ranks.

python scripts/plain_events.py [--backend nccl|gloo] [--sizes 64M] [--pairs 5]     or under torchrun

The loops are what people write: events around each call, and around the replay of a CUDA graph of
calls. On a CPU: the clock of the host, and no graph. Prints a line of JSON for each way and size:
the times of commbench and of the loop in microseconds, and the median, lowest and highest ratio.
Where nccl-tests' all_gather_perf is installed, it runs after each pair, and has a line, too.
Exit code 1 if a median ratio to a loop differs from 1 by more than --tolerance. Small sizes differ
by design: a loop without a spin measures the host.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import commbench
from commbench.units import parse_size

ITERATIONS, GRAPH_CALLS = 30, 10
Times = tuple[float, float]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--sizes", default="64M")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tolerance", type=float, default=0.1)
    options = parser.parse_args()
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    is_gpu = options.backend != "gloo"
    if is_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(options.backend)
    beyond = False
    try:
        for text in options.sizes.split(","):
            beyond |= compare(parse_size(text), options.pairs, options.tolerance, is_gpu)
    finally:
        dist.destroy_process_group()
    return int(beyond)


def compare(size: int, pairs: int, tolerance: float, is_gpu: bool) -> bool:
    """Print the ratios of a size; whether one is beyond the tolerance."""
    device = "cuda" if is_gpu else "cpu"
    received = torch.empty(size // 4, device=device)
    sent = torch.ones(size // 4 // dist.get_world_size(), device=device)

    def call() -> None:
        dist.all_gather_into_tensor(received, sent)

    found: dict[str, list[Times]] = {}
    for pair in range(pairs + 1):  # the first one warms up
        taken = {"events" if is_gpu else "clock": (measured(size), loop_us(call, is_gpu))}
        if is_gpu:
            ours = measured(size, launch="graph", timing="pipelined")
            taken["graph"] = (ours, graph_us(call))
            if (other := nccl_tests_us(size)) is not None:
                taken["nccl-tests"] = (measured(size, timing="pipelined"), other)
        for way, times in taken.items() if pair else ():
            found.setdefault(way, []).append(times)
    beyond = False
    for way, times in found.items():
        ratios = [ours / theirs for ours, theirs in times]
        middle = statistics.median(ratios)
        beyond |= way != "nccl-tests" and abs(middle - 1) > tolerance
        if not dist.get_rank():
            ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
            line = {"way": way, "size_bytes": size, "commbench_us": ours, "other_us": theirs,
                    "ratio": middle, "lowest": min(ratios), "highest": max(ratios)}  # fmt: skip
            print(json.dumps(line), flush=True)
    return beyond


def measured(size: int, **options: str) -> float:
    run = commbench.measure(
        op="all_gather", sizes=size, iters=ITERATIONS, warmup=5, check=False, buffers="hot",
        placement="out_of_place", **options,
    )  # fmt: skip
    return statistics.median(run.measurements[0].samples_s) * 1e6


def slowest(times_us: list[float]) -> float:
    """The median over iterations of the slowest rank."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    every = torch.tensor(times_us, dtype=torch.float64, device=device)
    dist.all_reduce(every, op=dist.ReduceOp.MAX)
    return statistics.median(every.tolist())


def loop_us(call: Callable[[], None], is_gpu: bool) -> float:
    times = []
    for number in range(-5, ITERATIONS):
        dist.barrier()
        if is_gpu:
            took = between_events(call)
        else:
            start = time.perf_counter()
            call()
            took = (time.perf_counter() - start) * 1e6
        if number >= 0:
            times.append(took)
    return slowest(times)


def between_events(call: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) * 1e3)


def graph_us(call: Callable[[], None]) -> float:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_CALLS):
            call()
    return slowest([between_events(graph.replay) / GRAPH_CALLS for _ in range(ITERATIONS)][5:])


def nccl_tests_us(size: int) -> float | None:
    """The out-of-place time of nccl-tests, if it is installed and there is one rank."""
    program = shutil.which("all_gather_perf")
    if not program or dist.get_world_size() > 1:
        return None
    words = [program, "-b", str(size), "-e", str(size), "-n", str(ITERATIONS), "-g", "1"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    row = re.search(rf"^ *{size} +\d+ +\w+ +\w+ +-?\d+ +([\d.]+)", said, re.MULTILINE)
    return float(row[1]) if row else None


if __name__ == "__main__":
    sys.exit(main())

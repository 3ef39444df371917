"""For scripts/gpu_check: commbench.measure and plain loops, in turn on the same rank or ranks.

python scripts/plain_events.py [--backend nccl|gloo] [--sizes 1G] [--pairs 3]      or under torchrun

The loops are what people write: events around each call, after a spin in which the host queues the
call; and events around the replay of a CUDA graph of calls. On a CPU: the clock of the host, and no
graph.
Prints a line of JSON for each way and size: the times of commbench and of the loop in microseconds,
and the median, lowest and highest ratio. Where nccl-tests' all_gather_perf is installed, it runs
after each pair, and has a line, too.
On a GPU the last line of a size compares the times of the same calls in commbench and in torch's
profiler, call by call, and the number of calls that torch made with the number that the device ran.
Exit code 1 if a median ratio differs from 1 by more than --tolerance, or if the numbers differ.
"""

import argparse
import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

import commbench
from commbench.units import parse_size

ITERATIONS, GRAPH_CALLS = 30, 10
SPIN_CYCLES = 2_000_000
"""About 1 ms of a GPU, in which the host queues a call."""
COPIES = 8
"""Buffers of a size that two pairs have at once, with some to spare."""
MOST_OUTSIDE = 0.1
"""Part of the calls that may differ by more than the tolerance: a busy host delays some."""
ONE_GPU = {f"NCCL_{name}": "1" for name in ("P2P_DISABLE", "SHM_DISABLE")}
ONE_GPU |= {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
"""With these, and a host name of its own for each, NCCL lets ranks share a GPU."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, MOST_BYTES = -1, -3, (1 << 31) - 1
"""For glibc's mallopt: keep freed memory, so that the pages of a copy are there, or not, for both
commbench and the loop (malloc.h)."""
Times = tuple[float, float]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--sizes", default="1G")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=0.1)
    options = parser.parse_args()
    for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        ctypes.CDLL(None).mallopt(parameter, MOST_BYTES)
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    is_gpu = options.backend != "gloo"
    if is_gpu:
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count():
            os.environ |= ONE_GPU | {"NCCL_HOSTID": f"rank{os.environ['RANK']}"}
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group(options.backend)
    beyond = False
    try:
        for text in options.sizes.split(","):
            size = parse_size(text)
            if is_gpu and torch.cuda.mem_get_info()[0] < COPIES * size:
                print(json.dumps({"size_bytes": size, "skipped": "too little memory"}), flush=True)
                continue
            ways = device_calls(size, is_gpu)
            beyond |= compare(size, ways, options.pairs, options.tolerance)
            if is_gpu:
                beyond |= compare_with_profiler(size, options.tolerance)
    finally:
        dist.destroy_process_group()
    return int(beyond)


Way = tuple[Callable[[], float], Callable[[], float | None]]
"""The time of commbench, and that of a loop; None where there is none."""


def device_calls(size: int, is_gpu: bool) -> dict[str, Way]:
    """An all_gather; with one rank it is a copy."""
    device = "cuda" if is_gpu else "cpu"
    received = torch.empty(size // 4, device=device)
    sent = torch.ones(size // 4 // dist.get_world_size(), device=device)
    call = partial(dist.all_gather_into_tensor, received, sent)
    if not is_gpu:
        return {"clock": (partial(measured, size), partial(loop_us, call, wall_clock))}
    pipelined = partial(measured, size, timing="pipelined")
    return {
        "events": (partial(measured, size), partial(loop_us, call, between_events)),
        "graph": (partial(pipelined, launch="graph"), partial(graph_us, call)),
        "nccl-tests": (pipelined, partial(nccl_tests_us, size)),
    }


def compare(size: int, ways: dict[str, Way], pairs: int, tolerance: float) -> bool:
    """Print the ratios of a size; whether one is beyond the tolerance."""
    beyond = False
    for way, (commbench_us, loop_us) in ways.items():
        taken = [(commbench_us(), loop_us()) for _ in range(pairs + 1)]
        taken.pop(0)  # the first one warms up
        times = [(ours, theirs) for ours, theirs in taken if theirs is not None]
        if times:
            beyond |= report(way, size, times, tolerance) and way != "nccl-tests"
    return beyond


def compare_with_profiler(size: int, tolerance: float) -> bool:
    """Print the ratios of the same calls in commbench and in the profiler, and how many calls there
    were; whether one is beyond the tolerance, or calls differ."""
    activities = torch.profiler.ProfilerActivity
    both = [activities.CPU, activities.CUDA]
    with torch.profiler.profile(activities=both, record_shapes=True) as profile:
        samples = samples_us(size)
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    alone = dist.get_world_size() == 1  # then NCCL copies, and others copy less at a time
    calls = [e for e in events if "c10d::_allgather_base_" in e.name]
    kernels = [e for e in events if ("Memcpy DtoD" if alone else "AllGather") in e.name]
    times_us = [e.time_range.elapsed_us() for e in kernels]
    if alone and kernels:
        calls = [e for e in calls if [size // 4] in e.input_shapes]
        least_us = statistics.median(times_us[-len(samples) :]) / 2
        times_us = [took for took in times_us if took > least_us]
    counts = {"calls": len(calls), "kernels": len(times_us)}
    if not len(samples) <= len(times_us) == len(calls):
        names = sorted({event.name for event in events if "c10d" not in event.name})
        print(json.dumps({"size_bytes": size, **counts, "names": names}), flush=True)
        return True
    times = list(zip(samples, times_us[-len(samples) :], strict=True))
    outside = sum(abs(ours / theirs - 1) > tolerance for ours, theirs in times)
    is_beyond = report("profiler", size, times, tolerance, outside=outside, **counts)
    return is_beyond or outside > MOST_OUTSIDE * len(times)


def report(way: str, size: int, times: list[Times], tolerance: float, **more: int) -> bool:
    """Print a line; whether the median ratio is beyond the tolerance."""
    ratios = [ours / theirs for ours, theirs in times]
    if not dist.get_rank():
        ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
        line = {"way": way, "size_bytes": size, "commbench_us": ours, "other_us": theirs,
                "ratio": statistics.median(ratios), "lowest": min(ratios),
                "highest": max(ratios)}  # fmt: skip
        print(json.dumps(line | more), flush=True)
    return abs(statistics.median(ratios) - 1) > tolerance


def samples_us(size: int, op: str = "all_gather", **options: str) -> list[float]:
    if op == "all_gather":
        options["placement"] = "out_of_place"
    run = commbench.measure(
        op=op, sizes=size, iters=ITERATIONS, warmup=5, check=False, buffers="hot", **options
    )
    return [seconds * 1e6 for seconds in run.measurements[0].samples_s]


def measured(size: int, **options: str) -> float:
    return statistics.median(samples_us(size, **options))


def slowest(times_us: list[float]) -> float:
    """The median over iterations of the slowest rank."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    every = torch.tensor(times_us, dtype=torch.float64, device=device)
    dist.all_reduce(every, op=dist.ReduceOp.MAX)
    return statistics.median(every.tolist())


def loop_us(call: Callable[[], object], clock: Callable[[Callable[[], object]], float]) -> float:
    times = []
    for number in range(-5, ITERATIONS):
        dist.barrier()
        took = clock(call)
        if number >= 0:
            times.append(took)
    return slowest(times)


def wall_clock(call: Callable[[], object], wait: Callable[[], object] = int) -> float:
    wait()
    start = time.perf_counter()
    call()
    wait()
    return (time.perf_counter() - start) * 1e6


def between_events(call: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SPIN_CYCLES)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) * 1e3)


def graph_us(call: Callable[[], object]) -> float:
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

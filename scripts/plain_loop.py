"""What people write by hand: a loop over torch.distributed.all_reduce, started by torchrun.

The yardstick of scripts/bench. torchrun --standalone --nproc-per-node 2 scripts/plain_loop.py
    [--sizes 1024,2048] [--iters 20] [--warmup 5] [--quiet] [--mean]
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--sizes", default=",".join(str(1 << i) for i in range(10, 31)))
parser.add_argument("--iters", type=int, default=20)
parser.add_argument("--warmup", type=int, default=5)
parser.add_argument("--quiet", action="store_true", help="SCHED_BATCH and a core for each rank")
parser.add_argument("--mean", action="store_true", help="the mean instead of the median")
arguments = parser.parse_args()
typical = statistics.fmean if arguments.mean else statistics.median

if arguments.quiet:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo")
for size in map(int, arguments.sizes.split(",")):
    tensor = torch.ones(size // 4)
    times = torch.zeros(arguments.iters, dtype=torch.float64)
    for i in range(-arguments.warmup, arguments.iters):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times[i] = time.perf_counter() - start  # warm-up is overwritten
    dist.all_reduce(times, op=dist.ReduceOp.MAX)  # per iteration the slowest rank counts
    if dist.get_rank() == 0:
        print(json.dumps({"size": size, "time_us": typical(times.tolist()) * 1e6}))
dist.destroy_process_group()

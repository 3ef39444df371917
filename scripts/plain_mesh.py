"""What people write by hand to measure every dimension of a mesh: init_device_mesh, and a loop.

The yardstick of scripts/bench. python scripts/plain_mesh.py --mesh 4,4,4 [--size 65536]
Ranks are forked, so that their start costs no more than it does in commbench.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh

parser = argparse.ArgumentParser()
parser.add_argument("--mesh", default="4,4,4", help="sizes, the outermost first")
parser.add_argument("--size", type=int, default=65536, help="bytes of a group's tensor")
parser.add_argument("--iters", type=int, default=10)
parser.add_argument("--warmup", type=int, default=2)
arguments = parser.parse_args()


def measure(rank: int, store: str, shape: tuple[int, ...]) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    ranks = math.prod(shape)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    names = tuple(f"d{i}" for i in range(len(shape)))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    tensor = torch.ones(arguments.size // 4)
    for name in names:
        group = mesh.get_group(name)
        times = torch.zeros(arguments.iters, dtype=torch.float64)
        for i in range(-arguments.warmup, arguments.iters):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor, group=group)
            times[i] = time.perf_counter() - start  # warm-up is overwritten
        dist.all_reduce(times, op=dist.ReduceOp.MAX)  # per iteration the slowest rank counts
        if rank == 0:
            print(json.dumps({"dim": name, "time_us": statistics.median(times.tolist()) * 1e6}))
    dist.destroy_process_group()


if __name__ == "__main__":
    sizes = tuple(map(int, arguments.mesh.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            measure, (f"{folder}/store", sizes), math.prod(sizes), start_method="fork"
        )

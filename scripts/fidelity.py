"""For scripts/bench: commbench's measurement and a plain loop, in turn on the same ranks.

torchrun --standalone --nproc-per-node 2 scripts/fidelity.py SIZE ITERATIONS PAIRS

Both run under the same scheduling and pinning, in one process group, a block each in turn, so that
a machine that changes its speed every few seconds does so for both. Prints a line of JSON: for each
pair the median of commbench and that of the loop, in microseconds.
"""

import json
import statistics
import sys
import time
from functools import partial

import torch
import torch.distributed as dist

from commbench.host.cpu import CpuCounters, apply_cpu_mode
from commbench.launch.launchers import detect_rank_context
from commbench.plan.operations import OPERATIONS
from commbench.plan.plan import Plan
from commbench.worker.buffers import Arena
from commbench.worker.communicator import communicator
from commbench.worker.measure import Timer, time_batch
from commbench.worker.reduction import slowest_durations_s
from commbench.worker.watchdog.watchdog import watching


def plain_loop(tensor: torch.Tensor, iterations: int) -> float:
    """What scripts/plain_loop.py does: per iteration the slowest rank, then the median."""
    times = torch.zeros(iterations, dtype=torch.float64)
    for i in range(iterations):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times[i] = time.perf_counter() - start
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def main() -> None:
    size, iterations, pairs = map(int, sys.argv[1:])
    rank_context = detect_rank_context(None, None)
    plan = Plan(operations=("all_reduce",), sizes=(size,), backend="gloo", device="cpu",
                world_size=rank_context.world_size)  # fmt: skip
    apply_cpu_mode(plan.cpu_mode, rank_context.local_rank)
    with (
        watching(plan, rank_context, lambda error: sys.exit(error.message)) as watchdog,
        communicator(plan, rank_context, watchdog) as comm,
    ):
        cases = plan.cases()
        buffers = Arena(comm, cases).of_groups(cases[0])[0]
        buffers.receive.fill_(1)
        call = partial(OPERATIONS["all_reduce"].call, dist, buffers)
        timer, counters = Timer(comm), CpuCounters()
        found = []
        for pair in range(pairs + 1):
            samples = time_batch(timer, counters, call, iterations, watchdog.state)
            ours = slowest_durations_s(samples.durations, comm)
            theirs = plain_loop(buffers.receive, iterations)
            if rank_context.rank == 0 and pair:  # the first pair warms up
                found.append([statistics.median(ours) * 1e6, theirs * 1e6])
        if rank_context.rank == 0:
            print(json.dumps(found))


main()

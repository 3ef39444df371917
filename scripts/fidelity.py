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

from commbench.launch.attached import find_seat
from commbench.operations import OPERATIONS
from commbench.plan import Plan
from commbench.worker.buffers import Arena
from commbench.worker.communicator import communicator
from commbench.worker.measure import Gathered, time_block
from commbench.worker.quiet import settle
from commbench.worker.strain import Strain
from commbench.worker.timers import timer_for
from commbench.worker.watch import watched


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
    seat = find_seat(None, None)
    plan = Plan(operations=("all_reduce",), sizes=(size,), backend="gloo", device="cpu",
                world_size=seat.world_size)  # fmt: skip
    settle(plan.cpu_mode, seat.local_rank)
    with (
        watched(plan, seat, lambda error, _: sys.exit(error.message)) as watch,
        communicator(plan, seat, watch) as comm,
    ):
        comm.shares_clock = True
        cases = plan.cases()
        buffers = Arena(comm, cases).buffers(cases[0])
        buffers.receive.fill_(1)
        call = partial(OPERATIONS["all_reduce"].call, dist, buffers)
        timer, strain = timer_for(comm), Strain()
        found = []
        for pair in range(pairs + 1):
            gathered = comm.gather(time_block(timer, strain, call, iterations, watch.row))
            theirs = plain_loop(buffers.receive, iterations)
            if seat.rank == 0 and pair:  # the first pair warms up
                ours = Gathered(torch.stack(gathered), 1, True).slowest_s
                found.append([statistics.median(ours) * 1e6, theirs * 1e6])
        if seat.rank == 0:
            print(json.dumps(found))


main()

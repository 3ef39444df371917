"""One rank of a training job with DistributedDataParallel: prints the time of a backward pass for
each bucket size.

Arguments: gradient MiB, layers, seconds of computation in a backward pass, and the bucket sizes in
MiB, 0 for torch's default. The gradient of each layer is ready after its part of that time, in
which the rank sleeps: so the computation needs no core, and takes as long with communication as
without. Printed is JSON, on rank 0: for each bucket size, the seconds of every backward pass, of
the slowest rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from random import Random
from typing import Any

import torch
import torch.distributed as dist

WARM_UP = 3
"""In the first pass all gradients are one bucket; then torch makes the buckets."""
PASSES = 4


class _Layer(torch.autograd.Function):
    """Computes nothing, for a while."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.gradient, ctx.seconds = torch.ones_like(weight), seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        time.sleep(ctx.seconds)
        return gradient, ctx.gradient, None


class Model(torch.nn.Module):
    def __init__(self, gradient_bytes: int, layers: int, backward_s: float) -> None:
        super().__init__()
        count, self.seconds = gradient_bytes // 4 // layers, backward_s / layers
        self.weights = torch.nn.ParameterList(torch.zeros(count) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = _Layer.apply(x, weight, self.seconds)
        return x


def passes(model: Model, bucket_mib: float | None) -> list[float]:
    """Seconds of backward passes with buckets of that size, of the slowest rank; None: the default
    of torch."""
    wrapped = torch.nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=bucket_mib, gradient_as_bucket_view=True, init_sync=False
    )
    x, found = torch.ones(1, requires_grad=True), []
    for _ in range(WARM_UP + PASSES):
        wrapped.zero_grad()
        loss = wrapped(x).sum()
        dist.barrier()
        begin = time.perf_counter()
        loss.backward()
        took = torch.tensor([time.perf_counter() - begin])
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        found.append(float(took))
    return found[WARM_UP:]


def main() -> None:
    gradient_mib, layers, backward_s, *buckets = map(float, sys.argv[1:])
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))  # as commbench's realtime mode
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Model(int(gradient_mib * 2**20), int(layers), backward_s)
    in_random_order = Random(1).sample(buckets, len(buckets))
    seconds = {bucket: passes(model, bucket or None) for bucket in in_random_order}
    if dist.get_rank() == 0:
        print(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

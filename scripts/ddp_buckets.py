"""Times backward passes of DistributedDataParallel with several bucket sizes, to compare with what
`commbench advise` predicts (docs/advice.md). The pass computes nothing: it sleeps before each
gradient, so that computation and communication do not slow each other.

    torchrun --nproc-per-node 2 scripts/ddp_buckets.py
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TENSORS, ELEMENTS, BACKWARD_S = 128, 1 << 16, 0.3
MIB = (0.25, 0.5, 1, 2, 4, 8, 16, None)
"""Bucket sizes; None: torch's default."""
PASSES, WARM_UP = 12, 2


class Layer(torch.autograd.Function):
    """Passes its input on; its gradient is ready after a part of the backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(weight)
        return x + 0 * weight[0]

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(BACKWARD_S / TENSORS)
        return gradient, torch.ones_like(*context.saved_tensors)


class Model(torch.nn.Module):
    """Layers one after another."""

    def __init__(self) -> None:
        super().__init__()
        weights = (torch.nn.Parameter(torch.zeros(ELEMENTS)) for _ in range(TENSORS))
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = Layer.apply(x, weight)
        return x


def pass_ms(model: DistributedDataParallel, is_alone: bool = False) -> float:
    """The median time of a backward pass, without communication where `is_alone`."""
    found = []
    for _ in range(PASSES):
        with model.no_sync() if is_alone else nullcontext():
            loss = model(torch.zeros(1, requires_grad=True)).sum()
            dist.barrier()
            begin = time.perf_counter()
            loss.backward()
            found.append(time.perf_counter() - begin)
        model.zero_grad()
    return 1e3 * median(found[WARM_UP:])


def main() -> None:
    """Print the time of a pass for each bucket size."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    times = {"alone": pass_ms(DistributedDataParallel(Model()), is_alone=True)}
    for size in MIB:
        options = {} if size is None else {"bucket_cap_mb": size}
        times[f"{size} MiB" if size else "default"] = pass_ms(
            DistributedDataParallel(Model(), **options)
        )
    if dist.get_rank() == 0:
        for name, found in times.items():
            print(f"{name:>8}  {found:.1f} ms")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

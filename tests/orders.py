"""All_reduces that add in an order that is known: a ring, and a tree."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class Ring:
    """Part k is added in the order of the ranks k + 1, k + 2, ..., k; then it goes round again."""

    operation = "all_reduce"
    divided = True

    def setup(self, group: Any, device: torch.device, dtype: torch.dtype, count: int) -> None:
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.part = torch.empty(count // self.ranks, dtype=dtype, device=device)

    def __call__(self, output: torch.Tensor, sent: torch.Tensor) -> None:
        output.copy_(sent)
        parts = output.chunk(self.ranks)
        for step in range(2 * (self.ranks - 1)):
            own = (self.rank - 1 - step) % self.ranks
            work = dist.isend(parts[own], (self.rank + 1) % self.ranks)
            dist.recv(self.part, (self.rank - 1) % self.ranks)
            work.wait()
            into = parts[(own - 1) % self.ranks]
            into.copy_(self.part + into if step < self.ranks - 1 else self.part)


class Tree:
    """Rank 0 adds pairs of ranks, then pairs of these sums, and so on; it sends the result back."""

    operation = "all_reduce"

    def setup(self, group: Any, device: torch.device, dtype: torch.dtype, count: int) -> None:
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.other = torch.empty(count, dtype=dtype, device=device)

    def __call__(self, output: torch.Tensor, sent: torch.Tensor) -> None:
        output.copy_(sent)
        step, steps = 1, []
        while step < self.ranks:
            steps.append(step)
            if self.rank % (2 * step) == step:
                dist.send(output, self.rank - step)
            elif not self.rank % (2 * step) and self.rank + step < self.ranks:
                dist.recv(self.other, self.rank + step)
                output.add_(self.other)
            step *= 2
        for step in reversed(steps):
            if self.rank % (2 * step) == step:
                dist.recv(output, self.rank - step)
            elif not self.rank % (2 * step) and self.rank + step < self.ranks:
                dist.send(output, self.rank + step)

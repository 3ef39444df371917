"""Small models of several shapes, and a program that trains one with DDP or FSDP2 and writes which
collective calls a step makes.

    python training_models.py ddp|fsdp MODEL [BUCKET_CAP_MB|keep|replicas]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Tensor = torch.Tensor


class Block(nn.Module):
    """A part of a transformer, without attention."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))  # type: ignore[no-any-return]


class Layers(nn.Module):
    """Layers between an embedding and an output, which may be one tensor."""

    def __init__(self, hidden: int, inner: int, layers: int, is_tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, hidden)
        self.layers = nn.ModuleList(Block(hidden, inner) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, 50, bias=False)
        if is_tied:
            self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


class Convolutions(nn.Module):
    """Convolutions with batch norms, whose buffers DDP broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24)
        self.side = nn.Conv2d(24, 40, 1)
        self.second, self.norm2 = nn.Conv2d(24, 40, 1), nn.BatchNorm2d(40)
        self.last = nn.Linear(40, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm1(self.first(x)))
        x = self.norm2(self.second(x)) + self.side(x)
        return self.last(x.mean((2, 3)))  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: nn.Sequential(nn.Linear(30, 77), nn.ReLU(), nn.Linear(77, 20)),
    "transformer": lambda: Layers(16, 49, 3), "tied": lambda: Layers(24, 96, 2, is_tied=True),
    "odd": lambda: Layers(7, 13, 5), "convolutions": Convolutions,
}  # fmt: skip


def make_loss(name: str) -> Callable[[nn.Module], Tensor]:
    """The loss of a batch, as a function of the module."""

    def loss(module: nn.Module) -> Tensor:
        device = next(module.parameters()).device
        x = {
            "perceptron": lambda: torch.ones(4, 30, device=device),
            "convolutions": lambda: torch.ones(2, 3, 6, 6, device=device),
        }.get(name, lambda: torch.ones(2, 5, dtype=torch.int64, device=device))()
        return module(x).float().sum()  # type: ignore[no-any-return]

    return loss


LOSSES = {name: make_loss(name) for name in MODELS}


def train(kind: str, name: str, how: str) -> list[tuple[str, Any]]:
    """Trains three steps; the calls of c10d in the third one."""
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    dist.init_process_group("gloo")
    module: nn.Module = MODELS[name]()
    if kind == "ddp":
        options: dict[str, Any] = {"bucket_cap_mb": float(how)} if how else {}
        module = nn.parallel.DistributedDataParallel(module, **options)
    else:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        options = {"mp_policy": policy}
        if how == "replicas":
            names = ("dp_replicate", "dp_shard")
            options["mesh"] = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
        kept = {"reshard_after_forward": False} if how == "keep" else {}
        for layer in module.layers:  # type: ignore[union-attr]
            fully_shard(layer, **options, **kept)
        fully_shard(module, **options)
    loss = make_loss(name)
    for _ in range(2):
        loss(module).backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        loss(module).backward()
    trace = f"trace{dist.get_rank()}.json"
    found.export_chrome_trace(trace)
    dist.barrier()
    dist.destroy_process_group()
    every = json.loads(Path(trace).read_text())["traceEvents"]
    events = [e for e in every if e.get("name", "").startswith("c10d::")]
    events.sort(key=lambda event: event["ts"])
    return [(event["name"], event["args"]["Input Dims"]) for event in events]


if __name__ == "__main__":
    calls = train(sys.argv[1], sys.argv[2], sys.argv[3])
    if os.environ["RANK"] == "0":
        Path("calls.json").write_text(json.dumps(calls))

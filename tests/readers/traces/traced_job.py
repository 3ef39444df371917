"""A training job of gloo ranks that torch.profiler traces; test_traced_jobs.py reads the traces.

Arguments: a folder, the kind of job, the number of ranks. Each rank writes the trace of two steps,
`trace/rankR.json`, and the dump of its flight recorder, `recorder/rankR.json`. With the variable
WIDTH the layers are so wide, and ten steps are traced.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ["TORCH_FR_BUFFER_SIZE"] = "1000"
import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

folder, kind, ranks, rank = (
    Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(os.environ["RANK"]),
)  # fmt: skip
wide = int(os.environ.get("WIDTH", "0"))
active = 10 if wide else 2
torch.set_num_threads(1)
torch.manual_seed(0)
store = dist.FileStore(str(folder / "store"), ranks)
dist.init_process_group(
    "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
)


def linear_layers(number: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(number)))


def ddp() -> Callable[[], object]:
    """Buckets of two layers."""
    width = wide or 32
    model = nn.parallel.DistributedDataParallel(
        linear_layers(4, width), bucket_cap_mb=8e-6 * width * width
    )
    data = torch.randn(4, width)
    return lambda: model(data).sum().backward()


def fsdp() -> Callable[[], object]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    width = wide or 64
    mesh, model = init_device_mesh("cpu", (ranks,)), linear_layers(3, width)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    data = torch.randn(4, width)
    return lambda: model(data).sum().backward()


def tp() -> Callable[[], object]:
    """Tensor parallelism in pairs, data parallelism across them, and calls of all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    model = parallelize_module(linear_layers(2, wide or 64), mesh["tp"], plan)
    data = torch.randn(4, wide or 64)
    splits = [number + 1 for number in range(ranks)]

    def step() -> None:
        model(data).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.to_local(), group=mesh["dp"].get_group())
        received = [torch.zeros(3) for _ in range(ranks)]
        dist.all_gather(received, torch.ones(3))
        dist.reduce_scatter(torch.zeros(3), received)
        dist.all_to_all_single(
            torch.zeros(ranks * (rank + 1)), torch.zeros(sum(splits)),
            [rank + 1] * ranks, splits,
        )  # fmt: skip
        dist.all_to_all_single(torch.zeros(2 * ranks), torch.zeros(2 * ranks))
        dist.broadcast(torch.zeros(12, dtype=torch.bfloat16), 1)
        dist.scatter(torch.ones(3), received if rank == 0 else None)
        dist.all_reduce(torch.zeros(100), async_op=True).wait()
        dist.barrier()

    return step


def pp() -> Callable[[], object]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    width = wide or 64
    stage = PipelineStage(linear_layers(1, width), rank, ranks, torch.device("cpu"))
    pipeline = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda a, b: (a - b).square().sum())
    data = torch.randn(256 * wide or 8, width)
    if rank == 0:
        return lambda: pipeline.step(data)
    return (lambda: pipeline.step(target=data, losses=[])) if rank == ranks - 1 else pipeline.step


step = {"ddp": ddp, "fsdp": fsdp, "tp": tp, "pp": pp}[kind]()
step()


def write(profiler: Any) -> None:
    (folder / "trace").mkdir(exist_ok=True)
    profiler.export_chrome_trace(str(folder / "trace" / f"rank{rank}.json"))


def recorder() -> dict[str, Any]:
    """The dump of the flight recorder."""
    found: dict[str, Any] = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, False))
    return found


first = 0
with profile(
    activities=[ProfilerActivity.CPU],
    record_shapes=True,
    schedule=schedule(wait=0, warmup=1, active=active),
    on_trace_ready=write,
) as profiler:
    for number in range(1 + active):
        if number == 1:
            first = len(recorder().get("entries", []))
        step()
        profiler.step()
recorded = recorder()
recorded["entries"] = recorded.get("entries", [])[first:]
(folder / "recorder").mkdir(exist_ok=True)
(folder / "recorder" / f"rank{rank}.json").write_text(json.dumps(recorded))
dist.destroy_process_group()

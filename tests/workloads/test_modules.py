"""Generated workloads are what DDP and FSDP2 really call."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import free_port, start_command
from training_models import LOSSES, MODELS

from commbench.api import workload
from commbench.errors import UsageError
from commbench.plan.dtypes import DTYPES
from commbench.plan.workload import Workload

PROGRAM = (Path(__file__).parents[1] / "training_models.py").read_text()
PIECES = {
    "c10d::broadcast_": "broadcast",
    "c10d::allreduce_": "all_reduce",
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
}


def really_called(folder: Path, *arguments: str, ranks: int = 2) -> list[tuple[str, int]]:
    """The collective calls of rank 0 in the third step of real training, with the elements of the
    larger side, as the profiler of torch saw them."""
    port = str(free_port())
    started = [
        start_command(
            folder, *arguments, program=PROGRAM, RANK=str(rank), WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    ended = [command.finish() for command in started]
    assert [each.code for each in ended] == [0] * ranks, ended
    events: list[tuple[str, Any]] = json.loads((folder / "calls.json").read_text())
    return [(PIECES[name], max(_count(shape) for shape in shapes)) for name, shapes in events]


def _count(shape: Any) -> int:
    """Elements of a shape, or of a list of shapes together."""
    if shape and isinstance(shape[0], list):
        return sum(map(_count, shape))
    return prod(shape) if shape else 0


def generated(made: Workload) -> list[tuple[str, int]]:
    """The calls of the workload's only program, with the elements of the larger side."""
    (step,) = made.steps
    (program,) = step.programs
    return [(c.operation, c.size_bytes // DTYPES[c.dtype].size_bytes) for c in program.calls]  # type: ignore[operator]


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("bucket", [None, "8K"])
def test_ddp_calls_what_is_generated(tmp_path: Path, name: str, bucket: str | None) -> None:
    called = really_called(tmp_path, "ddp", name, str(8 / 1024 if bucket else ""))
    made = workload.ddp(MODELS[name](), ranks=2, bucket=bucket, loss=LOSSES[name])
    assert generated(made) == called


@pytest.mark.full
@pytest.mark.parametrize("name", ["transformer", "tied", "odd"])
@pytest.mark.parametrize(
    ("how", "ranks", "replicas"), [("", 2, 1), ("keep", 3, 1), ("replicas", 2, 2)]
)
def test_the_workload_of_fsdp_is_what_fsdp_calls(
    tmp_path: Path, name: str, how: str, ranks: int, replicas: int
) -> None:
    called = really_called(tmp_path, "fsdp", name, how, ranks=ranks * replicas)
    with torch.device("meta"):
        module = MODELS[name]()
    made = workload.fsdp(
        module, ranks=ranks, replicas=replicas, dtype="bfloat16", reduce_dtype="float32",
        reshard_after_forward=how != "keep",
    )  # fmt: skip
    assert generated(made) == called
    assert {c.dtype for _, _, c in made.calls()} == {"bfloat16", "float32"}


def test_without_a_loss_gradients_come_in_the_reverse_order_of_parameters() -> None:
    made = workload.ddp(torch.nn.Linear(4, 3, device="meta"), ranks=2, bucket=1)
    assert generated(made) == [("all_reduce", 3), ("all_reduce", 12)]


def test_a_module_keeps_its_gradients_and_hooks() -> None:
    module = MODELS["perceptron"]()
    workload.ddp(module, ranks=2, loss=LOSSES["perceptron"])
    assert all(p.grad is None and not p._post_accumulate_grad_hooks for p in module.parameters())


def test_frozen_parameters_are_left_out_and_a_module_of_them_is_refused() -> None:
    module = torch.nn.Linear(4, 3, device="meta").requires_grad_(False)
    with pytest.raises(UsageError, match="no parameters to train"):
        workload.ddp(module, ranks=2)
    module.bias.requires_grad_(True)
    assert generated(workload.ddp(module, ranks=2)) == [("all_reduce", 3)]


def test_a_block_that_the_module_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="no submodule 'nothing'"):
        workload.fsdp(torch.nn.Linear(4, 3, device="meta"), ranks=2, blocks=["nothing"])

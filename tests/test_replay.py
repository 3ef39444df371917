"""Replays on real gloo ranks: they make the calls of the workload, and no others, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Commbench, start_command
from synthetic_workload import TWO_RANKS

from commbench.plan.workload import RECV, SEND, Call, Program, Step, Workload
from commbench.results.files import write_workload
from commbench.workloads.frameworks import ddp_workload, fsdp_workload, megatron_workload
from commbench.workloads.megatron_calls import Training
from commbench.workloads.models import Transformer

RECORDING = """
import json, os, sys
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from commbench.worker import buffers
from commbench.worker.call_forms import make_step

class Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []
    def __torch_dispatch__(self, function, _, args=(), kwargs=None):
        name = function.name().partition(".")[0]
        if name.startswith("c10d::"):
            first = args[0] if isinstance(args[0], list) else [args[0]]
            tensors = [t for each in first for t in (each if isinstance(each, list) else [each])]
            tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
            self.calls.append([name, sum(t.numel() * t.element_size() for t in tensors)])
        return function(*args, **(kwargs or {}))

def recorded(*arguments):
    run = make_step(*arguments)
    def record_and_run():
        with Record() as record:
            run()
        with open(f"calls-{torch.distributed.get_rank()}.json", "w") as file:
            json.dump(record.calls, file)
    return record_and_run

buffers.make_step = recorded
import commbench
run = commbench.run(workload=sys.argv[1], variant="calls", iters=2, warmup=0, check=False)
print(json.dumps([[m.case.name, m.status, m.reason] for m in run.measurements]))
"""
NAMES = {
    "all_reduce": "c10d::allreduce_", "broadcast": "c10d::broadcast_", "barrier": "c10d::barrier",
    "all_gather": "c10d::_allgather_base_", "reduce_scatter": "c10d::_reduce_scatter_base_",
    "all_to_all": "c10d::alltoall_base_", SEND: "c10d::send", RECV: "c10d::recv_",
}  # fmt: skip
RING = (NAMES[SEND], NAMES[RECV])
SMALL = Transformer(name="small", layers=2, hidden=64, ffn=256, heads=4, kv_heads=4, vocab=512)


def expected_calls(workload: Workload, rank: int) -> list[list[Any]]:
    """The operators of torch that a rank calls in the only step, with the bytes of the tensor that
    comes first: what it receives, of a send what it sends."""
    (step,) = workload.steps
    calls = next(program.calls for program in step.programs if rank in program.ranks)
    found = []
    for call in calls:
        ranks = len(workload.group_of(call, rank))
        received = (call.size_bytes or 0) // (ranks if call.operation == "reduce_scatter" else 1)
        names = RING if call.operation == "send_recv" else (NAMES[call.operation],)
        found += [[name, received] for name in names]
    return found


@pytest.mark.parametrize(
    "workload",
    [
        TWO_RANKS,
        pytest.param(ddp_workload(SMALL.model("float32"), ranks=2), marks=pytest.mark.full),
        pytest.param(
            fsdp_workload(SMALL.model("float32"), ranks=2, replicas=2), marks=pytest.mark.full
        ),
        pytest.param(
            megatron_workload(SMALL, Training(micro_batches=3, sequence=32), mesh="tp=2,pp=2"),
            marks=pytest.mark.full,
        ),
        pytest.param(
            megatron_workload(SMALL, Training(micro_batches=2, sequence=32), mesh="dp=2,cp=2"),
            marks=pytest.mark.full,
        ),
    ],
    ids=["by hand", "ddp", "hsdp", "pipeline", "context"],
)
def test_every_rank_makes_its_programs_calls_in_order(tmp_path: Path, workload: Workload) -> None:
    write_workload(tmp_path / "step.json", workload)
    ended = start_command(tmp_path, "step.json", program=RECORDING).finish()
    assert ended.code == 0, ended.err
    measured = json.loads(ended.out)
    assert {(status, reason) for _, status, reason in measured} == {("ok", "")}
    assert measured[-1][0] == f"replay {workload.steps[0].name} calls"
    for rank in range(workload.world_size):
        made = json.loads((tmp_path / f"calls-{rank}.json").read_text())
        expected = expected_calls(workload, rank)
        assert [name for name, _ in made] == [name for name, _ in expected]
        assert made == expected


def test_a_step_takes_longer_by_its_gaps(commbench: Commbench, tmp_path: Path) -> None:
    calls = [
        Call("all_reduce", "world", "float32", 4096, reduce_op="sum", start_s=at, time_s=1e-3)
        for at in (20e-3, 41e-3)
    ]
    step = Step("train", (Program((0, 1), tuple(calls)),), time_s=60e-3)
    workload = Workload("gaps", "", 2, {"world": ((0, 1),)}, (step,))
    write_workload(tmp_path / "step.json", workload)
    ended = commbench("run", "--workload", "step.json", "--iters", "6", "--no-plots")
    assert ended.code == 0, ended.err
    rows = {row["variant"]: row for row in ended.rows()}
    seconds = {variant: float(row["time_us"]) * 1e-6 for variant, row in rows.items()}
    # 20 ms before each call, and 18 ms behind the second one.
    assert seconds["gaps"] >= 58e-3
    assert 0 < seconds["calls"] < seconds["gaps"] - 30e-3
    assert {row["busbw_GBps"] for row in rows.values() if row["step"]} == {""}
    assert [row["size_bytes"] for row in rows.values() if row["step"]] == ["8192", "8192"]

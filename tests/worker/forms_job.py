"""A job of gloo ranks that checks every operation in every form; test_call_forms.py reads what it
says.

Arguments: a folder, the number of ranks. Each rank writes a JSON file with the cases that were
right, those that were wrong or failed, and those that the tables refuse.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.case import READY
from commbench.plan.operations import OPERATIONS, SINGLE_CALLS
from commbench.plan.plan import Plan
from commbench.worker.buffers import Arena, Buffers
from commbench.worker.call_forms import make_async_call, make_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.verify import verify

folder, ranks, rank = Path(sys.argv[1]), int(sys.argv[2]), int(os.environ["RANK"])
torch.set_num_threads(1)
store = dist.FileStore(str(folder / f"store-{ranks}"), ranks)
dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
comm = Communicator(rank, ranks, Device(), dist.group.WORLD)
plan = Plan(
    operations=tuple(SINGLE_CALLS), sizes=(100, 4001), placement="both", root=ranks - 1,
    tensors=("1", "3", "ddp:512"), forms=("all", "first", "second"), dtypes=("int32",),
    backend="gloo", device="cpu", world_size=ranks,
)  # fmt: skip
said: dict[str, list[str]] = {"right": [], "wrong": [], "refused": [], "skipped": [], "started": []}
compressed = replace(
    plan, operations=("all_reduce", "reduce_scatter"), dtypes=("float32", "bfloat16"),
    forms=("bf16", "fp16", "int8", "fp8", "powersgd:2"), tensors=("1",),
)  # fmt: skip
cases = (*plan.cases(), *compressed.cases())
arena = Arena(comm, tuple(case for case in cases if case.status == READY))


def started(buffers: Buffers) -> Callable[[], object]:
    """The call of a case, started and waited for later."""
    start = make_async_call(buffers)
    return lambda: start().wait()


for case in cases:
    is_small = case.size_bytes < 1000
    if is_small and case.uses_new_group:
        continue  # making a group takes long
    if is_small and case.tensors.startswith("ddp") and ranks > 2:
        continue  # a single bucket
    if case.status != READY:
        said["refused" if case.status == "unsupported" else "skipped"].append(case.name)
        continue
    buffers = arena.of_groups(case)[0]
    found = verify(buffers, case.index, make_call(buffers), Device())
    if case.has_result or not case.dtype:
        said["wrong" if found.wrong else "right"].append(case.name)
    if is_small and ranks > 2:
        continue  # the larger size is started and waited for
    is_started = case.call_form.is_reference or case.call_form.start
    if is_started and not OPERATIONS[case.operation].is_on_host:
        found = verify(buffers, case.index + 1, started(buffers), Device())
        said["wrong" if found.wrong else "started"].append(case.name)


def refuse(*_: object, **__: object) -> None:
    raise RuntimeError("this backend has no such call")


coalesced, direct = (
    next(c for c in cases if (c.operation, c.form) == ("all_reduce", form))
    for form in ("coalesced", "direct")
)
with contextlib.suppress(RuntimeError):
    CALL_FORMS[coalesced.form].run(refuse, dist, arena.of_groups(coalesced)[0])
buffers = arena.of_groups(direct)[0]
found = verify(buffers, 1, make_call(buffers), Device())
said["wrong" if found.wrong else "right"].append("after a refusal")
(folder / f"{ranks}-{rank}.json").write_text(json.dumps(said))
dist.destroy_process_group()

"""A torchrun job of four ranks that measures its own groups; test_in_process.py reads what it says.

Each rank writes a line of JSON for each group: what it measured, and what it changed.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh

from commbench import CommbenchError, measure

MIB = 1 << 20


def process_state() -> dict[str, Any]:
    """All that measuring could leave behind."""
    return {
        "environment": dict(os.environ), "cores": sorted(os.sched_getaffinity(0)),
        "policy": os.sched_getscheduler(0), "groups": len(distributed_c10d._world.pg_map),
        "group_count": distributed_c10d._world.group_count,
        "torch_threads": torch.get_num_threads(), "python_threads": threading.active_count(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "collects_garbage": gc.isenabled(),
    }  # fmt: skip


def settled_state(before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The state once it no longer changes, or once it is as before: gloo opens and closes sockets
    in a thread of its own, which can take seconds on a busy host."""
    states = [process_state()]
    deadline = time.monotonic() + 10
    while states[-1] != before and time.monotonic() < deadline:
        if not before and len(states) > 3 and all(state == states[-1] for state in states[-4:]):
            break
        time.sleep(0.04)
        states.append(process_state())
    return states[-1]


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    pair = dist.new_group([1, 3])
    time.sleep(1)  # gloo accepts the last connections of new groups in a thread of its own
    out = Path(sys.argv[1])
    groups = {"default": None, "pair": pair, "outer": mesh.get_group("outer"), "again": pair}
    said: list[dict[str, Any]] = []
    for name, group in groups.items():
        if group is pair and rank not in (1, 3):
            continue
        dist.barrier(group)
        before = settled_state()
        run = measure(
            op="all_reduce,broadcast,gather,send_recv,barrier", sizes="4K,128K", iters=6,
            group=group, root=1, output=out / "run" if name == "default" else None,
        )  # fmt: skip
        after = settled_state(before)
        said.append({
            "name": name,
            "changed": {k: (before[k], after[k]) for k in before if before[k] != after[k]},
            "run": hashlib.sha256(repr(tuple(run)).encode()).hexdigest(),
            "ranks": [info.rank for info in run.header.ranks],
            "world_size": run.header.plan.world_size,
            "launcher": run.header.launcher,
            "rows": [
                [m.case.operation, m.status, m.wrong, len(m.samples_s),
                 len(m.rank_times[0].behind_s)]
                for m in run.measurements
            ],
            "end": run.end.status if run.end else "",
        })  # fmt: skip
    for _ in range(2):
        measure(sizes="8M", iters=1, warmup=0)
    resident = resident_mib()
    for _ in range(3):
        measure(sizes="8M", iters=1, warmup=0)
    said.append({"name": "grown", "mib": resident_mib() - resident})
    for name, wrong in {
        "one raises": {"op": "all_reduce" if rank else "all_redcue", "timeout": 100},
        "one has another option": {"cpu_mode": "plain"} if rank == 0 else {"timeout": 100},
        "one is late": {"sizes": "1K", "timeout": 1 if rank else 2},
        "other plan": {"sizes": "1K" if rank else "2K"},
        "no group": {"group": [0, 1]},
        "unknown": {"op": "all_reduction"},
        "option": {"launches": 3},
        "folder": {"sizes": "1K", "iters": 1, "output": out / "run"},
        "too large": {"sizes": "1024G"},
        "not a member": {"group": pair, "sizes": "1K", "iters": 1},
    }.items():
        if name == "not a member" and rank in (1, 3):
            continue
        began = time.monotonic()
        time.sleep(3 * (rank == 0 and name == "one is late"))
        try:
            measure(**wrong)
        except CommbenchError as error:
            said.append({"name": name, "error": type(error).__name__, "message": str(error)})
            said[-1]["seconds"] = time.monotonic() - began
    # Groups that are made afterwards have the same names on all ranks.
    last = dist.new_group([0, 1, 2])
    if rank < 3:
        dist.barrier(last)
    (out / f"rank-{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


main()

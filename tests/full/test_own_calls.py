"""An own call on links of known speed takes as long as in a plain loop."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import pytest
from hosts import DEVICE, limited_hosts, outputs_of

pytestmark = pytest.mark.full
ROOT = Path(__file__).parent.parent.parent
HOSTS, PAIRS = 2, 7
TURNS = f"""
import json, sys, time
import torch
import torch.distributed as dist
sys.path.insert(0, {str(ROOT / "tests")!r})
import commbench
from orders import Ring
SIZE, ITERATIONS = 4 << 20, 12
dist.init_process_group("gloo")

def loop_s(call):
    times = []
    for number in range(-3, ITERATIONS):
        dist.barrier()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    every = torch.tensor(times[3:], dtype=torch.float64)
    dist.all_reduce(every, op=dist.ReduceOp.MAX)
    return every.median().item()

def commbench_s():
    run = commbench.measure(op="all_reduce", calls=[Ring], sizes=SIZE, iters=ITERATIONS, warmup=3,
                            check=False, buffers="hot")
    own = {{bool(found.case.call): sorted(found.samples_s) for found in run.measurements}}
    return [(times[(ITERATIONS - 1) // 2]) for times in (own[False], own[True])]

data, ring = torch.ones(SIZE // 4), Ring()
ring.setup(dist.group.WORLD, data.device, data.dtype, data.numel())
loops = [lambda: dist.all_reduce(data), lambda: ring(data, data)]
for _ in range({PAIRS} + 1):
    ours, theirs = commbench_s(), [loop_s(call) for call in loops]
    if not dist.get_rank():
        print(json.dumps([a / b for a, b in zip(ours, theirs)]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_a_ring_and_gloo_take_as_long_as_plain_loops_on_links_of_a_gigabit(tmp_path: Path) -> None:
    with limited_hosts(HOSTS, "1gbit") as cluster:
        shared = {"MASTER_ADDR": cluster[0].name, "MASTER_PORT": "29533", "WORLD_SIZE": str(HOSTS)}
        programs = [
            host.start(
                sys.executable, "-c", TURNS, cwd=tmp_path, GLOO_SOCKET_IFNAME=DEVICE,
                RANK=str(rank), LOCAL_RANK="0", OMP_NUM_THREADS="1", **shared,
            )
            for rank, host in enumerate(cluster)
        ]  # fmt: skip
        (out, _), *_ = outputs_of(programs)
    pairs = [json.loads(line) for line in out.splitlines() if line.startswith("[")][1:]
    of_gloo, of_ring = (median(column) for column in zip(*pairs, strict=True))
    assert (of_gloo, of_ring) == (pytest.approx(1, abs=0.02), pytest.approx(1, abs=0.02)), pairs

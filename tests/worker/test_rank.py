"""What ranks learn of each other before they measure; every rank is a thread with a gloo group."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gloo_ranks import on_ranks
from synthetic_rows import plan

from commbench.analysis.environment_diff import environment_facts
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.worker import rank
from commbench.worker.communicator import Communicator
from commbench.worker.context import LaunchTask, RankContext

H200 = {"gpus": [{"name": "NVIDIA H200", "address": "0000:1b:00.0", "power_cap_w": 700.0}]}
H100 = {"gpus": [{"name": "NVIDIA H100", "address": "0000:1b:00.0", "power_cap_w": 700.0}]}
FOUND = (H200, H200, H100, {}, H100)
"""On each of five hosts, with a rank each."""


def test_hosts_with_other_gpus_than_rank_0s_are_named_once_a_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = threading.local()
    named = SimpleNamespace(gethostname=lambda: f"node{here.rank}")
    monkeypatch.setattr(rank, "socket", named)
    monkeypatch.setattr(rank, "gpu_facts", lambda: FOUND[here.rank])
    task = LaunchTask(plan=plan(world_size=5), label="", folder=tmp_path)

    def introduce(comm: Communicator) -> Any:
        here.rank = comm.rank
        context = RankContext(
            rank=comm.rank, world_size=5, local_rank=0, local_world_size=1, launcher="torchrun",
            init_method="env://",
        )  # fmt: skip
        return rank.introduce(task, context, comm)

    first, *others = on_ranks(5, introduce)
    assert first.num_nodes == 5
    known = {"node2": {"gpus": "NVIDIA H100, power cap 700 W"}, "node3": {}}
    assert first.other_gpus == known
    assert all(other.first_ranks == first.first_ranks for other in others)
    header = rank.make_header(task, "torchrun", first, dict(H200))
    journal = Journal(tmp_path)
    journal.header(header)
    journal.close()
    read = read_run(tmp_path).header
    assert read.environment["other_gpus"] == known
    texts = environment_facts(read)
    assert texts["gpus"] == "NVIDIA H200, power cap 700 W"
    assert texts["gpus of node2"] == "NVIDIA H100, power cap 700 W"

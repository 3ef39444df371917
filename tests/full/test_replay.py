"""Traces of real training jobs on links of known speed, and their replays on the same links."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hosts import DEVICE, Cluster, limited_hosts, outputs_of
from test_links import end_on

import commbench
from commbench.analysis.rows import make_rows
from commbench.answers.replay.replay import calls_only_s

pytestmark = pytest.mark.full
JOB = Path(__file__).parents[1] / "readers" / "traces" / "traced_job.py"
WIDTHS = {"ddp": 1024, "fsdp": 1024, "tp": 2048, "pp": 128}


def trace(cluster: Cluster, folder: Path, kind: str) -> None:
    """Ten traced steps of a job with a rank on each host."""
    ranks = [
        host.start(
            sys.executable, str(JOB), str(folder), kind, str(len(cluster)), RANK=str(rank),
            WIDTH=str(WIDTHS[kind]), GLOO_SOCKET_IFNAME=DEVICE,
        )
        for rank, host in enumerate(cluster)
    ]  # fmt: skip
    outputs_of(ranks)


@pytest.mark.parametrize("kind", WIDTHS)
def test_a_replayed_step_takes_as_long_as_the_communication_of_the_trace(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "step.json"
    with limited_hosts(4, "1gbit") as cluster:
        for host in cluster:
            # A send ends when the kernel has its bytes: with few of them, when they have left.
            host.run("sh", "-c", "echo 4096 65536 65536 >/proc/sys/net/ipv4/tcp_wmem")
        trace(cluster, tmp_path, kind)
        workload = commbench.workload.load(tmp_path / "trace")
        commbench.workload.save(workload, file)
        end_on(cluster, tmp_path, "--workload", str(file), "--variant", "calls,gaps",
               "--iters", "10")  # fmt: skip
    (step,) = workload.steps
    assert step.count == 10
    expected = calls_only_s(workload, step)
    assert expected
    assert step.time_s
    rows = make_rows(commbench.load(tmp_path / "run"))
    times = {r.measurement.case.variant: r.time.median for r in rows if r.time}
    found = {"calls": times["calls"] / expected, "gaps": times["gaps"] / step.time_s}
    print(f"{kind}: {1e3 * expected:.1f} of {1e3 * step.time_s:.1f} ms are communication; {found}")
    assert 0.85 <= found["calls"] <= 1.15, found
    # In a replay all ranks begin a step together; in the job a rank begins when its last one ended.
    assert 0.85 <= found["gaps"] <= 1.25, found

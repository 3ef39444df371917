"""Links of known speed and delay: commbench must find what they are.

Ranks and iperf3 run in real time, so that the links are waited for and not the scheduler.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import START_TIMEOUT_S, Ended
from distance import distant_hosts
from hosts import DEVICE, Cluster, hosts
from iperf import goodput_gbps

pytestmark = pytest.mark.full


def start_on(cluster: Cluster, where: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    """The same command on every host, as the README says it."""
    command = [
        sys.executable, "-m", "commbench", "run", "--no-plots", "--output", "run",
        "--nnodes", str(len(cluster)), "--nproc-per-node", "1", "--master-addr", cluster[0].name,
        "--cpu-mode", "realtime", *arguments,
    ]  # fmt: skip
    return [
        host.start(*command, "--node-rank", str(rank), cwd=where, GLOO_SOCKET_IFNAME=DEVICE)
        for rank, host in enumerate(cluster)
    ]


def finish(
    processes: list[subprocess.Popen[str]], where: Path, timeout_s: float = START_TIMEOUT_S
) -> list[Ended]:
    """How the command ended on each host."""
    try:
        outputs = [process.communicate(timeout=timeout_s) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    codes = [process.returncode for process in processes]
    return [Ended(code, *out, where / "run") for code, out in zip(codes, outputs, strict=True)]


def end_on(cluster: Cluster, where: Path, *arguments: str) -> Ended:
    """How a run on every host, that ended well on each, ended on the first."""
    ended = finish(start_on(cluster, where, *arguments), where)
    assert [host.code for host in ended] == [0] * len(cluster), ended
    return ended[0]


def run_on(cluster: Cluster, where: Path, *arguments: str) -> list[dict[str, str]]:
    """The rows that a run on every host gave."""
    return end_on(cluster, where, *arguments).rows()


def gbps(row: dict[str, str]) -> float:
    return float(row["busbw_GBps"]) * 8


@pytest.mark.parametrize(
    ("count", "rate", "burst", "size"),
    [
        # A size so large that the burst, which goes through at once, does not matter.
        (2, "1gbit", "256k", "64M"),
        (4, "1gbit", "256k", "64M"),
        (4, "2gbit", "512k", "64M"),
        (2, "10gbit", "2m", "256M"),
    ],
)
def test_all_reduce_reaches_what_iperf3_reaches(
    tmp_path: Path, count: int, rate: str, burst: str, size: str
) -> None:
    with hosts(count) as cluster:
        for host in cluster:
            host.limit(rate, burst)
        before = goodput_gbps(cluster[0], cluster[1])
        (row,) = run_on(cluster, tmp_path, "--sizes", size, "--iters", "10")
        after = goodput_gbps(cluster[0], cluster[1])
    assert (row["world_size"], row["num_nodes"], row["wrong"]) == (str(count), str(count), "0")
    # Much can make a link seem slower than it is, nothing faster.
    assert gbps(row) == pytest.approx(max(before, after), rel=0.02)


def test_one_slow_link_slows_everybody_and_is_named(tmp_path: Path) -> None:
    with hosts(4) as cluster:
        for host in cluster:
            host.limit("2gbit", "512k")
        cluster[2].limit("500mbit", "128k")
        before = goodput_gbps(cluster[2], cluster[3])
        ended = end_on(cluster, tmp_path, "--sizes", "16M", "--iters", "10")
        after = goodput_gbps(cluster[2], cluster[3])
    (row,) = ended.rows()
    assert gbps(row) == pytest.approx(max(before, after), rel=0.02)
    (table,) = [part for part in ended.out.split("\n\n") if part.startswith("Slow links")]
    (slow,) = table.splitlines()[4:]
    assert "rank 2" in slow.split("  ")[1]


def rows_at(one_way_ms: float, tmp_path: Path) -> list[dict[str, str]]:
    """What broadcast and all_reduce of 1 KiB take at that distance."""
    where = tmp_path / f"{one_way_ms}"
    where.mkdir()
    arguments = ["--op", "broadcast,all_reduce", "--sizes", "1K", "--iters", "100"]
    with distant_hosts(one_way_ms) as pair:
        return run_on(pair, where, *arguments)


def test_broadcast_makes_one_round_trip_and_all_reduce_two(tmp_path: Path) -> None:
    # The rest of the way, through gloo and the program that delays, is the same at any distance.
    for near, far, trips in zip(rows_at(0, tmp_path), rows_at(5, tmp_path), (1, 2), strict=True):
        fastest, median = (float(far[at]) - float(near[at]) for at in ("time_min_us", "time_us"))
        assert fastest == pytest.approx(trips * 10_000, rel=0.05)
        # Programs that have slept for long also wake up late on a machine with other work.
        assert median == pytest.approx(trips * 10_000, rel=0.1)


def test_a_cut_link_ends_the_run_on_both_hosts(tmp_path: Path) -> None:
    arguments = ["--sizes", "1K,64M", "--iters", "30", "--timeout", "5"]
    with hosts(2) as cluster:
        for host in cluster:
            host.limit("1gbit", "256k")
        processes = start_on(cluster, tmp_path, *arguments)
        journal = tmp_path / "run" / "run.jsonl"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not journal.exists() or journal.read_text().count("\n") < 2:
            assert processes[0].poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        cluster[1].cut()
        first, second = finish(processes, tmp_path)
    assert (first.code, second.code) == (4, 4)
    assert first.err.splitlines()[-2].startswith("error: rank 1 on host1 does not answer; ")
    assert second.err.splitlines()[-2].startswith("error: rank 0 cannot be reached; ")
    assert [row["size_bytes"] for row in first.rows()] == ["1024"]
    assert first.journal()[-1]["status"] == "failed"

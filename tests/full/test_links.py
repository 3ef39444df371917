"""Links of known speed and delay: commbench must find what they are, for collectives, pairs,
unequal blocks, and groups that call at once.

Ranks and iperf3 run in real time, so that the links are waited for and not the scheduler.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest
from broken import unwrapped
from commands import START_TIMEOUT_S, Ended
from distance import distant_hosts
from hosts import DEVICE, Cluster, Host, limited_hosts

pytestmark = pytest.mark.full
REALTIME = ("chrt", "--fifo", "10")
"""As commbench's realtime mode, so that both wait for the link alone."""
INTERVAL_S = 0.2
PATIENCE_S = 10


def goodput_gbps(sender: Host, receiver: Host, seconds: int = 2) -> float:
    """What iperf3 gets through, in Gbit/s: the median over intervals, as a collective's time is
    one; without the first second."""
    server = receiver.start(
        *REALTIME, "iperf3", "--server", "--one-off", "--json", "--interval", str(INTERVAL_S)
    )
    with server:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not receiver.run("ss", "--no-header", "--listening", "--tcp"):
                assert server.poll() is None and time.monotonic() < deadline, "it does not listen"
                time.sleep(0.02)
            sender.run(
                *REALTIME, "iperf3", "--client", receiver.address, "--time", str(seconds),
                "--omit", "1",
            )  # fmt: skip
            report, _ = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
    intervals = [interval["sum"] for interval in json.loads(report)["intervals"]]
    return median(
        part["bits_per_second"] / 1e9
        for part in intervals
        if not part["omitted"] and part["seconds"] > INTERVAL_S / 2
    )


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
    return [
        Ended(code, out, unwrapped(err), where / "run")
        for code, (out, err) in zip(codes, outputs, strict=True)
    ]


def end_on(cluster: Cluster, where: Path, *arguments: str) -> Ended:
    """How a run on every host, that ended well on each, ended on the first."""
    ended = finish(start_on(cluster, where, *arguments), where)
    assert [host.code for host in ended] == [0] * len(cluster), ended
    return ended[0]


def run_on(cluster: Cluster, where: Path, *arguments: str) -> list[dict[str, str]]:
    """The rows that a run on every host gave."""
    return end_on(cluster, where, *arguments).rows()


def compared(
    cluster: Cluster, where: Path, *arguments: str, ends: tuple[int, int] = (0, 1)
) -> tuple[Ended, float]:
    """A run on every host, and what iperf3 reaches between two of them before and afterwards. Much
    can make a link seem slower than it is, nothing faster: the larger one counts."""
    sender, receiver = (cluster[end] for end in ends)
    before = goodput_gbps(sender, receiver)
    ended = end_on(cluster, where, *arguments)
    return ended, max(before, goodput_gbps(sender, receiver))


def gbps(row: dict[str, str], column: str = "busbw_GBps") -> float:
    return float(row[column]) * 8


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
    with limited_hosts(count, rate, burst) as cluster:
        ended, reached = compared(cluster, tmp_path, "--sizes", size, "--iters", "10")
    (row,) = ended.rows()
    assert (row["world_size"], row["num_nodes"], row["wrong"]) == (str(count), str(count), "0")
    assert gbps(row) == pytest.approx(reached, rel=0.02)


def test_one_slow_link_slows_everybody_and_is_named(tmp_path: Path) -> None:
    with limited_hosts(4, "2gbit", "512k") as cluster:
        cluster[2].limit("500mbit", "128k")
        ended, reached = compared(cluster, tmp_path, "--sizes", "16M", "--iters", "10", ends=(2, 3))
    (row,) = ended.rows()
    assert gbps(row) == pytest.approx(reached, rel=0.02)
    (table,) = [part for part in ended.out.split("\n\n") if part.startswith("Slow links")]
    (slow,) = table.splitlines()[4:]
    assert "rank 2" in slow.split("  ")[1]


def test_pairs_reach_what_iperf3_reaches_in_each_direction(tmp_path: Path) -> None:
    with limited_hosts(2, "1gbit") as cluster:
        ended, reached = compared(
            cluster, tmp_path, "--op", "ping_pong,exchange,stream", "--window", "4",
            "--sizes", "32M", "--iters", "5",
        )  # fmt: skip
    for row in ended.rows():
        assert gbps(row) == pytest.approx(reached, rel=0.03), row["operation"]


def test_the_link_of_the_rank_that_sends_most_is_what_unequal_blocks_wait_for(
    tmp_path: Path,
) -> None:
    with limited_hosts(4, "1gbit") as cluster:
        ended, reached = compared(
            cluster, tmp_path, "--op", "all_to_all_v", "--imbalance", "uniform,w4",
            "--sizes", "48M", "--iters", "5",
        )  # fmt: skip
    uniform, ragged = ended.rows()
    # Rank 3 sends 4/10 of everything: 1.6 times the mean.
    assert float(ragged["time_us"]) / float(uniform["time_us"]) == pytest.approx(1.6, rel=0.05)
    assert ragged["worst_rank"] == "3"
    for row in (uniform, ragged):
        assert gbps(row, "wire_GBps") == pytest.approx(reached, rel=0.03)


@pytest.mark.parametrize(
    ("ranks_per_host", "groups", "slow", "column", "expected"),
    [
        (1, "0,1;2,3", "", "interference", pytest.approx(1.00, abs=0.03)),
        # Ranks 0 and 1 are on host 0; the other two of the groups are on hosts 1 and 2.
        (2, "0,2;1,4", "", "interference", pytest.approx(2.00, abs=0.1)),
        (1, "0,1;2,3", "500mbit", "worst_group", "0,1"),
    ],
    ids=["own links", "a shared link", "a halved link"],
)
def test_groups_that_call_at_once_slow_each_other_on_a_link_that_they_share(
    tmp_path: Path, ranks_per_host: int, groups: str, slow: str, column: str, expected: object
) -> None:
    with limited_hosts(4, "1gbit") as cluster:
        if slow:
            cluster[0].limit(slow, "128k")
        rows = run_on(
            cluster, tmp_path, "--groups", groups, "--concurrency", "both", "--sizes", "32M",
            "--iters", "12", "--nproc-per-node", str(ranks_per_host),
            # Ranks of one core that run in real time would keep it from one another.
            *(["--cpu-mode", "plain"] if ranks_per_host > 1 else []),
        )  # fmt: skip
    assert {row["wrong"] for row in rows} == {"0"}
    (together,) = [row for row in rows if row["concurrency"] == "together"]
    assert together["groups"] == "2"
    found = together[column]
    assert (float(found) if column == "interference" else found) == expected


def rows_at(one_way_ms: float, tmp_path: Path, *arguments: str) -> list[dict[str, str]]:
    """The rows of a run on two hosts at that distance."""
    where = tmp_path / f"{one_way_ms}"
    where.mkdir()
    with distant_hosts(one_way_ms) as pair:
        return run_on(pair, where, *arguments)


def test_broadcast_makes_one_round_trip_and_all_reduce_two(tmp_path: Path) -> None:
    arguments = ("--op", "broadcast,all_reduce", "--sizes", "1K", "--iters", "100")
    # The rest of the way, through gloo and the program that delays, is the same at any distance.
    near, far = (rows_at(ms, tmp_path, *arguments) for ms in (0, 5))
    for here, there, trips in zip(near, far, (1, 2), strict=True):
        fastest, usual = (float(there[at]) - float(here[at]) for at in ("time_min_us", "time_us"))
        assert fastest == pytest.approx(trips * 10_000, rel=0.05)
        # Programs that have slept for long also wake up late on a machine with other work.
        assert usual == pytest.approx(trips * 10_000, rel=0.1)


def test_half_a_round_trip_takes_as_long_as_one_way(tmp_path: Path) -> None:
    arguments = ("--op", "ping_pong", "--sizes", "8", "--iters", "60")
    (near,), (far,) = (rows_at(ms, tmp_path, *arguments) for ms in (0, 5))
    assert float(far["time_us"]) - float(near["time_us"]) == pytest.approx(5000, rel=0.1)


def test_a_cut_link_ends_the_run_on_both_hosts(tmp_path: Path) -> None:
    arguments = ["--sizes", "1K,64M", "--iters", "30", "--timeout", "5"]
    with limited_hosts(2, "1gbit") as cluster:
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

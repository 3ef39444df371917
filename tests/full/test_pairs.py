"""`commbench pairs` on links of known speed: it must name what was made slow, and nothing else.

COMMBENCH_TEST_REPEATS is the number of runs of each case; docs/pairs.md says what 20 gave.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from commands import START_TIMEOUT_S
from hosts import DEVICE, Cluster, Host, hosts

from commbench.answers.pairs.matrix import main_matrices, pair_matrices
from commbench.answers.pairs.slow_parts import BOTH, HOST, LINK, OUT, find_slow
from commbench.results.journal_reader import read_run
from commbench.results.schema import Run

pytestmark = pytest.mark.full
REPEATS = int(os.environ.get("COMMBENCH_TEST_REPEATS", "2"))
PROGRAM = Path(__file__).with_name("repeated.py")
FULL, HALF, BURST = "1gbit", "500mbit", "256k"
FEW = ("--sizes", "2M", "--iters", "20", "--no-plots", "--cpu-mode", "plain")


def limit(host: Host, rate: str) -> None:
    """Let a host send at this rate: with htb on all hosts, which lets through less than tbf."""
    for command in (
        f"qdisc replace dev {DEVICE} root handle 1: htb default 10",
        f"class add dev {DEVICE} parent 1: classid 1:1 htb rate {rate} burst {BURST}",
        f"class add dev {DEVICE} parent 1:1 classid 1:10 htb rate {rate} burst {BURST}",
    ):
        host.run("tc", *command.split())


def halve_link(cluster: Cluster, first: int, second: int) -> None:
    """Let the first host send to the second one at half the rate, and to the others as before."""
    to = cluster[second].address
    for command in (
        f"class add dev {DEVICE} parent 1:1 classid 1:20 htb rate {HALF} burst {BURST}",
        f"filter add dev {DEVICE} parent 1: protocol ip u32 match ip dst {to}/32 flowid 1:20",
    ):
        cluster[first].run("tc", *command.split())


def halve_reception(cluster: Cluster, host: int) -> None:
    """Let a host receive at half the rate: the port of the switch sends no faster."""
    tbf = f"root tbf rate {HALF} burst {BURST} latency 50ms"
    port = f"to-host{host}"
    subprocess.run(
        ["ip", "netns", "exec", cluster.switch, *f"tc qdisc replace dev {port} {tbf}".split()],
        check=True,
    )


def slow_down(cluster: Cluster, what: str) -> None:
    """Halve one link, one direction of a host, or a host."""
    for host in cluster:
        limit(host, HALF if what in ("direction", "host") and host is cluster[2] else FULL)
    if what.startswith("link"):
        halve_link(cluster, 2, 5)
    if what == "link":
        halve_link(cluster, 5, 2)
    if what == "host":
        halve_reception(cluster, 2)


def run_pairs(cluster: Cluster, where: Path, times: int, *arguments: str) -> list[Run]:
    """So many runs of all hosts, a rank on each."""
    where.mkdir()
    processes = [
        host.start(
            sys.executable, str(PROGRAM), str(times), str(rank), str(len(cluster)),
            cluster[0].name, "pairs", *arguments, cwd=where, GLOO_SOCKET_IFNAME=DEVICE,
        )
        for rank, host in enumerate(cluster)
    ]  # fmt: skip
    try:
        outputs = [
            process.communicate(timeout=(times + 3) * START_TIMEOUT_S) for process in processes
        ]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return [read_run(where / str(number)) for number in range(times)]


def findings(run: Run) -> list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    """What the bandwidths say is slow."""
    matrix = main_matrices(pair_matrices(run))[-1]
    return [(f.kind, f.direction, f.ranks, f.to_ranks) for f in find_slow(matrix).findings]


SLOW = {
    "nothing": [],
    "link": [(LINK, BOTH, (2,), (5,))],
    "link one way": [(LINK, OUT, (2,), (5,))],
    "direction": [(HOST, OUT, (2,), ())],
    "host": [(HOST, BOTH, (2,), ())],
}


@pytest.mark.parametrize("what", SLOW)
def test_what_was_halved_is_named_in_every_run(tmp_path: Path, what: str) -> None:
    with hosts(8) as cluster:
        slow_down(cluster, what)
        runs = run_pairs(cluster, tmp_path / "runs", REPEATS, *FEW)
    assert [findings(run) for run in runs] == [SLOW[what]] * REPEATS


@pytest.mark.parametrize("what", SLOW)
def test_a_quick_search_names_the_same_in_a_third_of_the_time(tmp_path: Path, what: str) -> None:
    with hosts(16) as cluster:
        slow_down(cluster, what)
        (full,) = run_pairs(cluster, tmp_path / "full", 1, "--no-plots", "--cpu-mode", "plain")
        quick = run_pairs(
            cluster, tmp_path / "quick", REPEATS, "--quick", "--no-plots", "--cpu-mode", "plain"
        )
    assert [findings(run) for run in (full, *quick)] == [SLOW[what]] * (1 + REPEATS)
    ends = [run.end for run in (full, *quick)]
    took_s = [end.elapsed_s for end in ends if end]
    assert median(took_s[1:]) <= took_s[0] / 3

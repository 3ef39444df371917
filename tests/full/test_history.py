"""A history of real runs on two hosts, with two real changes: both are found with their causes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_hosts import fork_servers
from hosts import DEVICE, Cluster, hosts, ip
from test_links import finish

from commbench import history
from commbench.answers.history.records import LINK

pytestmark = pytest.mark.full
EACH = 20
"""Runs between two changes."""
SECOND = "eth1"


def add_device(cluster: Cluster, rate: str) -> None:
    """Give each host a second device, of this rate."""
    for number, host in enumerate(cluster, start=1):
        port = f"second-{host.name}"
        ip(
            "link", "add", SECOND, "netns", host.namespace, "type", "veth",
            "peer", "name", port, "netns", cluster.switch,
        )  # fmt: skip
        ip("-netns", cluster.switch, "link", "set", port, "master", "bridge", "up")
        address = f"10.78.0.{number}/24"
        ip("-netns", host.namespace, "address", "add", address, "dev", SECOND)
        ip("-netns", host.namespace, "link", "set", SECOND, "up")
        limit(host, SECOND, rate)


def limit(host: object, device: str, rate: str) -> None:
    host.run(  # type: ignore[attr-defined]
        *f"tc qdisc replace dev {device} root tbf rate {rate} burst 32k latency 50ms".split()
    )


def measure(
    cluster: Cluster, pythons: dict[str, Path], where: Path, name: str, device: str
) -> None:
    """A short run, which goes into the history; on a busy machine at the third attempt at most."""
    command = [
        "-m", "commbench", "run", "--no-plots", "--nnodes", "2", "--nproc-per-node", "1",
        "--master-addr", cluster[0].name, "--iters", "6", "--op", "all_reduce,broadcast",
        "--sizes", "512K,1M", "--history", "--db", "history.sqlite", "--cpu-mode", "plain",
    ]  # fmt: skip
    for attempt in range(3):
        own = [*command, "--output", f"{name}-{attempt}", "--node-rank"]
        started = [
            host.start(
                str(pythons[host.name]), *own, str(rank), cwd=where, GLOO_SOCKET_IFNAME=device
            )
            for rank, host in enumerate(cluster)
        ]
        ended = finish(started, where)
        if not any(each.code for each in ended):
            return
    pytest.fail(f"{name}: {ended}")


def test_a_slower_link_and_a_variable_are_the_changes_of_sixty_runs(tmp_path: Path) -> None:
    with hosts(2) as cluster, fork_servers(cluster) as pythons:
        for host in cluster:
            limit(host, DEVICE, "200mbit")
        add_device(cluster, "300mbit")
        for number in range(3 * EACH):
            if number == EACH:
                for host in cluster:
                    limit(host, DEVICE, "160mbit")
            device = DEVICE if number < 2 * EACH else SECOND
            measure(cluster, pythons, tmp_path, f"run-{number:02}", device)
    trend = history.show(db=tmp_path / "history.sqlite")
    print(trend)
    assert [change.run.id for change in trend.changes] == [2 * EACH + 1, EACH + 1]
    faster, slower = trend.changes
    assert slower.ratio.value == pytest.approx(200 / 160, rel=0.1)
    assert [cause.name for cause in slower.likely] == [LINK]
    assert faster.ratio.value == pytest.approx(160 / 300, rel=0.1)
    names = {cause.name: (cause.a, cause.b) for cause in faster.likely}
    assert names.pop("GLOO_SOCKET_IFNAME") == (DEVICE, SECOND)
    assert names.keys() <= {LINK, "interfaces"}
    assert all(len(change.steps) >= 3 for change in trend.changes)

"""Hosts far apart: what one sends arrives at the other a while later.

Where the kernel has netem, that delays. Elsewhere a program does: see forwarder.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hosts import DEVICE, Cluster, Host, bring_up, hosts, ip

FORWARDER = ("chrt", "--fifo", "20", sys.executable, str(Path(__file__).with_name("forwarder.py")))
"""Ahead of what it delays: commbench's realtime mode has priority 10."""


@contextmanager
def distant_hosts(one_way_ms: float) -> Iterator[Cluster]:
    """Two hosts with so much distance between them, and all the bandwidth there is."""
    with hosts(2) as cluster:
        if all(_netem(host, one_way_ms) for host in cluster):
            yield cluster
        else:
            with _forwarder(cluster, one_way_ms):
                yield cluster


def _netem(host: Host, one_way_ms: float) -> bool:
    """Delay what the host sends; False where the kernel cannot."""
    netem = f"tc qdisc add dev {DEVICE} root netem delay {one_way_ms}ms"
    with host.start(*netem.split()) as tc:
        _, error = tc.communicate()
    assert tc.returncode == 0 or "qdisc kind is unknown" in error, error
    return tc.returncode == 0


@contextmanager
def _forwarder(cluster: Cluster, one_way_ms: float) -> Iterator[None]:
    """Put the program where the cables of both hosts were."""
    ends = [f"far-{host.name}" for host in cluster]
    with subprocess.Popen(
        ["ip", "netns", "exec", cluster.switch, *FORWARDER, str(one_way_ms), *ends],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout and program.stdout.readline() == "ready\n"
            for host, end in zip(cluster, ends, strict=True):
                _plug_in(host, end, cluster.switch)
            yield
        finally:
            program.kill()


def _plug_in(host: Host, end: str, where: str) -> None:
    """Make the device `end` the one that leads from the host to the others."""
    there = ("netns", host.namespace, "name", DEVICE)
    ip("-netns", host.namespace, "link", "delete", DEVICE)
    ip("-netns", where, "link", "set", end, *there)
    bring_up(host)

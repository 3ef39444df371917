"""Hosts made of network namespaces: names, cables, a switch, and nothing left behind.

Needs root and iproute2. Addresses and devices exist only within the namespaces made here.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from commands import START_TIMEOUT_S, clean_environment

DEVICE = "eth0"
"""The device of every host that leads to the others."""
NAMESPACES = Path("/run/netns")
AS_HOST = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'
"""Shell: with the names of all hosts, and with its own, be the program that follows."""
CLEAN_UP = f"""
read _
for namespace in $(ls {NAMESPACES} | grep "^$0"); do
    ip netns pids $namespace | xargs --no-run-if-empty kill -KILL
    # A deleted namespace dies later. A deleted device is gone at once, and its peer with it.
    ip -netns $namespace link delete {DEVICE} 2>/dev/null
    ip netns delete $namespace
done
rm -r "$1"
"""
"""Shell: wait until the test lets go or dies; then remove its namespaces, what runs in them, and
its folder."""
_numbers = count()


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace that stands for a machine."""

    namespace: str
    name: str
    address: str
    names: Path
    """What its programs find in /etc/hosts."""
    core: int
    """The core that they keep to: all hosts share the cores of one machine."""

    def entrance(self) -> list[str]:
        """The command that runs the command after it on this host."""
        return [
            "nsenter", f"--net={NAMESPACES / self.namespace}",
            "unshare", "--uts", "--mount", "sh", "-c", AS_HOST, str(self.names), self.name,
            "taskset", "--cpu-list", str(self.core),
        ]  # fmt: skip

    def start(
        self, *command: str, cwd: Path | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a program on this host."""
        return subprocess.Popen(
            [*self.entrance(), *command],
            cwd=cwd,
            env=clean_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> str:
        """Run a program on this host, and return what it printed; it has to succeed."""
        with self.start(*command, cwd=cwd, **variables) as process:
            try:
                out, err = process.communicate(timeout=START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, f"{' '.join(command)} on {self.name}: {err or out}"
        return out

    def limit(self, rate: str, burst: str, longest_wait: str = "50ms") -> None:
        """Let this host send no faster than `rate` (such as 1gbit). What would wait longer than
        `longest_wait` to be sent is dropped."""
        self.run(
            "tc", "qdisc", "replace", "dev", DEVICE, "root",
            "tbf", "rate", rate, "burst", burst, "latency", longest_wait,
        )  # fmt: skip

    def cut(self) -> None:
        """Take this host's link down, as if somebody had pulled the cable."""
        self.run("ip", "link", "set", DEVICE, "down")


class Cluster(list[Host]):
    """Hosts on one switch. Making it makes nothing yet but a folder, with their names in a file."""

    def __init__(self, number: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="commbench-"))
        """Goes with the hosts."""
        names = self.folder / "hosts"
        self.stem = f"commbench-{os.getpid()}-{next(_numbers)}-"
        self.switch = f"{self.stem}switch"
        cores = sorted(os.sched_getaffinity(0))
        for index in range(number):
            name, address = f"host{index}", f"10.77.0.{index + 1}"
            self.append(
                Host(self.stem + name, name, address, names, core=cores[index % len(cores)])
            )
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self)]
        names.write_text("\n".join(lines) + "\n")


@contextmanager
def hosts(number: int) -> Iterator[Cluster]:
    """So many hosts on a switch. However the test ends, they go, with all that runs on them."""
    cluster = Cluster(number)
    with subprocess.Popen(
        ["sh", "-c", CLEAN_UP, cluster.stem, str(cluster.folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ):
        _make_switch(cluster.switch)
        for host in cluster:
            _plug_in(host, cluster.switch)
        yield cluster


@contextmanager
def limited_hosts(
    number: int, rate: str, burst: str = "256k", longest_wait: str = "50ms"
) -> Iterator[Cluster]:
    """Hosts that send no faster than `rate`, if any."""
    with hosts(number) as cluster:
        for host in cluster if rate else ():
            host.limit(rate, burst, longest_wait)
        yield cluster


def outputs_of(programs: Sequence[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """What programs on hosts printed, on standard output and error; all have to succeed."""
    try:
        outputs = [program.communicate(timeout=4 * START_TIMEOUT_S) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert not any(program.returncode for program in programs), outputs
    return outputs


def bring_up(host: Host) -> None:
    """Give the host's device its address; its connections then behave alike on every machine."""
    ip("-netns", host.namespace, "address", "add", f"{host.address}/24", "dev", DEVICE)
    for device in ("lo", DEVICE):
        ip("-netns", host.namespace, "link", "set", device, "up")
    # The one congestion control that every kernel has. BBR, for one, gives up a good part of a
    # fast link while it probes.
    host.run("sh", "-c", "echo reno >/proc/sys/net/ipv4/tcp_congestion_control")


def ip(*arguments: str) -> None:
    """Run the `ip` command; it has to succeed."""
    ended = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert ended.returncode == 0, f"ip {' '.join(arguments)}: {ended.stderr}"


def _make_switch(namespace: str) -> None:
    ip("netns", "add", namespace)
    ip("-netns", namespace, "link", "add", "bridge", "type", "bridge")
    ip("-netns", namespace, "link", "set", "bridge", "up")


def _plug_in(host: Host, switch: str) -> None:
    """Make a host, and the cable to the switch, each end of it born where it belongs."""
    port = f"to-{host.name}"
    ip("netns", "add", host.namespace)
    ip(
        "link", "add", DEVICE, "netns", host.namespace, "type", "veth",
        "peer", "name", port, "netns", switch,
    )  # fmt: skip
    ip("-netns", switch, "link", "set", port, "master", "bridge", "up")
    bring_up(host)

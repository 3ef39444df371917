"""`commbench preflight` on 8 hosts: those that were made bad are named, each in the right list, and
of sound hosts none is. COMMBENCH_TEST_REPEATS is the number of runs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from commands import clean_environment, journal_lines
from fork_hosts import fork_servers
from hosts import DEVICE, Cluster, hosts
from test_pairs import limit

from commbench.results.run_folder import JOURNAL

pytestmark = pytest.mark.full
REPEATS = int(os.environ.get("COMMBENCH_TEST_REPEATS", "1"))
FULL, REDUCED = "200mbit", "160mbit"
LIMIT_S = 300
TOLERANCE = "99%"
"""Of the times of a host alone: all of these hosts share the cores of one machine."""
FAULTS = Path(__file__).parents[2] / "scripts" / "faults.py"
KILLED = json.dumps(
    {"code": "import os; os.kill(os.getpid(), 9)", "phase": "call", "rank": 0, "at": 3}
)
SLOW, STUCK, DYING = "host2", "host5", "host6"
RUN = ("--op", "all_reduce,all_gather", "--sizes", "64K,1M", "--budget", "0.1")


def write_entrance(cluster: Cluster, pythons: dict[str, Path], bad: Sequence[str]) -> Path:
    """A program that runs the command after the name of a host on it, as ssh does."""
    lines = ["#!/bin/bash", "name=$1", "shift", "case $name in"]
    own = f"{shlex.quote(sys.executable)} -m commbench"
    for host in cluster:
        program = f"{pythons[host.name]} -m commbench"
        if host.name in bad and host.name == DYING:
            program = f"env COMMBENCH_FAULT={shlex.quote(KILLED)} {sys.executable} {FAULTS}"
        edit = shlex.quote(f"s#{own}#{program}#")
        command = f'exec {shlex.join(host.entrance())} "$@" < <(sed -u {edit})'
        is_stuck = host.name in bad and host.name == STUCK
        lines.append(f"{host.name}) {'exec sleep 1000' if is_stuck else command} ;;")
    path = cluster.folder / "enter"
    path.write_text("\n".join([*lines, "esac", ""]))
    path.chmod(0o700)
    return path


def run_preflight(
    cluster: Cluster,
    enter: Path,
    output: Path,
    need: int,
    stage_limit: str = "20",
    **variables: str,
) -> int:
    """The exit code of `commbench preflight` on all hosts."""
    words = [
        "--hosts", ",".join(host.name for host in cluster), "--start", f"{enter} {{host}}",
        "--need", str(need), "--nproc-per-node", "1", "--limit", str(LIMIT_S), "--stage-limit",
        stage_limit, "--at-once", "4", "--tolerance", TOLERANCE,
        "--env", f"GLOO_SOCKET_IFNAME={DEVICE}", "-o", str(output),
        "--", *RUN,
    ]  # fmt: skip
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "commbench", "preflight", *words],
        env=clean_environment(**variables), timeout=LIMIT_S + 30, capture_output=True, text=True,
    )  # fmt: skip
    print(ended.stdout, ended.stderr, f"{time.monotonic() - started:.0f} s")
    assert time.monotonic() - started < LIMIT_S
    return ended.returncode


def lists(output: Path) -> dict[str, list[str]]:
    """The lists with names, without that of good hosts."""
    names = ("drain", "missing", "flapping", "again")
    found = {name: (output / f"{name}.txt").read_text().split() for name in names}
    return {name: hosts for name, hosts in found.items() if hosts}


@pytest.mark.parametrize("bad", [(), (SLOW, STUCK, DYING)], ids=["sound", "three"])
def test_those_that_were_made_bad_are_named(tmp_path: Path, bad: tuple[str, ...]) -> None:
    found, codes = [], []
    with hosts(8) as cluster, fork_servers(cluster) as pythons:
        for host in cluster:
            limit(host, REDUCED if host.name in bad and host.name == SLOW else FULL)
        enter = write_entrance(cluster, pythons, bad)
        for number in range(REPEATS):
            output = tmp_path / str(number)
            codes.append(run_preflight(cluster, enter, output, need=5))
            found.append(lists(output))
    expected = {"drain": [SLOW, DYING], "missing": [STUCK]} if bad else {}
    assert found == [expected] * REPEATS
    assert codes == [0] * REPEATS


class Saboteur(Thread):
    """Sends a signal to the rank on a host in runs of so many hosts, as soon as it measures."""

    def __init__(self, folder: Path, host: str, number: signal.Signals, size: int, times: int):
        super().__init__(daemon=True)
        self._folder, self._host, self._number = folder, host, number
        self._size, self._times = size, times
        self.ended, self.signalled = Event(), list[int]()

    def run(self) -> None:
        while not self.ended.wait(0.01) and len(self.signalled) < self._times:
            for path in self._folder.glob(f"*/run/{JOURNAL}"):
                if (pid := self._find(path)) and pid not in self.signalled:
                    os.kill(pid, self._number)
                    self.signalled.append(pid)

    def _find(self, path: Path) -> int | None:
        """The process of the rank on the host, once the run of the journal has a batch."""
        with suppress(OSError):  # the folder goes when the run ends
            header, *others = journal_lines(path) or [{}]
            places = {rank["host"]: rank["pid"] for rank in header.get("ranks", ())}
            if len(places) == self._size and any(line["kind"] == "batch" for line in others):
                return places.get(self._host)
        return None


@pytest.mark.parametrize(
    ("number", "size", "times", "verdict"),
    [
        (signal.SIGKILL, 1, 2, "drain"),
        (signal.SIGKILL, 4, 2, "drain"),
        (signal.SIGKILL, 4, 1, "flapping"),
        (signal.SIGSTOP, 1, 2, "drain"),
        (signal.SIGSTOP, 4, 2, "drain"),
    ],
)
def test_a_host_is_named_whose_rank_gets_a_signal(
    tmp_path: Path, number: signal.Signals, size: int, times: int, verdict: str
) -> None:
    where, victim = tmp_path / "hosts", "host2"
    where.mkdir()
    with hosts(4) as cluster, fork_servers(cluster) as pythons:
        enter = write_entrance(cluster, pythons, ())
        saboteur = Saboteur(where, victim, number, size, times)
        saboteur.start()
        output = tmp_path / "checked"
        code = run_preflight(cluster, enter, output, 4, stage_limit="30", TMPDIR=str(where))
        saboteur.ended.set()
    assert len(saboteur.signalled) == times
    assert lists(tmp_path / "checked") == {verdict: [victim]}
    assert code == (1 if verdict == "drain" else 7)
    found = json.loads((tmp_path / "checked" / "preflight.json").read_text())
    [told] = [host for host in found["hosts"] if host["name"] == victim]
    assert told["stage"] == ("alone" if size == 1 else "all")
    assert re.match(rf"rank \d on {victim} ", told["reason"])

"""commbench under a real mpirun, Open MPI's, on one host and on two."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import broken
import pytest
from broken import SMALL_THEN_LARGE, check_named, check_resumed, cut_off, kill_rank
from commands import Ended
from hosts import Cluster, hosts

pytestmark = pytest.mark.full

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpirun(cluster: Cluster, where: Path, *options: str, ranks: int = 4) -> Ended:
    """Run commbench as the processes of an mpirun on the first host; it has to succeed."""
    asked = ["--sizes", "1K,64K", "--iters", "5", "--no-plots", "--output", "run"]
    return finish(start(cluster, where, options, asked, ranks), where)


def start(
    cluster: Cluster, where: Path, options: Sequence[str], asked: Sequence[str], ranks: int
) -> subprocess.Popen[str]:
    """Start an mpirun on the first host, of processes that run commbench."""
    return cluster[0].start(
        "mpirun", *options, "-n", str(ranks), sys.executable, "-m", "commbench", "run", *asked,
        "--master-addr", cluster[0].name,
        cwd=where, TMPDIR=str(where), **AS_ROOT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], where: Path) -> Ended:
    ended = broken.finish(process, where).good()
    assert "\x1b" not in ended.out + ended.err, "ranks have a terminal, but this is a pipe"
    return ended


def two_hosts(cluster: Cluster, where: Path, places: str) -> list[str]:
    """Options of an mpirun that reaches both hosts."""
    return ["--mca", "plm_rsh_agent", str(remote_shell(cluster, where / "shell")), "--host", places]


def remote_shell(cluster: Cluster, path: Path) -> Path:
    """A program that takes a host and a command, as ssh does, and runs it there."""
    lines = ["#!/bin/sh", "host=$1; shift", "case $host in"]
    lines += [f'{host.name}) exec {shlex.join(host.entrance())} sh -c "$*" ;;' for host in cluster]
    path.write_text("\n".join([*lines, "esac"]) + "\n")
    path.chmod(0o755)
    return path


def check(ended: Ended, places: list[str]) -> None:
    """The run is complete, and its ranks are where they should be."""
    header, *_, end = ended.journal()
    assert (header["launcher"], header["num_nodes"]) == ("mpirun", len(set(places)))
    assert [rank["host"] for rank in header["ranks"]] == places
    assert [row["status"] for row in ended.rows()] == ["ok", "ok"]
    assert end["status"] == "complete"
    assert ended.out.count(f"{len(places)} gloo ranks on ") == 1
    addresses = {"host0": "10.77.0.1", "host1": "10.77.0.2"} if len(set(places)) > 1 else {}
    ways = [("eth0", addresses[host]) if addresses else ("lo", "127.0.0.1") for host in places]
    assert [(rank["interface"], rank["address"]) for rank in header["ranks"]] == ways


def test_the_processes_of_mpirun_are_the_ranks(tmp_path: Path) -> None:
    with hosts(1) as cluster:
        ended = mpirun(cluster, tmp_path, "--oversubscribe")
    check(ended, ["host0"] * 4)


def test_the_processes_of_mpirun_on_two_hosts_are_the_ranks(tmp_path: Path) -> None:
    with hosts(2) as cluster:
        ended = mpirun(cluster, tmp_path, *two_hosts(cluster, tmp_path, "host0:2,host1:2"))
    check(ended, ["host0", "host0", "host1", "host1"])


def test_hosts_with_unequally_many_processes_are_counted_right(tmp_path: Path) -> None:
    with hosts(2) as cluster:
        options = two_hosts(cluster, tmp_path, "host0:1,host1:2")
        ended = mpirun(cluster, tmp_path, *options, ranks=3)
    check(ended, ["host0", "host1", "host1"])
    talk = "Network interfaces: eth0 of host0 (10.77.0.1), host1 (10.77.0.2)."
    assert ended.out.splitlines().count(talk) == 1


def test_a_run_under_mpirun_that_was_cut_off_goes_on_under_mpirun(tmp_path: Path) -> None:
    with hosts(2) as cluster:
        options = two_hosts(cluster, tmp_path, "host0:2,host1:1")
        asked = [*SMALL_THEN_LARGE, "--output", "run"]
        before = cut_off(start(cluster, tmp_path, options, asked, 3), tmp_path / "run")
        again = start(cluster, tmp_path, options, ["--resume", "run", "--no-plots"], 3)
        ended = finish(again, tmp_path)
    check_resumed(ended, before)
    assert ended.err.count("resuming run: 1 of 2 cases are complete") == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_mpirun_that_is_killed_is_named_and_nothing_is_left(
    tmp_path: Path, rank: int
) -> None:
    with hosts(1) as cluster:
        asked = [*SMALL_THEN_LARGE, "--output", "run"]
        process = start(cluster, tmp_path, ["--oversubscribe"], asked, 3)
        ended, seconds = kill_rank(process, tmp_path / "run", rank)
    check_named(ended, rank, "host0", seconds)


def test_a_rank_of_mpirun_on_another_host_that_is_killed_is_named(tmp_path: Path) -> None:
    with hosts(2) as cluster:
        options = two_hosts(cluster, tmp_path, "host0:1,host1:2")
        asked = [*SMALL_THEN_LARGE, "--output", "run"]
        process = start(cluster, tmp_path, options, asked, 3)
        ended, seconds = kill_rank(process, tmp_path / "run", 2)
    check_named(ended, 2, "host1", seconds)

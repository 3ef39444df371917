"""commbench under a real mpirun, Open MPI's, on one host and on two."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from conftest import Ended
from hosts import Cluster, hosts

pytestmark = pytest.mark.full

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpirun(cluster: Cluster, where: Path, *options: str, ranks: int = 4) -> Ended:
    """Run commbench as the processes of an mpirun on the first host."""
    out = cluster[0].run(
        "mpirun", *options, "-n", str(ranks), sys.executable, "-m", "commbench", "run",
        "--sizes", "1K,64K", "--iters", "5", "--no-plots", "--output", "run",
        "--master-addr", cluster[0].name,
        cwd=where, TMPDIR=str(where), **AS_ROOT,
    )  # fmt: skip
    return Ended(0, out, "", where / "run")


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
        shell = remote_shell(cluster, tmp_path / "shell")
        options = ["--mca", "plm_rsh_agent", str(shell), "--host", "host0:2,host1:2"]
        ended = mpirun(cluster, tmp_path, *options)
    check(ended, ["host0", "host0", "host1", "host1"])


def test_hosts_with_unequally_many_processes_are_counted_right(tmp_path: Path) -> None:
    with hosts(2) as cluster:
        shell = remote_shell(cluster, tmp_path / "shell")
        options = ["--mca", "plm_rsh_agent", str(shell), "--host", "host0:1,host1:2"]
        ended = mpirun(cluster, tmp_path, *options, ranks=3)
    check(ended, ["host0", "host1", "host1"])
    talk = "Hosts talk through eth0 of host0 (10.77.0.1), host1 (10.77.0.2)."
    assert ended.out.splitlines().count(talk) == 1

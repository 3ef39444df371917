"""commbench with a real Ray: clusters of two nodes, which are raylets on this host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broken import (
    SMALL_THEN_LARGE,
    await_end,
    await_the_large_one,
    check_resumed,
    finish,
    kill_rank,
    lines_of,
)
from commands import SHORT_DELAYS, START_TIMEOUT_S, Ended, clean_environment

pytestmark = pytest.mark.full
pytest.importorskip("ray")

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = {"object_store_memory": 80 << 20}
head, *others = map(int, sys.argv[1:])
cluster = Cluster(True, head_node_args={"num_cpus": head, "include_dashboard": False, **small})
for cpus in others:
    cluster.add_node(num_cpus=cpus, **small)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
"""A program: nodes with these numbers of CPUs, until its standard input ends."""
HIDDEN = 'mount -t tmpfs none "$0" && exec "$@"'
"""Shell: be the program that follows, which does not see what is in a folder."""
ON_RAY = ("--launcher", "ray", "--nnodes", "2", "--nproc-per-node", "1")


@contextmanager
def cluster(*cpus: int, without: Path | None = None) -> Iterator[str]:
    """The address of a cluster whose nodes have so many CPUs, and do not see a folder."""
    hiding = ["unshare", "--mount", "sh", "-c", HIDDEN, str(without)] if without else []
    process = subprocess.Popen(
        [*hiding, sys.executable, "-c", CLUSTER, *map(str, cpus)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env=clean_environment(**SHORT_DELAYS),
    )  # fmt: skip
    assert process.stdin and process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(START_TIMEOUT_S)
        process.stdout.close()


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    with cluster(1, 1) as address:
        yield address


def start(address: str, where: Path, *asked: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "commbench", "run", *asked], cwd=where, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=clean_environment(RAY_ADDRESS=address, **SHORT_DELAYS),
    )  # fmt: skip


def errors(ended: Ended) -> list[str]:
    """The error and its hint, the only ones."""
    assert ended.err.count("error: ") == 1 and "Traceback" not in ended.err, ended.err
    return ended.err[ended.err.index("error: ") :].splitlines()


ASKED = ("--sizes", "1K,64K", "--iters", "5", "--no-plots", "--output", "run")


def test_actors_on_two_nodes_are_the_ranks(ray_address: str, tmp_path: Path) -> None:
    ended = finish(start(ray_address, tmp_path, *ON_RAY, *ASKED, "--format", "json"), tmp_path)
    assert ended.code == 0, ended.err
    header, *_, end = ended.journal()
    assert (header["launcher"], len(header["ranks"]), end["status"]) == ("ray", 2, "complete")
    assert [rank["local_rank"] for rank in header["ranks"]] == [0, 0]
    assert [row["status"] for row in ended.rows()] == ["ok", "ok"]
    json.loads(ended.out)  # Ray prints nothing between
    await_end([rank["pid"] for rank in header["ranks"]])


def test_a_killed_actor_is_named(ray_address: str, tmp_path: Path) -> None:
    process = start(ray_address, tmp_path, *ON_RAY, *SMALL_THEN_LARGE, "--output", "run")
    ended, _ = kill_rank(process, tmp_path / "run", 1)
    assert ended.code == 4
    assert errors(ended)[0].startswith(f"error: rank 1 on {os.uname().nodename} ended")
    assert lines_of(ended.folder)[-1]["status"] == "failed", ended.err


def test_a_rank_that_hangs_is_named(ray_address: str, tmp_path: Path) -> None:
    asked = [*ON_RAY, *SMALL_THEN_LARGE, "--timeout", "3", "--output", "run"]
    process = start(ray_address, tmp_path, *asked)
    ranks = await_the_large_one(process, tmp_path / "run")
    os.kill(ranks[1], signal.SIGSTOP)
    ended = finish(process, tmp_path)
    assert ended.code == 4
    assert errors(ended)[0].startswith(f"error: rank 1 on {os.uname().nodename} does not answer")
    await_end(ranks)


def test_an_interrupted_run_goes_on(ray_address: str, tmp_path: Path) -> None:
    process = start(ray_address, tmp_path, *ON_RAY, *SMALL_THEN_LARGE, "--output", "run")
    ranks = await_the_large_one(process, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    ended = finish(process, tmp_path)
    assert ended.code == 130, ended.err
    await_end(ranks)
    assert lines_of(ended.folder)[-1]["status"] == "interrupted", ended.err
    before = (ended.folder / "run.jsonl").read_bytes()
    again = finish(start(ray_address, tmp_path, *ON_RAY, "--resume", "run", "--no-plots"), tmp_path)
    check_resumed(again, before)


def test_more_nodes_than_there_are_is_refused(ray_address: str, tmp_path: Path) -> None:
    asked = ["--launcher", "ray", "--nnodes", "3", "--nproc-per-node", "1", "--timeout", "3"]
    ended = finish(start(ray_address, tmp_path, *asked, *ASKED), tmp_path)
    assert ended.code == 3
    assert "did not give 1 CPU on each of 3 nodes within 3 s" in errors(ended)[0]
    assert not ended.folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_the_files_of_a_rank_0_elsewhere_are_copied_back(tmp_path: Path) -> None:
    with cluster(1, 1, without=tmp_path) as address:
        ended = finish(start(address, tmp_path, *ON_RAY, *ASKED), tmp_path)
        assert ended.code == 0, ended.err
        assert "does not see" in ended.err
        assert ended.journal()[-1]["status"] == "complete" and len(ended.rows()) == 2


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = finish(start("127.0.0.1:1", tmp_path, *ON_RAY, *ASKED), tmp_path)
    assert ended.code == 3
    assert "the Ray cluster 127.0.0.1:1 cannot be used" in errors(ended)[0]

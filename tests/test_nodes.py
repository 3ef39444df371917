"""Several nodes, which are launchers on this host: who comes, who does not, and who may not."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import START_TIMEOUT_S, Ended, clean_environment
from test_launch import free_port
from torch.distributed.elastic.rendezvous import RendezvousParameters

from commbench.errors import UnavailableError
from commbench.launch.rendezvous import NodesRendezvous
from commbench.records.journal import JOURNAL


def start(where: Path, node: int, port: int, *arguments: str) -> subprocess.Popen[str]:
    """The launcher of a node of two, in a folder of its own."""
    own = where / f"node{node}"
    own.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            sys.executable, "-m", "commbench", "run", "--no-plots", "--nnodes", "2",
            "--nproc-per-node", "1", "--node-rank", str(node), "--master-addr", "127.0.0.1",
            "--master-port", str(port), *arguments,
        ],
        cwd=own, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], folder: Path = Path()) -> Ended:
    out, err = process.communicate(timeout=START_TIMEOUT_S)
    return Ended(process.returncode, out, err, folder)


def run_both(where: Path, first: list[str], second: list[str]) -> tuple[Ended, Ended]:
    port = free_port()
    started = [start(where, node, port, *own) for node, own in enumerate((first, second))]
    one, other = (finish(process, where / "node0" / "run") for process in started)
    return one, other


def cut(journal: Path, cases: int) -> str:
    """What a journal holds up to the line of so many cases; from now on that is all."""
    lines = journal.read_text().splitlines(keepends=True)
    ends = [i for i, line in enumerate(lines) if line.startswith('{"kind": "case"')]
    journal.write_text(kept := "".join(lines[: ends[cases - 1] + 1]))
    return kept


def give(text: str, where: Path) -> None:
    """Let node 1 have a journal."""
    folder = where / "node1" / "run"
    folder.mkdir(exist_ok=True)
    (folder / JOURNAL).write_text(text)


ASKED = ["--sizes", "1K,2K", "--iters", "4", "--order", "ascending"]


def test_two_nodes_run_the_same_command_and_go_on_with_it(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, [*ASKED, "--verbose", "--output", "run"], ASKED)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "ranks are spawned" in first.err
    assert "all_reduce" in first.out and not second.out
    header = first.journal()[0]
    # Two nodes on one host are one host.
    assert (header["num_nodes"], len(header["ranks"])) == (1, 2)

    kept = cut(first.folder / JOURNAL, 1)
    refused = finish(start(tmp_path, 1, 1, "--resume", "run"))
    assert refused.code == 6
    assert refused.err.splitlines() == [
        "error: there is no file, folder or run 'run'",
        "hint: every node reads the run that is resumed: copy its folder to this one",
    ]
    give(kept, tmp_path)
    first, second = run_both(tmp_path, ["--resume", "run"], ["--resume", "run"])
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "resuming run: 1 of 2 cases are finished" in first.err
    assert [row["iterations"] for row in first.rows()] == ["4", "4"]
    assert (tmp_path / "node1" / "run" / JOURNAL).read_text() == kept


@pytest.mark.full
def test_launches_of_two_nodes_go_on_if_both_have_the_same_journal(tmp_path: Path) -> None:
    asked = [*ASKED, "--launches", "3"]
    first, second = run_both(tmp_path, [*asked, "--output", "run"], asked)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert [line["kind"] for line in first.journal()].count("end") == 3
    journal = first.folder / JOURNAL
    kept = cut(journal, 3)
    give("".join(kept.splitlines(keepends=True)[:-1]), tmp_path)
    first, second = run_both(tmp_path, ["--resume", "run"], ["--resume", "run"])
    assert (first.code, second.code) == (3, 3)
    assert "has another journal" in first.err and "has another journal" in second.err
    assert journal.read_text() == kept
    give(kept, tmp_path)
    first, second = run_both(tmp_path, ["--resume", "run"], ["--resume", "run"])
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "resuming run: 1 of 2 cases of launch 2 of 3 are finished" in first.err
    assert [row["iterations"] for row in first.rows()] == ["12", "12"]


def test_a_node_that_does_not_come_is_named(tmp_path: Path) -> None:
    port = free_port()
    began = time.monotonic()
    alone = finish(start(tmp_path, 0, port, "--sizes", "1K", "--timeout", "2", "--output", "run"))
    assert 2 < time.monotonic() - began < START_TIMEOUT_S / 2
    assert (alone.code, alone.out) == (3, "")
    assert alone.err.splitlines()[-2:] == [
        f"error: node 1 of 2 did not come within 2 s to 127.0.0.1:{port}",
        "hint: start the same command on each node with its --node-rank; --timeout says how long "
        "to wait",
    ]
    assert not (tmp_path / "node0" / "run").exists()


def test_node_0_that_does_not_come_is_named_with_where_it_should_be(tmp_path: Path) -> None:
    port = free_port()
    alone = finish(start(tmp_path, 1, port, "--sizes", "1K", "--timeout", "2"))
    assert alone.code == 3
    assert alone.err.splitlines()[-2] == (
        f"error: node 1 cannot reach node 0 at 127.0.0.1:{port} within 2 s: Connection refused"
    )


def test_a_port_that_is_taken_is_refused_at_once(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = finish(start(tmp_path, 0, port, "--sizes", "1K", "--output", "run"))
    assert ended.code == 3
    assert ended.err.splitlines()[-2:] == [
        f"error: port {port} cannot be opened on this host: Address already in use",
        "hint: give each node its own --node-rank; or choose another port, the same on each: "
        "--master-port PORT",
    ]
    assert not (tmp_path / "node0" / "run").exists()


def test_node_0_that_is_somewhere_else_is_refused_at_once() -> None:
    rendezvous = NodesRendezvous(
        RendezvousParameters(
            "commbench-nodes", f"no.such.host.invalid:{free_port()}", "commbench-0", 2, 2,
            rank=0, timeout=60, guard=None,
        )
    )  # fmt: skip
    with pytest.raises(UnavailableError) as refused:
        rendezvous.next_rendezvous()
    assert refused.value.message.startswith("node 0 cannot reach itself at no.such.host.invalid:")
    assert refused.value.hint == (
        "--master-addr has to name node 0's own host, as the others reach it"
    )


def test_a_node_with_another_plan_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, ["--sizes", "1K", "--output", "run"], ["--sizes", "2K"])
    for ended in (first, second):
        assert (ended.code, ended.out) == (3, "")
        assert ended.err.splitlines()[-2].startswith(f"error: rank 1 on {socket.gethostname()} has")
        assert "another plan" in ended.err
    assert not first.folder.exists()

"""Several nodes, which are launchers on this host: who comes, who does not, and who may not."""

from __future__ import annotations

import re
import signal
import socket
import time
from pathlib import Path

import pytest
from commands import SHORT_DELAYS, START_TIMEOUT_S, Command, Ended, free_port, start_command
from test_launch import ITERATION, crash
from torch.distributed.elastic.rendezvous import RendezvousParameters

from commbench.errors import UnavailableError
from commbench.launch.rendezvous import TcpStoreRendezvous
from commbench.results.run_folder import JOURNAL
from commbench.worker.watchdog.rank_state import Delays


def start(
    where: Path, node: int, port: int, *arguments: str, program: str | None = None
) -> Command:
    """The launcher of a node of two, in a folder of its own. Without a program its ranks, which are
    spawned as there are several nodes, are forked instead: that is faster."""
    own = where / f"node{node}"
    own.mkdir(exist_ok=True)
    return start_command(
        own, "run", "--no-plots", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank",
        str(node), "--master-addr", "127.0.0.1", "--master-port", str(port), *arguments,
        program=program, forks_ranks=not program, **SHORT_DELAYS,
    )  # fmt: skip


def run_both(where: Path, first: list[str], second: list[str]) -> tuple[Ended, Ended]:
    port = free_port()
    started = [start(where, node, port, *own) for node, own in enumerate((first, second))]
    one, other = (process.finish() for process in started)
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
    assert "2 gloo ranks of 2 nodes on " in first.out
    header = first.journal()[0]
    # Two nodes on one host are one host.
    assert (header["num_nodes"], len(header["ranks"])) == (1, 2)

    kept = cut(first.folder / JOURNAL, 1)
    refused = start(tmp_path, 1, 1, "--resume", "run").finish()
    assert refused.code == 6
    assert refused.err.splitlines() == [
        "error: there is no file, folder or run 'run'",
        "hint: every node needs the folder of the run: copy it to this node",
    ]
    give(kept, tmp_path)
    first, second = run_both(tmp_path, ["--resume", "run"], ["--resume", "run"])
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "resuming run: 1 of 2 cases are complete" in first.err
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
    assert "has a different journal" in first.err and "has a different journal" in second.err
    assert journal.read_text() == kept
    give(kept, tmp_path)
    first, second = run_both(tmp_path, ["--resume", "run"], ["--resume", "run"])
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "resuming run: 1 of 3 launches and 1 of 2 cases of launch 2 are complete" in first.err
    assert [row["iterations"] for row in first.rows()] == ["12", "12"]


AT_THE_END = """
import os
from commbench.worker.watchdog.watchdog import Watchdog
healthy = Watchdog.stop
def stop(self):
    if self._rank == 1:
        os._exit(9)
    healthy(self)
Watchdog.stop = stop
"""
"""A program in which rank 1 exits with code 9 when everything is measured."""


CRASHES = [
    ("os._exit(0)", 0, f"ended with exit code 0 while {ITERATION}"),
    ("os._exit(0)", 1, f"ended with exit code 0 while {ITERATION}"),
    ("os.kill(os.getpid(), signal.SIGKILL)", 1, f"was killed by SIGKILL while {ITERATION}"),
    ("raise ValueError('lost')", 0, f"ended with exit code 1 while {ITERATION}: ValueError: lost"),
    ("sys.exit(0)", 1, f"ended with exit code 1 while {ITERATION}: SystemExit: 0"),
]


@pytest.mark.parametrize(
    ("program", "rank", "words"),
    [
        pytest.param(AT_THE_END, 1, "ended with exit code 9", id="at the end"),
        *(pytest.param(crash(how, rank=rank), rank, words, marks=pytest.mark.full, id=how)
          for how, rank, words in CRASHES),
    ],
)  # fmt: skip
def test_every_node_tells_how_a_rank_of_one_of_them_died(
    tmp_path: Path, program: str, rank: int, words: str
) -> None:
    # The ranks of several nodes are spawned: Python imports sitecustomize when they start. That of
    # the other node, which stays as it is, is forked.
    (tmp_path / "sitecustomize.py").write_text(program)
    launcher = (
        "import os, sys\n"
        f"os.environ['PYTHONPATH'] = os.pathsep.join([{str(tmp_path)!r}, *sys.path])\n"
        "from commbench.cli.main import main\nmain()\n"
    )
    port, began = free_port(), time.monotonic()
    asked = ["--sizes", "1K", "--iters", "60", "--output", "run"]
    programs = [launcher if node == rank else None for node in range(2)]
    started = [start(tmp_path, n, port, *asked, program=own) for n, own in enumerate(programs)]
    ended = [process.finish() for process in started]
    assert time.monotonic() - began < START_TIMEOUT_S / 2  # torch's agents would wait 300 s
    error = f"error: rank {rank} on {socket.gethostname()} {words}"
    for node in ended:
        assert node.code == 4, node.err
        assert re.fullmatch(error, node.err.splitlines()[-2]), node.err
    assert ended[0].err.splitlines()[-2:] == ended[1].err.splitlines()[-2:]
    assert ended[0].journal()[-1]["status"] == "failed"


def start_long(where: Path) -> list[Command]:
    """Two nodes that have begun to measure."""
    port = free_port()
    asked = ["--sizes", "1K-1M", "--iters", "1000", "--output", "run"]
    nodes = [start(where, node, port, *asked) for node in range(2)]
    journal = where / "node0" / "run" / JOURNAL
    while not journal.exists() or '"kind": "batch"' not in journal.read_text():
        assert nodes[0].poll() is None
        time.sleep(0.05)
    return nodes


def test_a_node_that_is_stopped_is_named_by_the_others(tmp_path: Path) -> None:
    first, second = start_long(tmp_path)
    second.send_signal(signal.SIGINT)
    one, other = first.finish(), second.finish()
    assert (one.code, other.code) == (4, 130), one.err + other.err
    who = f"node 1 on {socket.gethostname()}"
    assert one.err.splitlines()[-2] == f"error: {who} was stopped by SIGINT"
    assert other.err.splitlines()[-2] == "error: stopped by SIGINT"


@pytest.mark.full
@pytest.mark.parametrize(
    ("killed", "told"),
    [
        (0, "error: the launcher of node 0 ended, or cannot be reached: "),
        (1, "error: rank 1 on HOST ended, last seen "),
    ],
)
def test_a_launcher_that_is_killed_ends_the_run_on_the_other_node(
    tmp_path: Path, killed: int, told: str
) -> None:
    nodes = start_long(tmp_path)
    time.sleep(2 * Delays().heartbeat_s)  # until each host has told where its ranks are
    began = time.monotonic()
    nodes[killed].send_signal(signal.SIGKILL)
    left = nodes[1 - killed].finish()
    nodes[killed].finish()
    assert time.monotonic() - began < START_TIMEOUT_S / 4
    assert left.code == 4, left.err
    assert left.err.splitlines()[-2].startswith(told.replace("HOST", socket.gethostname()))


def test_a_node_that_does_not_come_is_named(tmp_path: Path) -> None:
    port = free_port()
    began = time.monotonic()
    alone = start(tmp_path, 0, port, "--sizes", "1K", "--timeout", "1", "--output", "run").finish()
    assert 1 < time.monotonic() - began < START_TIMEOUT_S / 2
    assert (alone.code, alone.out) == (3, "")
    assert f"; waits up to 1 s for all nodes at 127.0.0.1:{port} error:" in " ".join(
        alone.err.split()
    )
    assert alone.err.splitlines()[-2:] == [
        f"error: node 1 of 2 did not connect within 1 s to 127.0.0.1:{port}",
        "hint: start the same command on each node with its --node-rank; --timeout says how long "
        "to wait",
    ]
    assert not (tmp_path / "node0" / "run").exists()


def test_node_0_that_does_not_come_is_named_with_where_it_should_be(tmp_path: Path) -> None:
    port = free_port()
    alone = start(tmp_path, 1, port, "--sizes", "1K", "--timeout", "1").finish()
    assert alone.code == 3
    assert alone.err.splitlines()[-2] == (
        f"error: node 1 cannot reach node 0 at 127.0.0.1:{port} within 1 s: Connection refused"
    )


def test_a_port_that_is_taken_is_refused_at_once(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = start(tmp_path, 0, port, "--sizes", "1K", "--output", "run").finish()
    assert ended.code == 3
    assert ended.err.splitlines()[-2:] == [
        f"error: port {port} cannot be opened on this host: Address already in use",
        "hint: give each node its own --node-rank, or all nodes another --master-port PORT",
    ]
    assert not (tmp_path / "node0" / "run").exists()


def test_node_0_that_is_somewhere_else_is_refused_at_once() -> None:
    rendezvous = TcpStoreRendezvous(
        RendezvousParameters(
            "commbench-nodes", f"no.such.host.invalid:{free_port()}", "commbench-0", 2, 2,
            rank=0, timeout=60, supervisor=None, node_exit=None,
        )
    )  # fmt: skip
    with pytest.raises(UnavailableError) as refused:
        rendezvous.next_rendezvous()
    assert refused.value.message.startswith("node 0 cannot reach itself at no.such.host.invalid:")
    assert refused.value.hint == (
        "--master-addr must be the host of node 0, as the other nodes reach it"
    )


def test_a_node_with_another_plan_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, ["--sizes", "1K", "--output", "run"], ["--sizes", "2K"])
    for ended in (first, second):
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.splitlines()[-2].startswith(f"error: rank 1 on {socket.gethostname()} has")
        assert "has a different plan: --" in ended.err
    assert not first.folder.exists()

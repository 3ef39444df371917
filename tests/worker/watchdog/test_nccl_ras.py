"""What NCCL's RAS is asked, and what is kept of its answer; over real TCP connections."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ras_server import RasServer

from commbench.worker.watchdog.nccl_ras import MOST_LINES, RasRequest, shorten

REPORT = b"""\
NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2
"""


def ask(address: str, bound_s: float = 5.0, pids: tuple[int, ...] = ()) -> str:
    return RasRequest(bound_s, {"NCCL_RAS_ADDR": address}, pids).finish()


def test_the_status_is_asked_for_and_its_lines_are_kept() -> None:
    with RasServer(REPORT) as server:
        answer = ask(server.address)
    assert server.requests == [b"timeout 1\n", b"verbose status\n"]
    heading, first, *rest = answer.splitlines()
    assert heading == f"NCCL's RAS at {server.address} says:"
    assert first == "  NCCL version 2.28.9 compiled with CUDA 12.9"
    assert len(rest) == 6
    assert all(line.strip() not in ("", "OK") for line in rest)


def test_what_has_come_when_the_time_is_up_is_kept() -> None:
    began = time.monotonic()
    with RasServer(REPORT, closes=False) as server:
        answer = ask(server.address, 0.4)
    assert 0.35 < time.monotonic() - began < 3
    assert "NCCL version 2.28.9" in answer


def test_where_nobody_listens_there_is_no_answer_and_no_wait() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        began = time.monotonic()
        assert ask(f"127.0.0.1:{port}") == ""
        assert time.monotonic() - began < 3


def test_only_a_process_of_this_job_is_asked() -> None:
    text = (
        "from ras_server import RasServer\n"
        "with RasServer(b'NCCL version 2.28.9\\n') as server:\n"
        "    print(server.address, flush=True)\n"
        "    input()\n"
        "print(len(server.requests))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    ) as other:  # fmt: skip
        assert other.stdin and other.stdout
        address = other.stdout.readline().strip()
        assert ask(address, 0.5) == ""
        assert "NCCL version" in ask(address, pids=(other.pid,))
        assert other.communicate("\n")[0] == "2\n"  # the lines of the second request


@pytest.mark.parametrize("address", ["", "no port", "localhost:x", "127.0.0.1:99999999"])
def test_an_address_that_is_none_gives_no_answer(address: str) -> None:
    assert ask(address, 2.0) == ""


def test_a_long_answer_is_shortened() -> None:
    lines = shorten("\n".join(f"line {i} {'x' * 500}" for i in range(MOST_LINES + 7)))
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "  and 7 more lines"
    assert max(map(len, lines)) <= 162

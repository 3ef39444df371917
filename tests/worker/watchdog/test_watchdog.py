"""A watchdog in this process: what it publishes and finds, and what a signal does to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commbench.errors import RankError
from commbench.spec.plan import Plan
from commbench.worker.context import LOCAL, RankContext
from commbench.worker.watchdog.delays import SCALE, Delays, read_delays
from commbench.worker.watchdog.heartbeats import FileHeartbeats
from commbench.worker.watchdog.rank_state import (
    HEARTBEATS,
    ITERATION,
    PID,
    STILL_MS,
    StateBuffer,
    open_state,
    read_states,
)
from commbench.worker.watchdog.watchdog import StallTimer, Watchdog

PLAN = Plan(operations=("all_reduce",), sizes=(1024,), backend="gloo", device="cpu", world_size=2)
SHORT = Delays().scaled(0.02)


@pytest.fixture
def reports() -> list[tuple[str, bool]]:
    return []


@pytest.fixture
def watchdog(tmp_path: Path, reports: list[tuple[str, bool]]) -> Iterator[Watchdog]:
    """Of rank 0 of two in a scratch folder."""
    context = RankContext(
        rank=0, world_size=2, local_rank=0, local_world_size=2, launcher=LOCAL,
        init_method=f"file:{tmp_path / 'ranks'}", scratch_dir=tmp_path,
    )  # fmt: skip

    def report(error: RankError, is_reporter: bool) -> None:
        reports.append((error.message, is_reporter))

    state, store = open_state(tmp_path, 0), FileHeartbeats(tmp_path, 0)
    watchdog = Watchdog(state, store, context, PLAN, report, SHORT)
    yield watchdog
    watchdog.stop()


def other_rank(tmp_path: Path) -> StateBuffer:
    state = open_state(tmp_path, 1)
    state[PID], state[HEARTBEATS] = 2**22 + 1, 1  # no such process
    return state


def test_a_watchdog_publishes_heartbeats_until_it_is_stopped(
    tmp_path: Path, watchdog: Watchdog
) -> None:
    assert read_states(tmp_path)[0].pid == os.getpid()
    deadline = time.monotonic() + 10
    while read_states(tmp_path)[0].heartbeats < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watchdog.stop()
    heartbeats = read_states(tmp_path)[0].heartbeats
    time.sleep(3 * SHORT.heartbeat_s)
    assert read_states(tmp_path)[0].heartbeats == heartbeats


def test_after_a_lost_connection_the_rank_without_heartbeats_is_found_and_reported(
    tmp_path: Path, watchdog: Watchdog, reports: list[tuple[str, bool]]
) -> None:
    other_rank(tmp_path)
    lost = watchdog.find_lost_ranks()
    assert lost.message.startswith("rank 1 on ") and lost.is_reporter
    assert lost.message.endswith(" ended, last seen starting")
    watchdog.report_lost_ranks(lost)
    assert reports == [(lost.message, True)]


def test_at_sigterm_the_rank_whose_process_has_ended_is_reported_once_it_is_not_diagnosed(
    tmp_path: Path, watchdog: Watchdog, reports: list[tuple[str, bool]]
) -> None:
    watchdog.on_sigterm()
    assert not reports  # the ranks of this host are not known yet
    watchdog.local_pids = {0: os.getpid(), 1: other_rank(tmp_path)[PID]}
    watchdog.on_sigterm()
    ((message, is_reporter),) = reports
    assert message.startswith("rank 1 on ") and is_reporter
    watchdog.find_lost_ranks()
    watchdog.on_sigterm()
    assert len(reports) == 1


def test_a_stall_timer_starts_again_with_progress_and_after_a_pause() -> None:
    state = open_state(None, 0)
    timer = StallTimer(state, late_s=0.5)
    time.sleep(0.02)
    assert timer.update() >= 0.02 and state[STILL_MS] >= 20
    state[ITERATION] += 1
    assert timer.update() == 0
    timer._updated -= 1  # as if this thread had not been scheduled
    timer._moved -= 1
    assert timer.update() == 0


def test_delays_can_be_scaled_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SCALE, raising=False)
    assert read_delays() == Delays()
    monkeypatch.setenv(SCALE, "0.5")
    assert read_delays() == Delays().scaled(0.5)
    assert (read_delays().heartbeat_s, read_delays().listen_s) == (0.5, 1.5)


TERMINATED = """
import os, signal, sys, threading, time
from commbench.worker.watchdog.termination import TerminationThread, block_sigterm
block_sigterm()
thread = TerminationThread(lambda: os.write(1, b"reported"), 0.3)
if sys.argv[1] == "closed":
    thread.close()
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait(20)
"""


@pytest.mark.parametrize(
    ("when", "printed", "after_s"), [("open", "reported", 0.3), ("closed", "", 0)]
)
def test_sigterm_ends_a_rank_after_its_report_and_at_once_where_it_is_closed(
    when: str, printed: str, after_s: float
) -> None:
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", TERMINATED, when], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, printed, "")
    assert time.monotonic() - began >= after_s

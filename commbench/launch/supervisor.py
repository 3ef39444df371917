"""The launcher checks its ranks, and makes the error of a failed launch: which rank ended, how,
what it was doing, and its last output.

Where some ranks stop, the watchdogs of the others report it. Where all ranks of a node stop, no
watchdog is left to do so. And a rank that ends early with exit code 0 counts as done for the agent,
which would wait for the other ranks for ever. The agent calls its rendezvous many times a second,
which calls `check`.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from commbench.errors import CommbenchError, RankError
from commbench.launch.torch_internals import RankExit
from commbench.spec.plan import Plan
from commbench.worker.watchdog import error_files, rank_state
from commbench.worker.watchdog.delays import read_delays
from commbench.worker.watchdog.hang_analysis import STOPPED
from commbench.worker.watchdog.rank_state import DONE, JOINING, RankState, read_states

KILLED_HINT = "if nobody killed it, look for the out-of-memory killer in dmesg"
CRASHED_HINT = (
    "the lines above, if there are any, show where; `commbench env` lists the versions in use"
)
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
EARLY_EXIT_HINT = "something in that process called exit: a library, or a signal handler"
FAILED_HINT = "COMMBENCH_TRACEBACK=1 shows where"


class LaunchOutcome(NamedTuple):
    """How a launch ended, as one node knows."""

    error: CommbenchError | None = None
    is_root_cause: bool = True
    """The error happened, or was found out, on this node; else it is a secondary failure."""


def make_outcome(scratch_dir: Path, failures: Mapping[int, RankExit], plan: Plan) -> LaunchOutcome:
    """How a launch ended in which the ranks `failures` failed on this node. The error is the one
    that a rank recorded, or one that says how a rank died."""
    if not failures:
        return LaunchOutcome()
    if error := error_files.read_error(scratch_dir):
        return LaunchOutcome(error)
    recorded = error_files.read_failures(scratch_dir)
    primary = [r for r in failures if r not in recorded or not recorded[r].is_secondary]
    lost_ranks = [failure.lost_ranks for failure in recorded.values() if failure.lost_ranks]
    if not primary and lost_ranks:
        return LaunchOutcome(
            RankError(lost_ranks[0], error_files.LOST_RANK_HINT), is_root_cause=False
        )
    rank = min(primary or failures, key=lambda rank: failures[rank].timestamp)
    exit_code, _, message = failures[rank]
    doing = _describe_state(read_states(scratch_dir).get(rank, RankState()), plan)
    if exit_code < 0:
        how = f"was killed by {_signal_name(-exit_code)}{doing}"
        hint = CRASHED_HINT if -exit_code in CRASHES else KILLED_HINT
    else:
        # torch has the message of an exception that was raised before or after `run_rank`.
        text = recorded[rank].text if rank in recorded else message.split("\n")[0]
        how = f"ended with exit code {exit_code}{doing}" + (f": {text}" if text else "")
        hint = FAILED_HINT
    error = _make_rank_error(scratch_dir, rank, how, hint)
    return LaunchOutcome(error, is_root_cause=bool(primary))


def _make_early_exit_error(scratch_dir: Path, rank: int, state: RankState, plan: Plan) -> RankError:
    """The error of a rank that ended with exit code 0 before it was done."""
    how = f"ended with exit code 0{_describe_state(state, plan)}"
    return _make_rank_error(scratch_dir, rank, how, EARLY_EXIT_HINT)


def _make_rank_error(scratch_dir: Path, rank: int, how: str, hint: str) -> RankError:
    lines = error_files.last_output(scratch_dir, rank)
    details = "\n".join(
        [f"the last lines that rank {rank} printed:", *(f"  {line}" for line in lines)]
    )
    return RankError(f"rank {rank} on {socket.gethostname()} {how}", hint, details if lines else "")


def _describe_state(state: RankState, plan: Plan) -> str:
    return "" if state.phase == DONE else f" while {state.describe(plan.cases())}"


def _signal_name(number: int) -> str:
    """Its name, or its number where it has none (real-time signals)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RankSupervisor:
    """Ends ranks of this node that have stopped, so that the agent ends the others."""

    def __init__(self, scratch_dir: Path, plan: Plan) -> None:
        self._scratch_dir = scratch_dir
        self._plan = plan
        self._delays = read_delays()
        self._checked = time.monotonic()
        self._heartbeats: dict[int, tuple[int, float]] = {}
        """By rank: its number of heartbeats, and when that was seen first."""
        self._missing: set[int] = set()
        """Ranks whose processes did not exist at the last check."""

    def check(self) -> None:
        """Check all ranks, once a second. Raises RankError for one that ended early with code 0."""
        now = time.monotonic()
        if now - self._checked < self._delays.heartbeat_s:
            return
        is_late = now - self._checked > self._delays.late_s  # this process was not scheduled either
        self._checked = now
        for rank, state in read_states(self._scratch_dir).items():
            self._raise_if_exited(rank, state)
            heartbeats, since = self._heartbeats.get(rank, (-1, now))
            if is_late or heartbeats != state.heartbeats:
                self._heartbeats[rank] = (state.heartbeats, now)
            elif self._has_stopped(state, now - since):
                self._end(rank, state, now - since)

    def is_joining(self) -> bool:
        """Whether a rank of this node still waits for others to join."""
        return any(state.phase <= JOINING for state in read_states(self._scratch_dir).values())

    def kill_ranks(self) -> None:
        """Kill all ranks of this node, also those that are stopped and cannot react to SIGTERM."""
        for state in read_states(self._scratch_dir).values():
            rank_state.kill_process(state.pid)

    def _raise_if_exited(self, rank: int, state: RankState) -> None:
        if state.phase == DONE or rank_state.is_process_alive(state.pid):
            return
        # With any other code than 0, the agent would have noticed it since the last check.
        if rank in self._missing:
            raise _make_early_exit_error(self._scratch_dir, rank, state, self._plan)
        self._missing.add(rank)

    def _has_stopped(self, state: RankState, silent_s: float) -> bool:
        limit_s = self._plan.timeout_s + state.expected_ms / 1e3 + self._delays.supervisor_s
        return bool(state.pid) and state.phase != DONE and silent_s > limit_s

    def _end(self, rank: int, state: RankState, silent_s: float) -> None:
        error = RankError(
            f"rank {rank} on {socket.gethostname()} {STOPPED}: no heartbeat for {silent_s:.0f} s, "
            f"last seen {state.describe(self._plan.cases())}",
            "the process or its host is stopped: check what happened there at that time",
        )
        error_files.record_error(self._scratch_dir, rank, error)
        rank_state.kill_process(state.pid)

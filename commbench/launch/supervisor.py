"""The launcher checks its ranks: whether their processes exist, and what their heartbeats say.

Where some ranks stop, the watchdogs of the others report it. Where all ranks of a node stop, no
watchdog is left to do so. And a rank that ends early with exit code 0 counts as done for the agent,
which would wait for the other ranks for ever. The agent calls its rendezvous many times a second,
which calls `check`.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from commbench.errors import RankError
from commbench.launch.exit_report import make_early_exit_error
from commbench.spec.plan import Plan
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.delays import read_delays
from commbench.worker.watchdog.error_files import record_error
from commbench.worker.watchdog.hang_analysis import STOPPED
from commbench.worker.watchdog.rank_state import DONE, JOINING, RankState, read_states


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
            raise make_early_exit_error(self._scratch_dir, rank, state, self._plan)
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
        record_error(self._scratch_dir, rank, error)
        rank_state.kill_process(state.pid)

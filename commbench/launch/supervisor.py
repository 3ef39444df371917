"""What the launcher itself sees of its ranks: whether each one is there, and its watch beats.

Where some ranks stop, the watches of the others say so. Where all of a node do, nobody is left to.
And of a rank that ends with code 0 the agent thinks that it is only closing, for ever. The agent
asks its rendezvous many times a second whether nodes wait, and that is when this looks.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from commbench.errors import RankError
from commbench.launch.exit_report import left
from commbench.spec.plan import Plan
from commbench.worker.watchdog.error_files import leave_error
from commbench.worker.watchdog.hang_analysis import STOPPED, allowed_s
from commbench.worker.watchdog.rank_state import (
    DONE,
    JOINING,
    RankState,
    end,
    is_there,
    read_positions,
)
from commbench.worker.watchdog.watchdog import BEAT_S, LATE_S

LATER_S = 10.0
"""By how much later than the watches of other ranks, which know more, the launcher gives up."""


class RankSupervisor:
    """Ends ranks of this node that have stopped, so that the agent ends the others."""

    def __init__(self, scratch_dir: Path, plan: Plan) -> None:
        self._scratch_dir = scratch_dir
        self._plan = plan
        self._looked = time.monotonic()
        self._beats: dict[int, tuple[int, float]] = {}
        """For each rank how often its watch had beaten, and when that was seen first."""
        self._gone: set[int] = set()

    def look(self) -> None:
        """Look, if the last time was long enough ago. Raises RankError for a rank that left."""
        now = time.monotonic()
        if now - self._looked < BEAT_S:
            return
        late = now - self._looked > LATE_S  # this process did not run either
        self._looked = now
        for rank, position in read_positions(self._scratch_dir).items():
            self._raise_if_left(rank, position)
            beats, since = self._beats.get(rank, (-1, now))
            if late or beats != position.beats:
                self._beats[rank] = (position.beats, now)
            elif self._is_over(position, now - since):
                self._end(rank, position, now - since)

    def is_joining(self) -> bool:
        """Whether a rank of this node still waits for others to come."""
        return any(p.phase <= JOINING for p in read_positions(self._scratch_dir).values())

    def end_ranks(self) -> None:
        """End all ranks of this node at once, also those that are stopped: to be asked to end they
        would have to run."""
        for position in read_positions(self._scratch_dir).values():
            end(position.pid)

    def _raise_if_left(self, rank: int, position: RankState) -> None:
        if position.phase == DONE or is_there(position.pid):
            return
        if rank in self._gone:  # the agent, which asked since, would know of any other code than 0
            raise left(self._scratch_dir, rank, position, self._plan)
        self._gone.add(rank)

    def _is_over(self, position: RankState, silent_s: float) -> bool:
        allowed = allowed_s(self._plan.timeout_s, position.bytes) + LATER_S
        return bool(position.pid) and position.phase != DONE and silent_s > allowed

    def _end(self, rank: int, position: RankState, silent_s: float) -> None:
        told = position.told(self._plan.cases())
        error = RankError(
            f"rank {rank} on {socket.gethostname()} {STOPPED}: nothing for {silent_s:.0f} s, "
            f"last seen {told}",
            "it is stopped, or its host is: see what else happened there at that time",
        )
        leave_error(self._scratch_dir, rank, error)
        end(position.pid)

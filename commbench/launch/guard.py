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
from commbench.launch.aftermath import left
from commbench.plan import Plan
from commbench.worker.desk import leave_error
from commbench.worker.judge import STOPPED, allowed_s
from commbench.worker.position import DONE, JOINING, Position, end, is_there, read_positions
from commbench.worker.watch import BEAT_S, LATE_S

LATER_S = 10.0
"""By how much later than the watches of other ranks, which know more, the launcher gives up."""


class Guard:
    """Ends ranks of this node that have stopped, so that the agent ends the others."""

    def __init__(self, desk: Path, plan: Plan) -> None:
        self._desk = desk
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
        for rank, position in read_positions(self._desk).items():
            self._raise_if_left(rank, position)
            beats, since = self._beats.get(rank, (-1, now))
            if late or beats != position.beats:
                self._beats[rank] = (position.beats, now)
            elif self._is_over(position, now - since):
                self._end(rank, position, now - since)

    def is_joining(self) -> bool:
        """Whether a rank of this node still waits for others to come."""
        return any(p.phase <= JOINING for p in read_positions(self._desk).values())

    def end_ranks(self) -> None:
        """End all ranks of this node at once, also those that are stopped: to be asked to end they
        would have to run."""
        for position in read_positions(self._desk).values():
            end(position.pid)

    def _raise_if_left(self, rank: int, position: Position) -> None:
        if position.phase == DONE or is_there(position.pid):
            return
        if rank in self._gone:  # the agent, which asked since, would know of any other code than 0
            raise left(self._desk, rank, position, self._plan)
        self._gone.add(rank)

    def _is_over(self, position: Position, silent_s: float) -> bool:
        allowed = allowed_s(self._plan.timeout_s, position.bytes) + LATER_S
        return bool(position.pid) and position.phase != DONE and silent_s > allowed

    def _end(self, rank: int, position: Position, silent_s: float) -> None:
        told = position.told(self._plan.cases())
        error = RankError(
            f"rank {rank} on {socket.gethostname()} {STOPPED}: nothing for {silent_s:.0f} s, "
            f"last seen {told}",
            "it is stopped, or its host is: see what else happened there at that time",
        )
        leave_error(self._desk, rank, error)
        end(position.pid)

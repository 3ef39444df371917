"""Every delay of failure detection: of the ranks' watchdogs, the supervisor and the launchers."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

SCALE = "COMMBENCH_TEST_DELAY_SCALE"
"""Environment variable, for tests only: a number that multiplies every delay, such as 0.25."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds."""

    heartbeat_s: float = 1.0
    """Between two heartbeats of a rank, or of a launcher."""
    late_s: float = 5.0
    """A process that was not scheduled for so long knows nothing about that time."""
    listen_s: float = 3.0
    """Between the two readings of all heartbeats that a diagnosis compares."""
    stay_s: float = 3.0
    """How long a rank that knows of a lost rank stays: others learn of it up to 2 s later."""
    sigterm_s: float = 0.5
    """From SIGTERM to the end of a rank. Open MPI sends SIGKILL after 1 s; a rank that ended
    earlier would look to the others like the one that failed."""
    store_s: float = 5.0
    """Timeout of an operation on the heartbeat store."""
    supervisor_s: float = 10.0
    """How much longer than the other ranks' watchdogs, which know more, the supervisor waits."""
    node_cause_s: float = 3.0
    """How long a node with a secondary failure waits for another node to publish the cause."""
    node_store_s: float = 5.0
    """How long node 0 keeps the store for the others: their ranks notice a lost rank within 3 s."""
    node_silent_s: float = 6.0
    """Without heartbeats for so long, a node is lost. This counts while ranks join each other and
    after they are done; in between the ranks detect it themselves, after --timeout."""
    node_gone_s: float = 3.0
    """At the end of a launch no node waits for one without heartbeats for so long."""

    def scaled(self, factor: float) -> Delays:
        """All delays multiplied by `factor`."""
        return Delays(**{name: factor * seconds for name, seconds in asdict(self).items()})


def read_delays() -> Delays:
    """The delays of this process."""
    return Delays().scaled(float(os.environ.get(SCALE, "1")))

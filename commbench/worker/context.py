"""Where one rank sits: its number among the others, and how it meets them. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from commbench.results.schema import RunHeader
from commbench.spec.case import FINISHED, Case
from commbench.spec.plan import Plan

LOCAL = "local"
"""The launcher of ranks that commbench started itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """The place of one rank."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launcher: str
    """Who started it: `local`, `torchrun`, `srun`, `mpirun`."""
    meeting_point: str
    """`file:PATH` (one host), `tcp://HOST:PORT`, or `env://` (torchrun's variables)."""
    scratch_dir: Path | None = None
    """Where a rank leaves word of what went wrong; None where nobody would read it."""

    @property
    def joined(self) -> bool:
        """Whether only the ranks themselves can see how the others end."""
        return self.launcher != LOCAL and self.scratch_dir is None

    @property
    def one_host(self) -> bool:
        """Whether all ranks share this host."""
        return self.local_world_size == self.world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """One launch of a run, the same for all of its ranks."""

    plan: Plan
    label: str
    folder: Path
    """The run folder."""
    folder_exists: bool = True
    """False: rank 0 makes it, once all ranks agree on the plan."""
    launch: int = 0
    """Which launch of the run this is, from 0."""
    silent: bool = False
    """Whether rank 0 keeps the progress of its cases to itself."""
    began: RunHeader | None = None
    """How a run began that is taken up again: nothing it depends on may have changed since."""
    finished: frozenset[int] | None = None
    """Cases that this launch finished before it was cut off; None: it begins."""
    journal: str = "new"
    """What is the same on all ranks only if they go on with the same journal."""

    def cases(self) -> tuple[Case, ...]:
        """The cases of the plan, those marked that this launch has finished before."""
        done = self.finished or ()
        return tuple(
            case._replace(status=FINISHED) if case.index in done else case
            for case in self.plan.cases()
        )

"""What ranks are to do: a plan, and where its results go. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from commbench.plan import FINISHED, Case, Plan
from commbench.records.schema import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
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
    began: Header | None = None
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

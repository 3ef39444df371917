"""What ranks are to do: a plan, and where its results go. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from commbench.plan import Plan


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

"""What is left to do of a run that was cut off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commbench.results.journal_reader import RunProgress
from commbench.worker.context import LaunchTask

COMPLETE = "complete"


def remaining_tasks(before: RunProgress) -> list[LaunchTask]:
    """The launches that are still to be made, the first one perhaps begun; none of a whole run."""
    header = before.run.header
    task = LaunchTask(
        plan=header.plan,
        label=header.label,
        folder=Path(before.run.path),
        launch=before.launch,
        began=header,
        journal=before.digest,
    )
    begun = [] if _is_finished(before) else [replace(task, finished=before.finished)]
    return begun + [
        replace(task, launch=number) for number in range(before.launch + 1, header.plan.launches)
    ]


def progress_text(before: RunProgress) -> str:
    """One line that says how far a run has come."""
    plan = before.run.header.plan
    launch = f" of launch {before.launch + 1} of {plan.launches}" if plan.launches > 1 else ""
    of_all = f"{len(before.finished)} of {len(plan.cases())} cases{launch}"
    return f"resuming {before.run.path}: {of_all} are finished"


def _is_finished(before: RunProgress) -> bool:
    """Whether the last launch has done all it had to."""
    end = before.run.end
    whole = len(before.finished) == len(before.run.header.plan.cases())
    return whole or (end is not None and end.status == COMPLETE)

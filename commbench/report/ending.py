"""How a run ended, in a sentence, where it did not end well."""

from __future__ import annotations

from commbench.records.schema import Run
from commbench.report.layout import clean

_ENDED = {"failed": "This run failed", "interrupted": "This run was interrupted"}


def ending_text(run: Run) -> str:
    """What to say of a run that is not complete; empty for one that is."""
    if run.end is None:
        return "This run has not ended: it still goes on, or was cut off."
    if run.end.status == "complete":
        return ""
    ended = _ENDED.get(run.end.status, f"This run ended as {run.end.status}")
    return clean(f"{ended}: {run.end.reason}" if run.end.reason else f"{ended}.")

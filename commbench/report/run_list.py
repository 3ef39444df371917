"""The list of runs: one line each, at most 80 columns wide where labels and names are short."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from commbench.output.table import WIDTH, table
from commbench.results.run_folder import StoredRun
from commbench.spec.operations import OPERATIONS
from commbench.units import format_sizes

_SHORTEST_LABEL = 12
"""Characters of a label that are shown in any event."""


def run_list_text(runs: Sequence[StoredRun]) -> str:
    """A table with a row for each run, in the given order. Labels are shortened to fit WIDTH."""
    headings = ("label", "started", "what", "ranks", "status")
    facts = [
        (
            _local_time(run.started),
            _what(run),
            f"{run.ranks} {run.backend}" if run.ranks else "",
            run.status or "not ended",
        )
        for run in runs
    ]
    others = zip(headings[1:], *facts, strict=True)
    left = WIDTH - sum(2 + max(map(len, column)) for column in others) - 2
    rows = [
        (_shortened(run.label, max(_SHORTEST_LABEL, left)), *fact)
        for run, fact in zip(runs, facts, strict=True)
    ]
    return "\n".join(table(headings, rows, left=",".join(headings)))


def _what(run: StoredRun) -> str:
    """The operations and sizes: `all_reduce +2 1K-64M`."""
    more = len(run.operations) - 1
    operations = "".join(run.operations[:1]) + (f" +{more}" if more > 0 else "")
    known = [OPERATIONS[name] for name in run.operations if name in OPERATIONS]
    if not run.sizes or not any(operation.has_data for operation in known):
        return operations
    sizes = format_sizes(run.sizes)
    if "," in sizes:
        sizes = f"{format_sizes(run.sizes[:1])}...{format_sizes(run.sizes[-1:])}"
    return f"{operations} {sizes}"


def _shortened(label: str, longest: int) -> str:
    return label if len(label) <= longest else f"{label[: longest - 1]}…"


def _local_time(started: str) -> str:
    """The date and time of this host's time zone; the text itself where it is no such time."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return started[:16]

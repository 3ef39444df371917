"""The list of runs: one line each, at most 80 columns wide where labels and names are short."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from commbench.output.paragraphs import list_some
from commbench.output.table import table
from commbench.results.run_folder import StoredRun
from commbench.spec.operations import OPERATIONS
from commbench.units import format_sizes

_LONGEST_LABEL = 24


def run_list_text(runs: Sequence[StoredRun]) -> str:
    """A table with a row for each run, in the given order."""
    rows = [
        (
            _shortened(run.label),
            _local_time(run.started),
            _what(run),
            f"{run.ranks} {run.backend}" if run.ranks else "",
            run.status or "not ended",
        )
        for run in runs
    ]
    headings = ("label", "started", "what", "ranks", "status")
    return "\n".join(table(headings, rows, left=",".join(headings)))


def _what(run: StoredRun) -> str:
    """The operations and sizes: `all_reduce, all_gather and 2 more 1K-64M`."""
    operations = list_some(run.operations, 1)
    known = [OPERATIONS[name] for name in run.operations if name in OPERATIONS]
    if not run.sizes or not any(operation.has_data for operation in known):
        return operations
    sizes = format_sizes(run.sizes)
    if "," in sizes:
        sizes = f"{format_sizes(run.sizes[:1])}...{format_sizes(run.sizes[-1:])}"
    return f"{operations} {sizes}"


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def _local_time(started: str) -> str:
    """The date and time of this host's time zone; the text itself where it is no such time."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return started[:16]

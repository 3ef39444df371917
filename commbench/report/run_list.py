"""The list of runs: one line each, at most 80 columns wide where names are short."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from commbench.output.table import TableColumn, clean, fitting_table
from commbench.results.run_folder import StoredRun
from commbench.spec.operations import OPERATIONS, REPLAY
from commbench.units import format_sizes


def run_list_text(runs: Sequence[StoredRun]) -> str:
    """A table with a row for each run, in the given order; empty for no runs.

    Names are never shortened, because they are typed again. A label is printed only where the name
    of its folder does not end with it, and the start only where that name does not begin with it.
    """
    if not runs:
        return ""
    columns = (
        TableColumn("folder", lambda run: run.folder.name, 9, is_left=True),
        TableColumn("label", _label, 8, is_left=True),
        TableColumn("started", _started, 5, is_left=True),
        TableColumn("what", _what, 7, is_left=True),
        TableColumn(
            "ranks", lambda r: f"{r.ranks} {r.backend}" if r.ranks else "", 6, is_left=True
        ),
        TableColumn("status", lambda run: run.status or "not ended", 7, is_left=True),
    )
    return "\n".join(fitting_table(columns, runs))


def sweep_list_text(folders: Sequence[str]) -> str:
    """The names of the folders of sweeps, one a line; empty for none."""
    lines = [f"  {clean(name)}" for name in folders]
    return "\n".join(["Sweeps (`commbench show FOLDER` prints one):", *lines]) if lines else ""


def _label(run: StoredRun) -> str:
    return (
        "" if re.fullmatch(rf"(.*-)?{re.escape(run.label)}(-\d+)?", run.folder.name) else run.label
    )


def _started(run: StoredRun) -> str:
    """The start in the time zone of this host; empty where the folder's name begins with it."""
    return "" if re.match(r"\d{8}-\d{6}-", run.folder.name) else _local_time(run.started)


def _what(run: StoredRun) -> str:
    """The operations and sizes: `all_reduce +2 1K-64M`; of a replay the name of its workload."""
    if run.workload:
        return f"{REPLAY} of {run.workload}"
    more = len(run.operations) - 1
    operations = "".join(run.operations[:1]) + (f" +{more}" if more > 0 else "")
    known = [OPERATIONS[name] for name in run.operations if name in OPERATIONS]
    if not run.sizes or not any(operation.has_data for operation in known):
        return operations
    sizes = format_sizes(run.sizes)
    if "," in sizes:
        sizes = f"{format_sizes(run.sizes[:1])}...{format_sizes(run.sizes[-1:])}"
    return f"{operations} {sizes}"


def _local_time(started: str) -> str:
    """The date and time of this host's time zone; the text itself where it is no such time."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return started[:19]

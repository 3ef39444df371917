"""The list of runs: the result of `commbench list` and its document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from commbench.plan.operations import OPERATIONS, REPLAY
from commbench.results.run_folder import StoredRun
from commbench.units import format_count, format_sizes
from commbench.views.cells import TEXT, Column
from commbench.views.document import Document, Items, Table
from commbench.views.formats import View


class RunList(NamedTuple):
    """The runs and the folders of sweeps under `results`."""

    runs: Sequence[StoredRun]
    sweeps: Sequence[str]


def document(found: RunList) -> Document:
    """A row for each run, in the given order."""
    runs, sweeps = format_count(len(found.runs), "run"), format_count(len(found.sweeps), "sweep")
    answer = f"{runs} and {sweeps}." if found.runs or found.sweeps else "There are no runs here."
    folders = Items(found.sweeps, "Sweeps (`commbench show FOLDER` prints one)")
    return Document("The folder results", (), [answer], [Table("", COLUMNS, found.runs), folders])


def _label(run: StoredRun) -> str:
    is_named = re.fullmatch(rf"(.*-)?{re.escape(run.label)}(-\d+)?", run.folder.name)
    return "" if is_named else run.label


def _started(run: StoredRun) -> str:
    """The start in the time zone of this host; the text itself where it is no time, and empty
    where the folder's name begins with it."""
    if re.match(r"\d{8}-\d{6}-", run.folder.name):
        return ""
    try:
        return f"{datetime.fromisoformat(run.started).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return run.started[:19]


def _what(run: StoredRun) -> str:
    """The operations and sizes: `all_reduce +2 1K-64M`; of a replay the name of its workload."""
    if run.workload:
        return f"{REPLAY} of {run.workload}"
    more = len(run.operations) - 1
    operations = "".join(run.operations[:1]) + (f" +{more}" if more > 0 else "")
    known = [OPERATIONS[name] for name in run.operations if name in OPERATIONS]
    if not run.sizes_bytes or not any(operation.has_data for operation in known):
        return operations
    sizes = format_sizes(run.sizes_bytes)
    if "," in sizes:
        sizes = f"{format_sizes(run.sizes_bytes[:1])}...{format_sizes(run.sizes_bytes[-1:])}"
    return f"{operations} {sizes}"


COLUMNS = (
    Column("folder", lambda run: run.folder.name, TEXT, 9),
    Column("label", _label, TEXT, 8),
    Column("started", _started, TEXT, 5),
    Column("what", _what, TEXT, 7),
    Column("ranks", lambda run: f"{run.ranks} {run.backend}" if run.ranks else "", TEXT, 6),
    Column("status", lambda run: run.status or "not ended", TEXT, 7),
)
"""Names are never shortened, because they are typed again. A label is there only where the name of
its folder does not end with it, and the start only where that name does not begin with it."""
VIEW = View(document, schema=1)

"""The list of runs: the result of `commbench list` and its document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.row_names import format_range
from commbench.answers.show.plan import field_name
from commbench.output.paragraphs import list_some
from commbench.plan.operations import OPERATIONS, REPLAY
from commbench.results.run_folder import StoredRun
from commbench.results.schema import COMPLETE
from commbench.units import format_count
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
    own = _differences(found.runs)
    what = Column(
        "what", lambda run: ", ".join(filter(None, [_what(run), own[run.folder]])), TEXT, 7,
        is_wrapped=True,
    )  # fmt: skip
    table = Table("", (*COLUMNS[:3], what, *COLUMNS[3:]), found.runs)
    return Document("The folder results", (), [answer], [table, folders])


def _differences(runs: Sequence[StoredRun]) -> dict[Path, str]:
    """For each folder the fields of the plan in which its run differs from most runs of the same
    operations and sizes: `cpu mode plain`. Ranks and backend have a column."""
    alike: dict[str, list[StoredRun]] = {}
    for run in runs:
        alike.setdefault(_what(run), []).append(run)
    found: dict[Path, list[str]] = {run.folder: [] for run in runs}
    for own in alike.values():
        for name in dict.fromkeys(chain.from_iterable(run.plan for run in own)):
            texts = [_text(run.plan.get(name)) for run in own]
            usual = Counter(texts[::-1]).most_common(1)[0][0]  # of two, the older one's
            for run, text in zip(own, texts, strict=True):
                if text and text != usual and name not in _UNIMPORTANT:
                    found[run.folder].append(f"{field_name(name)} {text}")
    return {folder: list_some(texts, MOST_NAMED) for folder, texts in found.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return list_some([*map(str, value)], MOST_NAMED)
    return "yes" if value is True else str(value or "")


MOST_NAMED = 3
_UNIMPORTANT = ("budget_s", "device", "order", "peak", "precision", "seed", "timeout_s")


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
    return f"{operations} {format_range(min(run.sizes_bytes), max(run.sizes_bytes))}"


COLUMNS = (
    Column("folder", lambda run: run.folder.name, TEXT, 9),
    Column("label", lambda run: run.label, TEXT, 8),
    Column("started", _started, TEXT, 5),
    Column("ranks", lambda run: f"{run.ranks} {run.backend}" if run.ranks else "", TEXT, 8),
    Column("status", lambda run: "" if run.status == COMPLETE else run.status or "not ended", TEXT),
)
"""All but what they measured. Names are never shortened, because they are typed again. A start is
there only where the name of its folder does not begin with it."""
VIEW = View(document, schema=1)

"""The list of the runs of a history, and all its points for other programs."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from operator import attrgetter

from commbench.analysis.columns import KEY
from commbench.answers.history.document import notes
from commbench.answers.history.records import HistoryRun, Series, System
from commbench.units import format_count
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import Document, Items, Table
from commbench.views.formats import Result, View


@dataclass(frozen=True, repr=False)
class RunsOfHistory(Result, view="answers.history.run_list", rows="runs"):
    """The runs of a history."""

    history: str
    runs: tuple[HistoryRun, ...]


def runs_document(found: RunsOfHistory) -> Document:
    """A row for each run, the newest first."""
    answer = [f"{format_count(len(found.runs), 'run')} in {found.history}."]
    table = Table("", RUN_COLUMNS, found.runs[::-1])
    return Document("Runs of a history", (), answer, [table, Items(notes(found.runs), "Notes")])


RUN_COLUMNS = (
    Column("run", attrgetter("id"), cells.NUMBER),
    Column("label", attrgetter("label"), cells.TEXT, 8),
    Column("started (UTC)", lambda run: run.started[:19].replace("T", " "), cells.TEXT, 8),
    Column("system", lambda run: run.system.name, cells.TEXT, 7, is_wrapped=True),
    Column("path", attrgetter("path"), cells.TEXT, 1, is_detail=True),
)
VIEW = View(runs_document, schema=1)


def points_csv(series: Iterable[Series]) -> str:
    """All points of series as CSV, in SI units: a line for each run of each series."""
    text = StringIO()
    names = (*System._fields, "run", "label", "started", "placed", *KEY, *TIMES)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for each in series:
        case = [getattr(each.case, name) for name in KEY]
        for run, time in each.points:
            at = (run.id, run.label, run.started, run.placed)
            writer.writerow([*each.system, *at, *case, *time])
    return text.getvalue()


TIMES = ("time_s", "time_ci_low_s", "time_ci_high_s")

"""The list of the runs of a history, and all its points for other programs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.columns import KEY
from commbench.answers.history.document import notes
from commbench.answers.history.records import HistoryRun, Series
from commbench.units import format_count
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import Document, Items, Table
from commbench.views.formats import View
from commbench.views.result import Result


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


class ExportedPoints(NamedTuple):
    """All points of series, for another program."""

    series: Sequence[Series]

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each run of each series."""
        for each in self.series:
            system = each.system._asdict()
            case = {name: getattr(each.case, name) for name in KEY}
            for run, time in each.points:
                at = {"run": run.id, "label": run.label, "started": run.started}
                ends = {"time_s": time.value, "time_low_s": time.low, "time_high_s": time.high}
                yield {**system, **at, "placed": run.placed, **case, **ends}

    def as_json(self) -> dict[str, Any]:
        """The rows as objects."""
        return {"points": self.rows()}


def points_csv(found: ExportedPoints) -> str:
    """The points as CSV, in SI units; empty where there is none."""
    rows = [*found.rows()]
    text = StringIO()
    if rows:
        writer = csv.DictWriter(text, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


POINTS = View(lambda _: Document("", (), (), ()), schema=1, more={"csv": points_csv})

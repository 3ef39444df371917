"""Rank 0's pen: what each visit gave goes to the journal, each finished case also to results.csv
and to who is watching."""

from __future__ import annotations

import time

from commbench.analysis.rows import row_of
from commbench.plan import FINISHED, Case
from commbench.records.journal import Journal, read_run
from commbench.records.schema import End, Header, Measurement, Visit, outcome
from commbench.report.progress import Silence, watcher
from commbench.report.results_csv import ResultsCsv
from commbench.worker.task import Task


class Recorder:
    """Writes a run folder while the run goes on. The folder exists; what earlier launches left in
    it stays, and this launch's visits join theirs."""

    def __init__(self, task: Task, header: Header) -> None:
        self._began = time.monotonic()
        folder = task.folder
        self._header, self._launch = header, header.launch
        earlier: tuple[Measurement, ...] = ()
        if header.launch or header.resumed:
            run = read_run(folder)
            self._header, earlier = run.header, run.measurements
        self._visits = {m.case.index: list(m.visits) for m in earlier}
        self._outcomes = {m.case.index: m for m in earlier}
        self._journal = Journal(folder)
        self._csv = ResultsCsv(folder)
        self._journal.header(header)
        self._csv.add(*(row_of(self._header, m) for m in earlier))
        left = sum(case.status != FINISHED for case in task.cases())
        self._watcher = Silence() if task.silent else watcher(left)

    def visits_before(self, case: Case) -> tuple[Visit, ...]:
        """Visits to a case that this launch made before it was cut off."""
        return tuple(v for v in self._visits.get(case.index, ()) if v.launch == self._launch)

    def started(self, case: Case) -> None:
        """A visit to a case starts."""
        self._watcher.started(case)

    def visited(self, case: Case, visit: Visit) -> None:
        """A visit to a case has ended: write it down."""
        self._journal.visit(case, visit)
        self._visits.setdefault(case.index, []).append(visit)

    def finished(self, measurement: Measurement) -> None:
        """A case has ended: write it down."""
        self._journal.measurement(measurement)
        index = measurement.case.index
        visits = tuple(self._visits.pop(index, ()))
        found = outcome(self._outcomes.get(index), measurement)
        row = row_of(self._header, found._replace(visits=visits))
        self._csv.add(row)
        self._watcher.finished(row)

    def close(self) -> None:
        """All cases have ended."""
        self._watcher.close()
        self._journal.end(
            End(status="complete", elapsed_s=round(time.monotonic() - self._began, 6))
        )

"""Rank 0's pen: what each batch gave goes to the journal, each finished case also to results.csv
and to who is watching."""

from __future__ import annotations

import time

from commbench.analysis.csv_file import ResultsCsv
from commbench.analysis.rows import ResultRow, make_row
from commbench.output.progress import NoProgress, progress_listener
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.schema import OK, Batch, Measurement, RunEnd, RunHeader, worse_outcome
from commbench.spec.case import FINISHED, Case
from commbench.units import format_GBps, format_time
from commbench.worker.context import LaunchTask


class Recorder:
    """Writes a run folder while the run goes on. The folder exists; what earlier launches left in
    it stays, and this launch's batches join theirs."""

    def __init__(self, task: LaunchTask, header: RunHeader) -> None:
        self._began = time.monotonic()
        folder = task.folder
        self._header, self._launch = header, header.launch
        earlier: tuple[Measurement, ...] = ()
        if header.launch or header.resumed:
            run = read_run(folder)
            self._header, earlier = run.header, run.measurements
        self._batches = {m.case.index: list(m.batches) for m in earlier}
        self._outcomes = {m.case.index: m for m in earlier}
        self._journal = Journal(folder)
        self._csv = ResultsCsv(folder)
        self._journal.header(header)
        self._csv.add(*(make_row(self._header, m) for m in earlier))
        left = sum(case.status != FINISHED for case in task.cases())
        self._watcher = NoProgress() if task.silent else progress_listener(left)

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        """Batches to a case that this launch made before it was cut off."""
        return tuple(v for v in self._batches.get(case.index, ()) if v.launch == self._launch)

    def started(self, case: Case) -> None:
        """A batch of a case starts."""
        self._watcher.started(case.name)

    def batch_done(self, case: Case, batch: Batch) -> None:
        """A batch of a case has ended: write it down."""
        self._journal.batch(case, batch)
        self._batches.setdefault(case.index, []).append(batch)

    def finished(self, measurement: Measurement) -> None:
        """A case has ended: write it down."""
        self._journal.measurement(measurement)
        index = measurement.case.index
        batches = tuple(self._batches.pop(index, ()))
        found = worse_outcome(self._outcomes.get(index), measurement)
        row = make_row(self._header, found._replace(batches=batches))
        self._csv.add(row)
        self._watcher.finished(measurement.case.name, result_text(row))

    def close(self) -> None:
        """All cases have ended."""
        self._watcher.close()
        self._journal.end(
            RunEnd(status="complete", elapsed_s=round(time.monotonic() - self._began, 6))
        )


def result_text(row: ResultRow) -> str:
    """What came of a case, in a few words: `42.1 us  0.05 GB/s`, or why there is no time."""
    measurement = row.measurement
    words = []
    if row.time:
        words.append(format_time(row.time.median))
        if row.busbw is not None:
            words.append(f"busbw {format_GBps(row.busbw)} GB/s")
    if measurement.status != OK:
        words.append(f"{measurement.status}: {measurement.reason}")
    return "  ".join(words)

"""Takes the results of a run on rank 0: into a run folder, or into memory."""

from __future__ import annotations

import time
from collections import defaultdict
from math import inf
from typing import Any

from commbench.analysis.csv_file import ResultsCsv
from commbench.analysis.rows import WAYS, ResultRow, make_row, make_rows, relate_rows
from commbench.output.progress import PART, ProgressListener, SoakStatus, work_listener
from commbench.plan.case import Case
from commbench.results import journal, records, samples, schema
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import WRONG_RESULTS
from commbench.results.schema import COMPLETE, OK, Batch, Measurement, Run, RunEnd, RunHeader
from commbench.units import format_GBps, format_time
from commbench.worker import entrypoint


class RunCollector:
    """Takes what rank 0 hands on, and keeps the results of a run in memory."""

    soaked_s = 0.0
    """Seconds of a soak that had passed when this launch was resumed."""

    def __init__(self, header: RunHeader) -> None:
        self._started = time.monotonic()
        self._header, self._launch = header, header.launch
        self._batches: dict[int, list[Batch]] = {}
        self._ranks: defaultdict[int, samples.RankTimesSum] = defaultdict(samples.RankTimesSum)
        """What the batches of a case have of each rank."""
        self._measurements: list[Measurement] = []
        self._risen: dict[str, dict[str, int]] = {}
        self._has_wrong = False

    def batches_before(self, case: Case) -> tuple[Batch, ...]:  # noqa: ARG002
        """Batches of a case from before this launch was resumed."""
        return ()

    def started(self, case: Case) -> None:
        """A batch of a case starts."""

    def batch_done(self, case: Case, batch: Batch) -> None:
        """A batch of a case has ended."""
        self._keep(case, batch)

    def checked(self, check: records.Check) -> None:
        """Calls of a case were checked in a soak."""

    def advanced(self, done: float) -> None:
        """So much of all cases is done, 0 to 1."""

    def _keep(self, case: Case, batch: Batch) -> Batch:
        """Keep a batch, without what it has of each rank: that is recorded once per case."""
        batch = self._ranks[case.index].add(batch, len(batch.samples_s))
        self._batches.setdefault(case.index, []).append(batch)
        return batch

    def finished(self, measurement: Measurement) -> None:
        """A case has ended; its batches were handed over before."""
        self._measurements.append(self._whole(self._with_ranks(measurement)))

    def _with_ranks(self, measurement: Measurement) -> Measurement:
        """A case that has ended, with what is recorded of each rank in this launch."""
        added = self._ranks.pop(measurement.case.index, samples.RankTimesSum())
        return measurement._replace(rank_times=added.result(self._launch))

    def _whole(self, measurement: Measurement) -> Measurement:
        """The same with its batches."""
        return measurement._replace(batches=tuple(self._batches.pop(measurement.case.index, ())))

    def close(self, risen: dict[str, dict[str, int]]) -> None:
        """All cases have ended, and these counters of faults rose (RunEnd.risen)."""
        self._risen = risen

    def run(self, path: str) -> Run:
        """The complete run, its cases in the order of the plan."""
        found = tuple(sorted(self._measurements, key=lambda each: each.case.index))
        return Run(path=path, header=self._header, measurements=found, end=self._end())

    def _end(self) -> RunEnd:
        elapsed_s = round(time.monotonic() - self._started, 6)
        return RunEnd(COMPLETE, WRONG_RESULTS * self._has_wrong, elapsed_s, self._risen)


class Recorder(RunCollector):
    """Writes a run folder while the run goes on: every batch to the journal,
    every finished case also to results.csv and to the progress shown to people.

    The folder exists. What earlier launches left in it stays, and the batches of this launch are
    added to theirs.
    """

    def __init__(self, task: entrypoint.LaunchTask, header: RunHeader) -> None:
        super().__init__(header)
        folder = self._folder = task.folder
        earlier: tuple[Measurement, ...] = ()
        before_s = 0.0
        if header.launch or header.resumed:
            run = read_run(folder)
            self._header, earlier = run.header, run.measurements
            self.soaked_s = round(samples.soaked_s(run), 6) if header.plan.is_soak else 0.0
            if run.end and not (header.resumed or run.restarts):
                before_s = run.end.elapsed_s
            header = header._replace(soaked_s=self.soaked_s)
        self._batches = {m.case.index: list(m.batches) for m in earlier}
        self._outcomes = {m.case.index: m for m in earlier}
        self._journal = journal.Journal(folder)
        self._csv = ResultsCsv(folder)
        self._journal.add(header)
        cases = header.plan.cases()
        self._has_related = any(c.part or not c.call_form.is_reference for c in cases)
        """Whether there are several forms or parts of the same calls, which are compared."""
        self._rows: dict[int, ResultRow] = {}
        """The finished rows of those and of groups, by case: a group's time alone belongs in that
        of all together."""
        self._add(*(make_row(self._header, m) for m in earlier))
        self._progress = ProgressListener()
        if not task.is_silent:
            launches = header.plan.launches
            before = self.soaked_s / (header.plan.soak_s or inf)
            least = 0.0 if header.plan.is_soak or before_s else PART
            self._progress = work_listener(
                header.launch, launches, task.is_verbose, before, least=least, before_s=before_s
            )
        self._soak = SoakStatus(self.soaked_s, header.plan.soak_s) if header.plan.is_soak else None

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        found = [b for b in self._batches.get(case.index, ()) if b.launch == self._launch]
        before = self._outcomes.get(case.index)
        for times in before.rank_times if before and found else ():
            if times.launch == self._launch:
                found[0] = found[0]._replace(rank_medians_s=tuple(times.medians_s))
        return tuple(found)

    def started(self, case: Case) -> None:
        self._progress.started(self._soak.text if self._soak else case.name)

    def batch_done(self, case: Case, batch: Batch) -> None:
        if self._soak:  # there are too many batches to keep them
            self._journal.batch(case, self._ranks[case.index].add(batch, len(batch.samples_s)))
            self._soak.cycle = batch.cycle
        else:
            self._journal.batch(case, self._keep(case, batch))

    def checked(self, check: records.Check) -> None:
        self._journal.add(check)
        assert self._soak
        self._soak.wrong += sum(check.wrong_elements)

    def advanced(self, done: float) -> None:
        if self._soak:  # the batch that has ended may have been a long one
            self._progress.started(self._soak.text)
        self._progress.advanced(done)

    def finished(self, measurement: Measurement) -> None:
        measurement = self._with_ranks(measurement)
        self._journal.add(measurement)
        if self._soak:
            return  # its row needs all batches
        before = self._outcomes.get(measurement.case.index)
        known = (before.rank_times if before else ()) + measurement.rank_times
        found = schema.worse_outcome(before, measurement)._replace(rank_times=known)
        self._has_wrong |= bool(found.wrong)
        row = make_row(self._header, self._whole(found))
        self._add(row)
        self._progress.finished(measurement.case.name, result_text(row))

    def _add(self, *rows: ResultRow) -> None:
        """Add rows to results.csv, and again those of other forms and parts of the same calls."""
        if self._has_related:
            keys = {_calls_of(row) for row in rows}
            known = [row for row in self._rows.values() if _calls_of(row) in keys]
            rows = tuple({row.measurement.case.index: row for row in [*known, *rows]}.values())
        linked = relate_rows(rows)
        kept = [row for row in linked if self._has_related or row.measurement.case.group]
        self._rows |= {row.measurement.case.index: row for row in kept}
        self._csv.add(*linked)

    def close(self, risen: dict[str, dict[str, int]]) -> None:
        super().close(risen)
        self._progress.close()
        grouped = [row for row in self._rows.values() if row.measurement.case.group]
        self._csv.add(*relate_rows(grouped))
        self._journal.end(self._end())
        if any(risen.values()) or self._soak:  # a warning of all rows
            self._csv.add(*make_rows(read_run(self._folder)))


def _calls_of(row: ResultRow) -> tuple[Any, ...]:
    """What forms and parts of the same calls have alike."""
    return row.measurement.case.key(*WAYS, "part")


def result_text(row: ResultRow) -> str:
    """The result of a case in a few words: `42.1 us  0.05 GB/s`, or why there is no time."""
    measurement = row.measurement
    words = []
    if row.time:
        words.append(format_time(row.time.median))
        if row.busbw is not None:
            words.append(f"busbw {format_GBps(row.busbw)} GB/s")
    if measurement.status != OK:
        words.append(f"{measurement.status}: {measurement.reason}")
    return "  ".join(words)

"""What a person sees while a run goes on: a bar on a terminal, a plain line per case elsewhere."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from commbench.analysis.rows import Row
from commbench.plan import Case
from commbench.records.schema import OK
from commbench.report.layout import clean
from commbench.report.terminal import safe
from commbench.units import format_GBps, format_time


class Watcher(Protocol):
    """Is told of each visit to a case as it starts, and of each case as it ends."""

    def started(self, case: Case) -> None:
        """A visit to a case starts."""

    def finished(self, row: Row) -> None:
        """A case has ended."""

    def close(self) -> None:
        """The run has ended."""


class Bar:
    """A progress bar. It is drawn between cases only: no thread runs while ranks measure."""

    def __init__(self, console: Console, cases: int) -> None:
        self._progress = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=cases)
        self._progress.start()

    def started(self, case: Case) -> None:
        self._progress.update(self._task, description=case.name, refresh=True)

    def finished(self, row: Row) -> None:  # noqa: ARG002
        self._progress.update(self._task, advance=1, refresh=True)

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """One line per finished case, for logs and pipes."""

    def __init__(self, console: Console, cases: int) -> None:
        self._console = console
        self._cases = cases
        self._finished = 0

    def started(self, case: Case) -> None:
        pass

    def finished(self, row: Row) -> None:
        case = row.measurement.case
        self._finished += 1
        number = f"[{self._finished}/{self._cases}]"
        line = safe(clean(f"{number} {case.name}  {outcome(row)}"))
        self._console.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        pass


class Silence:
    """Nothing, where the run is a part of something larger that tells of its own progress."""

    def started(self, case: Case) -> None:
        pass

    def finished(self, row: Row) -> None:
        pass

    def close(self) -> None:
        pass


def outcome(row: Row) -> str:
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


def watcher(cases: int) -> Watcher:
    """The watcher for this process's standard error."""
    console = Console(stderr=True)
    return Bar(console, cases) if console.is_terminal else Lines(console, cases)

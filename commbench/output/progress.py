"""The progress of a run: a bar on a terminal, elsewhere a line per case."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from commbench.output.table import clean, is_terminal, safe


class ProgressListener:
    """Receives the events of a run: the start of each batch, the end of each case.

    This one shows nothing; for a run that is part of a larger task with a progress of its own.
    """

    def started(self, name: str) -> None:
        """A batch of a case starts."""

    def finished(self, name: str, result: str) -> None:
        """A case has ended."""

    def close(self) -> None:
        """The run has ended."""


class ProgressBar(ProgressListener):
    """A progress bar. It is drawn between batches only: no thread disturbs the measurement."""

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

    def started(self, name: str) -> None:
        self._progress.update(self._task, description=name, refresh=True)

    def finished(self, name: str, result: str) -> None:  # noqa: ARG002
        self._progress.update(self._task, advance=1, refresh=True)

    def close(self) -> None:
        self._progress.stop()


class ProgressLines(ProgressListener):
    """One line per finished case, for logs and pipes."""

    def __init__(self, console: Console, cases: int) -> None:
        self._console = console
        self._cases = cases
        self._finished = 0

    def finished(self, name: str, result: str) -> None:
        self._finished += 1
        number = f"[{self._finished}/{self._cases}]"
        line = safe(clean(f"{number} {name}  {result}"))
        self._console.print(Text(line), soft_wrap=True)


def restore_cursor() -> None:
    """Show the cursor of a terminal again, which the progress bar of a killed rank has hidden."""
    if is_terminal(sys.stderr):
        Console(stderr=True).show_cursor(True)


def progress_listener(cases: int) -> ProgressListener:
    """The listener that suits this process's standard error."""
    console = Console(stderr=True)
    return ProgressBar(console, cases) if is_terminal(sys.stderr) else ProgressLines(console, cases)

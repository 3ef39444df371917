"""Progress: a bar on a terminal, elsewhere a few lines. It is written between batches only, so
that no thread disturbs a measurement."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import floor
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from commbench.output.console import drop_status
from commbench.output.text import NARROWEST, about, fill, is_terminal, safe


class ProgressListener:
    """Receives the events of a run: the start of each batch, the end of each case.

    This one shows nothing; for a run that is part of a larger task with a progress of its own.
    """

    def started(self, name: str) -> None:
        """A batch of a case starts, or another part of the work."""

    def advanced(self, done: float) -> None:
        """So much of the work is done, 0 to 1."""

    def finished(self, name: str, result: str) -> None:
        """A case has ended, or another part of the work."""

    def close(self) -> None:
        """The work has ended."""


FIRST_LINE_S = 1.0
LINES_EVERY_S = 10.0
MINUTE_S = 60.0
REDRAWN_AFTER_S = 0.1
"""Seconds of measuring after which WorkLines prints its first line, and seconds between two lines
during the first minute; later it prints one a minute. WorkBar is drawn again after REDRAWN_AFTER_S,
because drawing takes time from the run."""


PART = 0.2
"""Of a launch: what is told of its time must not depend on its first calls alone."""


class Work:
    """How much of a run is done, and how long the rest will take."""

    def __init__(
        self, launch: int, launches: int, clock: Callable[[], float], done_before: float = 0.0,
        least: float = 0.0, before_s: float = 0.0,
    ) -> None:  # fmt: skip
        """`done_before`, 0 to 1, is the part of this launch that was done before the clock;
        `least` is the part of it from which on the time left is told; `before_s` is how long the
        launch before took, 0 where there was none."""
        self._least, self._before_s = least - 1e-9, before_s
        self._launch, self._launches, self._clock = launch, launches, clock
        self._started = clock()
        self._done = self._done_before = done_before
        """Of this launch, 0 to 1."""

    def advanced(self, done: float) -> None:
        self._done = done

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    @property
    def share(self) -> float:
        """The part of all launches that is done, 0 to 1; 1 only where nothing is left."""
        return floor(100 * (self._launch + self._done) / self._launches) / 100

    @property
    def left_text(self) -> str:
        """How much time is left, such as `about 12 s left`; empty while that is not known."""
        done_now = self._done - self._done_before
        if done_now <= max(0.0, self._least) or self.share >= 1:
            return ""
        # The launch before counts as much as PART of this one.
        part = PART * bool(self._before_s)
        whole_s = (self.elapsed_s + part * self._before_s) / (done_now + part)
        left_s = whole_s * (self._launches - self._launch - self._done)
        return f"{about(left_s)} left"


class WorkBar(ProgressListener):
    """A bar with the part of the work that is done, and the time that is left."""

    def __init__(self, console: Console, work: Work) -> None:
        self._work = work
        texts = ("{task.percentage:>3.0f} %", "{task.fields[left]}", "{task.description}")
        columns = BarColumn(bar_width=24), *(TextColumn(text, markup=False) for text in texts)
        self._progress = Progress(*columns, console=console, auto_refresh=False, transient=True)
        self._task = self._progress.add_task("", total=1.0, left="")
        self._progress.update(self._task, completed=work.share)
        self._drawn_s = 0.0
        self._progress.start()

    def started(self, name: str) -> None:
        self._update(description=name)

    def advanced(self, done: float) -> None:
        self._work.advanced(done)
        self._update()

    def _update(self, **changes: Any) -> None:
        left, share, now_s = self._work.left_text, self._work.share, self._work.elapsed_s
        is_due = now_s - self._drawn_s >= REDRAWN_AFTER_S
        self._drawn_s = now_s if is_due else self._drawn_s
        self._progress.update(self._task, completed=share, left=left, refresh=is_due, **changes)

    def close(self) -> None:
        self._progress.stop()


class WorkLines(ProgressListener):
    """A line after the first second and then now and again, for logs and pipes; with `has_cases`
    also one for each case that has ended."""

    def __init__(self, console: Console, work: Work, has_cases: bool, doing: str) -> None:
        self._console, self._work, self._has_cases = console, work, has_cases
        self._doing = doing
        self._next_s = FIRST_LINE_S
        self._name = ""

    def started(self, name: str) -> None:
        self._name = name

    def advanced(self, done: float) -> None:
        self._work.advanced(done)
        elapsed_s = self._work.elapsed_s
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + (LINES_EVERY_S if elapsed_s < MINUTE_S else MINUTE_S)
            left = self._work.left_text
            self._print(f"{left}{'; ' if left else ''}{self._doing} {self._name}")

    def finished(self, name: str, result: str) -> None:
        if self._has_cases:
            self._print(f"{name}  {result}" if result else name)

    def _print(self, text: str) -> None:
        line = f"[{self._work.share:.0%}] {text}".replace("%]", " %]", 1)
        self._console.print(Text(safe(fill(line, rest="  ", least=NARROWEST))), soft_wrap=True)


class SoakStatus:
    """What a soak has found so far, for the line that shows its progress."""

    def __init__(self, before_s: float, most_s: float | None) -> None:
        """`before_s` of `most_s` seconds had passed before the first text."""
        self.wrong = self.cycle = 0
        self._before_s, self._most_s = before_s, most_s
        self._started: float | None = None

    @property
    def text(self) -> str:
        """`120 of 3600 s, cycle 12, 0 wrong`."""
        total = f" of {self._most_s:.0f}" if self._most_s else ""
        if self._started is None:
            self._started = time.monotonic() - self._before_s
        elapsed_s = time.monotonic() - self._started
        return f"{elapsed_s:.0f}{total} s, cycle {self.cycle}, {self.wrong} wrong"


def restore_cursor() -> None:
    """Show the cursor of a terminal again, which the progress bar of a killed rank has hidden."""
    if is_terminal(sys.stderr):
        Console(stderr=True).show_cursor(True)


class _Console(Console):
    """Standard error, which may be closed: then rich would end the rank."""

    def on_broken_pipe(self) -> None:
        drop_status()


def work_listener(
    launch: int, launches: int, has_cases: bool, done_before: float = 0.0, doing: str = "measuring",
    least: float = 0.0, before_s: float = 0.0,
) -> ProgressListener:  # fmt: skip
    """The listener for one launch of a run that suits this process's standard error. `done_before`,
    0 to 1, is the part of the launch that was done earlier; from `least` more on, the time left is
    told; `before_s` is how long the launch before took. `doing` says what the work is."""
    console = _Console(stderr=True)
    work = Work(launch, launches, time.monotonic, done_before, least, before_s)
    if is_terminal(sys.stderr):
        return WorkBar(console, work)
    return WorkLines(console, work, has_cases, doing)

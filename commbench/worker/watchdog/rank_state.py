"""Where a rank is: a row of numbers that it rewrites as it goes, some 40 ns a number.

The row is a file on the desk of a launch, so that it outlives a rank that dies and others can read
it; without a desk it is memory of the rank alone.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from commbench.spec.case import Case

PHASES = (
    "starting",
    "joining the others",
    "trying every operation once",
    "measuring how fast the hosts' links are",
    "waiting for rank 0's word",
    "checking",
    "measuring",
    "handing in its times",
    "leaving",
    "done",
)
"""What a rank may be doing, in the order it does it within a step."""
STARTING, JOINING, TRYING, PROBING, WAITING, CHECKING, MEASURING, HANDING_IN, LEAVING, DONE = range(
    len(PHASES)
)
OF_A_CASE = (CHECKING, MEASURING, HANDING_IN)
NUMBERS = ("pid", "beats", "step", "phase", "case", "iteration", "iterations", "bytes", "still_ms")
PID, BEATS, STEP, PHASE, CASE, ITERATION, ITERATIONS, BYTES, STILL_MS = range(len(NUMBERS))

StateBuffer = memoryview
"""A rank's own row: int64 [len(NUMBERS)]."""


class RankState(NamedTuple):
    """A row as read; what is not known yet is 0."""

    pid: int = 0
    beats: int = 0
    """How often the rank's watch has looked: it goes on while the rank waits, and ends with it."""
    step: int = 0
    """How often it has waited for rank 0 to say what comes next."""
    phase: int = STARTING
    case: int = 0
    iteration: int = 0
    iterations: int = 0
    bytes: int = 0
    """What the operations move that the rank makes without moving on."""
    still_ms: int = 0
    """For how long it had not moved, by its watch."""

    @property
    def progress(self) -> tuple[int, int, int]:
        """Grows as a rank goes on; of two ranks the one behind has the smaller one."""
        return self.step, self.phase, self.iteration

    def told(self, cases: Sequence[Case]) -> str:
        """In words: `measuring all_reduce float32 sum in_place 64 MiB, iteration 12 of 50`."""
        if self.phase not in OF_A_CASE or self.case >= len(cases):
            return PHASES[self.phase]
        name = cases[self.case].name
        if self.phase == MEASURING:
            return f"measuring {name}, iteration {self.iteration + 1} of {self.iterations}"
        return f"{PHASES[self.phase]} of {name}" if self.phase == HANDING_IN else f"checking {name}"


def open_row(scratch_dir: Path | None, rank: int) -> StateBuffer:
    """A rank's own row, all zeros."""
    size = 8 * len(NUMBERS)
    if scratch_dir is None:
        return memoryview(mmap.mmap(-1, size)).cast("q")
    with _path(scratch_dir, rank).open("w+b") as file:
        file.truncate(size)
        return memoryview(mmap.mmap(file.fileno(), size)).cast("q")


def set_phase(
    row: StateBuffer, phase: int, case: int = 0, iterations: int = 0, bytes_: int = 0
) -> None:
    """Note what the rank does from now on."""
    row[CASE], row[ITERATION], row[ITERATIONS], row[BYTES] = case, 0, iterations, bytes_
    row[PHASE] = phase


def read_row(row: StateBuffer) -> RankState:
    """What a row says now."""
    return RankState(*row.tolist())


def read_positions(scratch_dir: Path) -> dict[int, RankState]:
    """The rows that lie on a desk, by rank; rows outlive their ranks."""
    found: dict[int, RankState] = {}
    for path in scratch_dir.glob("position-*"):
        numbers = memoryview(path.read_bytes())
        if len(numbers) == 8 * len(NUMBERS):
            found[int(path.name.partition("-")[2])] = RankState(*numbers.cast("q").tolist())
    return found


def is_there(pid: int) -> bool:
    """Whether there is such a process on this host."""
    try:
        os.kill(pid, 0)  # to 0, this process itself: a rank that has not noted its number yet
    except ProcessLookupError:
        return False
    return True


def end(pid: int) -> None:
    """End a process of this host at once, also one that is stopped; none where `pid` is 0."""
    if pid:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _path(scratch_dir: Path, rank: int) -> Path:
    return scratch_dir / f"position-{rank}"

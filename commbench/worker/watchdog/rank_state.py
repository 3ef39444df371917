"""The state of a rank: numbers in a memory map that the rank rewrites as it runs (40 ns a number).

The map is a file in the scratch folder of a launch, which others can read and which outlives the
rank. Without a scratch folder it is memory of the rank alone.
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
    "making the communicator",
    "trying every operation once",
    "measuring the links between hosts",
    "waiting for the next command of rank 0",
    "checking",
    "measuring",
    "sending its times",
    "leaving",
    "done",
)
"""What a rank does, in the order in which it does it between two commands of rank 0."""
STARTING, JOINING, CONNECTING, TRYING, PROBING, WAITING = range(6)
CHECKING, MEASURING, HANDING_IN, LEAVING, DONE = range(6, len(PHASES))
PHASES_OF_A_CASE = (CHECKING, MEASURING, HANDING_IN)

StateBuffer = memoryview
"""The state as the rank itself writes it: int64 [len(RankState._fields)]."""


class RankState(NamedTuple):
    """The state as read; a number that is not known yet is 0."""

    pid: int = 0
    heartbeats: int = 0
    """Published by the rank's watchdog so far; also while the rank waits."""
    step: int = 0
    """Commands of rank 0 waited for so far."""
    phase: int = STARTING
    case: int = 0
    """The index of the case that is, or was last, checked or measured."""
    iteration: int = 0
    """Of a batch; below 0 in the untimed calls before the first one."""
    iterations: int = 0
    expected_ms: int = 0
    """The longest that the operations between two changes of `progress` may take, beside --timeout.
    """
    still_ms: int = 0
    """Time since `progress` changed, as the watchdog measures it."""
    previous_phase: int = STARTING

    @property
    def progress(self) -> tuple[int, int, int]:
        """Grows as a rank goes on; of two ranks the one behind has the smaller value."""
        return self.step, self.phase, self.iteration

    def describe(self, cases: Sequence[Case]) -> str:
        """In words: `measuring all_reduce float32 sum in_place 64 MiB, iteration 12 of 50`."""
        if self.phase == TRYING and self.iteration and self.case < len(cases):
            return f"trying {cases[self.case].title}"
        is_between = self.phase == WAITING and self.previous_phase in PHASES_OF_A_CASE
        if self.case >= len(cases) or not (is_between or self.phase in PHASES_OF_A_CASE):
            return PHASES[self.phase]
        name = cases[self.case].name
        if is_between:
            last = PHASES[CHECKING if self.previous_phase == CHECKING else MEASURING]
            return f"between batches, after {last} {name}"
        if self.phase == MEASURING and self.iteration < 0:
            return f"warming up {name}, {-self.iteration} calls before iteration 1"
        if self.phase == MEASURING:
            return f"measuring {name}, iteration {self.iteration + 1} of {self.iterations}"
        return f"{PHASES[self.phase]} of {name}" if self.phase == HANDING_IN else f"checking {name}"


PID, HEARTBEATS, STEP, PHASE, CASE, ITERATION, ITERATIONS = range(7)
EXPECTED_MS, STILL_MS, PREVIOUS_PHASE = range(7, len(RankState._fields))
_SIZE = 8 * len(RankState._fields)


def open_state(scratch_dir: Path | None, rank: int) -> StateBuffer:
    """A rank's own state, all zeros."""
    if scratch_dir is None:
        return memoryview(mmap.mmap(-1, _SIZE)).cast("q")
    with (scratch_dir / f"state-{rank}").open("w+b") as file:
        file.truncate(_SIZE)
        return memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")


def set_phase(
    state: StateBuffer,
    phase: int,
    case: int | None = None,
    iterations: int = 0,
    expected_s: float = 0.0,
) -> None:
    """Record what the rank does from now on; without a case, the last case stays recorded."""
    state[PREVIOUS_PHASE] = state[PHASE]
    if case is not None:
        state[CASE] = case
    state[ITERATION], state[ITERATIONS], state[EXPECTED_MS] = 0, iterations, round(expected_s * 1e3)
    state[PHASE] = phase


def read_state(state: StateBuffer) -> RankState:
    """The state as it is now."""
    return RankState(*state.tolist())


def read_states(scratch_dir: Path) -> dict[int, RankState]:
    """The states in a scratch folder, by rank."""
    found: dict[int, RankState] = {}
    for path in scratch_dir.glob("state-*"):
        numbers = memoryview(path.read_bytes())
        if len(numbers) == _SIZE:
            found[int(path.name.partition("-")[2])] = RankState(*numbers.cast("q").tolist())
    return found


def is_process_alive(pid: int) -> bool:
    """Whether this host has such a process; true for 0, the pid of a rank that has none yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill_process(pid: int) -> None:
    """Kill a process of this host, also a stopped one; does nothing for the pid 0."""
    if pid:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)

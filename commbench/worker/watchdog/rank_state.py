"""What a rank leaves for others in the scratch folder of a launch, and every delay of failure
detection. Needs no torch.

The state of a rank is numbers in a memory map that the rank rewrites as it runs (40 ns a number).
The map is a part of the file `states`, which others can read and which outlives the rank; without a
folder it is memory of the rank alone.

`error-RANK.json` holds a CommbenchError. `failure-RANK.json` holds any other exception: a failure
of that rank, or a secondary one, a connection that was lost because another rank ended.
`report-RANK.json` is what a rank tells of a hang or of its failure (see heartbeats). `log-RANK` is
the output of a rank, and `stack-RANK` the stack of a crash.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from commbench.errors import CommbenchError, first_line, from_wire, reason_of, to_wire
from commbench.host.procfs import read_stat
from commbench.plan.case import Case
from commbench.results.files import replace_file
from commbench.units import format_count

PHASES = (
    "starting", "joining the others", "making the communicator", "trying every operation once",
    "measuring the links between hosts", "waiting for the next command of rank 0", "checking",
    "measuring", "sending its times", "leaving the process group", "done",
)  # fmt: skip
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
    rank: int = 0

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
            return f"warming up {name}, {format_count(-self.iteration, 'call')} before iteration 1"
        if self.phase == MEASURING:
            which = f", iteration {self.iteration + 1} of {self.iterations}"
            return f"measuring {name}" + which * bool(self.iterations)
        return f"{PHASES[self.phase]} of {name}" if self.phase == HANDING_IN else f"checking {name}"


PID, HEARTBEATS, STEP, PHASE, CASE, ITERATION, ITERATIONS = range(7)
EXPECTED_MS, STILL_MS, PREVIOUS_PHASE, RANK = range(7, len(RankState._fields))
_NUMBERS = len(RankState._fields)
_SIZE = 8 * _NUMBERS
STATES = "states"
"""The file with the states of the ranks of a host, in the order in which they came."""


def open_state(folder: Path | None, rank: int) -> StateBuffer:
    """A rank's own state, zeros but for its number."""
    return own_state(open_states(folder, rank))


def open_states(folder: Path | None, rank: int) -> StateBuffer:
    """The states of the ranks that came before this one, and its own, new one, at the end; without
    a folder only that."""
    if folder is None:
        memory = mmap.mmap(-1, _SIZE)
    else:
        with (folder / STATES).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(bytes(_SIZE))
            file.flush()
            memory = mmap.mmap(file.fileno(), 0)
            fcntl.flock(file, fcntl.LOCK_UN)  # the map keeps the file open
    numbers = memoryview(memory).cast("q")
    numbers[RANK - _NUMBERS], numbers[PID - _NUMBERS] = rank, os.getpid()
    return numbers


def own_state(states: StateBuffer) -> StateBuffer:
    """The last one of several states."""
    return states[-_NUMBERS:]


def set_phase(
    state: StateBuffer, phase: int, case: int | None = None, iterations: int = 0,
    expected_s: float = 0.0,
) -> None:  # fmt: skip
    """Record what the rank does from now on; without a case, the last case stays recorded."""
    state[PREVIOUS_PHASE] = state[PHASE]
    if case is not None:
        state[CASE] = case
    state[ITERATION], state[ITERATIONS], state[EXPECTED_MS] = 0, iterations, round(expected_s * 1e3)
    state[PHASE] = phase


def read_state(state: StateBuffer) -> RankState:
    """The state as it is now."""
    return RankState(*state.tolist())


def read_states(folder: Path) -> dict[int, RankState]:
    """The states in a folder, by rank."""
    with suppress(FileNotFoundError):
        numbers = memoryview((folder / STATES).read_bytes()).cast("q").tolist()
        each = (RankState(*numbers[i : i + _NUMBERS]) for i in range(0, len(numbers), _NUMBERS))
        return {state.rank: state for state in each if state.pid}
    return {}


class Predecessors:
    """The ranks of a host that came before this one: while one of them lives, it leads the host."""

    def __init__(self, states: StateBuffer) -> None:
        """`states` as open_states gave them."""
        self._states = states
        self._first, self._seen, self._missed = 0, -1, 0
        """The state of the first one that may live, its heartbeats, and since how many looks."""

    def is_any_alive(self) -> bool:
        """Whether one of them lives, as far as is known; to be asked once per heartbeat."""
        while self._first < len(self._states) - _NUMBERS:
            found = read_state(self._states[self._first : self._first + _NUMBERS])
            self._missed = self._missed + 1 if found.heartbeats == self._seen else 0
            self._seen = found.heartbeats
            if found.phase != DONE and is_process_alive(found.pid) and self._missed < MISSED_BEATS:
                return True
            self._first, self._seen, self._missed = self._first + _NUMBERS, -1, 0
        return False


def is_process_alive(pid: int) -> bool:
    """Whether this host has such a process; true for 0, the pid of a rank that has none yet."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def is_process_stopped(pid: int) -> bool:
    """Whether a process of this host is stopped by a signal or a debugger."""
    return read_stat(pid)[:1] in (["T"], ["t"])


def kill_process(pid: int) -> None:
    """Kill a process of this host, also a stopped one; does nothing for the pid 0."""
    if pid:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


CONNECTION_MESSAGES = (
    "closed by peer", "reset by peer", "broken pipe", "timed out", "timeout", "socket closed",
    "connection refused", "connection was closed", "remote process exited", "closed by remote peer",
)  # fmt: skip
"""What torch's backends print when another rank, or the link to it, is gone."""
NCCL_SYSTEM_ERROR = "unhandled system error"
LOST_RANK_HINT = "read its own error and the logs of its host, and check the link to it"
LAST_LINES = 6


class RankFailure(NamedTuple):
    """An exception that ended a rank."""

    text: str
    """Its type and the reason."""
    is_secondary: bool
    """Most likely the end of another rank was the cause."""
    lost_ranks: str = ""
    """For a secondary failure, which ranks were lost, in words; empty where none is known."""
    is_of_call: bool = False
    """An own call raised it."""


class CallError(Exception):
    """What an own call raised, in words with its name."""


def make_failure(error: BaseException) -> RankFailure:
    """The failure that an exception means."""
    line, reason = first_line(error), reason_of(error)
    text = f"{line} {reason}".lower()
    is_secondary = isinstance(error, RuntimeError | OSError) and (
        any(message in text for message in CONNECTION_MESSAGES)
        or (NCCL_SYSTEM_ERROR in text and reason == line)  # NCCL does not say which
    )
    is_of_call = isinstance(error, CallError)
    kind = "" if is_of_call else f"{type(error).__name__}: "
    return RankFailure(kind + reason, is_secondary, is_of_call=is_of_call)


ERROR, FAILURE, REPORT = "error", "failure", "report"
"""Kinds of files that ranks leave."""


def record(scratch_dir: Path, kind: str, rank: int, values: Any) -> None:
    """Leave a file of a kind, as JSON."""
    write_json(scratch_dir / f"{kind}-{rank}.json", values)


def read_recorded(scratch_dir: Path, kind: str) -> dict[int, Any]:
    """What is in the files of a kind, by ascending rank."""
    paths = {int(p.stem.rpartition("-")[2]): p for p in scratch_dir.glob(f"{kind}-*.json")}
    return {rank: json.loads(path.read_text("utf-8")) for rank, path in sorted(paths.items())}


def record_error(scratch_dir: Path, rank: int, error: CommbenchError) -> None:
    """Write an error that a person can act on."""
    record(scratch_dir, ERROR, rank, to_wire(error))


def read_error(scratch_dir: Path) -> CommbenchError | None:
    """The error that the lowest rank with one has recorded."""
    return next(map(from_wire, read_recorded(scratch_dir, ERROR).values()), None)


def log_path(scratch_dir: Path, rank: int) -> Path:
    """The file with the output of a rank and of the libraries in it."""
    return scratch_dir / f"log-{rank}"


def stack_path(scratch_dir: Path, rank: int) -> Path:
    """The file to which faulthandler writes the stack of a rank that crashes."""
    return scratch_dir / f"stack-{rank}"


def last_output(scratch_dir: Path, rank: int) -> list[str]:
    """The last lines of a rank's log, then the first lines of the stack of its crash."""
    log, stack = (_lines(path(scratch_dir, rank)) for path in (log_path, stack_path))
    return log[-LAST_LINES:] + stack[:LAST_LINES]


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [line for line in text.splitlines() if line.strip()]


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file that is complete or does not exist."""
    replace_file(path, json.dumps(values))


POLL_S = 0.02
T = TypeVar("T")


def wait_until(condition: Callable[[], T], limit_s: float, poll_s: float = POLL_S) -> T:
    """What the condition says as soon as that is true, or at the limit."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(poll_s, left))
    return found


MISSED_BEATS = 3
"""A rank whose heartbeats did not change for so many looks, one per heartbeat, has stopped."""
RANKS_PER_S, LAUNCHERS_PER_S = 170, 25
"""Operations per second of all hosts together on the store in which the ranks met, at most."""
SCALE = "COMMBENCH_TEST_DELAY_SCALE"
"""Environment variable, for tests only: a number that multiplies every delay, such as 0.25."""


class Delays(NamedTuple):
    """Seconds."""

    heartbeat_s: float = 1.0
    """Between two heartbeats of a rank; also of a host or of a launcher, where these are few."""
    late_s: float = 5.0
    """A process that was not scheduled for so long knows nothing about that time."""
    listen_s: float = 3.0
    """How long ranks are watched before a diagnosis: more than MISSED_BEATS heartbeats."""
    stay_s: float = 3.0
    """How long a rank that knows of a lost rank stays, on few hosts."""
    sigterm_s: float = 0.5
    """From SIGTERM to the end of a rank. Open MPI sends SIGKILL after 1 s; a rank that ended
    earlier would look to the others like the one that failed."""
    store_s: float = 5.0
    """Timeout of an operation on the heartbeat store."""
    supervisor_s: float = 10.0
    """How much longer than the other ranks' watchdogs, which know more, the supervisor waits."""
    node_cause_s: float = 3.0
    """How long a node with a secondary failure waits for another node to publish the cause."""
    node_store_s: float = 5.0
    """How long node 0 keeps the store for the others: their ranks notice a lost rank within 3 s."""
    node_silent_s: float = 6.0
    """Without heartbeats for so long, a node is lost. This counts while ranks join each other and
    after they are done; in between the ranks detect it themselves, after --timeout."""
    node_gone_s: float = 3.0
    """At the end of a launch no node waits for one without heartbeats for so long."""

    def host_beat_s(self, hosts: int) -> float:
        """Between two heartbeats of a host in the store."""
        return max(self.heartbeat_s, hosts / RANKS_PER_S)

    def launcher_beat_s(self, nodes: int) -> float:
        """Between two heartbeats of a launcher in the store."""
        return max(self.heartbeat_s, 2 * nodes / LAUNCHERS_PER_S)

    def answer_s(self, hosts: int) -> float:
        """How long hosts have to answer to an alarm: each does so at its next heartbeat."""
        return max(self.listen_s, 1.05 * self.host_beat_s(hosts)) + self.heartbeat_s

    def scaled(self, factor: float) -> Delays:
        """All delays multiplied by `factor`."""
        return Delays(*(factor * seconds for seconds in self))


def read_delays() -> Delays:
    """The delays of this process."""
    return Delays().scaled(float(os.environ.get(SCALE, "1")))

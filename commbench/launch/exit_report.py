"""After ranks have failed: which one did, where it was, and what its last words were."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import CommbenchError, RankError
from commbench.spec.plan import Plan
from commbench.worker.watchdog.error_files import (
    LEFT,
    RankFailure,
    last_words,
    read_error,
    read_failures,
)
from commbench.worker.watchdog.rank_state import DONE, RankState, read_positions

KILLED = "if nobody killed it, look for the out-of-memory killer in dmesg"
CRASHED = "the lines above, if there are any, show where; `commbench env` lists the versions in use"
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
LEFT_EARLY = "something in it called exit: a library, or a handler of a signal"
FAILED = "COMMBENCH_TRACEBACK=1 shows where"


class LaunchOutcome(NamedTuple):
    """How a launch ended, as one node sees it."""

    error: CommbenchError | None = None
    first_hand: bool = True
    """It happened here, or was found out here; otherwise only an echo of it came here."""


def what_happened(scratch_dir: Path, failures: Mapping[int, Any], plan: Plan) -> LaunchOutcome:
    """Why ranks failed: what one of them reported, or how it died.

    `failures` are torch's, by rank, of the ranks of this node that ended with another code than 0.
    """
    if error := read_error(scratch_dir):
        return LaunchOutcome(error)
    told = read_failures(scratch_dir)
    guilty = [(r, f) for r, f in failures.items() if r not in told or not told[r].echo]
    if not guilty and (blames := [failure.blames for failure in told.values() if failure.blames]):
        return LaunchOutcome(RankError(blames[0], LEFT), first_hand=False)
    rank, failure = min(guilty or failures.items(), key=lambda item: item[1].timestamp or 0)
    position = read_positions(scratch_dir).get(rank, RankState())
    how = _how(failure, _doing(position, plan), told.get(rank))
    return LaunchOutcome(_died(scratch_dir, rank, how, _hint(-failure.exitcode)), bool(guilty))


def left(scratch_dir: Path, rank: int, position: RankState, plan: Plan) -> RankError:
    """The error of a rank that ended with exit code 0 before it was done."""
    return _died(scratch_dir, rank, f"ended with exit code 0{_doing(position, plan)}", LEFT_EARLY)


def _died(scratch_dir: Path, rank: int, how: str, hint: str) -> RankError:
    lines = last_words(scratch_dir, rank)
    details = "\n".join([f"the last words of rank {rank}:", *(f"  {line}" for line in lines)])
    return RankError(f"rank {rank} on {socket.gethostname()} {how}", hint, details if lines else "")


def _doing(position: RankState, plan: Plan) -> str:
    return "" if position.phase == DONE else f" while {position.told(plan.cases())}"


def _hint(signal_number: int) -> str:
    if signal_number in CRASHES:
        return CRASHED
    return KILLED if signal_number > 0 else FAILED


def _how(failure: Any, doing: str, told: RankFailure | None) -> str:
    if failure.exitcode < 0:
        return f"was killed by {failure.signal_name()}{doing}"
    # torch has the words of an exception that came too early or too late to be left on the desk.
    message = failure.message.get("message") if isinstance(failure.message, dict) else None
    words = told.text if told else str(message or "").strip().split("\n")[0]
    return f"ended with exit code {failure.exitcode}{doing}" + (f": {words}" if words else "")

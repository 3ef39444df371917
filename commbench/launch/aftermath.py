"""After ranks have failed: which one did, where it was, and what its last words were."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commbench.errors import CommbenchError, RankError
from commbench.plan import Plan
from commbench.worker.desk import LEFT, Failure, last_words, read_error, read_failures
from commbench.worker.position import DONE, Position, read_positions

KILLED = "if nobody killed it, look for the out-of-memory killer in dmesg"
CRASHED = "the lines above, if there are any, show where; `commbench env` lists the versions in use"
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
FAILED = "COMMBENCH_TRACEBACK=1 shows where"


def what_happened(desk: Path, failures: Mapping[int, Any], plan: Plan) -> CommbenchError:
    """The error of ranks that failed: what one of them reported, or how it died.

    `failures` are torch's, by rank, of the ranks of this node that ended with another code than 0.
    """
    if error := read_error(desk):
        return error
    told = read_failures(desk)
    guilty = [(r, f) for r, f in failures.items() if r not in told or not told[r].echo]
    if not guilty and (blames := [failure.blames for failure in told.values() if failure.blames]):
        return RankError(blames[0], LEFT)
    rank, failure = min(guilty or failures.items(), key=lambda item: item[1].timestamp or 0)
    position = read_positions(desk).get(rank, Position())
    doing = "" if position.phase == DONE else f" while {position.told(plan.cases())}"
    lines = last_words(desk, rank)
    details = "\n".join([f"the last words of rank {rank}:", *(f"  {line}" for line in lines)])
    return RankError(
        f"rank {rank} on {socket.gethostname()} {_how(failure, doing, told.get(rank))}",
        _hint(-failure.exitcode),
        details if lines else "",
    )


def _hint(signal_number: int) -> str:
    if signal_number in CRASHES:
        return CRASHED
    return KILLED if signal_number > 0 else FAILED


def _how(failure: Any, doing: str, told: Failure | None) -> str:
    if failure.exitcode < 0:
        return f"was killed by {failure.signal_name()}{doing}"
    # torch has the words of an exception that came too early or too late to be left on the desk.
    message = failure.message.get("message") if isinstance(failure.message, dict) else None
    words = told.text if told else str(message or "").strip().split("\n")[0]
    return f"ended with exit code {failure.exitcode}{doing}" + (f": {words}" if words else "")

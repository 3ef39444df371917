"""The desk of a launch: a private folder where ranks leave word of what went wrong. Needs no torch.

Two kinds of word. A CommbenchError is told as it is. Any other exception is a failure: of this rank
itself, or only the echo of another rank's end, which its peers see as a lost connection.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import ERRORS_BY_NAME, CommbenchError, first_line

ECHOES = (
    "closed by peer", "reset by peer", "broken pipe", "timed out", "timeout", "socket closed",
    "connection refused", "connection was closed", "remote process exited",
    "unhandled system error",
)  # fmt: skip
"""What torch's backends say where another rank, or the way to it, is gone."""


class Failure(NamedTuple):
    """An exception that ended a rank."""

    rank: int
    host: str
    text: str
    """Type and first line."""
    echo: bool
    """Most likely another rank's end was the cause."""


def failure_of(error: BaseException, rank: int, host: str) -> Failure:
    """What there is to tell of an exception."""
    words = first_line(error)
    echo = isinstance(error, RuntimeError | OSError) and any(e in words.lower() for e in ECHOES)
    return Failure(rank, host, f"{type(error).__name__}: {words}", echo)


def leave_failure(desk: Path, failure: Failure) -> None:
    """Leave word of a failure."""
    _leave(desk / f"failure-{failure.rank}.json", failure._asdict())


def leave_error(desk: Path, rank: int, error: CommbenchError) -> None:
    """Leave word of an error that a person can act on."""
    _leave(desk / f"error-{rank}.json", [type(error).__name__, error.message, error.hint])


def read_error(desk: Path) -> CommbenchError | None:
    """The error that the lowest reporting rank left."""
    for _, (kind, message, hint) in _words(desk, "error"):
        return ERRORS_BY_NAME[kind](message, hint)
    return None


def read_failures(desk: Path) -> dict[int, Failure]:
    """The failures that ranks left, by rank."""
    return {rank: Failure(**values) for rank, values in _words(desk, "failure")}


def _leave(path: Path, values: Any) -> None:
    """Write a file that is complete or not there at all."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(values), encoding="utf-8")
    unfinished.replace(path)


def _words(desk: Path, kind: str) -> list[tuple[int, Any]]:
    files = desk.glob(f"{kind}-*.json")
    paths = sorted((int(path.stem.rpartition("-")[2]), path) for path in files)
    return [(rank, json.loads(path.read_text(encoding="utf-8"))) for rank, path in paths]

"""The desk of a launch: a private folder where ranks leave word of what went wrong. Needs no torch.

Two kinds of word. A CommbenchError is told as it is. Any other exception is a failure: of this rank
itself, or only the echo of another rank's end, which its peers see as a lost connection.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import CommbenchError, first_line, from_wire, to_wire

ECHOES = (
    "closed by peer", "reset by peer", "broken pipe", "timed out", "timeout", "socket closed",
    "connection refused", "connection was closed", "remote process exited",
    "unhandled system error",
)  # fmt: skip
"""What torch's backends say where another rank, or the way to it, is gone."""


STACK = "stack"
LEFT = "see what it says itself, its host's logs, and the link to it"
LAST_LINES = 6


class RankFailure(NamedTuple):
    """An exception that ended a rank."""

    rank: int
    host: str
    text: str
    """Type and first line."""
    echo: bool
    """Most likely another rank's end was the cause."""
    blames: str = ""
    """Which rank that was, as far as an echo can tell."""
    is_reporter: bool = True
    """Of the ranks that blame another, this is the one to say so."""


def failure_of(error: BaseException, rank: int, host: str) -> RankFailure:
    """What there is to tell of an exception."""
    words = first_line(error)
    echo = isinstance(error, RuntimeError | OSError) and any(e in words.lower() for e in ECHOES)
    return RankFailure(rank, host, f"{type(error).__name__}: {words}", echo)


def leave_failure(scratch_dir: Path, failure: RankFailure) -> None:
    """Leave word of a failure."""
    _leave(scratch_dir / f"failure-{failure.rank}.json", failure._asdict())


def leave_error(scratch_dir: Path, rank: int, error: CommbenchError) -> None:
    """Leave word of an error that a person can act on."""
    _leave(scratch_dir / f"error-{rank}.json", to_wire(error))


def read_error(scratch_dir: Path) -> CommbenchError | None:
    """The error that the lowest reporting rank left."""
    for _, words in _words(scratch_dir, "error"):
        return from_wire(words)
    return None


def read_failures(scratch_dir: Path) -> dict[int, RankFailure]:
    """The failures that ranks left, by rank."""
    return {rank: RankFailure(**values) for rank, values in _words(scratch_dir, "failure")}


def log_of(scratch_dir: Path, rank: int) -> Path:
    """The file with what a rank and the libraries in it printed."""
    return scratch_dir / f"log-{rank}"


def last_words(scratch_dir: Path, rank: int, lines: int = LAST_LINES) -> list[str]:
    """The last lines of a rank's log, and the first of a crash: what it was, and the innermost
    calls."""
    log, stack = (
        _lines(path) for path in (log_of(scratch_dir, rank), scratch_dir / f"{STACK}-{rank}")
    )
    return log[-lines:] + stack[:lines]


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [line for line in text.splitlines() if line.strip()]


def _leave(path: Path, values: Any) -> None:
    """Write a file that is complete or not there at all."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(values), encoding="utf-8")
    unfinished.replace(path)


def _words(scratch_dir: Path, kind: str) -> list[tuple[int, Any]]:
    files = scratch_dir.glob(f"{kind}-*.json")
    paths = sorted((int(path.stem.rpartition("-")[2]), path) for path in files)
    return [(rank, json.loads(path.read_text(encoding="utf-8"))) for rank, path in paths]

"""The error files of a launch: why each rank ended, as files in a private folder. Needs no torch.

`error-RANK.json` holds a CommbenchError. `failure-RANK.json` holds any other exception: a failure
of that rank, or a secondary one, a connection that was lost because another rank ended. `log-RANK`
is the output of a rank, and `stack-RANK` the stack of a crash.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import CommbenchError, first_line, from_wire, reason_of, to_wire

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

    rank: int
    host: str
    text: str
    """Its type and the reason."""
    is_secondary: bool
    """Most likely the end of another rank was the cause."""
    lost_ranks: str = ""
    """For a secondary failure, which ranks were lost, in words; empty where none is known."""
    is_reporter: bool = True
    """Of the ranks that found the same lost ranks, this one reports it."""


def make_failure(error: BaseException, rank: int, host: str) -> RankFailure:
    """The failure that an exception means."""
    line, reason = first_line(error), reason_of(error)
    text = f"{line} {reason}".lower()
    is_secondary = isinstance(error, RuntimeError | OSError) and (
        any(message in text for message in CONNECTION_MESSAGES)
        or (NCCL_SYSTEM_ERROR in text and reason == line)  # NCCL does not say which
    )
    return RankFailure(rank, host, f"{type(error).__name__}: {reason}", is_secondary)


def record_failure(scratch_dir: Path, failure: RankFailure) -> None:
    """Write the failure of a rank."""
    write_json(scratch_dir / f"failure-{failure.rank}.json", failure._asdict())


def record_error(scratch_dir: Path, rank: int, error: CommbenchError) -> None:
    """Write an error that a person can act on."""
    write_json(scratch_dir / f"error-{rank}.json", to_wire(error))


def read_error(scratch_dir: Path) -> CommbenchError | None:
    """The error that the lowest rank with one has recorded."""
    return next(map(from_wire, _read(scratch_dir, "error").values()), None)


def read_failures(scratch_dir: Path) -> dict[int, RankFailure]:
    """The failures that ranks have recorded, by rank."""
    return {rank: RankFailure(**values) for rank, values in _read(scratch_dir, "failure").items()}


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
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(values), encoding="utf-8")
    unfinished.replace(path)


def _read(scratch_dir: Path, kind: str) -> dict[int, Any]:
    """The values of all files of a kind, by ascending rank."""
    paths = {int(p.stem.rpartition("-")[2]): p for p in scratch_dir.glob(f"{kind}-*.json")}
    return {rank: json.loads(path.read_text("utf-8")) for rank, path in sorted(paths.items())}

"""Runs under a real launcher that are broken by real signals while they measure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from commands import START_TIMEOUT_S, Ended, journal_lines

from commbench.results.run_folder import JOURNAL

SMALL_THEN_LARGE = [
    "--sizes", "1K,8M", "--iters", "400", "--order", "ascending", "--no-plots",
]  # fmt: skip
"""A case that is finished soon, then one that takes seconds."""
ENDS_WITHIN_S = 15.0
GONE_WITHIN_S = 5.0


def await_the_large_one(process: subprocess.Popen[str], folder: Path) -> list[int]:
    """Wait until the first case is finished and the second has been measured; the ranks' processes,
    in order."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while [line["kind"] for line in lines_of(folder)][-2:] != ["case", "batch"]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [rank["pid"] for rank in lines_of(folder)[0]["ranks"]]


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a run's journal."""
    journal = folder / JOURNAL
    return journal_lines(journal) if journal.exists() else []


def cut_off(process: subprocess.Popen[str], folder: Path) -> bytes:
    """End the launcher as a batch system does; what the journal holds when all is over."""
    ranks = await_the_large_one(process, folder)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode
    await_end(ranks)
    return (folder / JOURNAL).read_bytes()


def await_end(ranks: list[int]) -> None:
    """Wait until none of these processes is left."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while left := [pid for pid in ranks if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"{left} of {ranks} are left"
        time.sleep(0.05)


def check_resumed(ended: Ended, before: bytes) -> None:
    """The run went on where it was, in its own folder and under its plan."""
    journal = ended.folder / JOURNAL
    assert journal.read_bytes().startswith(before)
    first, again = (line for line in lines_of(ended.folder) if line["kind"] == "header")
    assert (first["resumed"], again["resumed"]) == (False, True)
    assert (first["plan"], first["launcher"]) == (again["plan"], again["launcher"])
    finished = [line["case"]["index"] for line in lines_of(ended.folder) if line["kind"] == "case"]
    assert finished == [0, 1]
    assert [(row["status"], row["iterations"]) for row in ended.rows()] == [("ok", "400")] * 2
    assert lines_of(ended.folder)[-1]["status"] == "complete"
    assert "This run was cut off and resumed once." in ended.out


def check_named(ended: Ended, rank: int, host: str, seconds: float) -> None:
    """It ended soon, and not well; one rank said in two lines who it was; its run can be shown."""
    assert ended.code and seconds < ENDS_WITHIN_S
    error, hint = (
        [line for line in ended.err.splitlines() if line.startswith(word)]
        for word in ("error: ", "hint: ")
    )
    assert len(error) == len(hint) == 1, ended.err
    assert error[0].startswith(f"error: rank {rank} on {host} ended"), ended.err
    assert "Traceback" not in ended.err and "frame #" not in ended.err
    assert lines_of(ended.folder)[-1]["kind"] == "batch"


def finish(process: subprocess.Popen[str], where: Path) -> Ended:
    """How a launcher ended."""
    out, err = process.communicate(timeout=START_TIMEOUT_S)
    return Ended(process.returncode, out, unwrapped(err), where / "run")


def unwrapped(err: str) -> str:
    """What was printed, with an error and its hint each on one line."""
    return re.sub(r"\n {6,7}(?=\S)", " ", err)


def kill_rank(process: subprocess.Popen[str], folder: Path, rank: int) -> tuple[Ended, float]:
    """Kill a rank in mid-run. How the launcher ended, after so many seconds; nothing is left."""
    ranks = await_the_large_one(process, folder)
    signalled = time.monotonic()
    os.kill(ranks[rank], signal.SIGKILL)
    ended = finish(process, folder.parent)
    seconds = time.monotonic() - signalled
    await_end(ranks)
    return ended._replace(folder=folder), seconds

"""run.jsonl: a header, one line per batch of a case and per finished case, an end line.

It is the truth of a run. A run of several launches has a header for each of them, and one more for
each time it was taken up again. A case that has batches and no line of its own was being measured
when the run was cut off.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from commbench.errors import RecordsError
from commbench.results.decode import line_of
from commbench.results.run_folder import JOURNAL, _unwritable
from commbench.results.schema import (
    Batch,
    Measurement,
    Run,
    RunEnd,
    RunHeader,
)
from commbench.spec.case import Case

_BLOCK = 1 << 16


class Journal:
    """The journal of a running measurement: every line is written whole, or not at all.

    Nothing is buffered. A line of which only a part could be written, because the disk is full or
    the process was killed, is taken back, so that the next one does not continue it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        try:
            self._file = self._path.open("a+b", buffering=0)
        except OSError as error:
            raise _unwritable(self._path, error) from None
        _lock(self._file)
        self._sound = _sound_bytes(self._file.fileno())
        self._take_back()

    def header(self, header: RunHeader) -> None:
        """Write what is measured, and where."""
        self._write(line_of("header", header))

    def batch(self, case: Case, batch: Batch) -> None:
        """Write what one batch of a case gave."""
        self._write(line_of("batch", batch) | {"case": case.index})

    def measurement(self, measurement: Measurement) -> None:
        """Write one finished case; its batches were written before."""
        self._write(line_of("case", measurement._replace(batches=())))

    def end(self, end: RunEnd) -> None:
        """Write how the run ended, and close."""
        try:
            self._write(line_of("end", end))
        finally:
            self.close()

    def close(self) -> None:
        """Close without a word on how the run ended."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        rest = text = (json.dumps(line, allow_nan=False) + "\n").encode()
        try:
            if not os.fstat(self._file.fileno()).st_nlink:
                raise FileNotFoundError(0, "it was removed meanwhile")
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._take_back()
            raise RecordsError(
                f"cannot write {self._path}: {error.strerror}", "lines written earlier are kept"
            ) from None
        self._sound += len(text)

    def _take_back(self) -> None:
        """Cut off what follows the last whole line."""
        with suppress(OSError):
            if os.fstat(self._file.fileno()).st_size > self._sound:
                self._file.truncate(self._sound)


def _sound_bytes(file: int) -> int:
    """The size of a journal up to its last line's end."""
    end = os.fstat(file).st_size
    while end:
        begin = max(0, end - _BLOCK)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def write_run(folder: Path, run: Run) -> None:
    """Write a whole run, from its header to its end, into a folder that exists."""
    journal = Journal(folder)
    journal.header(run.header)
    for measurement in run.measurements:
        for batch in measurement.batches:
            journal.batch(measurement.case, batch)
        journal.measurement(measurement)
    journal.end(run.end or RunEnd(status="complete"))


def forget_empty(folder: Path) -> None:
    """Remove a run folder in which not even a header was written; one that holds more is left."""
    journal = folder / JOURNAL
    with suppress(OSError):
        with journal.open("rb") as file:
            empty = not _sound_bytes(file.fileno())
        if empty:
            journal.unlink()
            folder.rmdir()


def _lock(file: IO[bytes]) -> None:
    """Keep the journal to this process until it closes or ends; RecordsError where another has it.

    Where the file system has no locks, nothing is kept.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordsError(
            f"{file.name} is being written by another process", "wait until that run has ended"
        ) from None
    except OSError:
        pass

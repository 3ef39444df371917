"""run.jsonl: a header, one line per visit to a case and per finished case, an end line.

It is the truth of a run. A run of several launches has a header for each of them, and one more for
each time it was taken up again. A case that has visits and no line of its own was being measured
when the run was cut off.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from commbench.errors import CommbenchError, RecordsError
from commbench.plan import MOST_CASES, Case
from commbench.records.files import is_folder, why_unreadable
from commbench.records.schema import (
    CUT_OFF,
    OK,
    SCHEMA,
    UPGRADES,
    End,
    Header,
    Measurement,
    Run,
    Visit,
    end_of,
    header_of,
    line_of,
    measurement_of,
    outcome,
    visit_of,
)
from commbench.typed import brief

JOURNAL = "run.jsonl"
LONGEST_LINE = 1 << 28
"""Bytes; no run writes such a line, and a file without line ends is not read as a whole."""
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

    def header(self, header: Header) -> None:
        """Write what is measured, and where."""
        self._write(line_of("header", header))

    def visit(self, case: Case, visit: Visit) -> None:
        """Write what one visit to a case gave."""
        self._write(line_of("visit", visit) | {"case": case.index})

    def measurement(self, measurement: Measurement) -> None:
        """Write one finished case; its visits were written before."""
        self._write(line_of("case", measurement._replace(visits=())))

    def end(self, end: End) -> None:
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
        for visit in measurement.visits:
            journal.visit(measurement.case, visit)
        journal.measurement(measurement)
    journal.end(run.end or End(status="complete"))


def create_folder(folder: Path) -> Path:
    """Make a run folder with an empty journal in it, so that it is known to be writable.

    Raises RecordsError where it cannot be made, or exists and is not empty.
    """
    path = empty_folder(folder) / JOURNAL
    try:
        path.open("x").close()
    except OSError as error:
        raise _unwritable(path, error) from None
    return folder


def forget_empty(folder: Path) -> None:
    """Remove a run folder in which not even a header was written; one that holds more is left."""
    journal = folder / JOURNAL
    with suppress(OSError):
        with journal.open("rb") as file:
            empty = not _sound_bytes(file.fileno())
        if empty:
            journal.unlink()
            folder.rmdir()


def empty_folder(folder: Path) -> Path:
    """Make a folder, or take one that is empty; RecordsError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RecordsError(
                f"{folder} exists and is not empty",
                "choose another --output: nothing is overwritten",
            )
    except OSError as error:
        raise RecordsError(
            f"cannot make the run folder {folder}: {error.strerror}",
            "choose a writable place with --output",
        ) from None
    return folder


class Progress(NamedTuple):
    """How far a run has come."""

    run: Run
    launch: int
    """The last launch that began, from 0."""
    finished: frozenset[int]
    """Cases that it has finished."""

    @property
    def digest(self) -> str:
        """Equal on two hosts only if the run has come as far in the journals of both."""
        return f"{self.launch}-{zlib.crc32(repr(sorted(self.finished)).encode()):08x}"


def _unwritable(path: Path, error: OSError) -> RecordsError:
    return RecordsError(
        f"cannot write {path}: {error.strerror}", "choose a writable place with --output"
    )


def read_run(path: Path) -> Run:
    """The run whose folder or journal is `path`; RecordsError says what is wrong and in which line.

    A last line that was cut off in the middle of writing is left out.
    """
    return read_progress(path).run


def read_progress(path: Path) -> Progress:
    """As read_run, and how far the run has come."""
    journal = path / JOURNAL if is_folder(path) else path
    reader = _Reader()
    for number, line in _lines(journal):
        values = _parse(journal, number, line, reader.header.schema if reader.header else None)
        try:
            reader.take(values)
        except (
            LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError,
            CommbenchError,
        ) as error:  # fmt: skip
            raise _damaged(journal, number, error) from None
    if reader.header is None:
        raise RecordsError(f"{journal} holds no complete header", "the run ended before it began")
    run = Run(
        path=str(journal.parent),
        header=reader.header,
        measurements=reader.measurements(),
        end=reader.end,
        resumed=reader.resumed,
    )
    return Progress(run, reader.launch, frozenset(reader.finished))


def _lines(journal: Path) -> Iterator[tuple[int, str]]:
    """The whole lines of a journal with their numbers; what follows the last line's end was cut
    off while it was being written."""
    hint = "give a run folder or its run.jsonl"
    try:
        if why := why_unreadable(journal):
            raise RecordsError(f"cannot read {journal}: {why}", hint)
        with journal.open("rb") as file:
            for number in count(1):
                line = file.readline(LONGEST_LINE)
                if len(line) == LONGEST_LINE:
                    raise _damaged(journal, number, "it has no end")
                whole = line.endswith(b"\n")
                if whole or number == 1:
                    text = line.decode()
                if not whole:
                    return
                yield number, text
    except UnicodeDecodeError:
        raise RecordsError(f"{journal} is not text", hint) from None
    except OSError as error:
        raise RecordsError(f"cannot read {journal}: {error.strerror}", hint) from None


class _Reader:
    """Takes the lines of a journal in turn, and puts together what belongs together."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.end: End | None = None
        self.launch = 0
        self.finished: set[int] = set()
        self.resumed = 0
        self._cases: tuple[Case, ...] = ()
        self._found: dict[int, Measurement] = {}
        self._visits: dict[int, list[Visit]] = {}

    def take(self, values: dict[str, Any]) -> None:
        kind = values.pop("kind", None)
        if self.header is None and kind != "header":
            raise ValueError(f"a journal begins with a header, not with {brief(kind)}")
        if kind == "header":
            self._take_header(header_of(values)._replace(schema=SCHEMA))
        elif kind == "visit":
            index, visit = visit_of(values)
            self._take_visit(index, visit)
        elif kind == "case":
            self._take_measurement(measurement_of(values))
        elif kind == "end":
            self.end = end_of(values)
        else:
            raise ValueError(f"unknown kind of line {brief(kind)}")

    def _take_header(self, header: Header) -> None:
        if self.header is None:
            self.header, self._cases = header, header.plan.cases()
        elif header.plan != self.header.plan:
            raise ValueError("a later launch has another plan")
        if not header.resumed:
            self.finished.clear()
        elif header.launch != self.launch:
            raise ValueError(f"it resumes launch {header.launch}, after launch {self.launch}")
        self.launch = header.launch
        self.resumed += header.resumed
        self.end = None

    def _take_visit(self, index: int, visit: Visit) -> None:
        if not 0 <= index < len(self._cases):
            raise ValueError(f"the plan has no case {brief(index)}")
        assert self.header is not None
        ranks = self.header.plan.world_size
        for name in ("rank_medians_s", "rank_behind_s", "last_in"):
            if len(getattr(visit, name)) not in (0, ranks):
                raise ValueError(f"{name} is not of {ranks} ranks")
        self._visits.setdefault(index, []).append(visit)

    def _take_measurement(self, measurement: Measurement) -> None:
        index = measurement.case.index
        if not 0 <= index < MOST_CASES:  # an imported file's cases may be others than its plan's
            raise ValueError(f"no plan has a case {brief(index)}")
        self._found[index] = outcome(self._found.get(index), measurement)
        self.finished.add(index)

    def measurements(self) -> tuple[Measurement, ...]:
        """What every case gave, in the order of the plan."""
        unfinished = {
            index: Measurement(case=self._cases[index], status=OK, stop_reason=CUT_OFF)
            for index in self._visits
            if index not in self._found
        }
        found = sorted((self._found | unfinished).items())
        return tuple(m._replace(visits=tuple(self._visits.get(i, ()))) for i, m in found)


def _parse(journal: Path, number: int, line: str, schema: int | None) -> dict[str, Any]:
    """One line as the newest schema has it; `schema` is the header's once it is known."""
    try:
        values: Any = json.loads(line, parse_constant=_refuse_constant)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
    except (ValueError, RecursionError) as error:
        raise _damaged(journal, number, error) from None
    version = schema if schema is not None else values.get("schema")
    if type(version) is not int or version < 1:
        raise _damaged(journal, number, f"schema {brief(version)} is not a version")
    if version > SCHEMA:
        raise RecordsError(
            f"{journal} was written by a newer commbench: its schema is {brief(version)}",
            f"this one reads up to {SCHEMA}; upgrade commbench to read it",
        )
    upgraded: dict[str, Any] = values
    for older in range(version, SCHEMA):
        upgraded = UPGRADES[older](upgraded)
    return upgraded


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no measurement")


def _damaged(journal: Path, number: int, why: object) -> RecordsError:
    return RecordsError(
        f"{journal}, line {number}, is damaged: {why}",
        f"the lines before it are sound; remove it and what follows to read {number - 1} of them",
    )


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

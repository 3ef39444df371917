"""Writes run.jsonl, the journal: a header, a line per batch and per finished case, an end line;
of a soak also a line per check.

Each line ends with a checksum: the CRC-32 of all bytes of the file before it. So a line that was
changed, doubled, moved or removed is found at this line or the next.

Everything else about a run is computed from its journal. A run of several launches has a header for
each of them, and one more for each time it was resumed. A case that has batches and no line of its
own was being measured when the run was cut off.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from zlib import crc32

from commbench.errors import RecordsError, unwritable_error
from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.records import Check, RankInfo
from commbench.results.run_folder import JOURNAL
from commbench.results.samples import Samples, encode_rank_times, with_rank_times
from commbench.results.schema import Batch, Measurement, Run, RunEnd, RunHeader

_BLOCK_BYTES = 1 << 16
CHECKSUM = "crc32"
"""The last key of a line."""
_TAIL = ', "%s": "%08x"}\n'
_TAIL_BYTES = len(_TAIL % (CHECKSUM, 0))


def seal(text: str, before: int) -> bytes:
    """The line of a JSON object, with its checksum; `before` is the CRC-32 of the lines before."""
    body = text[:-1].encode()
    return body + (_TAIL % (CHECKSUM, crc32(body, before))).encode()


def verify(line: bytes, before: int) -> int | None:
    """The CRC-32 of all bytes up to the end of a line; None where the line has not the checksum
    that it was written with, after the same lines."""
    own = crc32(memoryview(line)[:-_TAIL_BYTES], before)
    tail = line[-_TAIL_BYTES:]
    return crc32(tail, own) if tail == (_TAIL % (CHECKSUM, own)).encode() else None


class Journal:
    """The journal of a running measurement. A line is written completely or not at all.

    Nothing is buffered. A part of a line, left behind by a full disk or a killed process, is cut
    off, so that the next line does not continue it. Raises RecordsError where the file cannot be
    written, or another process is writing it.
    """

    def __init__(self, folder: Path, name: str = JOURNAL) -> None:
        self._path = folder / name
        try:
            self._file = self._path.open("a+b", buffering=0)
        except OSError as error:
            raise unwritable_error(self._path, error) from None
        _lock(self._file)
        self._complete_bytes = _count_complete_bytes(self._file.fileno())
        self._crc = _crc_of(self._file.fileno(), self._complete_bytes)
        self._cut_partial_line()

    def header(self, header: RunHeader) -> None:
        """Write the header of a launch."""
        self.write(_encode(header))

    def batch(self, case: Case, batch: Batch) -> None:
        """Write one batch of a case."""
        self.write(_encode_batch(case, batch))

    def check(self, check: Check) -> None:
        """Write the check of some calls in a soak."""
        self.write(_encode(check))

    def measurement(self, measurement: Measurement) -> None:
        """Write one finished case, whose batches were written before."""
        self.write(_encode(measurement))

    def end(self, end: RunEnd) -> None:
        """Write how the run ended, and close the file."""
        try:
            self.write(_encode(end))
        finally:
            self.close()

    def close(self) -> None:
        """Close the file without an end line."""
        self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        """Write one line, given as a JSON object, with its checksum."""
        rest = text = seal(json.dumps(line, allow_nan=False), self._crc)
        try:
            if not os.fstat(self._file.fileno()).st_nlink:
                raise FileNotFoundError(0, "it was removed meanwhile")
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._cut_partial_line()
            raise unwritable_error(self._path, error, "lines written earlier are kept") from None
        self._complete_bytes += len(text)
        self._crc = crc32(text, self._crc)

    def _cut_partial_line(self) -> None:
        """Cut off a partial line at the end."""
        with suppress(OSError):
            if os.fstat(self._file.fileno()).st_size > self._complete_bytes:
                self._file.truncate(self._complete_bytes)


def _count_complete_bytes(file: int) -> int:
    """The bytes of a file up to the end of its last complete line."""
    end = os.fstat(file).st_size
    while end:
        begin = max(0, end - _BLOCK_BYTES)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _crc_of(file: int, length: int) -> int:
    """The CRC-32 of the first bytes of a file."""
    crc = 0
    for begin in range(0, length, _BLOCK_BYTES):
        crc = crc32(os.pread(file, min(_BLOCK_BYTES, length - begin), begin), crc)
    return crc


def _encode_batch(case: Case, batch: Batch) -> dict[str, Any]:
    """The JSON object of a batch line, which tells its case twice: by index and by digest. Fields
    with their default values are left out."""
    line = {"kind": "batch", **_without_defaults(batch)}
    return line | {"case": case.index, "digest": case.digest}


def _without_defaults(record: Any) -> dict[str, Any]:
    """The fields of a record that have not their default values."""
    defaults = record._field_defaults
    values = {n: v for n, v in record._asdict().items() if n not in defaults or v != defaults[n]}
    return {name: _as_json(value) for name, value in values.items()}


def _encode(record: RunHeader | Check | Measurement | RunEnd) -> dict[str, Any]:
    """The JSON object of the line of a record. Fields that all ranks have in common are in a header
    once."""
    if isinstance(record, Check):
        return {"kind": "check", **_without_defaults(record)}
    if isinstance(record, RunEnd):
        return {"kind": "end", **_as_json(record)}
    if isinstance(record, Measurement):
        line = {"kind": "case", **_as_json(record._replace(batches=(), rank_times=()))}
        del line["rank_times"]
        times = [encode_rank_times(each) for each in record.rank_times]
        return line | ({"rank_times": times} if times else {})
    columns = dict(zip(RankInfo._fields, map(list, zip(*record.ranks, strict=True)), strict=False))
    same = {name: own[0] for name, own in columns.items() if own.count(own[0]) == len(own)}
    each = {name: own for name, own in columns.items() if name not in same}
    ranks = {"number": len(record.ranks), "same": same, "each": each}
    return {"kind": "header", **_as_json(record._replace(ranks=())), "ranks": _as_json(ranks)}


def _as_json(value: Any) -> Any:
    if isinstance(value, Plan):
        return value.as_json()
    if hasattr(value, "_asdict"):
        return {name: _as_json(inner) for name, inner in value._asdict().items()}
    if isinstance(value, Samples):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_as_json(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _as_json(inner) for name, inner in value.items()}
    return value


def write_run(folder: Path, run: Run) -> None:
    """Write the journal of a complete run into a folder that exists."""
    journal = Journal(folder)
    for line in encode_run(run):
        journal.write(line)
    journal.close()


def encode_run(run: Run) -> Iterator[dict[str, Any]]:
    """The lines of the journal of a complete run, as JSON objects."""
    yield _encode(run.header)
    yield from map(_encode, run.checks)
    for measurement in map(with_rank_times, run.measurements):
        for batch in measurement.batches:
            yield _encode_batch(measurement.case, batch)
        yield _encode(measurement)
    yield _encode(run.end or RunEnd(status="complete"))


def remove_if_empty(folder: Path) -> None:
    """Remove a run folder whose journal has no line; any other folder is left as it is."""
    journal = folder / JOURNAL
    with suppress(OSError):
        with journal.open("rb") as file:
            empty = not _count_complete_bytes(file.fileno())
        if empty:
            journal.unlink()
            folder.rmdir()


def _lock(file: IO[bytes]) -> None:
    """Lock the file until this process closes it or ends.

    RecordsError where another process holds the lock. A file system without locks is accepted.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordsError(
            f"{file.name} is being written by another process", "wait until that run has ended"
        ) from None
    except OSError:
        pass

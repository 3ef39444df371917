"""Writes run.jsonl, the journal: a header, a line per batch and per finished case, an end line;
of a soak also a line per check. And makes records of such lines.

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
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import IO, Any, TypeVar
from zlib import crc32

from commbench.errors import RecordsError, unwritable_error
from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS, require_known
from commbench.plan.plan import Plan
from commbench.plan.splits import parse_imbalance
from commbench.results import samples, schema
from commbench.results.records import Check, LinkProbe, Numerics, RankInfo, StartUp, WrongElement
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import Batch, Measurement, ReportedTiming, Run, RunEnd, RunHeader
from commbench.units import LARGEST_SIZE
from commbench.validation import brief, build, is_within_limits, texts_of

T = TypeVar("T")

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

    def add(self, record: RunHeader | Check | Measurement) -> None:
        """Write the header of a launch, the check of some calls in a soak, or one finished case,
        whose batches were written before."""
        self.write(_encode(record))

    def batch(self, case: Case, batch: Batch) -> None:
        """Write one batch of a case."""
        self.write(_encode_batch(case, batch))

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
        times = [samples.encode_rank_times(each) for each in record.rank_times]
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
    for measurement in map(samples.with_rank_times, run.measurements):
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
        hint = "wait until that run has ended"
        raise RecordsError(f"{file.name} is being written by another process", hint) from None
    except OSError:
        pass


# Records of lines: ValueError or UsageError for invalid fields.

DEEPEST_FACT = 4
LONGEST_FACT = 1 << 17
"""Most characters of an environment fact: those of an environment variable."""


_COUNTING = (RunHeader, LinkProbe, ReportedTiming, Case)
"""Records whose numbers are at most LARGEST_SIZE."""
_OTHER_LIMITS: dict[tuple[Any, str], tuple[float, float]] = {
    (RunHeader, "num_nodes"): (1, LARGEST_SIZE),
    (Batch, "temperature_c"): (-inf, inf),
    (RunEnd, "elapsed_s"): (0, inf),
    (Numerics, "bias"): (-inf, inf),
    (Numerics, "sqnr_db"): (-inf, inf),
}


@cache
def _limits_of(record: Any) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each field with numbers, or of each item of it: numbers
    are not negative, and fields whose names end so are durations."""
    found = {}
    for name, text in texts_of(record).items():
        if text.removeprefix("tuple[").startswith(("int", "float")):
            is_duration = name.endswith(("_s", "seconds"))
            number = (0, LARGEST_SIZE if record in _COUNTING else inf)
            usual = (samples.SHORTEST_S, samples.LONGEST_S) if is_duration else number
            found[name] = _OTHER_LIMITS.get((record, name), usual)
    return found


def decode_header(line: dict[str, Any]) -> RunHeader:
    """The record of a header line."""
    plan, ranks = Plan.from_json(line["plan"]), _decode_ranks(line["ranks"])
    header = _build(RunHeader, line | {"plan": plan, "ranks": ranks})
    _require_plain_facts("environment", header.environment, DEEPEST_FACT)
    return header


def _decode_ranks(found: Any) -> Any:
    """The ranks of a header, as a list; before schema 4 they were one."""
    if not isinstance(found, dict):
        return found
    number, same, each = found["number"], found["same"], found["each"]
    if any(len(column) != number for column in each.values()):
        raise ValueError(f"ranks are not {brief(number)}")
    rows: Any = zip(*each.values(), strict=True) if each else [()] * number
    return [same | dict(zip(each, row, strict=True)) for row in rows]


def decode_measurement(line: dict[str, Any]) -> Measurement:
    """The record of a case line; the batches of the case have lines of their own."""
    line = line | {"rank_times": tuple(map(samples.decode_rank_times, line.get("rank_times", ())))}
    found = _build(Measurement, line)
    case = found.case
    for dimension in DIMENSIONS:
        require_known(dimension.field, getattr(case, dimension.field))
    if case.imbalance:
        parse_imbalance(case.imbalance)  # UsageError where no blocks follow from it
    if why := schema.contradiction(found.status, found.wrong):
        raise ValueError(why)
    return found


_BATCH = b'{"kind": "batch"'
_SAMPLES = _BATCH + b', "samples_s": '
"""How the line of a batch begins."""


def split_batch(line: bytes) -> tuple[list[float], dict[str, Any]] | None:
    """The samples of a batch line, numbers within no limits, and its other fields; None for any
    other line, and for one that needs a closer look."""
    if not line.startswith(_SAMPLES):
        return None
    import orjson

    first, _, others = line[len(_SAMPLES) :].partition(b"]")
    if b"u" in first or b"l" in first:  # true, false or null
        return None
    try:
        numbers, values = orjson.loads(first + b"]"), orjson.loads(_BATCH + others)
    except orjson.JSONDecodeError:
        return None
    is_usual = numbers and "samples_s" not in values and type(values.get("case")) is int
    return (numbers, values) if is_usual else None


def decode_batch(values: dict[str, Any]) -> Batch:
    """The record of the fields of a batch."""
    batch = _build(Batch, values)
    if batch.calls < 1:
        raise ValueError("a batch of a case has iterations of at least one call")
    return batch


def decode_check(values: dict[str, Any]) -> Check:
    """The record of the fields of a check."""
    check = _build(Check, values)
    if check.calls < 1 or len(check.wrong_ranks) != len(check.wrong_elements):
        raise ValueError("a check is of at least one call, and of each wrong rank has the elements")
    return check


def decode_end(line: dict[str, Any]) -> RunEnd:
    """The record of an end line."""
    end = _build(RunEnd, line)
    for host, risen in end.risen.items():
        if not isinstance(risen, dict):
            raise ValueError(f"risen of {brief(host)} is {brief(risen)}")
        for name, value in risen.items():
            if type(value) is not int or not 0 < value <= LARGEST_SIZE:
                raise ValueError(f"{brief(name)} of {brief(host)} is {brief(value)}")
    return end


def _build(record: type[T], values: dict[str, Any]) -> T:
    """A record of these values; ValueError where one has a wrong type or is out of its limits."""
    inner = _RECORDS.get(record, {})
    built = build(record, values, **{name: partial(_build, inner[name]) for name in inner})
    limits = _limits_of(record)  # type: ignore[arg-type]  # it is hashable
    for name, value in values.items():
        if name not in limits or value is None or value == []:
            continue
        low, high = limits[name]
        several = value if isinstance(value, list) else (value,)
        if low <= min(several) and max(several) <= high:  # fast path
            continue
        if wrong := [n for n in several if not low <= n <= high and (n or low >= 1)]:
            raise ValueError(f"{name} is {brief(wrong[0])}")
    return built


_RECORDS: dict[Any, dict[str, Any]] = {
    RunHeader: {"ranks": RankInfo, "link_probes": LinkProbe, "start_up": StartUp},
    Measurement: {
        "case": Case, "first_wrong": WrongElement, "reported": ReportedTiming,
        "numerics": Numerics,
    },
    Check: {"first_wrong": WrongElement},
}  # fmt: skip
"""The records within a record."""


def _require_plain_facts(name: str, value: Any, depth: int) -> None:
    """Raise ValueError for environment facts that are too deep or too long to show or write."""
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(f"{name} is nested deeper than {DEEPEST_FACT} levels")
        inner = value.items() if isinstance(value, dict) else ((name, item) for item in value)
        for key, item in inner:
            _require_plain_facts(str(key)[:40], item, depth - 1)
    elif not (len(value) <= LONGEST_FACT if isinstance(value, str) else is_within_limits(value)):
        raise ValueError(f"{name} is {brief(value)}")

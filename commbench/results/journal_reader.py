"""Reads run.jsonl into a Run. Lines of older schemas are upgraded first, by `schema.upgraded`."""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import CommbenchError, RecordsError
from commbench.plan.case import NOT_PLANNED, Case
from commbench.plan.cases import MOST_CASES
from commbench.results import journal as lines
from commbench.results import schema
from commbench.results.files import is_file, is_folder, reading
from commbench.results.records import Check
from commbench.results.run_folder import JOURNAL, RESULTS_CSV
from commbench.results.samples import TYPES_OF_RANKS, Batches, RankTimesSum, with_checks
from commbench.results.schema import COMPLETE, SCHEMA, Batch, Measurement, RankTimes, Run, RunHeader
from commbench.stats import collect
from commbench.validation import brief

LONGEST_LINE = 1 << 28
"""Bytes. No run writes such a line; a larger file without line ends is not read into memory."""


class RunProgress(NamedTuple):
    """A run, and how much of it was measured."""

    run: Run
    launch: int
    """The latest launch, from 0."""
    finished: frozenset[int]
    """Indices of the cases that this launch has finished."""

    @property
    def digest(self) -> str:
        """Equal on two hosts only if both have journals of the same progress."""
        return f"{self.launch}-{zlib.crc32(repr(sorted(self.finished)).encode()):08x}"


def read_run(path: Path) -> Run:
    """The run whose folder or journal is `path`.

    An incomplete last line is left out. RecordsError says what is wrong, and in which line.
    """
    return read_progress(path).run


def decode_run(lines: Iterable[dict[str, Any]]) -> Run:
    """The run of the lines that `journal.encode_run` gave; it has no path."""
    reader = JournalReader()
    for line in lines:
        reader.take(dict(line))
    return reader.run("")


def read_progress(path: Path) -> RunProgress:
    """The run whose folder or journal is `path`, and how much of it was measured. As read_run."""
    journal = path / JOURNAL if is_folder(path) else path
    try:
        return _read(journal, is_quick=True)
    except RecordsError:
        return _read(journal, is_quick=False)  # it says which line is damaged, and why


def _read(journal: Path, is_quick: bool) -> RunProgress:
    """As read_progress; quickly, but with an error that may say another line and reason."""
    reader = JournalReader()
    version: int | None = None
    crc = 0
    for number, line in _lines(journal):
        try:
            if is_quick and version and version >= schema.QUICK_SINCE:
                sealed = lines.verify(line, crc)
                if sealed is not None and reader.take_quickly(line):
                    crc = sealed
                    continue
            version, values = _parse(journal, number, line, version)
            if version >= schema.CHECKED_SINCE:
                if lines.verify(line, crc) is None:
                    raise ValueError("its checksum is not that of this line and those before it")
                del values[lines.CHECKSUM]
            reader.checked &= version >= schema.CHECKED_SINCE
            crc = zlib.crc32(line, crc)
            reader.take(values)
        except RecordsError:
            raise
        except (
            LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError,
            CommbenchError,
        ) as error:  # fmt: skip
            raise _damaged(journal, number, error) from None
    if reader.header is None:
        not_begun = "it has not begun to measure: wait, or delete its folder and measure again"
        raise RecordsError(f"{journal} has no complete header", _about_rows(journal) or not_begun)
    if is_quick and not reader.has_durations:
        raise RecordsError(f"{journal} has samples that are no durations", "")
    return RunProgress(reader.run(str(journal.parent)), reader.launch, frozenset(reader.finished))


def _lines(journal: Path) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a journal with their numbers; an incomplete last line is left out."""
    hint = "give a run folder or its run.jsonl"
    with reading(journal, hint) as file:
        for number in count(1):
            line = file.readline(LONGEST_LINE)
            if len(line) == LONGEST_LINE:
                raise _damaged(journal, number, "it has no end")
            if number == 1:
                try:
                    line.decode()
                except UnicodeDecodeError:
                    raise RecordsError(f"{journal} is not text", hint) from None
            if not line.endswith(b"\n"):
                return
            yield number, line


class JournalReader:
    """Builds a run from the lines of its journal, given one after another."""

    def __init__(self) -> None:
        self.header: RunHeader | None = None
        self.end: schema.RunEnd | None = None
        self.launch = 0
        self.finished: set[int] = set()
        self.checked = True
        self.launches = 0
        self._cases: tuple[Case, ...] = ()
        self._found: dict[int, Measurement] = {}
        self._batches: defaultdict[int, Batches] = defaultdict(Batches)
        self._ranks: defaultdict[tuple[int, int], RankTimesSum] = defaultdict(RankTimesSum)
        """What older lines have of each rank, by case and launch."""
        self._rank_times: defaultdict[int, tuple[RankTimes, ...]] = defaultdict(tuple)
        self._latest: dict[int, tuple[dict[str, Any], Batch]] = {}
        """Of cases the fields of their latest batch, as read and as a record without samples."""
        self._risen: dict[str, dict[str, int]] = {}
        """What RunEnd.risen is of all launches until now."""
        self._expected: dict[int, tuple[str, int, int]] = {}
        """Of each case with batches its digest, and the numbers of its ranks and groups."""
        self._is_imported = False
        self._checks: list[Check] = []
        self._restarts: list[tuple[float, str]] = []
        self._starts: dict[int, str] = {}

    def take(self, values: dict[str, Any]) -> None:
        """Add one line, in the form of the newest schema; ValueError where it does not fit."""
        kind = values.pop("kind", None)
        if self.header is None and kind != "header":
            raise ValueError(f"a journal begins with a header, not with {brief(kind)}")
        if self.end and kind not in ("header", "end"):
            raise ValueError("the run had ended before")
        if kind == "header":
            self._take_header(lines.decode_header(values)._replace(schema=SCHEMA))
        elif kind == "batch":
            digest, index = values.pop("digest", None), values.pop("case")
            batch = lines.decode_batch(values)
            if type(index) is not int or not batch.samples_s:
                raise ValueError("a batch is of a case, and of at least one iteration")
            self._take_batch(digest, index, batch.samples_s, batch._replace(samples_s=()))
        elif kind == "check":
            self._take_check(lines.decode_check(values))
        elif kind == "case":
            self._take_measurement(lines.decode_measurement(values))
        elif kind == "end":
            assert self.header
            end = lines.decode_end(values)
            self._risen = schema.add_risen(self._risen, end.risen)
            self.end = end._replace(risen=self._risen)
            if end.status == COMPLETE:
                self.launches = self.launch + 1
                if self.launches < self.header.plan.launches:
                    self.end = None  # of a launch that is not the last
        else:
            raise ValueError(f"unknown kind of line {brief(kind)}")

    def take_quickly(self, line: bytes) -> bool:
        """Add the line of a usual batch, whose samples are to be checked by `has_durations`; false
        for any other line, which is not taken."""
        if not (found := lines.split_batch(line)) or self.end:
            return False
        samples, values = found
        del values["kind"], values[lines.CHECKSUM]
        index = values.pop("case")
        before, batch = self._latest.get(index, (None, None))
        try:
            if batch and values == before:
                self._add(index, samples, batch)
                return True
            fields = {"samples_s": []} | values
            digest = fields.pop("digest", None)
            batch = lines.decode_batch(fields)
            self._take_batch(digest, index, samples, batch)
        except (struct.error, ArithmeticError, TypeError, ValueError):
            return False
        self._latest[index] = values, batch
        return True

    @property
    def has_durations(self) -> bool:
        """Whether all samples are durations."""
        return all(found.samples.are_durations() for found in self._batches.values())

    def _take_header(self, header: RunHeader) -> None:
        if self.header is None:
            self.header, self._cases = header, header.plan.cases()
            self._is_imported = schema.is_imported(header)
        elif header.plan != self.header.plan.extended(header.plan.launches):
            raise ValueError("a later launch has another plan")
        elif not header.resumed and header.launch != self.launch + 1:
            raise ValueError(f"it begins launch {header.launch}, after launch {self.launch}")
        self.header = self.header._replace(plan=header.plan)
        self._latest.clear()
        if not header.resumed:
            self.finished.clear()
        elif header.launch != self.launch:
            raise ValueError(f"it resumes launch {header.launch}, after launch {self.launch}")
        self.launch = header.launch
        self._starts.setdefault(header.launch, header.started)
        self._restarts += [(header.soaked_s, header.started)] * header.resumed
        self.end = None

    def _take_batch(
        self, digest: str | None, index: int, samples: Sequence[float], batch: Batch
    ) -> None:
        """Add a batch, given as its samples and the record without them."""
        if self._is_imported:  # its cases may be others than its plan's
            self._batches[index].append(samples, batch)
            return
        if not 0 <= index < len(self._cases):
            raise ValueError(f"the plan has no case {brief(index)}")
        assert self.header is not None
        plan, case = self.header.plan, self._cases[index]
        if index not in self._expected:
            ranks = len(plan.ranks_of(case)) if case.group else plan.world_size
            self._expected[index] = case.digest, ranks, len(plan.groups_of(case))
        wanted, ranks, groups = self._expected[index]
        if digest not in (None, wanted):
            raise ValueError(f"it measured another case than {case.name}, which is {index}")
        if batch.launch != self.launch:
            raise ValueError(f"it is of launch {batch.launch}, in launch {self.launch}")
        if index in self.finished:
            raise ValueError(f"case {index} was finished before")
        for name in ("rank_medians_s", "rank_behind_s", "last_in"):
            _require_ranks(name, getattr(batch, name), ranks)
        if len(batch.group_medians_s) not in (0, groups):
            raise ValueError(f"group_medians_s is not of {groups} groups")
        if len(batch.group_samples_s) not in (0, len(batch.group_medians_s) * len(samples)):
            raise ValueError("group_samples_s is not of all groups and iterations")
        self._add(index, samples, batch)

    def _add(self, index: int, samples: Sequence[float], batch: Batch) -> None:
        """Add a batch; before schema 4 it may have what is recorded of each rank."""
        found = self._ranks[index, batch.launch].add(batch, len(samples))
        self._batches[index].append(samples, found)

    def _take_check(self, check: Check) -> None:
        assert self.header is not None
        if not 0 <= check.case < len(self._cases) or check.case in self.finished:
            raise ValueError(f"no case {brief(check.case)} is being measured")
        if any(rank >= self.header.plan.world_size for rank in check.wrong_ranks):
            raise ValueError(f"wrong_ranks has {brief(max(check.wrong_ranks))}")
        self._checks.append(check)

    def _take_measurement(self, measurement: Measurement) -> None:
        assert self.header is not None
        case, world_size = measurement.case, self.header.plan.world_size
        index, ranks = case.index, case.ranks or world_size  # older lines lack the ranks
        if ranks > world_size:
            raise ValueError(f"a case has {brief(ranks)} of {world_size} ranks")
        measurement = measurement._replace(case=case._replace(ranks=ranks))
        if not 0 <= index < MOST_CASES:  # an imported file's cases may be others than its plan's
            raise ValueError(f"no plan has a case {brief(index)}")
        if index in self.finished:
            raise ValueError(f"case {index} was finished before")
        if not self._is_imported:
            self._require_planned(measurement.case)
        ranks = len(self.header.plan.ranks_of(case)) if case.group else ranks
        for times in measurement.rank_times:
            for name in TYPES_OF_RANKS:
                _require_ranks(name, getattr(times, name), ranks)
        self._rank_times[index] += measurement.rank_times
        self._latest.pop(index, None)
        self._found[index] = schema.worse_outcome(self._found.get(index), measurement)
        self.finished.add(index)

    def _require_planned(self, case: Case) -> None:
        """Raise ValueError for a case that is not the one of its index in the plan."""
        if case.index >= len(self._cases):
            raise ValueError(f"the plan has no case {case.index}")
        planned = self._cases[case.index]._asdict()
        for name, value in case._asdict().items():
            if value != planned[name] and name not in NOT_PLANNED:
                raise ValueError(f"{name} is {brief(value)}, in the plan {brief(planned[name])}")

    def run(self, path: str) -> Run:
        """The run, its measurements with their batches, in the order of the plan."""
        assert self.header is not None
        open_cases = () if self._is_imported else self._batches.keys() - self.finished
        cut_off = {  # what the latest launch has begun and not finished
            index: own._replace(stop_reason=schema.CUT_OFF)
            for index in open_cases
            if (own := self._found.get(index) or Measurement(self._cases[index], schema.OK))
            and (index not in self._found or self._batches[index][-1].launch == self.launch)
            and own.status == schema.OK
        }
        found = sorted((self._found | cut_off).items())
        batches: Any = self._batches  # of each case a sequence that equals a tuple
        recorded = {i: self._rank_times.get(i, ()) for i, _ in found}
        for (index, launch), added in self._ranks.items():
            recorded[index] += added.result(launch)
        is_whole = self.launch < self.launches or len(self.finished) == len(self._cases)
        checks = collect((check.case, check) for check in self._checks)
        measurements = tuple(
            with_checks(m, checks.get(i, ()))._replace(
                batches=batches.get(i, ()), rank_times=recorded[i]
            )
            for i, m in found
        )
        return Run(
            path, self.header, measurements, self.end, self.checked, self.launch + is_whole,
            tuple(self._checks), tuple(self._restarts), tuple(filter(None, self._starts.values())),
        )  # fmt: skip


def _require_ranks(name: str, values: Sequence[object], ranks: int) -> None:
    if len(values) not in (0, ranks):
        raise ValueError(f"{name} is not of {ranks} ranks")


def _parse(
    journal: Path, number: int, line: bytes, version: int | None
) -> tuple[int, dict[str, Any]]:
    """The schema of one line, and the line in the form of the newest schema.

    A header carries its schema; other lines have the schema of the latest header, `version`.
    """
    try:
        values: Any = _DECODER.decode(line.decode().rstrip("\n"))
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
    except json.JSONDecodeError as error:
        raise _damaged(journal, f"{number}, column {error.colno}", "no JSON is there") from None
    except (UnicodeDecodeError, RecursionError):
        raise _damaged(journal, number, "it is no JSON") from None
    except ValueError as error:
        raise _damaged(journal, number, error) from None
    version = values.get("schema", version)
    if type(version) is not int or version < 1:
        raise _damaged(journal, number, f"its schema is {brief(version)}: it is no header")
    if version > SCHEMA:
        why = f"{journal} was written by a newer commbench: its schema is {brief(version)}"
        raise RecordsError(why, f"this one reads schemas up to {SCHEMA}; upgrade commbench")
    return version, schema.upgraded(values, version)


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a measurement")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def _damaged(journal: Path, place: int | str, why: object) -> RecordsError:
    """The error for a damaged line; `place` is its number, or `3, column 12`."""
    advice, rows = f"without its first line {journal.name} cannot be read", _about_rows(journal)
    advice += ": measure again" * (not rows)
    if str(place).partition(",")[0] != "1":
        advice = (
            "the lines before it can be read: copy the file, then remove this line and all lines "
            "after it; their samples are lost"
        )
    advice = "; ".join(filter(None, (rows, advice)))
    return RecordsError(f"{journal}, line {place}, is damaged: {why}", advice)


def _about_rows(journal: Path) -> str:
    """What can be read without the journal; empty if there is nothing."""
    rows = journal.parent / RESULTS_CSV
    if not is_file(rows):
        return ""
    return f"the rows are in {rows}, which compare, check and export read"

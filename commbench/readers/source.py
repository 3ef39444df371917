"""A file of another tool as clean lines, without colours, launchers' tags and timestamps; and what
a user says of it. A hint that contradicts the file is a UsageError. Nothing is guessed."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from commbench.errors import RecordsError, UsageError
from commbench.plan.dtypes import find_dtype
from commbench.plan.operations import OPERATIONS, find_operation
from commbench.plan.workload import MOST_RANKS
from commbench.results.files import read_whole
from commbench.units import format_count
from commbench.validation import require_within

T = TypeVar("T")

LARGEST_FILE_BYTES = 1 << 28
NCCL_TESTS = {
    o.nccl_tests.removesuffix("_perf"): o.name for o in OPERATIONS.values() if o.nccl_tests
}
"""commbench's operations by the programs of nccl-tests, without `_perf`."""

OF_FILES = ("operations", "dtypes", "reduce_ops", "sizes", "backend", "device", "world_size",
            "warmup", "timing", "launch_mode", "buffers", "memory", "check")  # fmt: skip
"""What other tools' files say of a plan; of the rest nothing is known."""

_ENDS = re.compile(r"\r\n|\n|\r")
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]")
_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_TAGS = re.compile(
    r"\A(?:[ \t]*(?:"
    r"\[\d{1,9},\d{1,9}\](?:<\w{1,9}>)?:?"  # mpirun --tag-output
    r"|<std(?:out|err)>:?"
    r"|\w{3} \w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}(?=[\[<])"  # mpirun --timestamp-output
    rf"|\[{_DATE}\]|{_DATE}"
    r"|\d{1,9}:(?=\s)"  # srun --label
    r"|\[[\w./-]{1,200}\](?=\s+[#\d])"  # kubectl logs --prefix
    r"|[A-Za-z][\w.-]{0,99}:(?=\s+[#\d])"  # pdsh, clush
    r")){1,4}",
    re.ASCII,
)


class ImportHints(NamedTuple):
    """The options that describe another tool's file; None where one is not given."""

    ranks: int | None = None
    operation: str | None = None
    dtype: str | None = None
    system: str | None = None
    nccl_version: str | None = None
    """Which of the curves of a file."""

    def validate(self) -> ImportHints:
        """The hints with the names that commbench uses; raises UsageError for invalid values."""
        require_within("--ranks", self.ranks, 1, MOST_RANKS)
        operation, dtype = self.operation, self.dtype
        if operation is not None:
            known = NCCL_TESTS.get(operation.removesuffix("_perf"), operation)
            operation = find_operation(known).name
        return self._replace(operation=operation, dtype=dtype and find_dtype(dtype).name)

    def choose_ranks(self, path: str, given: Iterable[int | None]) -> int:
        """The world size to import; `given` are those of the file's tables, None where unknown."""
        sizes = {ranks or None for ranks in given}
        known = sorted(ranks for ranks in sizes if ranks is not None)
        if not known or None in sizes:
            return _require(path, "the number of ranks", self.ranks, "--ranks N")
        listed = " and ".join(map(str, known))
        if self.ranks is None and len(known) > 1:
            why = f"{path} contains results of {listed} ranks"
            raise UsageError(why, f"choose with --ranks {known[-1]}")
        if self.ranks not in (None, *known):
            why = f"{path} was measured on {listed} ranks, not on {self.ranks}"
            raise UsageError(why, f"write --ranks {' or '.join(map(str, known))}")
        return self.ranks or known[0]

    def choose_operation(self, path: str, given: str | None, line: int) -> str:
        """The operation of a table that begins at `line`, for which the file gives `given`."""
        what = f"which operation it measured (table at line {line})"
        return _require(path, what, given or self.operation, "--op NAME, such as --op all_reduce")

    def choose_dtype(self, path: str, given: str | None, line: int) -> str:
        """The element type of a table that begins at `line`, for which the file gives `given`."""
        what = f"the element type (table at line {line})"
        return _require(path, what, given or self.dtype, "--dtype NAME, such as --dtype float32")


NO_HINTS = ImportHints()


def _require(path: str, what: str, value: T | None, option: str) -> T:
    if value is None:
        raise UsageError(f"{path} does not say {what}", f"give it: {option}")
    return value


class Line(NamedTuple):
    """One line: its number, from 1, and its clean text."""

    number: int
    text: str


class SourceText(NamedTuple):
    """A file that is being imported."""

    path: str
    text: str
    lines: tuple[Line, ...]

    def has(self, *patterns: re.Pattern[str]) -> bool:
        """Whether each of these patterns matches the beginning of a line."""
        return all(any(pattern.match(line.text) for line in self.lines) for pattern in patterns)

    def is_cut(self, line: Line) -> bool:
        """Whether the file ends within this line, so that its last number may lack digits."""
        return line.number == len(self.lines) and bool(line.text)

    def damaged(self, line: int, why: object, sound: int, unit: str = "line") -> RecordsError:
        """The error for a damaged line that follows `sound` rows."""
        before = f"; the {format_count(sound, 'row')} before it can be read" if sound else ""
        hint = f"repair or remove the {unit}{before}"
        return RecordsError(f"{self.path}, {unit} {line}, is damaged: {why!s:.200}", hint)


def read_source(path: Path) -> SourceText:
    """Read a file; raises RecordsError where it cannot be read."""
    raw = read_whole(path, LARGEST_FILE_BYTES, "give a file of another tool, at most 256 MiB")
    is_utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    # Invalid bytes become the replacement character, which no number has.
    return parse_source(str(path), raw.decode("utf-16" if is_utf16 else "utf-8-sig", "replace"))


def parse_source(path: str, text: str) -> SourceText:
    """Split a text into clean lines."""
    plain = (_TAGS.sub("", _COLOURS.sub("", line)).strip() for line in _ENDS.split(text))
    return SourceText(path, text, tuple(Line(n, line) for n, line in enumerate(plain, start=1)))

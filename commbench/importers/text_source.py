"""Another tool's file as clean lines, without colours, launchers' tags and timestamps."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import NamedTuple

from commbench.errors import RecordsError
from commbench.results.files import why_unreadable
from commbench.units import format_count

LARGEST_FILE_BYTES = 1 << 28

_ENDS = re.compile(r"\r\n|\n|\r")
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]")
_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_TAG = re.compile(
    r"[ \t]*(?:"
    r"\[\d{1,9},\d{1,9}\](?:<\w{1,9}>)?:?"  # mpirun --tag-output
    r"|<std(?:out|err)>:?"
    r"|\w{3} \w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}(?=[\[<])"  # mpirun --timestamp-output
    rf"|\[{_DATE}\]|{_DATE}"
    r"|\d{1,9}:(?=\s)"  # srun --label
    r"|\[[\w./-]{1,200}\](?=\s+[#\d])"  # kubectl logs --prefix
    r"|[A-Za-z][\w.-]{0,99}:(?=\s+[#\d])"  # pdsh, clush
    r")",
    re.ASCII,
)
_MOST_TAGS = 4


class Line(NamedTuple):
    """One line: its number, from 1, and its clean text."""

    number: int
    text: str


class SourceText(NamedTuple):
    """A file that is being imported."""

    path: str
    text: str
    lines: tuple[Line, ...]

    def is_cut(self, line: Line) -> bool:
        """Whether the file ends within this line, so that its last number may lack digits."""
        return line.number == len(self.lines) and bool(line.text)

    def damaged(self, line: int, why: object, sound: int) -> RecordsError:
        """The error for a damaged line that follows `sound` rows."""
        return RecordsError(
            f"{self.path}, line {line}, is damaged: {why}",
            f"{format_count(sound, 'row')} before it can be read; repair or remove the line",
        )


def read_source(path: Path) -> SourceText:
    """Read a file; raises RecordsError where it cannot be read."""
    why = why_unreadable(path, LARGEST_FILE_BYTES)
    if not why:
        try:
            return parse_source(str(path), _decode(path.read_bytes()))
        except OSError as error:
            why = error.strerror or ""
    hint = "give a file that another tool wrote"
    if "larger" in why:
        hint = "keep only the lines with the results"
    raise RecordsError(f"cannot read {path}: {why}", hint)


def parse_source(path: str, text: str) -> SourceText:
    """Split a text into clean lines."""
    lines = (Line(n, _clean(line)) for n, line in enumerate(_ENDS.split(text), start=1))
    return SourceText(path, text, tuple(lines))


def _decode(raw: bytes) -> str:
    """The text; invalid bytes become the replacement character, which no number has."""
    is_utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")


def _clean(line: str) -> str:
    text = _COLOURS.sub("", line)
    for _ in range(_MOST_TAGS):
        tag = _TAG.match(text)
        if not tag:
            break
        text = text[tag.end() :]
    return text.strip()

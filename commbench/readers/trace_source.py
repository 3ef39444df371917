"""JSON files of any size, read piece by piece: memory holds some pieces and one value.

Events are decoded one by one with the scanner of Python's json, which takes less time than a parser
that emits an event for each number. A file that was cut off gives the events before the cut.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from commbench.errors import RecordsError
from commbench.results.files import GZIP

PIECE = 1 << 20
"""Characters that are read at a time, or bytes of a compressed file."""
LARGEST_VALUE = 1 << 26
"""Characters of one event, or of another value of the file."""
MOST_EXPANSION = 200
"""How many times as large as a compressed file its content may be; traces have about 15."""
ALWAYS_EXPANDED = 1 << 26
"""Bytes to which any compressed file may expand."""

_NOT_PACKED = "Not a gzipped file"
"""What Python's gzip says of bytes behind the last compressed file."""
_SPACE = re.compile(r"[ \t\r\n,]*")
_NEXT_EVENT = re.compile(r'\}\s*,\s*(?=\{\s*"[^"\\]{1,40}"\s*:)')
"""The end of an object, if another one with a key follows. A text within an event has no such
place: its quotation marks follow a backslash."""
_DECODER = json.JSONDecoder(strict=False)
_NEEDED = 256
"""An error so near to the end of what was read may be one of a token that is cut in two."""


class Source:
    """The text of a file: `text` from `at` on is what was read and not used yet."""

    def __init__(self, path: Path, report: Callable[[float], None] = lambda _: None) -> None:
        """`report` is called with the part of the file that was read, 0 to 1. The file is a regular
        one that can be read."""
        self.path = path
        self.text, self.at = "", 0
        self.is_at_end = False
        self.is_cut = False
        """Whether the file ended in the middle of a value, or its compression is damaged."""
        self.damaged = 0
        """How many values were left out because they are no JSON."""
        self.facts: dict[str, Any] = {}
        """What `records` found beside the records."""
        self._report = report
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._file = path.open("rb")
        self._is_packed = self._file.peek(len(GZIP)).startswith(GZIP)
        self._bytes = max(1, path.stat().st_size)
        self._content: Any = gzip.GzipFile(fileobj=self._file) if self._is_packed else self._file
        self._expanded = 0

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def records(self, key: str, facts: Sequence[str] = ()) -> Iterator[Any]:
        """The items of the array that is the value of a key of the file, or that is the whole file;
        without a key, the objects of the file one after another. Those that are no JSON are left
        out and counted, and a cut ends it. The values of the keys `facts` are in `self.facts`."""
        try:
            if not key:
                while self._peek() == "{":
                    yield self._value()
                self.is_cut |= bool(self._peek())
            elif self._peek() == "[":
                yield from self._items()
            else:
                for name in self._keys():
                    if self._peek() == "[" and name == key:
                        yield from self._items()
                    elif (value := self._value()) is not None and name in facts:
                        self.facts[name] = value
        except (EOFError, ValueError):
            self.is_cut = True

    def _fill(self, wanted: int = 1) -> bool:
        """Read more, at least `wanted` characters if there are so many; False at the end."""
        pieces, count = [self.text[self.at :]], 0
        while count < wanted and not self.is_at_end:
            raw = self._next_bytes()
            self.is_at_end = not raw
            pieces.append(self._decoder.decode(raw, self.is_at_end))
            count += len(pieces[-1])
        self.text, self.at = "".join(pieces), 0
        self._report(min(1.0, self._file.tell() / self._bytes))
        return count > 0

    def _next_bytes(self) -> bytes:
        """At most PIECE bytes of the content; none at its end. Several compressed files, one after
        another, are one file; what follows the last one is ignored."""
        try:
            found: bytes = self._content.read1(PIECE)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.is_cut |= not (self._expanded and _NOT_PACKED in str(error))
            return b""
        except OSError as error:
            raise RecordsError(f"cannot read {self.path}: {error.strerror}", _NO_TRACE) from None
        self._expanded += len(found)
        most = max(ALWAYS_EXPANDED, MOST_EXPANSION * self._file.tell())
        if self._is_packed and self._expanded > most:
            why = f"{self.path} expands to more than {MOST_EXPANSION} times its size"
            hint = "this is no trace; if it is one, decompress it with gunzip and give the result"
            raise RecordsError(why, hint)
        return found

    def _peek(self) -> str:
        """The next character that is neither blank nor a comma; empty at the end."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._fill():
                return ""

    def _value(self) -> Any:
        """The next value. Raises ValueError where the text is no JSON, EOFError where it ends
        within the value, and RecordsError where the value is too large."""
        wanted = PIECE
        while True:
            try:
                found, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                is_near_end = len(self.text) - error.pos < _NEEDED  # more text may mend it
                if not (is_near_end or error.msg.startswith("Unterminated string")):
                    self.at = max(error.pos, self.at + 1)
                    raise ValueError("it is not JSON") from None
            except RecursionError:
                raise RecordsError(f"{self.path} is nested too deeply", _NO_TRACE) from None
            else:
                # A number at the end of what was read may go on.
                if end < len(self.text) or self.is_at_end or self.text[end - 1] in '}]"':
                    self.at = end
                    return found
            if len(self.text) - self.at > LARGEST_VALUE:
                limit = f"{LARGEST_VALUE >> 20} MiB"
                raise RecordsError(f"{self.path} has a value of more than {limit}", _NO_TRACE)
            if not self._fill(wanted):
                self.is_cut, self.at = True, len(self.text)
                raise EOFError
            wanted *= 2

    def _items(self) -> Iterator[Any]:
        """The values of the array that begins here. Those that are no JSON are left out and
        counted; a cut ends it."""
        self.at += 1
        while (character := self._peek()) != "]":
            if not character:
                self.is_cut = True
                return
            try:
                yield self._value()
            except EOFError:
                return
            except ValueError:
                self.damaged += 1
                if not self._find_next_event():
                    self.is_cut = True
                    return
        self.at += 1

    def _find_next_event(self) -> bool:
        while True:
            if found := _NEXT_EVENT.search(self.text, self.at):
                self.at = found.end()
                return True
            self.at = max(self.at, len(self.text) - _NEEDED)
            if not self._fill():
                return False

    def _keys(self) -> Iterator[str]:
        """The keys of the object that begins here. Who takes a key takes its value next. Raises
        ValueError and EOFError as `_value` does."""
        if self._peek() != "{":
            raise ValueError("it is not JSON")
        self.at += 1
        while (character := self._peek()) not in ("}", ""):
            key = self._value() if character == '"' else None
            if key is None or self._peek() != ":":
                raise ValueError("it is not JSON")
            self.at += 1
            yield key
        self.is_cut |= not character


_NO_TRACE = "give a trace of torch.profiler, as export_chrome_trace writes it"

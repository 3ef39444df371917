"""What a reader collects: rows, what it left out and why, and the ImportedFile they make."""

from __future__ import annotations

from typing import Any

from commbench.errors import RecordsError, UsageError
from commbench.importers.base import ImportedFile, ImportedRow
from commbench.importers.cells import looks_lost
from commbench.importers.hints import ImportHints
from commbench.importers.text_source import Line, SourceText

_MOST_LINES = 4


class RowCollector:
    """The rows and notes of one file while it is being read."""

    def __init__(self, source: SourceText, asked: ImportHints, place: str = "line") -> None:
        self.source = source
        self.asked = asked
        self._place = place
        self.rows: list[ImportedRow] = []
        self._notes: list[str] = []
        self._left_out: dict[str, list[int]] = {}
        self._unwanted: dict[str, str] = {}

    def note(self, text: str) -> None:
        """Say something about the file, once."""
        if text not in self._notes:
            self._notes.append(text)

    def leave_out(self, reason: str, line: int) -> None:
        """Leave out the row, or the table, at `line`."""
        self._left_out.setdefault(reason, []).append(line)

    def see_noise(self, line: Line) -> None:
        """Note a line among rows that is none, if it may have been one."""
        if looks_lost(line.text.split()):
            self.leave_out("not a row, for all its numbers", line.number)

    def wanted(self, line: int, operation: str, dtype: str) -> bool:
        """Whether a row is of what was asked for; it is left out where it is not."""
        for option, asked, told in (
            ("--op", self.asked.operation, operation),
            ("--dtype", self.asked.dtype, dtype),
        ):
            if asked is not None and told and told != asked:
                self._unwanted[option] = f"holds {told}, not {asked}"
                self.leave_out(f"{told}, and {option} {asked} was asked for", line)
                return False
        return True

    def file(self, **facts: Any) -> ImportedFile:
        """The file; an error where it holds no row."""
        if not self.rows:
            for option, why in self._unwanted.items():
                raise UsageError(f"{self.source.path} {why}", f"leave out {option}")
            raise RecordsError(
                f"{self.source.path} holds no result that can be read",
                "; ".join(self._texts()) or "it may have been cut off before its first row",
            )
        return ImportedFile(
            path=self.source.path, rows=tuple(self.rows), notes=tuple(self._texts()), **facts
        )

    def _texts(self) -> list[str]:
        return self._notes + [
            f"left out {len(lines)} ({listed(self._place, lines)}): {reason}"
            for reason, lines in self._left_out.items()
        ]


def listed(place: str, numbers: list[int]) -> str:
    """The first of some places: `line 3`, `lines 3, 4, 5, 6, …`."""
    shown = ", ".join(str(number) for number in numbers[:_MOST_LINES])
    more = ", …" if len(numbers) > _MOST_LINES else ""
    return f"{place}{'s' if len(numbers) > 1 else ''} {shown}{more}"

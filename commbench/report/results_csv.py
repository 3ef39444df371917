"""results.csv: one tidy row per case, replaced as a whole each time."""

from __future__ import annotations

import csv
import io
import os
from contextlib import suppress
from pathlib import Path

from commbench.analysis.columns import COLUMNS, columns_of
from commbench.analysis.rows import Row
from commbench.errors import RecordsError

RESULTS = "results.csv"


class ResultsCsv:
    """The results.csv of a run folder; whoever reads it finds a complete file at any time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        self._lines: dict[int, str] = {}

    def add(self, *rows: Row) -> None:
        """Add rows, or put them in the place of those of the same cases, and replace the file."""
        for row in rows:
            self._lines[row.measurement.case.index] = _line(row)
        self.write()

    def write(self) -> None:
        """Replace the file with the rows so far, in the order of the plan."""
        head = ",".join(COLUMNS) + "\n"
        text = head + "".join(self._lines[index] for index in sorted(self._lines))
        new = self._path.with_suffix(".csv.new")
        try:
            new.write_text(text, encoding="utf-8", errors="replace")
            os.replace(new, self._path)  # noqa: PTH105 - atomic, and says so
        except OSError as error:
            with suppress(OSError):
                new.unlink()  # half of a file helps nobody
            gone = not self._path.parent.exists()
            raise RecordsError(
                f"cannot write {self._path}: {error.strerror}",
                "the folder was removed or moved while the run went on"
                if gone
                else "every finished case is in run.jsonl beside it",
            ) from None


def _line(row: Row) -> str:
    line = io.StringIO()
    csv.DictWriter(line, COLUMNS, lineterminator="\n").writerow(columns_of(row))
    return line.getvalue()

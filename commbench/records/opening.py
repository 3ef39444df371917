"""Opening whatever holds results: a run of our own, or another tool's file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from commbench.records.files import is_file
from commbench.records.journal import JOURNAL, read_run
from commbench.records.schema import Run


class Untold(NamedTuple):
    """What a person adds where another tool's file does not tell it."""

    ranks: int | None = None
    operation: str | None = None
    dtype: str | None = None


NOTHING_UNTOLD = Untold()


def open_run(path: Path, untold: Untold = NOTHING_UNTOLD) -> Run:
    """The run in a folder or journal, or what another tool's file holds as one.

    RecordsError where it cannot be read, UsageError where something is missing that `untold` can
    add.
    """
    if path.name == JOURNAL or not is_file(path) or _is_journal(path):
        return read_run(path)
    from commbench.records.importers.read import read_foreign
    from commbench.records.importers.run import run_of

    return run_of(read_foreign(path, **untold._asdict()))


def _is_journal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).startswith(b'{"kind": "header"')
    except OSError:
        return True  # read_run says why it cannot be read

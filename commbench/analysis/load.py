"""READERS: the table of what results can be read from.

All give the same: a LoadedRun, whose frame has the columns of results.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.columns import COLUMNS, coerce, columns_of
from commbench.analysis.csv_file import read_results
from commbench.analysis.rows import make_rows
from commbench.errors import RecordsError
from commbench.importers.hints import NO_HINTS, ImportHints
from commbench.results.files import is_file, is_folder, why_unreadable
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL, RESULTS_CSV, RUN_HINT
from commbench.results.schema import Run, RunHeader

if TYPE_CHECKING:
    from pandas import DataFrame


class LoadedRun(NamedTuple):
    """Results of one run, wherever they were read from."""

    name: str
    """The run's label; the name of its folder or file where it has none."""
    path: Path
    frame: DataFrame
    """A row per case; the types are those of analysis.columns."""
    header: RunHeader | None = None
    """None where the file tells nothing of the environment, as results.csv."""
    run: Run | None = None
    """With every sample; None where the file holds none. Its measurements are the frame's rows."""


class Format(NamedTuple):
    """One kind of file that holds results."""

    name: str
    recognises: Callable[[Path, bytes], bool]
    """Whether it is a file or folder of this kind, by its path and its first bytes."""
    load: Callable[[Path, Collection[str], ImportHints], LoadedRun]
    """Load these columns; what another tool's file does not tell is in the last argument."""


def source_of(run: Run, columns: Collection[str] = COLUMNS) -> LoadedRun:
    """The results of a run that was read or imported."""
    from pandas import DataFrame

    rows = [columns_of(row) for row in make_rows(run)]
    frame = coerce(DataFrame(rows, columns=list(COLUMNS)), columns)
    return LoadedRun(run.name, Path(run.path), frame, run.header, run)


def _is_journal(path: Path, head: bytes) -> bool:
    if is_folder(path):
        return is_file(path / JOURNAL)
    return path.name == JOURNAL or head.startswith(b'{"kind"')


def _load_journal(path: Path, columns: Collection[str], _: ImportHints) -> LoadedRun:
    return source_of(read_run(path), columns)


def _is_results(path: Path, head: bytes) -> bool:
    if is_folder(path):
        return is_file(path / RESULTS_CSV)
    first = head.split(b"\n")[0].split(b",")
    return path.name == RESULTS_CSV or (b"operation" in first and b"size_bytes" in first)


def _load_results(path: Path, columns: Collection[str], _: ImportHints) -> LoadedRun:
    file = path / RESULTS_CSV if is_folder(path) else path
    frame = read_results(file, columns)
    labels = [label for label in frame["label"].unique() if label] if "label" in frame else []
    folder = file.absolute().parent.name
    name = folder if file.name == RESULTS_CSV else file.stem
    return LoadedRun(str(labels[0]) if len(labels) == 1 else name, path, frame)


def _load_foreign(path: Path, columns: Collection[str], hints: ImportHints) -> LoadedRun:
    return source_of(open_run(path, hints), columns)


READERS: tuple[Format, ...] = (
    Format("run folder or run.jsonl", _is_journal, _load_journal),
    Format("results.csv", _is_results, _load_results),
    Format("another tool's file", lambda path, _: is_file(path), _load_foreign),
)
"""Tried in this order."""


_HEAD_BYTES = 4096


def load(
    path: Path, columns: Collection[str] = COLUMNS, hints: ImportHints = NO_HINTS
) -> LoadedRun:
    """The results in a run folder, run.jsonl, results.csv or another tool's file.

    RecordsError says what is wrong; UsageError what `untold` has to add.
    """
    head = _head(path)
    for reader in READERS:
        if reader.recognises(path, head):
            return reader.load(path, columns, hints)
    raise RecordsError(
        f"{path} holds no results",
        f"it is none of these: {', '.join(reader.name for reader in READERS)}",
    )


def _head(path: Path) -> bytes:
    """The first bytes of a file; none of a folder."""
    if is_folder(path):
        return b""
    why = why_unreadable(path)
    try:
        if not why:
            with path.open("rb") as file:
                return file.read(_HEAD_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
    raise RecordsError(f"cannot read {path}: {why}", RUN_HINT)


def open_run(path: Path, hints: ImportHints = NO_HINTS) -> Run:
    """The run in a folder or journal, or what another tool's file holds as one.

    RecordsError where it cannot be read, UsageError where something is missing that `untold` can
    add.
    """
    if path.name == JOURNAL or not is_file(path) or _is_journal_opening(path):
        return read_run(path)
    from commbench.importers.registry import import_run

    return import_run(path, hints)


def _is_journal_opening(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).startswith(b'{"kind": "header"')
    except OSError:
        return True  # read_run says why it cannot be read

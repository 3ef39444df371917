"""READERS: the table of what results can be read from.

All give the same: a Source, whose frame has the columns of results.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.columns import COLUMNS, columns_of, settle
from commbench.analysis.results_file import read_results
from commbench.analysis.rows import rows_of
from commbench.records.files import is_file, is_folder
from commbench.records.journal import JOURNAL, read_run
from commbench.records.opening import Untold, open_run
from commbench.records.schema import Header, Run

if TYPE_CHECKING:
    from pandas import DataFrame

RESULTS_CSV = "results.csv"


class Source(NamedTuple):
    """Results of one run, wherever they were read from."""

    name: str
    """The run's label; the name of its folder or file where it has none."""
    path: Path
    frame: DataFrame
    """A row per case; the types are those of analysis.columns."""
    header: Header | None = None
    """None where the file tells nothing of the environment, as results.csv."""
    run: Run | None = None
    """With every sample; None where the file holds none. Its measurements are the frame's rows."""


class Reader(NamedTuple):
    """One kind of file that holds results."""

    name: str
    recognises: Callable[[Path, bytes], bool]
    """Whether it is a file or folder of this kind, by its path and its first bytes."""
    load: Callable[[Path, Sequence[str], Untold], Source]
    """Load these columns; what another tool's file does not tell is in the last argument."""


def source_of(run: Run, columns: Sequence[str] = COLUMNS) -> Source:
    """The results of a run that was read or imported."""
    from pandas import DataFrame

    rows = [columns_of(row) for row in rows_of(run)]
    frame = settle(DataFrame(rows, columns=list(COLUMNS)), columns)
    return Source(run.name, Path(run.path), frame, run.header, run)


def holds_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return is_file(folder / JOURNAL) or is_file(folder / RESULTS_CSV)


def _is_journal(path: Path, head: bytes) -> bool:
    if is_folder(path):
        return is_file(path / JOURNAL)
    return path.name == JOURNAL or head.startswith(b'{"kind"')


def _load_journal(path: Path, columns: Sequence[str], _: Untold) -> Source:
    return source_of(read_run(path), columns)


def _is_results(path: Path, head: bytes) -> bool:
    if is_folder(path):
        return is_file(path / RESULTS_CSV)
    first = head.split(b"\n")[0].split(b",")
    return path.name == RESULTS_CSV or (b"operation" in first and b"size_bytes" in first)


def _load_results(path: Path, columns: Sequence[str], _: Untold) -> Source:
    file = path / RESULTS_CSV if is_folder(path) else path
    frame = read_results(file, columns)
    labels = [label for label in frame["label"].unique() if label] if "label" in frame else []
    folder = file.absolute().parent.name
    name = folder if file.name == RESULTS_CSV else file.stem
    return Source(str(labels[0]) if len(labels) == 1 else name, path, frame)


def _load_foreign(path: Path, columns: Sequence[str], untold: Untold) -> Source:
    return source_of(open_run(path, untold), columns)


READERS: tuple[Reader, ...] = (
    Reader("run folder or run.jsonl", _is_journal, _load_journal),
    Reader("results.csv", _is_results, _load_results),
    Reader("another tool's file", lambda path, _: is_file(path), _load_foreign),
)
"""Tried in this order."""

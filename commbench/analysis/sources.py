"""Where results come from: what a person names is found, and whatever holds results is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.columns import COLUMNS
from commbench.analysis.readers import READERS, Source, holds_run
from commbench.errors import RecordsError, UsageError
from commbench.records.files import is_file, is_folder, is_something, why_unreadable
from commbench.records.journal import JOURNAL
from commbench.records.opening import NOTHING_UNTOLD, Untold

RESULTS = Path("results")
"""Where `commbench run` puts its folders."""
_STAMPED = re.compile(r"\d{8}-\d{6}-(.+)")
_MOST_NAMED = 8
_WHAT_TO_GIVE = "give a run folder, its run.jsonl or results.csv, or a label under results/"
_HEAD_BYTES = 4096
_LONGEST_HEADER = 1 << 24


class Kept(NamedTuple):
    """A run folder under results/."""

    started: str
    folder: Path
    label: str


def find_source(text: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """The path that `text` means: a path as it is, or a run under results/ by its label, its
    folder's name, or the beginning of either.

    `say` is told where one of several runs of a label was chosen. Raises UsageError for a beginning
    that several labels have, RecordsError where there is no such run.
    """
    path = Path(text)
    if is_file(path) or (is_folder(path) and holds_run(path)):
        return path
    runs = _kept()
    exact = [run for run in runs if run.folder.name == text]
    found = exact or [run for run in runs if run.label == text]
    found = found or [run for run in runs if _begins(run, text)]
    if not found:
        raise _not_found(text, path, runs)
    labels = sorted({run.label for run in found})
    if len(labels) > 1:
        raise UsageError(
            f"{text!r} is the beginning of several labels", f"which one: {_listed(labels)}?"
        )
    newest = max(found)
    if len(found) > 1:
        say(f"{text}: the newest of {len(found)} runs is {newest.folder}")
    return newest.folder


def load(path: Path, columns: Sequence[str] = COLUMNS, untold: Untold = NOTHING_UNTOLD) -> Source:
    """The results in a run folder, run.jsonl, results.csv or another tool's file.

    RecordsError says what is wrong; UsageError what `untold` has to add.
    """
    head = _head(path)
    for reader in READERS:
        if reader.recognises(path, head):
            return reader.load(path, columns, untold)
    raise RecordsError(
        f"{path} holds no results",
        f"it is none of these: {', '.join(reader.name for reader in READERS)}",
    )


def _begins(run: Kept, text: str) -> bool:
    return bool(text) and (run.label.startswith(text) or run.folder.name.startswith(text))


def _kept() -> list[Kept]:
    """The runs under results/."""
    try:
        folders = [folder for folder in RESULTS.iterdir() if holds_run(folder)]
    except OSError:
        return []
    return [Kept(*_first_line(folder)) for folder in folders]


def _first_line(folder: Path) -> tuple[str, Path, str]:
    """When a run started, its folder, and its label; by the folder's name where its journal does
    not tell."""
    stamped = _STAMPED.fullmatch(folder.name)
    started, label = "", stamped[1] if stamped else folder.name
    try:
        with (folder / JOURNAL).open(encoding="utf-8") as file:
            header = json.loads(file.readline(_LONGEST_HEADER))
        started, label = str(header.get("started") or ""), str(header.get("label") or label)
    except (OSError, ValueError, AttributeError, RecursionError):
        pass  # a journal that cannot be read is refused when it is loaded
    return started, folder, label


def _not_found(text: str, path: Path, runs: list[Kept]) -> RecordsError:
    import difflib

    if is_folder(path):
        return RecordsError(
            f"{text} is a folder without a run", f"a run folder holds {JOURNAL} or results.csv"
        )
    names = list(dict.fromkeys(name for run in runs for name in (run.label, run.folder.name)))
    close = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    hint = _WHAT_TO_GIVE
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    if is_something(path):
        return RecordsError(f"cannot read {text}: {why_unreadable(path)}", hint)
    return RecordsError(f"there is no file, folder or run {text!r}", hint)


def _listed(labels: list[str]) -> str:
    more = len(labels) - _MOST_NAMED
    return ", ".join(labels[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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
    raise RecordsError(f"cannot read {path}: {why}", _WHAT_TO_GIVE)

"""run.jsonl: a header, one line per batch of a case and per finished case, an end line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from commbench.errors import RecordsError, UsageError
from commbench.results.files import is_file, is_folder, is_something, why_unreadable

if TYPE_CHECKING:
    pass


JOURNAL = "run.jsonl"


def create_folder(folder: Path) -> Path:
    """Make a run folder with an empty journal in it, so that it is known to be writable.

    Raises RecordsError where it cannot be made, or exists and is not empty.
    """
    path = empty_folder(folder) / JOURNAL
    try:
        path.open("x").close()
    except OSError as error:
        raise _unwritable(path, error) from None
    return folder


def empty_folder(folder: Path) -> Path:
    """Make a folder, or take one that is empty; RecordsError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RecordsError(
                f"{folder} exists and is not empty",
                "choose another --output: nothing is overwritten",
            )
    except OSError as error:
        raise RecordsError(
            f"cannot make the run folder {folder}: {error.strerror}",
            "choose a writable place with --output",
        ) from None
    return folder


def _unwritable(path: Path, error: OSError) -> RecordsError:
    return RecordsError(
        f"cannot write {path}: {error.strerror}", "choose a writable place with --output"
    )


RESULTS = Path("results")
"""Where `commbench run` puts its folders."""


_STAMPED = re.compile(r"\d{8}-\d{6}-(.+)")


_MOST_NAMED = 8


_WHAT_TO_GIVE = "give a run folder, its run.jsonl or results.csv, or a label under results/"


_LONGEST_HEADER = 1 << 24


class StoredRun(NamedTuple):
    """A run folder under results/."""

    started: str
    folder: Path
    label: str


def find_run(text: str, say: Callable[[str], None] = lambda _: None) -> Path:
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


def _begins(run: StoredRun, text: str) -> bool:
    return bool(text) and (run.label.startswith(text) or run.folder.name.startswith(text))


def _kept() -> list[StoredRun]:
    """The runs under results/."""
    try:
        folders = [folder for folder in RESULTS.iterdir() if holds_run(folder)]
    except OSError:
        return []
    return [StoredRun(*_first_line(folder)) for folder in folders]


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


def _not_found(text: str, path: Path, runs: list[StoredRun]) -> RecordsError:
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


RESULTS_CSV = "results.csv"


def holds_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return is_file(folder / JOURNAL) or is_file(folder / RESULTS_CSV)


def new_folder(name: str) -> Path:
    """A folder `results/<time>-<name>` that does not exist yet."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(path for path in map(RESULTS.joinpath, names) if not path.exists())

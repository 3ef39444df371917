"""Run folders: making a new one, and finding an existing one by what the user typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from os import SEEK_END
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from commbench.errors import (
    ERRORS_BY_NAME,
    CommbenchError,
    HangError,
    OwnCallError,
    RankError,
    RecordsError,
    UsageError,
    closest,
    unwritable_error,
)
from commbench.output.text import list_some
from commbench.results import files

JOURNAL = "run.jsonl"
RESULTS_CSV = "results.csv"
SWEEP_CSV = "sweep.csv"
WRONG_RESULTS = "wrong results"
"""The reason in the end of a complete run that has some."""
FIRST_ROUND = "round-1"
"""In the folder of a setting of a sweep, the folder of its first run."""
SWEEP = "sweep.json"
"""The file that describes a sweep in its folder."""
RESULTS = Path("results")
"""The folder in which `commbench run` makes its run folders."""
RUN_HINT = f"give a run folder, its {JOURNAL}, or a label under {RESULTS}/ (`commbench list`)"

_SWEEP_STAMP = r"\d{8}-\d{6}-sweep-.+"
_STAMPED = re.compile(r"(\d{8}-\d{6})-(.+)")
_STAMP = "%Y%m%d-%H%M%S"
_MOST_NAMED = 8
_LONGEST_HEADER = 1 << 24
_LONGEST_END = 1 << 16


def new_folder(name: str) -> Path:
    """The path `results/<time>-<name>` of a folder that does not exist yet."""
    return files.unused_path(RESULTS, f"{datetime.now():{_STAMP}}-{name}")


def create_folder(folder: Path) -> Path:
    """Make a run folder with an empty journal, which shows that it is writable.

    Raises RecordsError where it cannot be made, or exists and is not empty.
    """
    path = empty_folder(folder) / JOURNAL
    try:
        path.open("x").close()
    except OSError as error:
        raise unwritable_error(path, error) from None
    return folder


def empty_folder(folder: Path) -> Path:
    """Make a folder, or accept an existing empty one; RecordsError where neither is possible."""
    try:
        is_empty = not any(files.make_folder(folder).iterdir())
    except OSError as error:
        raise files.unreadable_error(folder, error, "choose another folder") from None
    if not is_empty:
        kinds = {"run": JOURNAL, "sweep": SWEEP}
        kind = next((kind for kind, name in kinds.items() if files.is_file(folder / name)), "")
        resume = f"; `commbench {kind} --resume {quote(str(folder))}` continues what it has"
        hint = "choose another folder: nothing is overwritten" + resume * bool(kind)
        raise RecordsError(f"{folder} exists and is not empty", hint)
    return folder


def find_sweep(text: str) -> Path | None:
    """The folder of the sweep that `text` names: as a path, or by its folder's name or its label
    under results/, where the newest counts; else None."""
    labelled = [f for f in _stored_folders() if re.fullmatch(_SWEEP_STAMP, f.name)]
    named = sorted((f for f in labelled if f.name.endswith(f"-sweep-{text}")), reverse=True)
    folders = [Path(text), RESULTS / text, *named]
    return next((folder for folder in folders if files.is_file(folder / SWEEP)), None)


def holds_rounds(folder: Path) -> bool:
    """Whether a folder is that of a setting of a sweep, whose rounds are a run."""
    return files.is_folder(folder / FIRST_ROUND)


def resume_command(folder: str | Path) -> str:
    """The command that continues a run, or the sweep of which it is a setting."""
    if holds_rounds(Path(folder)):
        return f"commbench sweep --resume {quote(str(Path(folder).parent))}"
    return f"commbench run --resume {quote(str(folder))}"


def next_step(folder: str | Path, error: str, has_own_calls: bool, more: str = "") -> str:
    """What to do about a run that an error of this class ended (RunEnd.error): what ended it comes
    first, because the command that continues the run, with `more` options, makes the same calls
    again."""
    kind = ERRORS_BY_NAME.get(error, CommbenchError)
    if issubclass(kind, OwnCallError):
        return "Mend the call, and start a new run: --resume needs the same code."
    command = f"`{resume_command(folder)}{more}`"
    why = "Find out first why the run hung: the error says where each rank was. "
    first = why * issubclass(kind, HangError)
    if has_own_calls and issubclass(kind, RankError):
        return f"{first}If you mend a call, start a new run; {command} needs the same code."
    return f"{first}{command} continues the run."


def holds_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    names = JOURNAL, RESULTS_CSV
    return holds_rounds(folder) or any(files.is_file(folder / name) for name in names)


def require_no_run(path: Path) -> None:
    """Raise RecordsError for a run where a trace or a workload is wanted."""
    if holds_run(path) or path.name == JOURNAL:
        hint = f"show it: commbench show {quote(str(path))}; or give traces, or a workload"
        raise RecordsError(f"{path} is a run, not a trace or a workload", hint)


def runs_within(folder: Path) -> list[Path]:
    """The runs in a folder that is no run itself, by their names: run folders, and files that may
    be journals or tables, but for the table of a sweep."""
    if not files.is_folder(folder) or holds_run(folder):
        return []
    endings = (Path(JOURNAL).suffix, Path(RESULTS_CSV).suffix)
    found = sorted(path for path in folder.iterdir() if path.name != SWEEP_CSV)
    return [p for p in found if holds_run(p) or (files.is_file(p) and p.suffix in endings)]


class StoredRun(NamedTuple):
    """A run folder under results/, with what the first and last line of its journal say."""

    started: str
    """UTC, ISO 8601; of an import, whose journal does not say it, when the folder was made. Empty
    for a journal that cannot be read."""
    folder: Path
    label: str
    operations: tuple[str, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    backend: str = ""
    ranks: int = 0
    """0 where it is not known."""
    status: str = ""
    """`complete`, `interrupted`, `failed`; empty for a run without an end."""
    workload: str = ""
    """The name of the workload that was replayed; empty for none."""
    has_wrong: bool = False
    """Whether its results are known to be wrong."""


def find_run(text: str, notify: Callable[[str], None] = lambda _: None) -> Path:
    """The path of the run that `text` names: an existing path, or a run under results/ by its
    label, by its folder's name, or by the beginning of either.

    `notify` gets a message where the newest of several runs of a label was chosen. Raises
    UsageError for a beginning that several labels share, RecordsError where there is no such run.
    """
    named = Path(text), Path(text.replace("=unset", "=-"))  # as a sweep says of a variable
    for path in named:
        if files.is_file(path) or (files.is_folder(path) and holds_run(path)):
            return path
    runs = list_stored_runs()
    exact = [run for run in runs if run.folder.name == text]
    found = exact or [run for run in runs if run.label == text]
    if text and not found:
        found = [r for r in runs if r.label.startswith(text) or r.folder.name.startswith(text)]
    if not found:
        raise _not_found_error(text, named[0], runs)
    labels = sorted({run.label for run in found})
    if len(labels) > 1:
        are_folders = not any(label.startswith(text) for label in labels)
        names = sorted(run.folder.name for run in found) if are_folders else labels
        why = f"{text!r} is the start of several {'folders' if are_folders else 'labels'}"
        raise UsageError(why, f"give one of them: {list_some(names, _MOST_NAMED)}")
    newest = max(found)
    if len(found) > 1:
        notify(f"{text}: the newest of {len(found)} runs is {newest.folder}")
    return newest.folder


def find_newest() -> Path:
    """The folder of the newest run under results/; RecordsError where there is none."""
    runs = list_stored_runs()
    if not runs:
        hint = "measure one with `commbench run`, or name a run folder"
        raise RecordsError(f"there is no run in the folder {RESULTS}", hint)
    return max(runs).folder


def _stored_folders() -> list[Path]:
    """What is in the folder results."""
    with suppress(OSError):
        return [*RESULTS.iterdir()]
    return []


def list_stored_runs() -> list[StoredRun]:
    """The runs under results/, in no order."""
    return [read_ends(folder) for folder in _stored_folders() if holds_run(folder)]


def list_sweeps() -> list[str]:
    """The names of the folders of sweeps under results/, the newest first by their names."""
    return sorted((f.name for f in _stored_folders() if files.is_file(f / SWEEP)), reverse=True)


def read_ends(folder: Path) -> StoredRun:
    """The run in a folder; its label is in the folder's name where the journal has none."""
    stamped = _STAMPED.fullmatch(folder.name)
    named = StoredRun("", folder, stamped[2] if stamped else folder.name)
    try:
        with (folder / JOURNAL).open("rb") as file:
            header = json.loads(file.readline(_LONGEST_HEADER))
            size = file.seek(0, SEEK_END)
            file.seek(max(0, size - _LONGEST_END))
            last = json.loads(file.read().splitlines()[-1])
        plan = header.get("plan") or {}
        return named._replace(
            started=str(header.get("started") or made_at(folder)),
            label=str(header.get("label") or named.label),
            operations=tuple(map(str, plan.get("operations") or ())),
            sizes_bytes=tuple(map(int, plan.get("sizes") or ())),
            backend=str(plan.get("backend") or ""),
            ranks=int(plan.get("world_size") or 0),
            status=str(last.get("status") or "") if last.get("kind") == "end" else "",
            has_wrong=last.get("reason") == WRONG_RESULTS,
            workload=str((plan.get("workload") or {}).get("name") or ""),
        )
    except (OSError, ValueError, AttributeError, TypeError, IndexError, RecursionError):
        return named  # loading the run reports a journal that cannot be read


def made_at(folder: Path) -> str:
    """When a run folder was made: by its name, which has this host's time, else by the time of its
    journal. UTC, ISO 8601."""
    stamped = _STAMPED.fullmatch(folder.name)
    made = datetime.strptime(stamped[1], _STAMP) if stamped else None
    made = made or datetime.fromtimestamp((folder / JOURNAL).stat().st_mtime)
    return made.astimezone(timezone.utc).isoformat(timespec="seconds")


def _settings_of(sweep: Path) -> str:
    """The paths of its settings, as text."""
    return list_some(sorted(str(inner) for inner in sweep.iterdir() if holds_rounds(inner)), 3)


def _not_found_error(text: str, path: Path, runs: list[StoredRun]) -> RecordsError:
    if not text:
        return RecordsError("the name of the run is empty", RUN_HINT)
    if sweep := find_sweep(text):
        hint = "use `commbench show`, `plot` or `report` on it alone"
        if settings := _settings_of(sweep):
            hint += f", or name a setting: {settings}"
        return RecordsError(f"{text} is a sweep, not a run", hint)
    if (sweep := find_sweep(str(path.parent))) and (settings := _settings_of(sweep)):
        hint = f"name one: {settings}; or finish it: `commbench sweep --resume {path.parent}`"
        return RecordsError(f"the sweep {path.parent} has no {path.name}", hint)
    if folder := next(filter(files.is_folder, (path, RESULTS / text)), None):
        hint = f"a run folder has a {JOURNAL}; `commbench list` lists those in results/"
        try:
            if below := sorted(str(inner) for inner in folder.iterdir() if holds_run(inner)):
                hint = f"name a run in it: {list_some(below, 3)}"
        except OSError as error:
            return RecordsError(f"cannot read {folder}: {error.strerror}", RUN_HINT)
        return RecordsError(f"{folder} is a folder without a run", hint)
    names = list(dict.fromkeys(name for run in runs for name in (run.label, run.folder.name)))
    close = closest(text, names)
    from commbench.plan.links import find_gpu

    hint = f"did you mean {close}?" if close else RUN_HINT
    if find_gpu(text):
        hint = f"for an accelerator write `commbench expect --gpu {text}`"
    if files.path_exists(path):
        return files.unreadable_error(text, files.why_unreadable(path), hint)
    unknown = RecordsError(f"there is no file, folder or run {text!r}", hint)
    unknown.is_unknown = True
    return unknown

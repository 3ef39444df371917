"""Reads the runs of a fleet: which node each is of, and which nodes there should be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.columns import KEY, TIMES
from commbench.analysis.environment_diff import NEEDED_FACTS
from commbench.analysis.load import LoadedRun, as_loaded_run, load
from commbench.errors import RecordsError, UsageError
from commbench.readers.source import ImportHints
from commbench.results.files import is_file, is_folder, path_exists, read_whole
from commbench.results.run_folder import JOURNAL, RESULTS_CSV, find_run, holds_run
from commbench.results.schema import Run
from commbench.validation import brief

COLUMNS = (
    *KEY, *TIMES, *NEEDED_FACTS, "label", "status", "stop_reason", "wrong", "queued_share",
    "warnings",
)  # fmt: skip
"""The columns that a fleet needs; loading no others is faster."""
_ENDINGS = (".csv", ".jsonl")
_LARGEST_LIST = 1 << 24
_NAMED = re.compile(r"([^=/]+)=(.+)", re.DOTALL)


class NodeRun(NamedTuple):
    """A run, and the node it is of."""

    name: str
    path: str
    run: LoadedRun | None
    """None where it cannot be read."""
    reason: str = ""
    """Why it cannot be read."""

    @property
    def started(self) -> str:
        """UTC, ISO 8601; empty where its file does not say it."""
        return self.run.header.started if self.run and self.run.header else ""


def read_nodes(given: Sequence[Any], hints: ImportHints) -> list[NodeRun]:
    """The runs of paths, labels, folders of runs and `NAME=PATH`, and runs that are read already.

    A node is named by NAME, else by the host of its ranks, else (a results.csv names no host) by
    its folder or file. Raises RecordsError for what does not exist. A run that exists and cannot be
    read, as one that was killed at its start, is there with the reason.
    """
    found: list[NodeRun] = []
    for each in given:
        if isinstance(each, Run | LoadedRun):
            run = as_loaded_run(each, COLUMNS)
            found.append(NodeRun(_node_name(run), str(run.path), run))
            continue
        if not isinstance(each, str | Path):
            raise UsageError(f"{brief(each)} is no run", "give Runs, or paths or labels of runs")
        text, name = str(each), ""
        if not path_exists(Path(text)) and (named := _NAMED.fullmatch(text)):
            name, text = named[1].strip(), named[2]
        inner = [*_runs_within(Path(text))]
        if name and inner:
            raise UsageError(f"{text} has several runs, and {name} is one node", "name one run")
        found += [_read(path, name, hints) for path in inner or [find_run(text)]]
    return found


def _runs_within(folder: Path) -> Iterator[Path]:
    """The runs in a folder that is no run itself, by their names."""
    if is_folder(folder) and not holds_run(folder):
        for path in sorted(folder.iterdir()):
            if holds_run(path) or (is_file(path) and path.suffix in _ENDINGS):
                yield path


def _read(path: Path, name: str, hints: ImportHints) -> NodeRun:
    try:
        run = load(path, COLUMNS, hints)
    except RecordsError as error:
        return NodeRun(
            name or _path_name(path), str(path), None, f"cannot be read: {error.message}"
        )
    return NodeRun(name or _node_name(run), str(path), run)


def _node_name(run: LoadedRun) -> str:
    hosts = run.header.hosts if run.header else ()
    return "+".join(hosts) or _path_name(Path(run.path))


def _path_name(path: Path) -> str:
    path = path.absolute()
    return path.parent.name if path.name in (JOURNAL, RESULTS_CSV) else path.stem


def expected_nodes(nodes: str | Path | Sequence[str] | None) -> list[str]:
    """The names of a list such as "node1,node2", or of a file with names between blanks, commas or
    line ends; `#` begins a comment."""
    if nodes is None:
        return []
    if isinstance(nodes, Path) or (isinstance(nodes, str) and is_file(Path(nodes))):
        raw = read_whole(Path(nodes), _LARGEST_LIST, "give a file with the names of nodes")
        nodes = re.sub("#.*", "", raw.decode("utf-8", "replace"))
    texts = [nodes] if isinstance(nodes, str) else [*nodes]
    names = [name for text in texts for name in re.split(r"[\s,]+", text) if name]
    for name in names:
        if set(name) & set("[]/"):
            raise UsageError(
                f"{name!r} is no name of a node",
                "write each name, as `scontrol show hostnames` does, or name an existing file",
            )
    if not names:
        raise UsageError("the list of nodes is empty", "write --nodes node1,node2 or a file")
    return [*dict.fromkeys(names)]

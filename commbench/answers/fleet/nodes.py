"""Reads the runs of a fleet: which node each is of, and which nodes there should be."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.columns import KEY, TEXTS, TIMES, row_type
from commbench.analysis.environment import Recorded, environment_facts
from commbench.analysis.load import LoadedRun, as_loaded_run, load, require_another_tool
from commbench.answers.compare.comparison import CHECKED
from commbench.answers.history.history import Change, Trend, find_trend
from commbench.answers.history.records import HistoryRun, System
from commbench.answers.history.store import History
from commbench.errors import RecordsError, UsageError, wrong_value
from commbench.plan.case import Case
from commbench.readers.source import ImportHints
from commbench.results.files import is_file, path_exists, read_whole
from commbench.results.run_folder import JOURNAL, RESULTS_CSV, find_run, runs_within
from commbench.results.schema import OK, Run
from commbench.validation import brief

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
    started: str = ""
    """UTC, ISO 8601; empty where its file does not say it."""
    facts: Mapping[str, str] | None = None
    """Of its environment; None where its file has none, as a results.csv."""


def read_nodes(given: Sequence[Any], hints: ImportHints) -> list[NodeRun]:
    """The runs of paths, labels, folders of runs and `NAME=PATH`, and runs that are read already.

    A node is named by NAME, else by the host of its ranks, else (a results.csv names no host) by
    its folder or file. Raises RecordsError for what does not exist. A run that exists and cannot be
    read, as one that was killed at its start, is there with the reason.
    """
    found: list[NodeRun] = []
    paths: list[tuple[Path, str]] = []
    for each in given:
        if isinstance(each, Run | LoadedRun):
            found.append(_make(as_loaded_run(each, CHECKED)))
            continue
        if not isinstance(each, str | Path):
            raise UsageError(f"{brief(each)} is no run", "give Runs, or paths or labels of runs")
        text, name = str(each), ""
        if not path_exists(Path(text)) and (named := _NAMED.fullmatch(text)):
            name, text = named[1].strip(), named[2]
        inner = runs_within(Path(text))
        if name and inner:
            raise UsageError(f"{text} has several runs, and {name} is one node", "name one run")
        paths += [(path, name) for path in inner or [find_run(text)]]
    require_another_tool([path for path, _ in paths], hints)
    return [*found, *(_read(path, name, hints) for path, name in paths)]


def _read(path: Path, name: str, hints: ImportHints) -> NodeRun:
    try:
        return _make(load(path, CHECKED, hints), name)
    except RecordsError as error:
        why = f"cannot be read: {error.message}"
        return NodeRun(name or _path_name(path), str(path), None, why)


def _make(run: LoadedRun, name: str = "") -> NodeRun:
    header = run.header
    name = name or "+".join(header.hosts if header else ()) or _path_name(Path(run.path))
    known = (header.started, environment_facts(header)) if header else ()
    return NodeRun(name, str(run.path), run, "", *known)


def _path_name(path: Path) -> str:
    path = path.absolute()
    return path.parent.name if path.name in (JOURNAL, RESULTS_CSV) else path.stem


def recorded_nodes(history: History) -> list[NodeRun]:
    """The newest run of each node of a history, with the times that the history has."""
    environments = history.environments()
    newest = {run.system.node: run for run in history.runs()}
    return [_recorded(history, run, environments[run.environment_id]) for run in newest.values()]


def _recorded(history: History, run: HistoryRun, environment: Recorded) -> NodeRun:
    system, fields = run.system, row_type(CHECKED)
    known = {
        "world_size": system.ranks, "num_nodes": system.nodes, "backend": system.backend,
        "device": system.device, "gpu_shared": int(system.gpu_shared), "label": run.label,
        "cpu_mode": environment.facts.get("cpu_mode", ""), "status": OK,
    }  # fmt: skip
    rows = []
    for case, point in history.points_of(run):
        values = known | {name: getattr(case, name) for name in KEY}
        values |= zip(TIMES, point.time, strict=True)
        values["queued_share"] = point.queued_share
        rows.append(fields(*(values.get(name, "" if name in TEXTS else None) for name in CHECKED)))
    loaded = LoadedRun(run.label, Path(run.path), CHECKED, rows)
    return NodeRun(node_of(system.node), run.path, loaded, "", run.placed, environment.facts)


def node_of(hosts: str) -> str:
    """The name in a fleet of a node of a history: lists of nodes are separated by commas."""
    return hosts.replace(",", "+")


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
        if re.search(r"[][/]|\.(txt|csv|list)$", name):
            hint = "write each name, as `scontrol show hostnames` does, or name an existing file"
            raise wrong_value(name, "is no name of a node", hint)
    if not names:
        raise UsageError("the list of nodes is empty", "write --nodes node1,node2 or a file")
    return [*dict.fromkeys(names)]


# What a history says of a slow node.


class Past(NamedTuple):
    """What the history says of a slow node."""

    trend: Trend
    """All series of the node's system."""
    changes: tuple[Change, ...]
    """Those to longer times of its slow cases that still last, the newest first."""

    def as_json(self) -> dict[str, Any]:
        """The changes, and how many runs there are."""
        return {"history": self.trend.path, "runs": len(self.trend.runs), "changes": self.changes}


def find_past(history: History, one: NodeRun, slow: Collection[Case]) -> Past:
    """The changes of the slow cases of a node, as `commbench history show` finds them. Of several
    systems of the node that fit the run, the one with the newest run counts."""
    assert one.run
    row = one.run.rows[0]
    ran_as = (row.backend, row.device, row.world_size, row.num_nodes or 1, bool(row.gpu_shared))

    def fits(system: System) -> bool:
        return node_of(system.node) == one.name and system[3:8] == ran_as

    newest = next((run.system for run in history.runs()[::-1] if fits(run.system)), None)
    keys = {case.key() for case in slow}
    trend = find_trend(history, lambda system, _: system == newest)
    lasting = [
        change for change in trend.changes if change.ratio.value > 1
        and any(step.is_last and step.case.key() in keys for step in change.steps)
    ]  # fmt: skip
    return Past(trend, tuple(lasting))

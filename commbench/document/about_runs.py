"""The sections of a report that are about its runs: what was asked, where it was measured, how to
measure it again, and the journals."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.analysis.environment_diff import (
    NOT_SET,
    environment_facts,
    environment_variables,
    is_default,
)
from commbench.analysis.load import LoadedRun
from commbench.analysis.nccl_log import describe_init, describe_start_up
from commbench.document.reproduce import reproduce
from commbench.output.paragraphs import list_some
from commbench.report.plan_table import plan_facts
from commbench.results.files import is_folder, why_unreadable
from commbench.results.run_folder import JOURNAL, RESULTS_CSV
from commbench.results.schema import RunHeader
from commbench.units import format_about, format_sizes
from commbench.views.document import (
    Block,
    Download,
    Facts,
    Folded,
    Section,
    Table,
    Text,
    text_table,
)
from commbench.worker.context import LOCAL

if TYPE_CHECKING:
    pass

MOST_EMBEDDED_BYTES = 450_000
"""All the journals in a report, compressed; base64 makes a third more of them."""
MOST_READ_BYTES = 64 << 20
"""A larger file is not even compressed: it would not fit."""
MOST_HOSTS, MOST_LEFT_OUT = 8, 5
MOST_COLUMNS = 4
"""A table with a column for each run has up to this many; of more runs each has a row."""

NamedRuns = Mapping[str, LoadedRun]
"""The runs of a report, each by a name of its own."""


def asked_section(runs: NamedRuns, more: Sequence[tuple[str, str]] = ()) -> Section:
    """What was asked: first `more`, then the operations and sizes, the ranks and where they ran."""
    facts = {name: _asked_facts(run.header) for name, run in runs.items() if run.header}
    blocks = _facts_blocks(facts, "What was asked of each run")
    return Section("What was asked", (*([Facts(more)] if more else []), *blocks))


_IMPORTED = ("operations", "dtypes", "reduce ops", "backend", "device", "world size")
"""What is known of the plan of another tool's file."""


def _asked_facts(header: RunHeader) -> dict[str, str]:
    plan = header.plan
    facts = dict(plan_facts(plan))
    if not header.ranks:
        facts = {name: facts[name] for name in _IMPORTED if name in facts}
    return facts | {
        "sizes": format_sizes(plan.sizes),
        "nodes": str(header.launched_nodes) if header.launched_nodes > 1 else "",
        "hosts": list_some(header.hosts, MOST_HOSTS),
        "started": header.started.replace("T", " ").replace("+00:00", " UTC"),
    }


def environment_section(runs: NamedRuns) -> Section:
    """How and where it was measured: what differs between the runs first."""
    headers = {name: run.header for name, run in runs.items() if run.header}
    variables = {name: _variables(header) for name, header in headers.items()}
    every = dict.fromkeys(variable for found in variables.values() for variable in found)
    if len(headers) > 1:
        variables = {
            name: {variable: found.get(variable, NOT_SET) for variable in every}
            for name, found in variables.items()
        }
    facts = {name: _environment_facts(header) | variables[name] for name, header in headers.items()}
    blocks = _facts_blocks(facts, "What differs between the runs")
    if len(headers) > 1 and not any(isinstance(block, Table) for block in blocks):
        blocks = (Text("Nothing that is recorded here differs between the runs."), *blocks)
    missing = [name for name, run in runs.items() if not run.header]
    if missing:
        blocks = (*blocks, Text(f"No environment is recorded in {', '.join(missing)}."))
    return Section("Environment", blocks)


def _variables(header: RunHeader) -> dict[str, str]:
    """The variables with their values, and which of them are the default for ranks."""
    return {
        name: f"{value} (default of commbench)" if is_default(header, name, value) else value
        for name, value in environment_variables(header).items()
    }


def _environment_facts(header: RunHeader) -> dict[str, str]:
    facts = {k: v for k, v in environment_facts(header).items() if k not in ("hosts", "notes")}
    facts["launcher"] = {LOCAL: "commbench"}.get(header.launcher, header.launcher)
    facts["start_up"] = describe_start_up(header)
    return facts | {"nccl_init": describe_init(header.environment.get("nccl_log"))}


def _facts_blocks(facts: Mapping[str, Mapping[str, str]], title: str) -> tuple[Block, ...]:
    """A table of the facts in which runs differ, then those that are the same in all of them."""
    names = list(dict.fromkeys(name for found in facts.values() for name in found))
    rows = [(name, [found.get(name, "") for found in facts.values()]) for name in names]
    same = [(name, values[0]) for name, values in rows if len(set(values)) == 1 and values[0]]
    different = [(name, *values) for name, values in rows if len(set(values)) > 1]
    blocks: list[Block] = []
    if different:
        lines: list[tuple[str, ...]] = [("", *facts), *different]
        if len(facts) > MOST_COLUMNS:
            lines = list(zip(*lines, strict=True))
        blocks.append(text_table(title, lines[0], lines[1:], lines[0][1:]))
    return (*blocks, Facts(same)) if same else tuple(blocks)


def reproduce_section(runs: NamedRuns, whole: Sequence[Block] = ()) -> Section:
    """The commands that measure each run again, after those that measure all of them."""
    parts: list[Block] = [*whole]
    for name, run in runs.items():
        blocks: tuple[Block, ...] = (Text("A results.csv does not contain the command."),)
        if run.header:
            blocks = reproduce(run.header)
        if run.run and run.header and run.header.ranks and run.run.incomplete:
            blocks = (Text(f"Continue it: `commbench run --resume {run.path}`"), *blocks)
        parts += blocks if len(runs) == 1 else [Folded(f"How to measure {name} again", blocks)]
    return Section("How to reproduce", parts)


def journals_section(files: Mapping[str, Path]) -> Section:
    """Files for download, each with what it is called, as many as fit."""
    blocks: list[Block] = []
    left_out: list[str] = []
    room = MOST_EMBEDDED_BYTES
    for name, path in files.items():
        why = why_unreadable(path, MOST_READ_BYTES)
        content = b"" if why else gzip.compress(path.read_bytes(), mtime=0)
        if why or len(content) > room:
            left_out.append(f"{path} ({why or f'{format_about(len(content))} compressed'})")
            continue
        room -= len(content)
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:60].strip("-.") or "run"
        text = f"{path.name} of {name}, {format_about(len(content))} compressed"
        blocks.append(Download(f"{stem}-{path.name}.gz", text, content))
    if left_out:
        listed = list_some(left_out, MOST_LEFT_OUT)
        blocks.append(Text(f"Too large for this report, or not readable: {listed}."))
    return Section("Recorded data", blocks)


def find_files(runs: NamedRuns) -> dict[str, Path]:
    """The file that each run was read from."""
    return {name: _file_of(Path(run.path)) for name, run in runs.items()}


def _file_of(path: Path) -> Path:
    if not is_folder(path):
        return path
    return next((f for f in (path / JOURNAL, path / RESULTS_CSV) if f.is_file()), path / JOURNAL)

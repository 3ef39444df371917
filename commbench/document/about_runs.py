"""The sections of a report that are about its runs: what was asked, where it was measured, how to
measure it again, and the journals."""

from __future__ import annotations

import dataclasses
import gzip
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.analysis.environment_diff import (
    NOT_SET,
    environment_facts,
    environment_variables,
    is_default,
)
from commbench.analysis.load import LoadedRun
from commbench.analysis.nccl_log import describe_init, describe_start_up
from commbench.analysis.replay import analyse_replay
from commbench.analysis.rows import ResultRow, find_stop_reason
from commbench.document.reproduce import reproduce
from commbench.output.paragraphs import list_some
from commbench.output.table import TableColumn, fill_columns
from commbench.report import replay_sentences, replay_text
from commbench.report.plan_table import field_name, field_text
from commbench.report.run_notes import find_warnings, run_end_text
from commbench.results.files import is_folder, why_unreadable
from commbench.results.run_folder import JOURNAL, RESULTS_CSV
from commbench.results.schema import CUT_OFF, OK, WRONG, Run, RunHeader, is_imported
from commbench.spec.call_forms import ONE_TENSOR
from commbench.spec.operations import OPERATIONS, REPLAY
from commbench.spec.plan import Plan
from commbench.spec.replay import replayed_workload
from commbench.spec.timing_modes import describe_timing, expand_timing
from commbench.units import format_about, format_count, format_sizes
from commbench.views.document import (
    Block,
    Download,
    Facts,
    Folded,
    Items,
    Section,
    Table,
    Text,
    text_table,
)
from commbench.worker.context import LOCAL

if TYPE_CHECKING:
    from commbench.spec.links import Peak

MOST_EMBEDDED_BYTES = 450_000
"""All the journals in a report, compressed; base64 makes a third more of them."""
MOST_READ_BYTES = 64 << 20
"""A larger file is not even compressed: it would not fit."""
MOST_HOSTS, MOST_LEFT_OUT, MOST_DOUBTS = 8, 5, 3
MOST_COLUMNS = 4
"""A table with a column for each run has up to this many; of more runs each has a row."""

NamedRuns = Mapping[str, LoadedRun]
"""The runs of a report, each by a name of its own."""


def is_complete(run: Run) -> bool:
    """Whether the run has measured all its cases."""
    return not run.incomplete


def has_wrong(run: Run) -> bool:
    """Whether some result of the run is wrong."""
    return any(m.wrong or m.status == WRONG for m in run.measurements)


def doubts(rows: Sequence[ResultRow]) -> list[str]:
    """A sentence with the most important warnings; nothing where there are none."""
    found = find_warnings(rows)
    if not found:
        return []
    named = "; ".join(f"{w.name} ({w.which}): {w.message}" for w in found[:MOST_DOUBTS])
    more = f"; and {len(found) - MOST_DOUBTS} more" if len(found) > MOST_DOUBTS else ""
    return [f"Read the warnings before you use the times: {named}{more}."]


def run_verdict(run: Run) -> list[str]:
    """What a replay found, how many cases were measured, whether results are right, and how the
    run ended; of an imported run how many rows were read, and which were left out."""
    found = run.measurements
    if is_imported(run.header):
        facts = run.header.environment
        rows = format_count(len(found), "row")
        left_out = [f"{n[:1].upper()}{n[1:]}." for n in facts.get("notes", ()) if "left out" in n]
        bad = ["Some results are wrong."] * has_wrong(run) + [run_end_text(run)]
        return [f"{rows} imported from {facts['imported_from']}.", *left_out, *filter(None, bad)]
    cases = len(run.header.plan.cases()) if run.header.ranks else len(found)
    measured = [m for m in found if m.status == OK]
    whole = [m for m in measured if find_stop_reason(run.header, m) != CUT_OFF]
    checked = [m for m in whole if m.case.operation != REPLAY] or whole
    parts = [f"{len(measured)} of {cases} {'case was' if cases == 1 else 'cases were'} measured"]
    if part := len(measured) - len(whole):
        parts.append(f"{part} of them only in part ({CUT_OFF}): with fewer samples than asked")
    others = Counter(m.status for m in found if m.status != OK)
    parts += [f"{number} {status}" for status, number in others.items()]
    sentence = ", ".join(parts)
    if has_wrong(run):
        sentence += ". Some results are wrong"
    elif whole and all(m.wrong == 0 for m in checked):
        which = "those of finished cases" if part else "all" if len(whole) > 1 else "its"
        sentence += f"; {which} {'' if part else 'results '}are correct"
    elif whole:
        sentence += ". Results were not checked"
    replayed = [
        line
        for found in analyse_replay(run)
        for line in replay_sentences.verdict(replayed_workload(run.header.plan), found)
    ]
    return [*replayed, f"{sentence}.", *([] if is_complete(run) else [run_end_text(run)])]


def kind_table(title: str, columns: Sequence[TableColumn], rows: Sequence[ResultRow]) -> Table:
    """The rows of a kind. What is wrong with a row is beside its size, where nobody misses it."""
    filled = [(column.heading, cells) for column, cells in fill_columns(columns, rows)]
    notes: list[str] = []
    if filled[-1][0] == "":
        notes = filled.pop()[1]
        filled.insert(1, ("status", notes))
    headings, cells = zip(*filled, strict=True)
    left = ("status",) if notes else ()
    lines = list(zip(*cells, strict=True))
    return text_table(title, headings, lines, left, lambda row: bool(notes and row[1]))


def _table(title: str, columns: Sequence[TableColumn], things: Sequence[Any]) -> Table:
    return text_table(title, *replay_text.as_table(columns, things))


def replay_sections(run: Run, peak: Peak | None) -> list[Section]:
    """For each step that a run replays, its tables and what they mean."""
    sections = []
    for found in analyse_replay(run, peak=peak):
        workload = replayed_workload(run.header.plan)
        whole = replay_text.whole_lines(found)
        blocks: list[Block] = [
            Items(replay_sentences.verdict(workload, found)),
            _table("Operations", replay_text.OPERATION_COLUMNS, found.operations),
            Text(replay_text.meanings(found)),
            *([_table("Whole step", replay_text.WHOLE_COLUMNS, whole)] if whole else []),
        ]
        if texts := [
            *replay_sentences.savings(found),
            *(f"Note: {note}." for note in workload.notes),
        ]:
            blocks.append(Items(texts))
        sections.append(Section(f"Replay of {replay_text.step_title(workload, found)}", blocks))
    return sections


def asked_section(runs: NamedRuns, more: Sequence[tuple[str, str]] = ()) -> Section:
    """What was asked: first `more`, then the operations and sizes, the ranks and where they ran."""
    facts = {name: _asked_facts(run.header) for name, run in runs.items() if run.header}
    blocks = _facts_blocks(facts, "What was asked of each run")
    return Section("What was asked", (*([Facts(more)] if more else []), *blocks))


def _asked_facts(header: RunHeader) -> dict[str, str]:
    plan = header.plan
    reduces = any(OPERATIONS[name].reduces for name in plan.operations)
    backend = f" {plan.backend}" if plan.backend else ""
    device = f" on {plan.device}" if plan.device else ""
    nodes = f", {header.launched_nodes} nodes" if header.launched_nodes > 1 else ""
    return {
        "operations": ", ".join(plan.operations),
        "sizes": format_sizes(plan.sizes),
        "element types": ", ".join(plan.dtypes),
        "reduce operations": ", ".join(plan.reduce_ops) if reduces else "",
        "tensors": ", ".join(plan.tensors) if plan.tensors != (ONE_TENSOR,) else "",
        "forms of a call": ", ".join(plan.forms),
        "ranks": f"{plan.world_size}{backend}{device}{nodes}",
        "hosts": list_some(header.hosts, MOST_HOSTS),
        **_other_facts(plan),
    }


_SHOWN = frozenset(
    (
        "operations", "dtypes", "reduce_ops", "sizes", "tensors", "forms", "backend", "device",
        "world_size", "cpu_mode", "iterations", "warmup", "precision", "budget_s", "timing",
        "launch_mode", "buffers", "nccl_options", "order", "peak", "launches", "check",
        "placement", "matrix",
    )
)  # fmt: skip
"""Fields of a plan that the report shows in any event, and the matrix, which can be long."""


def _other_facts(plan: Plan) -> dict[str, str]:
    """The other fields of the plan that do not have their default value."""
    return {
        field_name(field.name): field_text(field.name, value)
        for field in dataclasses.fields(plan)
        if field.name not in _SHOWN and (value := getattr(plan, field.name)) != field.default
    }


def _method_facts(header: RunHeader) -> dict[str, str]:
    """How a run of commbench measured; empty for another tool's file."""
    plan = header.plan
    if not header.ranks:
        return {}
    iterations = "as needed" if plan.iterations is None else str(plan.iterations)
    if plan.iterations is None:
        precision = f"{plan.precision * 100:g} %"
        iterations += f": until the median is known to ±{precision}, or for {plan.budget_s:g} s"
    return {
        "started": header.started.replace("T", " ").replace("+00:00", " UTC"),
        "timing": "; ".join(describe_timing(n).summary for n in expand_timing(plan.timing)),
        "iterations": iterations,
        "warm-up": "as needed" if plan.warmup is None else f"{plan.warmup} calls",
        "placement": plan.placement,
        "launch mode": plan.launch_mode if plan.device != "cpu" else "",
        "buffers": plan.buffers,
        "order of cases": plan.order,
        "launches": str(plan.launches),
        "results checked": "yes" if plan.check else "no",
        "cpu mode": plan.cpu_mode if plan.device == "cpu" else "",
        "NCCL options": ", ".join(plan.nccl_options),
        "peak": plan.peak,
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
    facts = {
        name: _method_facts(header) | _environment_facts(header) | variables[name]
        for name, header in headers.items()
    }
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
        if run.run and run.header and run.header.ranks and not is_complete(run.run):
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

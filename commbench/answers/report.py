"""What a report says: the document of a run, comparisons, a check or a sweep, and an appendix
about its runs: what was asked, where they ran, how to measure them again, and recorded data."""

from __future__ import annotations

import gzip
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from commbench import __version__
from commbench.analysis import environment
from commbench.analysis.load import LoadedRun, as_loaded_run, distinct_names
from commbench.analysis.nccl_log import describe_init, describe_start_up
from commbench.answers.check import document as checking
from commbench.answers.check.gate import GateResult
from commbench.answers.compare import document as comparing
from commbench.answers.compare.comparison import Comparison
from commbench.answers.show import run_document
from commbench.answers.show.plan import plan_facts
from commbench.answers.sweep.document import document as sweep_document
from commbench.answers.sweep.result import SweepResult
from commbench.answers.sweep.runner import Sweep, read_sweep
from commbench.errors import RecordsError, UsageError
from commbench.launch.launchers import torchrun_line
from commbench.output.text import list_some
from commbench.results.files import is_folder, why_unreadable
from commbench.results.run_folder import JOURNAL, RESULTS_CSV, holds_rounds, next_step
from commbench.results.schema import RunHeader, is_in_process
from commbench.runner.option import as_label
from commbench.runner.planning import node_config
from commbench.runner.run_options import RunOptions
from commbench.runner.session import with_recorded_plan
from commbench.stats import collect
from commbench.units import format_about, format_sizes
from commbench.validation import brief
from commbench.views import document as doc
from commbench.worker.entrypoint import LOCAL

MOST_EMBEDDED_BYTES = 450_000
"""All the journals in a report, compressed; base64 makes a third more of them."""
MOST_READ_BYTES = 64 << 20
"""A larger file is not even compressed: it would not fit."""
MOST_HOSTS, MOST_LEFT_OUT = 8, 5
MOST_COLUMNS = 4
"""A table with a column for each run has up to this many; of more runs each has a row."""

NamedRuns = Mapping[str, LoadedRun]
"""The runs of a report, each by a name of its own."""


class Contents(NamedTuple):
    """A document, and what the appendix needs."""

    document: doc.Document
    runs: NamedRuns
    commands: Sequence[doc.Block] = ()
    """What measures all the runs again, if one command does."""
    asked: Sequence[tuple[str, str]] = ()
    """What was asked of all runs together, each with its name."""
    files: Mapping[str, Path] | None = None
    """The files to embed, by what they are called; None for those of the runs."""


def find_contents(what: Sequence[LoadedRun | Comparison | GateResult | SweepResult]) -> Contents:
    """What a report says of one of these, or of comparisons with the same first run."""
    comparisons = [each for each in what if isinstance(each, Comparison)]
    if what and len(comparisons) == len(what):
        found = comparing.document(comparing.Comparisons(comparisons))
        return Contents(found, _named([comparisons[0].a, *(each.b for each in comparisons)]))
    if len(what) != 1:
        known = "a report is about one run, several runs or comparisons, one check or one sweep"
        hint = "make a report of each" if what else "name at least one run"
        raise UsageError(known, hint)
    match what[0]:
        case LoadedRun(run=None) as rows:
            why = f"{rows.path} contains rows, but no record of the run"
            hint = "name the run's folder or its run.jsonl; two results.csv can be compared"
            raise UsageError(why, hint)
        case LoadedRun(run=run) as loaded if run:
            found = run_document.document(run_document.ShownRun(run))
            return Contents(found, {run.name: loaded})
        case GateResult() as gate:
            return _check_contents(gate)
        case SweepResult() as sweep:
            return _sweep_contents(sweep)
    raise UsageError(f"{brief(what[0])} has no report", "name runs or a sweep")


def _named(runs: Sequence[LoadedRun]) -> NamedRuns:
    return dict(zip(distinct_names(runs), runs, strict=True))


def _describe(runs: NamedRuns) -> str:
    """How the runs were measured, each way once."""
    texts = (run_document.describe_run(run.run) for run in runs.values() if run.run)
    return " | ".join(dict.fromkeys(texts))


def make_document(contents: Contents) -> doc.Document:
    """The whole report."""
    now = datetime.now(timezone.utc)
    found, runs = contents.document, contents.runs
    return found._replace(
        subtitle=found.subtitle or [_describe(runs)],
        blocks=(
            doc.Section("Results", found.blocks),
            asked_section(runs, contents.asked),
            environment_section(runs),
            reproduce_section(runs, contents.commands),
            journals_section(contents.files or find_files(runs)),
        ),
        footer=f"Written by commbench {__version__} on {now:%Y-%m-%d %H:%M} UTC.",
    )


def _check_contents(gate: GateResult) -> Contents:
    """A run, checked against rules."""
    runs, found = _named(gate.runs[::-1]), checking.document(gate)
    rules = "; ".join(result.rule.title for result in gate.results)
    return Contents(
        found._replace(subtitle=[*found.subtitle, _describe(runs)]),
        runs,
        asked=[*zip(("baseline", "checked")[-len(runs) :], runs, strict=True), ("rules", rules)],
    )


def _sweep_contents(result: SweepResult) -> Contents:
    """A sweep, as far as it was measured."""
    measured = [each for each in result.settings if each.run]
    runs = {result.names[each.setting]: as_loaded_run(each.run) for each in measured if each.run}
    headers = [run.header for run in runs.values() if run.header]
    found = sweep_document(result)
    title = f"Sweep {result.sweep.label or result.path.name}"
    files = sorted(result.path.glob(f"*/round-*/{JOURNAL}"))
    return Contents(
        found._replace(title=title, subtitle=[found.title]),
        runs,
        reproduce_sweep(result.sweep, headers[0]) if headers else (),
        asked=[
            ("settings", "; ".join(result.names[each.setting] for each in result.settings)),
            ("rounds", str(result.sweep.rounds)),
            ("tolerance", f"{result.sweep.tolerance * 100:g} %"),
        ],
        files={f"{path.parent.parent.name} {path.parent.name}": path for path in files},
    )


def asked_section(runs: NamedRuns, more: Sequence[tuple[str, str]] = ()) -> doc.Section:
    """What was asked: first `more`, then the operations and sizes, the ranks and where they ran."""
    facts = {name: _asked_facts(run.header) for name, run in runs.items() if run.header}
    blocks = _facts_blocks(facts, "What was asked of each run")
    return doc.Section("What was asked", [*([doc.Facts(more)] if more else []), *blocks])


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


def environment_section(runs: NamedRuns) -> doc.Section:
    """How and where it was measured: first what differs between the runs."""
    headers = {name: run.header for name, run in runs.items() if run.header}
    variables = {name: _variables(header) for name, header in headers.items()}
    if len(headers) > 1:
        unset = dict.fromkeys(chain(*variables.values()), environment.NOT_SET)
        variables = {name: unset | found for name, found in variables.items()}
    facts = {name: _environment_facts(header) | variables[name] for name, header in headers.items()}
    if len(headers) > 1:  # of one run, the results have it
        for name, header in headers.items():
            facts[name]["start-up"] = describe_start_up(header)
    blocks = _facts_blocks(facts, "What differs between the runs")
    if len(headers) > 1 and not any(isinstance(b, doc.Table) for b in blocks):
        blocks.insert(0, doc.Text("Nothing that is recorded here differs between the runs."))
    if missing := [name for name, run in runs.items() if not run.header]:
        blocks.append(doc.Text(f"No environment is recorded in {', '.join(missing)}."))
    return doc.Section("Environment", blocks)


def _variables(header: RunHeader) -> dict[str, str]:
    """The variables with their values, and which of them are the default for ranks."""
    return {
        name: value + " (default of commbench)" * environment.is_default(header, name, value)
        for name, value in environment.environment_variables(header).items()
    }


def _environment_facts(header: RunHeader) -> dict[str, str]:
    found = environment.environment_facts(header).items()
    facts = {name.replace("_", " "): text for name, text in found if name not in ("hosts", "notes")}
    facts["launcher"] = {LOCAL: "commbench"}.get(header.launcher, header.launcher)
    return facts | {"NCCL init": describe_init(header.environment.get("nccl_log"))}


def _facts_blocks(facts: Mapping[str, Mapping[str, str]], title: str) -> list[doc.Block]:
    """A table of the facts in which runs differ, then those that are the same in all of them."""
    names = dict.fromkeys(name for found in facts.values() for name in found)
    rows = [(name, *(found.get(name, "") for found in facts.values())) for name in names]
    same = [(name, value) for name, value, *more in rows if value and {value}.issuperset(more)]
    lines: list[tuple[str, ...]] = [("", *facts), *(row for row in rows if len({*row[1:]}) > 1)]
    blocks: list[doc.Block] = []
    if len(lines) > 1:
        if len(facts) > MOST_COLUMNS:
            lines = list(zip(*lines, strict=True))
        blocks.append(doc.text_table(title, lines[0], lines[1:]))
    return [*blocks, doc.Facts(same)] if same else blocks


def reproduce_section(runs: NamedRuns, whole: Sequence[doc.Block] = ()) -> doc.Section:
    """The commands that measure each run again, after those that measure all of them."""
    folders, headers = zip(*((Path(run.path), run.header) for run in runs.values()), strict=True)
    if all(map(holds_rounds, folders)) and headers[0] and len({f.parent for f in folders}) == 1:
        with suppress(RecordsError):
            whole = reproduce_sweep(read_sweep(folders[0].parent), headers[0])
    parts: list[doc.Block] = [*whole]
    unknown = doc.Text("A results.csv does not contain the command.")
    for name, run in runs.items():
        blocks: tuple[doc.Block, ...] = reproduce(run.header) if run.header else (unknown,)
        if run.run and run.header and run.header.ranks and run.run.incomplete:
            error, own = run.end.error if run.end else "", bool(run.header.plan.own_calls)
            blocks = (doc.Text(next_step(run.path, error, own)), *blocks)
        parts += blocks if len(runs) == 1 else [doc.Folded(f"How to measure {name} again", blocks)]
    return doc.Section("How to reproduce", parts)


def journals_section(files: Mapping[str, Path]) -> doc.Section:
    """Files for download, each with what it is called, as many as fit."""
    blocks: list[doc.Block] = []
    left_out: list[str] = []
    room = MOST_EMBEDDED_BYTES
    for name, path in files.items():
        why = why_unreadable(path, MOST_READ_BYTES)
        content = b"" if why else gzip.compress(path.read_bytes(), mtime=0)
        if why or len(content) > room:
            size = f"{format_about(len(content))} compressed, too large for this report"
            left_out.append(f"{path} ({why or size})")
            continue
        room -= len(content)
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:60].strip("-.") or "run"
        text = f"{path.name} of {name}, {format_about(len(content))} compressed"
        blocks.append(doc.Download(f"{stem}-{path.name}.gz", text, content))
    if left_out:
        listed = list_some(left_out, MOST_LEFT_OUT)
        blocks.append(doc.Text(f"Left out: {listed}."))
    return doc.Section("Recorded data", blocks)


def find_files(runs: NamedRuns) -> dict[str, Path]:
    """The file that each run was read from; of a setting of a sweep, those of its rounds."""
    files: dict[str, Path] = {}
    for name, run in runs.items():
        path = Path(run.path)
        if holds_rounds(path):
            rounds = sorted(path.glob(f"*/{JOURNAL}"))
            files |= {f"{name} {each.parent.name}": each for each in rounds}
            continue
        inside = [path / JOURNAL, path / RESULTS_CSV] if is_folder(path) else [path]
        files[name] = next((file for file in inside if file.is_file()), inside[0])
    return files


_WIDTH = 76
"""Columns of a line of a command, so that it fits a page and a ticket."""

_WORKLOAD = (
    "Write the file of the workload that was replayed instead of {}, which is made of its name. "
    "The first line of run.jsonl has its content, too."
)
_IN_PROCESS = (
    "A program measured this on its process group, with commbench.measure. These commands measure "
    "the same on ranks of their own."
)


def reproduce(header: RunHeader) -> tuple[doc.Block, ...]:
    """How to measure a recorded run again: with commbench alone, and with torchrun."""
    if not header.ranks:
        tool = header.environment.get("tool")
        return (doc.Text(f"{tool} measured this; its file does not contain its command."),)
    try:
        options = _recorded_options(header)
    except UsageError as error:
        return (doc.Text(f"This commbench cannot repeat the run: {error.message}."),)
    where = node_config(options, options.ranks_per_node or 1)
    nodes = options.nnodes
    each = f" on each of {nodes} nodes, with --node-rank 0 to {nodes - 1}" * (nodes > 1)
    before = _with_variables(environment.chosen_variables(header))
    return (
        *([doc.Text(_IN_PROCESS)] if is_in_process(header) else []),
        *([doc.Text(_WORKLOAD.format(options.workload))] if options.workload else []),
        doc.Code(f"Measure the same again{each}:", shell_lines([*before, *options.command()])),
        doc.Code(
            f"The same ranks under torchrun{each}:",
            shell_lines([*before, *torchrun_line(where), *options.arguments()]),
        ),
    )


def reproduce_sweep(sweep: Sweep, header: RunHeader) -> tuple[doc.Block, ...]:
    """How to measure a sweep again, of which the header begins a run."""
    try:
        options = _recorded_options(header)
    except UsageError:
        return ()
    words = ["commbench", "sweep"]
    swept: list[str] = []
    for flag, each in (("env", [s.variables for s in sweep.settings]),
                       ("vary", [s.vary_options for s in sweep.settings])):  # fmt: skip
        for name, found in collect(dict.fromkeys(chain.from_iterable(each))).items():
            swept.append(name)
            if any("," in value for value in found):
                words += [f"--{flag}={name}:={value}" for value in found]
            else:
                words.append(f"--{flag}={name}={','.join(found)}")
    left_out = tuple(f"--{name}=" for name in (*swept, "label", "launches"))
    words += [f"--rounds={sweep.rounds}"]
    words += [word for word in options.command()[2:] if not word.startswith(left_out)]
    others = {k: v for k, v in environment.chosen_variables(header).items() if k not in swept}
    return (doc.Code("Measure the sweep again:", shell_lines([*_with_variables(others), *words])),)


def _with_variables(variables: Mapping[str, str]) -> list[str]:
    """The words before a command that is to have these variables."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def _recorded_options(header: RunHeader) -> RunOptions:
    """The options of the run that the header begins. Raises UsageError for what is refused now."""
    # The runs of a sweep are called by their settings, which no --label may hold.
    options = with_recorded_plan(RunOptions(), header._replace(label=as_label(header.label)))
    options = replace(options, peak=header.plan.peak or None)
    if workload := header.plan.workload:
        file = Path(f"{as_label(str(workload['name']))}.json")
        options = replace(options, workload=file, step=tuple(s["name"] for s in workload["steps"]))
    if header.launched_nodes == 1:
        return options
    return replace(options, nnodes=header.launched_nodes, master_addr=header.hosts[0])


def shell_lines(words: Sequence[str]) -> str:
    """A command for a shell, on several lines where it is long."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > _WIDTH:
            lines.append(f"{line} \\")
            line = "   "
        line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])

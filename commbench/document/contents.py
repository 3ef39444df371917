"""What a report says of a run, of comparisons, of a check, and of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from commbench import __version__
from commbench.analysis.load import LoadedRun, as_loaded_run
from commbench.analysis.rows import ResultRow, make_rows
from commbench.compare import summary
from commbench.compare.comparison import Comparison, compare, require_comparable
from commbench.document import about_runs
from commbench.document.blocks import Block, Document, Items, Section, Table, Text
from commbench.errors import UsageError
from commbench.gate import text as gate_text
from commbench.gate.gate import GateResult
from commbench.report import run_table
from commbench.report.run_notes import run_end_text
from commbench.results.schema import COMPLETE, CUT_OFF, OK, Run
from commbench.sweep import runner

MOST_ROWS = 1000
"""Rows of one table; more make a page that is slow to open."""


class Contents(NamedTuple):
    """What is said before and after what is said of all runs."""

    title: str
    verdict: Sequence[str]
    runs: about_runs.NamedRuns
    results: Sequence[Section]
    after: Sequence[Section] = ()


def find_contents(what: Sequence[LoadedRun | Comparison | GateResult | Path]) -> Contents:
    """What a report says of these: one of each, or several runs or comparisons. A path is the
    folder of a sweep."""
    runs = [each for each in what if isinstance(each, LoadedRun)]
    comparisons = [each for each in what if isinstance(each, Comparison)]
    if len(what) > 1 and len(runs) == len(what):
        comparisons = [compare(runs[0], other) for other in runs[1:]]
        require_comparable(comparisons, force=False)
        return comparison_contents(comparisons)
    if comparisons and len(comparisons) == len(what):
        return comparison_contents(comparisons)
    if len(what) != 1:
        raise UsageError(
            "a report is about one run, several runs, one check or one sweep",
            "make a report of each",
        )
    only = what[0]
    if isinstance(only, Path):
        return sweep_contents(only)
    return check_contents(only) if isinstance(only, GateResult) else run_contents(runs[0])


def make_document(contents: Contents) -> Document:
    """The whole report."""
    now = datetime.now(timezone.utc)
    written = f"Written by commbench {__version__} on {now:%Y-%m-%d %H:%M} UTC."
    return Document(
        contents.title,
        written,
        contents.verdict,
        (
            about_runs.asked_section(contents.runs),
            *contents.results,
            about_runs.environment_section(contents.runs),
            about_runs.reproduce_section(contents.runs),
            about_runs.journals_section(contents.runs),
        ),
        written,
    )


def run_contents(loaded: LoadedRun) -> Contents:
    """One run."""
    run = require_run(loaded)
    rows = make_rows(run)
    return Contents(
        title=run.name,
        verdict=_run_verdict(run),
        runs={run.name: loaded},
        results=[Section("Results", _kind_tables(rows))],
    )


def require_run(loaded: LoadedRun) -> Run:
    """The run with its header and samples; UsageError for a file that holds rows only."""
    if loaded.run is None:
        raise UsageError(
            f"{loaded.path} holds rows, and no record of the run",
            "name the run's folder or its run.jsonl; two results.csv can be compared",
        )
    return loaded.run


def _run_verdict(run: Run) -> list[str]:
    """How many cases were measured, whether results are right, and how the run ended."""
    found = run.measurements
    cases = len(run.header.plan.cases()) if run.header.ranks else len(found)
    measured = [m for m in found if m.status == OK and m.stop_reason != CUT_OFF]
    others = Counter(
        CUT_OFF if m.status == OK else m.status
        for m in found
        if m.status != OK or m.stop_reason == CUT_OFF
    )
    parts = [f"{len(measured)} of {cases} {'case was' if cases == 1 else 'cases were'} measured"]
    parts += [f"{number} {status}" for status, number in others.items()]
    sentence = ", ".join(parts)
    if any(m.wrong for m in found):
        sentence += ". Results are wrong"
    elif measured and all(m.wrong == 0 for m in measured):
        sentence += ", and every result is correct"
    elif measured:
        sentence += ". Results were not checked"
    complete = run.end is not None and run.end.status == COMPLETE
    return [f"{sentence}.", *([] if complete else [run_end_text(run)])]


def _kind_tables(rows: Sequence[ResultRow]) -> list[Block]:
    kinds: dict[str, list[ResultRow]] = {}
    for row in rows:
        kinds.setdefault(row.measurement.case.title, []).append(row)
    blocks: list[Block] = []
    for title, found in kinds.items():
        cells = [run_table._cells(row, (4, 4)) for row in found]
        blocks.append(Table(title, run_table.COLUMNS, cells))
    return blocks


def comparison_contents(comparisons: Sequence[Comparison]) -> Contents:
    """Several runs, each compared with the first."""
    runs = [comparisons[0].a, *(found.b for found in comparisons)]
    names = summary.distinct_names(runs)
    blocks: list[Block] = []
    for found, name in zip(comparisons, names[1:], strict=True):
        inner: list[Block] = [Text(summary.verdict_line(found))]
        for kind, rows in summary.by_kind(found.rows):
            lines = summary.make_lines(rows)
            inner.append(
                Table(kind, summary.HEADINGS, [line.cells for line in lines], left=("verdict",))
            )
        inner.append(Items([*summary.explanations(found), *summary.notes(found)]))
        blocks.append(Section(f"{name} compared with {names[0]}", inner))
    return Contents(
        title=" and ".join([", ".join(names[:-1]), names[-1]]),
        verdict=[summary.verdict_line(found) for found in comparisons],
        runs=dict(zip(names, runs, strict=True)),
        results=[Section("Results", blocks)],
    )


def check_contents(gate: GateResult) -> Contents:
    """A run, checked against rules."""
    runs = [run for run in (gate.run, gate.baseline) if run]
    blocks: list[Block] = []
    for result in gate.results:
        rows = [gate_text.row_cells(result, check) for check in result.checks]
        table = Table(
            gate_text.rule_line(result), gate_text.HEADINGS, rows, left=("row", "outcome")
        )
        blocks.append(table)
    return Contents(
        title=gate_text.gate_title(gate),
        verdict=[f"{gate.outcome}: {gate_text.gate_summary(gate)}"],
        runs=dict(zip(summary.distinct_names(runs), runs, strict=True)),
        results=[Section("Rules", blocks)],
    )


def sweep_contents(folder: Path) -> Contents:
    """The sweep in a folder."""
    sweep = runner.read_sweep(folder)
    rounds = runner.read_rounds(sweep, folder)
    results = runner.make_results(sweep, folder, rounds)
    runs = {r.setting.name: as_loaded_run(r.run) for r in results if r.run}
    return Contents(title=folder.name, verdict=[], runs=runs, results=[])

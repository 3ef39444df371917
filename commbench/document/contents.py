"""What a report says of a run, of comparisons, of a check, and of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from commbench import __version__
from commbench.analysis.column_meanings import column_meanings
from commbench.analysis.curve import summarise_curve
from commbench.analysis.load import LoadedRun, as_loaded_run
from commbench.analysis.rows import ResultRow, make_rows
from commbench.compare.comparison import Comparison, distinct_names
from commbench.compare.document import Comparisons
from commbench.compare.document import document as compare_document
from commbench.document import about_runs
from commbench.document.about_runs import has_wrong, is_complete
from commbench.document.reproduce import reproduce_sweep
from commbench.errors import UsageError
from commbench.gate import document as gate_document
from commbench.gate.gate import GateResult
from commbench.report import overlap_table, run_notes, run_table
from commbench.report.groups_table import group_tables
from commbench.report.pairs_table import describe_pairs
from commbench.report.plots import run_pictures
from commbench.report.shape_text import shape_lines
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import Run
from commbench.spec.links import parse_peak
from commbench.stats.verdict import PASS
from commbench.sweep.document import document as sweep_document
from commbench.sweep.result import SweepResult
from commbench.views.document import (
    BAD,
    Block,
    Document,
    Facts,
    Figures,
    Folded,
    Items,
    Pictures,
    Section,
    Text,
    text_table,
)

MOST_ROWS = 1000
"""Rows of one table; more make a page that is slow to open."""
MOST_TABLES = 12
"""More tables are folded below their summary."""
MOST_SENTENCES = 6
"""Sentences of a comparison at the top of a report; of more, a summary."""


class Contents(NamedTuple):
    """What is said of some runs, besides what is said of all runs."""

    title: str
    subtitle: str
    verdict: Sequence[str]
    runs: about_runs.NamedRuns
    results: Sequence[Section]
    is_bad: bool = False
    """Whether the verdict is that something failed."""
    commands: Sequence[Block] = ()
    """What measures all the runs again, if one command does."""
    asked: Sequence[tuple[str, str]] = ()
    """What was asked of all runs together, each with its name."""
    files: Mapping[str, Path] | None = None
    """The files to embed, by what they are called; None for those of the runs."""


def find_contents(
    what: Sequence[LoadedRun | Comparison | GateResult | SweepResult],
) -> Contents:
    """What a report says of one of these, or of comparisons with the same first run."""
    if what and all(isinstance(each, Comparison) for each in what):
        return comparison_contents([each for each in what if isinstance(each, Comparison)])
    if len(what) != 1:
        raise UsageError(
            "a report is about one run, several runs, one check or one sweep",
            "make a report of each",
        )
    match what[0]:
        case LoadedRun() as run:
            return run_contents(run)
        case GateResult() as gate:
            return check_contents(gate)
        case SweepResult() as sweep:
            return sweep_contents(sweep)
    raise UsageError(f"a {type(what[0]).__name__} has no report", "name runs or a sweep")


def make_document(contents: Contents) -> Document:
    """The whole report."""
    now = datetime.now(timezone.utc)
    return Document(
        contents.title,
        [contents.subtitle],
        contents.verdict,
        (
            about_runs.asked_section(contents.runs, contents.asked),
            *contents.results,
            about_runs.environment_section(contents.runs),
            about_runs.reproduce_section(contents.runs, contents.commands),
            about_runs.journals_section(contents.files or about_runs.find_files(contents.runs)),
        ),
        tone=BAD if contents.is_bad else "",
        footer=f"Written by commbench {__version__} on {now:%Y-%m-%d %H:%M} UTC.",
    )


def run_contents(loaded: LoadedRun) -> Contents:
    """One run."""
    run = require_run(loaded)
    rows = make_rows(run)
    kinds = run_table.timed_kinds(rows)
    results: list[Block] = []
    if len(kinds) == 1:
        results.append(Figures(run_table.curve_figures(summarise_curve(rows))))
    elif kinds:
        headings, cells, left = run_table.condensed_table(list(kinds.values()))
        title = "Summary: one row for each kind of call"
        results.append(text_table(title, headings, cells, left))
    results.append(Pictures(lambda: run_pictures([run])))
    peak = run.header.plan.peak
    parsed = parse_peak(peak) if peak else None
    tables: list[Block] = []
    for title, found in kinds.items():
        columns = run_table.table_columns(parsed, found)
        tables.append(about_runs.kind_table(title, columns, found[:MOST_ROWS]))
        tables += map(Text, shape_lines(found, run_notes.typed_name(run)))
        tables += map(Text, run_notes.expectation_lines(found))
    if parsed:
        tables.append(Text(" ".join(run_notes.peak_text(rows, parsed).split())))
    tables += [
        text_table(f"{title}: each group", *table) for title, table in group_tables(run, MOST_ROWS)
    ]
    meanings = (
        run_table.summary_meanings([*kinds.values()])
        | column_meanings(rows)
        | overlap_table.meanings(rows)
    )
    tables.append(Folded("What the columns mean", [Facts(list(meanings.items()))]))
    many = len(kinds) > MOST_TABLES
    results += [Folded(f"The {len(kinds)} tables with every size", tables)] if many else tables
    if lines := run_notes.compare_timing_modes(rows):
        results.append(text_table("Ways of timing", run_notes.TIMING_HEADINGS, lines))
    for title, forms in run_notes.compare_forms(rows).items():
        name = f"{title}: time over that of {forms.reference}"
        results.append(text_table(name, ("size", forms.reference, *forms.forms), forms.rows))
    results += [about_runs.kind_table(*found) for found in overlap_table.overlap_tables(rows)]
    sections = [Section("Results", results), Section("Warnings", _warning_blocks(rows))]
    if notes := run.header.environment.get("notes"):
        sections.append(Section("Notes about the imported file", [Items(notes)]))
    if pairs := describe_pairs(run):
        sections.insert(0, Section("Pairs of ranks", [Items(pairs)]))
    sections[:0] = about_runs.replay_sections(run, parsed)
    if missing := run_table.describe_missing(rows):
        sections.append(Section("Not measured", [Items(missing)]))
    if slow := run_notes.describe_slow_links(run.header):
        sections.append(Section("Slow links", [Items(slow)]))
    return Contents(
        run.name,
        run_table.describe_run(run),
        [*about_runs.run_verdict(run), *about_runs.doubts(rows)],
        {run.name: loaded},
        sections,
        is_bad=not is_complete(run) or has_wrong(run),
    )


def _warning_blocks(
    rows: Sequence[ResultRow],
    name_runs: Callable[[Sequence[ResultRow]], str] | None = None,
    reword: Callable[[str], str] = str,
) -> list[Block]:
    """Every warning about these rows, with what it means and what to do. `reword` changes the
    sentence that says what is wrong."""
    blocks: list[Block] = []
    for warning in run_notes.find_warnings(rows, name_runs):
        names = [Text(f"Rows: {warning.rows}.")] if warning.rows else []
        title = reword(f"{warning.name} ({warning.which}): {warning.message}.")
        blocks.append(Folded(title, [Text(warning.explanation), *names]))
    return blocks or [Text("None.")]


def _describe(runs: Sequence[LoadedRun]) -> str:
    """How the runs were measured, each way once."""
    texts = dict.fromkeys(run_table.describe_run(run.run) for run in runs if run.run)
    return " | ".join(texts)


def require_run(loaded: LoadedRun) -> Run:
    """The run with its header and samples; UsageError for a file that holds rows only."""
    if loaded.run is None:
        raise UsageError(
            f"{loaded.path} contains rows, but no record of the run",
            "name the run's folder or its run.jsonl; two results.csv can be compared",
        )
    return loaded.run


def comparison_contents(comparisons: Sequence[Comparison]) -> Contents:
    """Several runs, each compared with the first."""
    runs = [comparisons[0].a, *(found.b for found in comparisons)]
    named = dict(zip(distinct_names(runs), runs, strict=True))
    found = compare_document(Comparisons(comparisons))
    return Contents(
        title=found.title,
        subtitle=_describe(runs),
        verdict=found.answer,
        runs=named,
        results=[Section("Results", found.blocks), *_warnings_of_runs(named)],
    )


def _warnings_of_runs(runs: about_runs.NamedRuns) -> list[Section]:
    """The warnings about each run that has samples."""
    blocks = [
        Section(name, _warning_blocks(make_rows(loaded.run)))
        for name, loaded in runs.items()
        if loaded.run
    ]
    return [Section("Warnings", blocks)] if blocks else []


def check_contents(gate: GateResult) -> Contents:
    """A run, checked against rules."""
    runs = [run for run in (gate.run, gate.baseline) if run]
    named = dict(zip(distinct_names(runs), runs, strict=True))
    found = gate_document.document(gate)
    return Contents(
        title=found.title,
        subtitle=" | ".join([*found.subtitle, _describe(runs)]),
        verdict=found.answer,
        runs=named,
        asked=[
            ("checked", next(iter(named))),
            *([("baseline", list(named)[1])] if gate.baseline else []),
            ("rules", "; ".join(result.rule.title for result in gate.results)),
        ],
        results=[Section("Results", found.blocks), *_warnings_of_runs(named)],
        is_bad=gate.outcome != PASS,
    )


def sweep_contents(result: SweepResult) -> Contents:
    """A sweep, as far as it was measured."""
    measured = [each.run for each in result.settings if each.run]
    found = sweep_document(result)
    return Contents(
        title=f"Sweep {result.sweep.label or result.path.name}",
        subtitle=found.title,
        verdict=found.answer,
        runs={
            result.names[each.setting]: as_loaded_run(each.run)
            for each in result.settings
            if each.run
        },
        results=[Section("Results", found.blocks)],
        is_bad=found.tone == BAD,
        asked=[
            ("settings", "; ".join(result.names[each.setting] for each in result.settings)),
            ("rounds", str(result.sweep.rounds)),
            ("tolerance", f"{result.sweep.tolerance * 100:g} %"),
        ],
        commands=reproduce_sweep(result.sweep, measured[0].header) if measured else (),
        files={
            f"{path.parent.parent.name} {path.parent.name}": path
            for path in sorted(result.path.glob(f"*/round-*/{JOURNAL}"))
        },
    )

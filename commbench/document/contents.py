"""What a report says: the document of a run, comparisons, a check or a sweep, and an appendix
about its runs: what was asked, where they ran, how to measure them again, and recorded data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from commbench import __version__
from commbench.analysis.load import LoadedRun, as_loaded_run
from commbench.compare.comparison import Comparison, distinct_names
from commbench.compare.document import Comparisons
from commbench.compare.document import document as compare_document
from commbench.document import about_runs
from commbench.document.reproduce import reproduce_sweep
from commbench.errors import UsageError
from commbench.gate import document as gate_document
from commbench.gate.gate import GateResult
from commbench.report import run_document
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import Run
from commbench.sweep.document import document as sweep_document
from commbench.sweep.result import SweepResult
from commbench.views.document import Block, Document, Section


class Contents(NamedTuple):
    """A document, and what the appendix needs."""

    document: Document
    runs: about_runs.NamedRuns
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
    found = contents.document
    return found._replace(
        subtitle=found.subtitle or [_describe([*contents.runs.values()])],
        blocks=(
            Section("Results", found.blocks),
            about_runs.asked_section(contents.runs, contents.asked),
            about_runs.environment_section(contents.runs),
            about_runs.reproduce_section(contents.runs, contents.commands),
            about_runs.journals_section(contents.files or about_runs.find_files(contents.runs)),
        ),
        footer=f"Written by commbench {__version__} on {now:%Y-%m-%d %H:%M} UTC.",
    )


def run_contents(loaded: LoadedRun) -> Contents:
    """One run."""
    run = require_run(loaded)
    return Contents(run_document.document(run_document.ShownRun(run)), {run.name: loaded})


def _describe(runs: Sequence[LoadedRun]) -> str:
    """How the runs were measured, each way once."""
    texts = dict.fromkeys(run_document.describe_run(run.run) for run in runs if run.run)
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
    return Contents(compare_document(Comparisons(comparisons)), named)


def check_contents(gate: GateResult) -> Contents:
    """A run, checked against rules."""
    runs = [run for run in (gate.run, gate.baseline) if run]
    named = dict(zip(distinct_names(runs), runs, strict=True))
    found = gate_document.document(gate)
    return Contents(
        found._replace(subtitle=[*found.subtitle, _describe(runs)]),
        named,
        asked=[
            ("checked", next(iter(named))),
            *([("baseline", list(named)[1])] if gate.baseline else []),
            ("rules", "; ".join(result.rule.title for result in gate.results)),
        ],
    )


def sweep_contents(result: SweepResult) -> Contents:
    """A sweep, as far as it was measured."""
    measured = [each.run for each in result.settings if each.run]
    found = sweep_document(result)
    title = f"Sweep {result.sweep.label or result.path.name}"
    return Contents(
        found._replace(title=title, subtitle=[found.title]),
        {
            result.names[each.setting]: as_loaded_run(each.run)
            for each in result.settings
            if each.run
        },
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

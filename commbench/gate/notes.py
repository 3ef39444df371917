"""What to know of the runs of a check: what the baseline lacks, warnings, single launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from commbench.analysis.advice import measure_launches
from commbench.analysis.diagnostics import DIAGNOSTICS
from commbench.analysis.load import LoadedRun
from commbench.analysis.rows import make_rows
from commbench.compare.summary import distinct_names
from commbench.gate.gate import GateResult
from commbench.gate.limits import FAIL
from commbench.report.run_notes import MOST_WARNINGS, find_warnings, typed_name
from commbench.units import format_count


class GateWarning(NamedTuple):
    """A warning about some rows of a run."""

    run: str
    name: str
    rows: str
    message: str


def gate_notes(gate: GateResult) -> list[str]:
    """That the baseline is incomplete, and that there are single launches."""
    lacks = gate.baseline.incomplete if gate.baseline else ""
    note = f"Note: the baseline {distinct_names(_runs(gate))[-1]} is incomplete, it {lacks}."
    return [*([note] if lacks else []), *_launches_note(gate)]


def warning_notes(gate: GateResult) -> list[str]:
    """The most important warnings of each run, and how many more there are."""
    notes = []
    for name, run in _named_runs(gate):
        found = [f"{w.name} ({w.rows}): {w.message}" for w in _warnings(name, run)]
        notes += [f"Warning of {name}: {text}" for text in found[:MOST_WARNINGS]]
        if len(found) > MOST_WARNINGS:
            command = f": `commbench show {typed_name(run.run)} --warnings`" if run.run else ""
            more = format_count(len(found) - MOST_WARNINGS, "more warning")
            notes.append(f"{more} of {name}{command}")
    return notes


def gate_warnings(gate: GateResult) -> list[GateWarning]:
    """All warnings of both runs."""
    return [warning for name, run in _named_runs(gate) for warning in _warnings(name, run)]


def _runs(gate: GateResult) -> list[LoadedRun]:
    return [gate.run, *([gate.baseline] if gate.baseline else [])]


def _named_runs(gate: GateResult) -> list[tuple[str, LoadedRun]]:
    return list(zip(distinct_names(_runs(gate)), _runs(gate), strict=True))


def _warnings(name: str, run: LoadedRun) -> Iterator[GateWarning]:
    """The warnings of a run; those of a results.csv are names without figures."""
    if run.run:
        for found in find_warnings(make_rows(run.run)):
            yield GateWarning(name, found.name, found.which, found.message)
        return
    named = [set(row.warnings.split()) for row in run.rows]
    for one in DIAGNOSTICS:
        if number := sum(one.name in own and own.isdisjoint(one.explained_by) for own in named):
            which = f"{number} of {format_count(len(named), 'row')}"
            yield GateWarning(name, one.name, which, one.explanation.partition(". ")[0])


def _launches_note(gate: GateResult) -> list[str]:
    """What a comparison of single launches cannot know; empty where there are several."""
    if not gate.comparison:
        return []
    runs = (gate.comparison.a, gate.comparison.b)
    single = [run for run in runs if max((row.launches or 0 for row in run.rows), default=0) == 1]
    if not single:
        return []
    names = " and ".join(distinct_names(single))
    have = "has only one launch" if len(single) == 1 else "have only one launch each"
    slower = [r for r in gate.results if r.rule.limit.needs_baseline and r.with_outcome(FAIL)]
    sentence = measure_launches([run.header for run in single])
    may = " So a row may fail without a real change." if slower else ""
    return [
        f"Note: {names} {have}. Another launch may differ by more than the intervals say.{may} "
        f"{sentence[0].upper()}{sentence[1:]}."
    ]

"""What to know of the runs of a check: what the baseline lacks, warnings, single launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from commbench.analysis.advice import measure_launches
from commbench.analysis.diagnostics import DIAGNOSTICS
from commbench.analysis.load import LoadedRun
from commbench.analysis.rows import make_rows
from commbench.compare.comparison import distinct_names
from commbench.gate.gate import GateResult
from commbench.report.run_notes import find_warnings
from commbench.results.schema import Run
from commbench.stats.verdict import FAIL
from commbench.units import format_count


def gate_notes(gate: GateResult) -> list[str]:
    """That the baseline is incomplete, and that there are single launches."""
    lacks = gate.baseline.incomplete if gate.baseline else ""
    note = f"Note: the baseline {gate.baseline and gate.baseline.name} is incomplete, {lacks}."
    return [*([note] if lacks else []), *_launches_note(gate)]


def warning_notes(gate: GateResult) -> list[str]:
    """The warnings of both runs, a line each."""
    return ["Warning of {run}: {name} ({rows}): {message}".format(**w) for w in gate_warnings(gate)]


def gate_warnings(gate: GateResult) -> list[dict[str, str]]:
    """The warnings of both runs; of a results.csv the names, without figures."""
    runs = [gate.run, *([gate.baseline] if gate.baseline else [])]
    return [
        {"run": name, "name": warning, "rows": rows, "message": message}
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for warning, rows, message in (_computed(run.run) if run.run else _recorded(run))
    ]


def _computed(run: Run) -> list[tuple[str, str, str]]:
    return [(found.name, found.which, found.message) for found in find_warnings(make_rows(run))]


def _recorded(run: LoadedRun) -> Iterator[tuple[str, str, str]]:
    named = [(set(text.split()), n) for text, n in Counter(r.warnings for r in run.rows).items()]
    for one in DIAGNOSTICS:
        concerned = (n for own, n in named if one.name in own and own.isdisjoint(one.explained_by))
        if number := sum(concerned):
            rows = f"{number} of {format_count(len(run.rows), 'row')}"
            yield one.name, rows, one.explanation.partition(". ")[0]


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
        f"Note: {names} {have}. By how much launches differ is assumed, not measured.{may} "
        f"{sentence[0].upper()}{sentence[1:]}."
    ]

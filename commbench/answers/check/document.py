"""The document of a check: the outcome, each rule with its rows, what limits it and what to do; and
the same as JSON, as JUnit XML and as GitHub's annotations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any

from commbench.analysis.csv_file import make_csv
from commbench.analysis.diagnostics import WAITED, WAITED_SENTENCE
from commbench.answers.check import sentences
from commbench.answers.check.advice import advice
from commbench.answers.check.gate import NO_VERDICT, WITH_RANGE, GateResult, RowCheck, RuleResult
from commbench.answers.check.sentences import WORDS, counts, finding, outcome_of, verdict
from commbench.answers.compare import document as comparing
from commbench.answers.compare.ratio import ComparedRow
from commbench.answers.show.run_notes import run_warnings, warnings_section
from commbench.output import ci
from commbench.stats import FAIL, LIKELY, NOT_MEASURED, OPEN, OUTCOMES, PASS, UNDECIDED
from commbench.views import cells, formats
from commbench.views.document import BAD, GOOD, UNSURE, Document, Items, Pictures, Section, Table

MOST_ROWS = 8
"""Rows of one rule that a terminal shows, unless all are asked for."""
NOT_USED = "not used (optional)"
"""Of a rule that is optional and judges no row."""
MOST_SPREAD = 0.6
"""A check that passes says how much launches differ, above this part of the smallest limit."""
MOST_IN_ANNOTATION = 5
"""GitHub shows ten annotations of a step: one per rule is enough."""
_TONES = {PASS: GOOD, FAIL: BAD, NO_VERDICT: UNSURE}
_ROW_TONES = {FAIL: BAD, NO_VERDICT: UNSURE}


def document(gate: GateResult) -> Document:
    """The outcome, the rules with their rows, what limits them, what to do, and what differs."""
    worst_first = sorted(gate.results, key=lambda result: [*WORDS].index(result.outcome))
    name = "the usual level" if gate.baseline and gate.baseline.history else "the baseline"
    sides = [(f"A, {name}", gate.baseline)] if gate.baseline else []
    said, told = verdict(gate), sentences.reasons_of(gate)
    notes = sentences.notes_of(gate)
    is_said = WAITED in said  # and what to do is below
    answer = [said, *(each for each in told if not (is_said and WAITED_SENTENCE in each))]
    if gate.outcome in (PASS, NO_VERDICT) and _differs_beyond_limit(gate):
        answer, notes = [*answer, *notes[:1]], notes[1:]
    warnings = run_warnings(gate.runs, gate.covers)
    blocks = [
        Items(advice(gate), "What to do"),
        Pictures(lambda: _pictures(gate)),
        *([Table("Runs", comparing.SIDE_COLUMNS, [*sides, ("B", gate.run)])] if sides else []),
        *(block for result in worst_first for block in _rule_blocks(gate, result, [said, *told])),
        warnings_section(warnings, most=0),
        Items(notes, "Notes"),
        *(comparing.difference_tables(gate.comparison) if gate.comparison else []),
    ]
    title = f"Check of {sentences.gate_title(gate)}"
    return Document(title, (), answer, blocks, tone=_TONES[gate.outcome])


def _differs_beyond_limit(gate: GateResult) -> bool:
    """Whether launches, or their ratios, differ by more than a part of the smallest limit."""
    limits = [r.rule.value for r in gate.results if r.rule.limit.needs_baseline]
    runs = gate.comparison and next((row.runs for row in gate.comparison.rows), None)
    return max((each.spread for each in runs or ()), default=0.0) > MOST_SPREAD * (
        min(limits, default=inf) - 1
    )


def _pictures(gate: GateResult) -> Sequence[Any]:
    from commbench.answers.compare.plot import comparison_pictures
    from commbench.answers.show.plots import run_pictures

    if gate.comparison:
        limits = {r.rule.value for r in gate.results if r.rule.limit.needs_baseline}
        return comparison_pictures([gate.comparison], max(limits, default=1.0))
    return run_pictures([gate.run.run]) if gate.run.run else []


# A rule and its rows.


def _rule_blocks(gate: GateResult, result: RuleResult, told: Collection[str]) -> list[Any]:
    """A table for each outcome and its reason; the notes that are not told above. What a terminal
    shows no row of has no heading of its own."""
    ordered = sorted(
        result.checks.others, key=lambda c: (OUTCOMES.index(c.outcome), sentences.why(c))
    )
    passing = map(result.checks.passing, ("", WITH_RANGE)[: 1 + bool(result.checks.with_range)])
    groups = [*([*same] for _, same in groupby(ordered, outcome_of)), *passing]
    rows = gate.comparison.rows if gate.comparison and result.rule.limit.needs_baseline else ()
    compared = {row.a.case.key(): row for row in rows}
    tables = [_table(checks, result.outcome, compared) for checks in groups if checks]
    first = next(iter(result.checks), None)
    if first and len(tables) == 1 and any(sentences.why(first) in text for text in told):
        number = f"{len(result.checks)} {sentences.SAID[first.outcome]}"
        tables = [tables[0]._replace(title=number)]  # a reason is said once
    said = NOT_USED if result.outcome == NOT_MEASURED else WORDS[result.outcome]
    word = f"{said}  " * (len(gate.results) > 1)
    notes = [note for note in sentences.rule_notes(result) if note not in told]
    title = f"{word}{result.rule.title}"
    if len(tables) == 1 and not tables[0].brief:
        return [tables[0]._replace(title=f"{title}, {tables[0].title}"), Items(notes)]
    return [Section(title, [*tables, Items(notes)])]


def _table(checks: Collection[RowCheck], whole: str, compared: Mapping[Any, ComparedRow]) -> Table:
    """Rows with one outcome, of a rule with the outcome `whole`. A terminal shows those that fail
    or are undecided, a few that pass where all do, and those that likely pass where that is why the
    rule does not."""

    def time(check: RowCheck, side: int) -> Any:
        row = compared.get(check.case.key())
        if not (row and check.estimate):
            return None
        if row.level:  # without the interval, which is that of the ratio
            return row.level.time * (check.estimate.value if side else 1)
        return row.times[side]

    def counted(check: RowCheck) -> str:
        row = compared.get(check.case.key())
        return row.level.counted if row and row.level else ""

    first_side = "usual" if any(row.level for row in compared.values()) else "baseline"
    first = next(iter(checks))
    limit, of = first.rule.limit, attrgetter("estimate")
    columns = [
        cells.SIZE,
        cells.Column(limit.heading, of, limit.unit),
        cells.Column("95 %\ninterval", of, limit.interval),
        cells.Column("interval that\ndecides", attrgetter("decided_by"), limit.interval),
        *([cells.Column("limit", _limit, limit.unit, 7)] if first.rule.of_row else []),
        cells.Column(f"{first_side}\ntime", lambda check: time(check, 0), cells.TIME, 5),
        cells.Column("this\nrun", lambda check: time(check, 1), cells.TIME, 5),
        cells.Column("earlier\nruns", counted, cells.TEXT, 6),
    ]
    is_shown = first.outcome in (FAIL, UNDECIDED) or (whole == PASS and len(checks) <= MOST_ROWS)
    is_shown |= first.outcome == LIKELY and (whole == NO_VERDICT or first.effect == FAIL)
    return Table(
        f"{len(checks)} {outcome_of(first)}",
        columns,
        checks,
        lambda c: c.case.title_without(*["operation"] * bool(c.case.step)),
        tone=lambda check: _ROW_TONES.get(check.effect, ""),
        brief=_furthest(checks) if is_shown else [],
    )


def _furthest(checks: Collection[RowCheck]) -> list[RowCheck]:
    """Those that are furthest beyond the limit, in their order."""
    every = [*checks]
    most = sorted(every, key=attrgetter("excess"), reverse=True)[:MOST_ROWS]
    return [check for check in every if any(check is each for each in most)]


def _limit(check: RowCheck) -> float | None:
    return check.rule.value if check.estimate else None


# Other formats.


def as_json(gate: GateResult) -> dict[str, Any]:
    """The outcome, and each rule with its rows."""
    return {
        "run": gate.run.name,
        "baseline": gate.baseline and gate.baseline.name,
        "outcome": gate.outcome,
        "exit_code": gate.exit_code,
        "verdict": verdict(gate),
        "incomplete": gate.incomplete or None,
        "baseline_incomplete": (gate.baseline and gate.baseline.incomplete) or None,
        "reasons": sentences.reasons_of(gate),
        "notes": sentences.notes_of(gate),
        "differences": gate.comparison.differences if gate.comparison else [],
        "warnings": [
            {"run": run, "name": w.name, "rows": w.which, "message": w.message,
             "explanation": w.explanation} for run, w in run_warnings(gate.runs)
        ],
        "advice": advice(gate),
        "rules": [
            {
                "rule": result.rule.title,
                "limit": result.rule.limit.name,
                "outcome": result.outcome,
                "notes": sentences.rule_notes(result),
                "rows": map(_row_json, result.checks),
            }
            for result in gate.results
        ],
    }  # fmt: skip


def _row_json(check: RowCheck) -> dict[str, Any]:
    decided_by = {"decided_by": check.decided_by} if check.decided_by else {}
    return {
        "row": check.case.name,
        "operation": check.case.operation,
        "size_bytes": check.case.size_bytes,
        "outcome": check.outcome.replace(" ", "_"),
        "value": check.estimate,
        "limit": _limit(check),
        "reason": sentences.reason_of(check) or None,
    } | decided_by


def gate_junit(gate: GateResult) -> bytes:
    """The check as JUnit XML: a suite per rule, a test case per row, and one for a verdict that no
    row shows. It has a failure or an error if and only if the check does not pass."""
    outcomes = {FAIL: ci.FAILURE, NO_VERDICT: ci.UNJUDGED, PASS: ci.PASSED}
    measured = gate.run.run.measurements if gate.run.run else ()
    of_history = gate.baseline and gate.baseline.history
    seconds = {measurement.case.key(): measurement.elapsed_s for measurement in measured}

    def make_case(result: RuleResult, check: RowCheck) -> ci.JUnitCase:
        # The message of a failure has the outcome and its reason, its body the rest.
        outcome, took_s = outcomes.get(check.effect, ci.SKIPPED), seconds.get(check.case.key(), 0.0)
        kind = check.effect if check.effect == NO_VERDICT else check.outcome
        is_short = outcome in (ci.FAILURE, ci.UNJUDGED)
        line = f"{check.case.name} {finding(check)}" if is_short else _line(check)
        message = outcome_of(check) if is_short else line
        remarks = result.remarks if is_short or not of_history else ()  # these are of slower rows
        body = "\n".join([f"{line}; limit: {check.demand}.", *remarks])
        return ci.JUnitCase(check.case.name, outcome, message, kind, took_s, body)

    title = f"commbench check: {sentences.gate_title(gate)}"
    body = "\n".join([verdict(gate), *sentences.reasons_of(gate), *advice(gate)])
    suites = [
        ci.JUnitSuite(result.rule.title, [make_case(result, check) for check in result.checks])
        for result in gate.results
    ]
    outcome = outcomes[gate.outcome]
    if gate.outcome == PASS or any(c.outcome == outcome for suite in suites for c in suite.cases):
        suites[0] = suites[0]._replace(text=body)
    else:
        word = WORDS[gate.outcome]
        whole = ci.JUnitCase("verdict", outcome, word, gate.outcome, body=body)
        suites.append(ci.JUnitSuite("commbench check", [whole]))
    return ci.junit_xml(suites, title)


def _line(check: RowCheck) -> str:
    return f"{outcome_of(check)}: {check.case.name} {finding(check)}"


def make_annotations(gate: GateResult) -> list[str]:
    """A command for each rule that fails, has no verdict or has rows that may fail, and one for an
    incomplete run; one for the whole where there is none of these."""
    levels = {FAIL: ci.ERROR, NO_VERDICT: ci.ERROR, PASS: ci.NOTICE}
    found = [(ci.ERROR, verdict(gate))] if gate.incomplete else []
    for result in gate.results:
        level = levels.get(result.outcome, ci.NOTICE)
        checks = result.with_outcome(FAIL, *OPEN)
        if level == ci.ERROR or result.with_outcome(*OPEN):
            head = f"{WORDS[result.outcome]}: {result.rule.title} ({counts([result])})"
            lines = [head, *map(_line, checks[:MOST_IN_ANNOTATION]), *sentences.rule_notes(result)]
            text = "\n".join(lines)
            found.append((ci.ERROR if level == ci.ERROR else ci.WARNING, text))
    title = f"commbench check: {sentences.gate_title(gate)}"
    whole = [(levels[gate.outcome], verdict(gate))]
    return [ci.annotation(level, title, text) for level, text in found or whole]


def _csv(gate: GateResult) -> str:
    """Its rows, with the columns of GateResult.frame."""
    names = ("limit", "outcome", "row", "operation", "size_bytes", "reason")
    checks = (check for result in gate.results for check in result.checks)
    values = ["value"] + ["decided_by"] * any(check.decided_by for check in checks)
    parts = [(name, part) for name in values for part in ("value", "low", "high")]
    lines: list[Sequence[Any]] = [("rule", *names, *map(".".join, parts))]
    for result in gate.results:
        for found in map(formats.as_json, map(_row_json, result.checks)):
            own = [(found.get(name) or {}).get(part) for name, part in parts]
            lines.append((result.rule.title, *map(found.get, names), *own))
    return make_csv(lines)


VIEW = formats.View(
    document, schema=4, data=as_json, more={"csv": _csv},
    junit=gate_junit, annotations=make_annotations,
)  # fmt: skip

"""The result of a check for continuous integration: JUnit XML, JSON, Markdown, GitHub's
annotations."""

from __future__ import annotations

import json
from typing import Any

from commbench.gate.gate import NO_VERDICT, GateResult, RowCheck, RuleResult
from commbench.gate.notes import gate_notes, gate_warnings, warning_notes
from commbench.gate.text import (
    WORDS,
    advice,
    demand,
    finding,
    gate_title,
    row_cells,
    rows_to_show,
    rule_counts,
    rule_notes,
    verdict,
    worst_first,
)
from commbench.output.github import ERROR, NOTICE, WARNING, annotation
from commbench.output.markdown import details, escape
from commbench.output.markdown import table as markdown_table
from commbench.stats.verdict import FAIL, NOT_MEASURED, PASS, UNDECIDED

MOST_ROWS = 50
"""Rows of one rule in a step's summary, which GitHub limits to 1 MiB."""
_MOST_IN_ANNOTATION = 5
"""GitHub shows ten annotations of a step: one per rule is enough."""
MARKS = {PASS: "🟢", FAIL: "🔴", NO_VERDICT: "🟠", NOT_MEASURED: "⚪"}
_HEADINGS = ("rule", "row", "measured", "95 % interval", "outcome")


def gate_markdown(gate: GateResult) -> str:
    """The check for a step's summary: the verdict, a table of rules, rows folded away."""
    lines = [f"### {MARKS[gate.outcome]} {escape(verdict(gate))}", ""]
    rules = [
        (f"{MARKS[result.outcome]} {WORDS[result.outcome]}", result.rule.title, rule_counts(result))
        for result in worst_first(gate)
    ]
    lines += [*markdown_table(("outcome", "rule", "rows"), rules, left="outcome,rule,rows"), ""]
    notes = [note for result in worst_first(gate) for note in rule_notes(gate, result)]
    notes = [*gate_notes(gate), *warning_notes(gate), *notes, *advice(gate)]
    lines += [f"* {escape(note)}" for note in dict.fromkeys(notes)]
    rows = [
        (result.rule.title, check.case.name, *_cells(result, check))
        for result in worst_first(gate)
        for check in rows_to_show(result)[:MOST_ROWS]
    ]
    if rows:
        marked = markdown_table(_HEADINGS, rows, left="rule,row,outcome")
        lines += ["", *details(f"Rows that fail or are undecided: {len(rows)}", marked)]
    return "\n".join(lines) + "\n"


def _cells(result: RuleResult, check: RowCheck) -> tuple[str, str, str]:
    """A row's value with what it is relative to, its interval, and its outcome."""
    _, value, interval, outcome = row_cells(result, check)
    return result.rule.limit.measured.format(value) if value else "", interval, outcome


def gate_junit(gate: GateResult) -> bytes:
    """The check as JUnit XML: a suite per rule, a test case per row. It has a failure if and only
    if the check does not pass."""
    from commbench.output import junit  # imports xml, which most checks do not need

    outcomes = {FAIL: junit.FAILURE, NO_VERDICT: junit.FAILURE, PASS: junit.PASSED}
    suites = []
    for result in gate.results:
        cases = [
            junit.JUnitCase(
                check.case.name,
                outcomes.get(result.effect(check), junit.SKIPPED),
                _junit_message(result, check),
                check.outcome,
            )
            for check in result.checks
        ]
        if result.outcome == NO_VERDICT and not result.preventing():
            message = f"no row passes: {rule_counts(result)}"
            cases.append(junit.JUnitCase("a verdict", junit.FAILURE, message, NO_VERDICT))
        suites.append(junit.JUnitSuite(result.rule.title, cases))
    if gate.incomplete:
        case = junit.JUnitCase("the run is complete", junit.FAILURE, gate.incomplete, FAIL)
        suites.append(junit.JUnitSuite("the run is complete", [case], "run"))
    elif all(result.outcome == NOT_MEASURED for result in gate.results):
        case = junit.JUnitCase("a verdict", junit.FAILURE, verdict(gate), NO_VERDICT)
        suites.append(junit.JUnitSuite("all rules", [case]))
    return junit.junit_xml(suites, f"commbench check: {gate_title(gate)}")


def _junit_message(result: RuleResult, check: RowCheck) -> str:
    outcome = row_cells(result, check)[3]
    message = f"{outcome}: {finding(result, check)}; limit: {demand(result, check)}"
    return " ".join([f"{message}.", *result.remarks]) if result.remarks else message


SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""


def gate_json(gate: GateResult) -> str:
    """The check as JSON: the verdict, and each rule with its rows. Quantities are in SI units; null
    stands for what is not known."""
    document = {
        "schema": SCHEMA,
        "run": gate.run.name,
        "baseline": gate.baseline.name if gate.baseline else None,
        "outcome": gate.outcome,
        "exit_code": gate.exit_code,
        "verdict": verdict(gate),
        "incomplete": gate.incomplete or None,
        "notes": gate_notes(gate),
        "warnings": gate_warnings(gate),
        "rules": [
            {
                "rule": result.rule.title,
                "limit": result.rule.limit.name,
                "outcome": result.outcome,
                "notes": rule_notes(gate, result),
                "rows": [_json_row(result, check) for check in result.checks],
            }
            for result in gate.results
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _json_row(result: RuleResult, check: RowCheck) -> dict[str, Any]:
    case, found = check.case, check.estimate
    return {
        "row": case.name,
        "operation": case.operation,
        "size_bytes": case.size_bytes,
        "outcome": check.outcome,
        "value": found.value if found else None,
        "interval": [found.low, found.high] if found and found.has_interval else None,
        "limit": result.limit_of(check) if found else None,
        "reason": check.reason or check.doubt or None,
    }


def make_annotations(gate: GateResult) -> list[str]:
    """A command for each rule that fails, has no verdict or has undecided rows, and one for an
    incomplete run; one for the whole where there is none of these."""
    title = f"commbench check: {gate_title(gate)}"
    found = [(ERROR, verdict(gate))] if gate.incomplete else []
    for result in gate.results:
        if result.outcome in (FAIL, NO_VERDICT):
            found.append((ERROR, _annotation(gate, result)))
        elif result.with_outcome(UNDECIDED):
            found.append((WARNING, _annotation(gate, result)))
    whole = NOTICE if gate.outcome == PASS else ERROR, verdict(gate)
    return [annotation(level, title, text) for level, text in found or [whole]]


def _annotation(gate: GateResult, result: RuleResult) -> str:
    rows = [
        f"{check.case.name} {finding(result, check)}: {row_cells(result, check)[3]}"
        for check in rows_to_show(result)
    ]
    more = len(rows) - _MOST_IN_ANNOTATION
    lines = [f"{WORDS[result.outcome]}: {result.rule.title} ({rule_counts(result)})"]
    lines += [*rows[:_MOST_IN_ANNOTATION], *([f"and {more} more rows"] if more > 0 else [])]
    return "\n".join([*lines, *rule_notes(gate, result)])

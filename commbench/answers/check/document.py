"""What a document of a check says: the outcome, each rule with its rows, what limits it and what to
do; and the same as JSON, as JUnit XML and as GitHub's annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from commbench.analysis.diagnostics import more_precisely
from commbench.answers.check.gate import NO_VERDICT, UNCHECKED, GateResult, RowCheck, RuleResult
from commbench.answers.check.rules import steps_note
from commbench.answers.compare.comparison import distinct_names
from commbench.answers.compare.document import (
    SIDE_COLUMNS,
    difference_tables,
    launch_notes,
    run_warnings,
    warnings_block,
)
from commbench.output.github import ERROR, NOTICE, WARNING, annotation
from commbench.stats.verdict import FAIL, NOT_MEASURED, OUTCOMES, PASS, UNDECIDED
from commbench.units import format_count
from commbench.views.cells import BYTES, TEXT, Column, in_brackets
from commbench.views.document import BAD, GOOD, Document, Items, Pictures, Section, Table
from commbench.views.formats import View

MOST_ROWS = 20
"""Rows of one rule that a terminal shows, unless all are asked for."""
MOST_IN_ANNOTATION = 5
"""GitHub shows ten annotations of a step: one per rule is enough."""
WORDS = {FAIL: "FAIL", NO_VERDICT: "NO VERDICT", PASS: "PASS", NOT_MEASURED: "not measured"}
"""The outcomes of rules, in the order in which they are shown."""
_TONES = {PASS: GOOD, FAIL: BAD, NO_VERDICT: BAD}


def document(gate: GateResult) -> Document:
    """The outcome, the rules with their rows, what limits them, what to do, and what differs."""
    worst_first = sorted(gate.results, key=lambda result: [*WORDS].index(result.outcome))
    sides = [("A, the baseline", gate.baseline)] if gate.baseline else []
    blocks = [
        *([Table("Runs", SIDE_COLUMNS, [*sides, ("B", gate.run)])] if sides else []),
        *(_rule_section(gate, result) for result in worst_first),
        Items(notes(gate), "Notes"),
        warnings_block(gate.runs),
        Items(advice(gate), "What to do"),
        *(difference_tables(gate.comparison) if gate.comparison else []),
        Pictures(lambda: _pictures(gate)),
    ]
    title = f"Check of {gate_title(gate)}"
    return Document(title, (), [verdict(gate)], blocks, tone=_TONES[gate.outcome])


def _pictures(gate: GateResult) -> Sequence[Any]:
    from commbench.answers.compare.plot import comparison_pictures
    from commbench.answers.show.plots import run_pictures

    if gate.comparison:
        limits = {r.rule.value for r in gate.results if r.rule.limit.needs_baseline}
        return comparison_pictures([gate.comparison], max(limits, default=1.0))
    return run_pictures([gate.run.run]) if gate.run.run else []


def gate_title(gate: GateResult) -> str:
    """Which run is checked, against which baseline."""
    return " against ".join(distinct_names(gate.runs))


def verdict(gate: GateResult) -> str:
    """The outcome in one sentence, with the row that is furthest beyond its limit."""
    reasons = [f"the run is incomplete, {gate.incomplete}"] if gate.incomplete else []
    reasons += [counts(gate.results)] if any(len(result.checks) for result in gate.results) else []
    if worst := gate.worst:
        reasons.append(f"worst: {worst.case.name} {finding(worst)} (rule: {demand(worst)})")
    unmatched = [r for r in gate.results if r.outcome == NO_VERDICT and not r.checks]
    reasons += [f"no row matches the rule {result.rule.title!r}" for result in unmatched]
    return f"{WORDS[gate.outcome]}: {'; '.join(reasons) or 'no rule has a row to judge'}."


# A rule and its rows.


def _rule_section(gate: GateResult, result: RuleResult) -> Section:
    limit = result.rule.limit
    columns = [
        Column("size", lambda c: c.case.size_bytes if c.case.dtype else None, BYTES),
        Column(limit.heading, attrgetter("estimate"), limit.unit),
        Column("95 %\ninterval", attrgetter("estimate"), limit.interval),
        *([Column("limit", _limit, limit.unit, 7)] if result.rule.of_row else []),
        Column("outcome", _outcome, TEXT),
        Column("why", why, TEXT, 8, is_wrapped=True),
    ]
    table = Table(
        "",
        columns,
        result.checks,
        lambda check: (
            check.case.title_without("operation") if check.case.step else check.case.title
        ),
        tone=lambda check: BAD if check.effect in (FAIL, NO_VERDICT) else "",
        brief=result.with_outcome(FAIL, UNDECIDED)[:MOST_ROWS],
    )
    title = f"{WORDS[result.outcome]}  {result.rule.title}: {counts([result])}"
    return Section(title, [table, Items(rule_notes(gate, result))])


def _outcome(check: RowCheck) -> str:
    """Of a row that nothing published limits, that it cannot be judged."""
    is_unknown = check.rule.of_row and check.outcome == NOT_MEASURED
    return "cannot be judged" if is_unknown else check.outcome


def _limit(check: RowCheck) -> float | None:
    return check.rule.value if check.estimate else None


def why(check: RowCheck) -> str:
    """Why a row has its outcome; of an undecided one on which side of the limit its value is."""
    if check.outcome != UNDECIDED or check.reason:
        return check.reason
    return f"value {'beyond' if check.excess > 1 else 'within'}"


def counts(results: Sequence[RuleResult]) -> str:
    """How many rows of these rules have each outcome, and why: `1 fail, 2 pass`."""
    found: Counter[str] = Counter()
    for result in results:
        counted = f", counted as {result.rule.undecided}" * bool(result.rule.undecided)
        for check in result.with_outcome(*OUTCOMES[:-1]):
            more = f"{why(check)}{counted if check.outcome == UNDECIDED else ''}"
            found[f"{_outcome(check)}{in_brackets(more)}"] += 1
        found[PASS] += result.checks.passed
    return ", ".join(f"{number} {what}" for what, number in found.items() if number) or "no row"


def demand(check: RowCheck) -> str:
    """What the rule demands of a row, in a few words."""
    return check.rule.limit.words(check.rule.value)


def finding(check: RowCheck) -> str:
    """What a row does, with its value and interval: `takes 600 us (590 … 610 us)`. The reason where
    there is no value."""
    if not check.estimate:
        return f"has no valid time ({check.reason})"
    limit = check.rule.limit
    found = limit.sentence.format(limit.unit.write(check.estimate))
    return found + in_brackets(limit.interval.write(check.estimate))


def rule_notes(gate: GateResult, result: RuleResult) -> list[str]:
    """Sentences about a rule: what its hardware says, what decided without an interval, and the row
    that is closest to the limit where all pass."""
    found = [*result.remarks]
    if not result.checks:
        steps = steps_note(result.rule, gate.run.rows)
        return [f"No row of {gate.run.name} matches this rule.{steps}", *found]
    if bare := result.checks.without_interval:
        alone = f"{format_count(bare, 'row')} decided by the median or mean alone"
        found.append(f"{alone}: an interval takes the samples of 6 iterations.")
    if not result.checks.others:
        closest = max(result.checks, key=attrgetter("excess"))
        found.append(f"Closest to the limit: {closest.case.name} {finding(closest)}.")
    return found


# What limits the check, and what to do.


def notes(gate: GateResult) -> list[str]:
    """That there are single launches."""
    return launch_notes(gate.comparison) if gate.comparison else []


def advice(gate: GateResult) -> list[str]:
    """What to do about a check without a verdict."""
    found = [result for result in gate.results if result.outcome == NO_VERDICT]
    checks = [check for result in found for check in result.checks.others]
    header = gate.run.header
    header = None if header and "imported_from" in header.environment else header
    rules = (
        (
            f"Undecided: the limit is inside the interval. Measure again with "
            f"`{more_precisely(header)}`, or choose what undecided rows count as: "
            "--undecided pass or --undecided fail.",
            any(c.outcome == UNDECIDED and not c.reason for c in checks),
        ),
        (
            "Doubtful: noise hides what is slower. Measure both runs on a quiet host.",
            any(c.outcome == UNDECIDED and c.reason and c.effect == NO_VERDICT for c in checks),
        ),
        (
            "Check the results, or judge the times alone: --allow-unchecked.",
            any(c.reason.startswith(UNCHECKED) for c in checks),
        ),
        (
            "Measure the same rows in both runs, limit the rule to common rows, or ignore the "
            "others: --allow-unmatched.",
            any(c.outcome == NOT_MEASURED and c.effect == NO_VERDICT for c in checks),
        ),
        (
            "Correct the rule that matches no row, or allow it: --allow-unmatched.",
            any(not result.checks for result in found),
        ),
    )
    return [text for text, applies in rules if applies]


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
        "notes": notes(gate),
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
                "notes": rule_notes(gate, result),
                "rows": map(_row_json, result.checks),
            }
            for result in gate.results
        ],
    }  # fmt: skip


def _row_json(check: RowCheck) -> dict[str, Any]:
    return {
        "row": check.case.name,
        "operation": check.case.operation,
        "size_bytes": check.case.size_bytes,
        "outcome": check.outcome,
        "value": check.estimate,
        "limit": _limit(check),
        "reason": check.reason or None,
    }


VIEW = View(document, schema=2, data=as_json)


def gate_junit(gate: GateResult) -> bytes:
    """The check as JUnit XML: a suite per rule, a test case per row, and one for the verdict. It
    has a failure if and only if the check does not pass."""
    from commbench.output import junit  # imports xml, which most checks do not need

    outcomes = {FAIL: junit.FAILURE, NO_VERDICT: junit.FAILURE, PASS: junit.PASSED}

    def make_case(result: RuleResult, check: RowCheck) -> junit.JUnitCase:
        message = " ".join([f"{_line(check)}; limit: {demand(check)}.", *result.remarks])
        outcome = outcomes.get(check.effect, junit.SKIPPED)
        return junit.JUnitCase(check.case.name, outcome, message, check.outcome)

    suites = [
        junit.JUnitSuite(result.rule.title, [make_case(result, check) for check in result.checks])
        for result in gate.results
    ]
    whole = junit.JUnitCase("verdict", outcomes[gate.outcome], verdict(gate), gate.outcome)
    title = f"commbench check: {gate_title(gate)}"
    return junit.junit_xml([*suites, junit.JUnitSuite("commbench check", [whole])], title)


def _line(check: RowCheck) -> str:
    return f"{check.outcome}{in_brackets(why(check))}: {check.case.name} {finding(check)}"


def make_annotations(gate: GateResult) -> list[str]:
    """A command for each rule that fails, has no verdict or has undecided rows, and one for an
    incomplete run; one for the whole where there is none of these."""
    levels = {FAIL: ERROR, NO_VERDICT: ERROR, PASS: NOTICE}
    found = [(ERROR, verdict(gate))] if gate.incomplete else []
    for result in gate.results:
        level = levels.get(result.outcome, NOTICE)
        checks = result.with_outcome(FAIL, UNDECIDED)
        if level == ERROR or result.with_outcome(UNDECIDED):
            more = len(checks) - MOST_IN_ANNOTATION
            lines = [f"{WORDS[result.outcome]}: {result.rule.title} ({counts([result])})"]
            lines += map(_line, checks[:MOST_IN_ANNOTATION])
            lines += [f"and {more} more rows"] if more > 0 else []
            text = "\n".join([*lines, *rule_notes(gate, result)])
            found.append((ERROR if level == ERROR else WARNING, text))
    title = f"commbench check: {gate_title(gate)}"
    whole = [(levels[gate.outcome], verdict(gate))]
    return [annotation(level, title, text) for level, text in found or whole]

"""The result of a check for continuous integration: JUnit XML and GitHub's annotations."""

from __future__ import annotations

from commbench.gate.document import (
    WORDS,
    demand,
    finding,
    gate_title,
    outcome_text,
    rule_counts,
    rule_notes,
    verdict,
)
from commbench.gate.gate import NO_VERDICT, GateResult, RowCheck, RuleResult
from commbench.output.github import ERROR, NOTICE, WARNING, annotation
from commbench.stats.verdict import FAIL, PASS, UNDECIDED

_MOST_IN_ANNOTATION = 5
"""GitHub shows ten annotations of a step: one per rule is enough."""


def gate_junit(gate: GateResult) -> bytes:
    """The check as JUnit XML: a suite per rule, a test case per row, and one for the verdict. It
    has a failure if and only if the check does not pass."""
    from commbench.output import junit  # imports xml, which most checks do not need

    outcomes = {FAIL: junit.FAILURE, NO_VERDICT: junit.FAILURE, PASS: junit.PASSED}

    def make_case(result: RuleResult, check: RowCheck) -> junit.JUnitCase:
        text = f"{outcome_text(check)}: {finding(check)}; limit: {demand(check)}."
        outcome = outcomes.get(check.effect, junit.SKIPPED)
        message = " ".join([text, *result.remarks])
        return junit.JUnitCase(check.case.name, outcome, message, check.outcome)

    suites = [
        junit.JUnitSuite(result.rule.title, [make_case(result, check) for check in result.checks])
        for result in gate.results
    ]
    whole = junit.JUnitCase("verdict", outcomes[gate.outcome], verdict(gate), gate.outcome)
    title = f"commbench check: {gate_title(gate)}"
    return junit.junit_xml([*suites, junit.JUnitSuite("commbench check", [whole])], title)


def make_annotations(gate: GateResult) -> list[str]:
    """A command for each rule that fails, has no verdict or has undecided rows, and one for an
    incomplete run; one for the whole where there is none of these."""
    levels = {FAIL: ERROR, NO_VERDICT: ERROR, PASS: NOTICE}
    found = [(ERROR, verdict(gate))] if gate.incomplete else []
    for result in gate.results:
        level = levels.get(result.outcome, NOTICE)
        if level == ERROR or result.with_outcome(UNDECIDED):
            found.append((ERROR if level == ERROR else WARNING, _annotation(gate, result)))
    whole = [(levels[gate.outcome], verdict(gate))]
    title = f"commbench check: {gate_title(gate)}"
    return [annotation(level, title, text) for level, text in found or whole]


def _annotation(gate: GateResult, result: RuleResult) -> str:
    checks = result.with_outcome(FAIL, UNDECIDED)
    more = len(checks) - _MOST_IN_ANNOTATION
    lines = [f"{WORDS[result.outcome]}: {result.rule.title} ({rule_counts(result)})"]
    for check in checks[:_MOST_IN_ANNOTATION]:
        lines.append(f"{check.case.name} {finding(check)}: {outcome_text(check)}")
    lines += [f"and {more} more rows"] if more > 0 else []
    return "\n".join([*lines, *rule_notes(gate, result)])

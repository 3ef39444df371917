"""The result of a gate as JUnit XML: a test suite per rule, a test case per row."""

from __future__ import annotations

from commbench.gate.gate import GateResult, RowCheck, RuleResult
from commbench.gate.limits import FAIL, PASS, UNDECIDED
from commbench.gate.text import gate_title, row_cells
from commbench.output.junit import FAILURE, PASSED, SKIPPED, JUnitCase, JUnitSuite, junit_xml


def gate_junit(gate: GateResult, undecided_fails: bool) -> bytes:
    """The document. An undecided row is a failure if `undecided_fails`, otherwise skipped."""
    failing = (FAIL, UNDECIDED) if undecided_fails else (FAIL,)
    suites = [
        JUnitSuite(
            result.rule.title,
            [
                JUnitCase(
                    check.case.name,
                    FAILURE if check.outcome in failing
                    else PASSED if check.outcome == PASS
                    else SKIPPED,
                    _message(result, check),
                    check.outcome,
                )
                for check in result.checks
            ],
        )
        for result in gate.results
    ]  # fmt: skip
    if gate.incomplete:
        case = JUnitCase("the run is whole", FAILURE, gate.incomplete, FAIL)
        suites.append(JUnitSuite("the run is whole", [case], "run"))
    return junit_xml(suites, gate_title(gate))


def _message(result: RuleResult, check: RowCheck) -> str:
    _, _, value, interval, outcome = row_cells(result, check)
    found = f"{value} ({interval})" if interval else value
    return f"{outcome}: {found}; limit: {result.rule.limit.words(result.rule.value)}"

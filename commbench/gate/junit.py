"""A gate as JUnit XML: a test suite per rule, a test case per row."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from commbench.gate.gate import GateResult, RowCheck, RuleResult
from commbench.gate.limits import FAIL, SKIPPED, UNDECIDED
from commbench.gate.text import row_cells, title_of
from commbench.output.table import clean


def gate_junit(gate: GateResult, undecided_fails: bool) -> bytes:
    """The document. An undecided row is a failure or skipped, as the gate takes it."""
    root = Element("testsuites", name=_attribute(title_of(gate)))
    suites = [_suite(root, result, undecided_fails) for result in gate.results]
    if gate.incomplete:
        suites.append(_incomplete(root, gate.incomplete))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(root: Element, result: RuleResult, undecided_fails: bool) -> Element:
    suite = SubElement(root, "testsuite", name=_attribute(result.rule.title))
    for check in result.checks:
        case = SubElement(
            suite, "testcase", name=_attribute(check.case.name),
            classname=_attribute(result.rule.title), time="0",
        )  # fmt: skip
        told = _attribute(_words(result, check))
        failed = check.outcome == FAIL or (check.outcome == UNDECIDED and undecided_fails)
        if failed:
            SubElement(case, "failure", message=told, type=check.outcome)
        elif check.outcome in (UNDECIDED, SKIPPED):
            SubElement(case, "skipped", message=told)
        else:
            SubElement(case, "system-out").text = told
    return _counted(suite)


def _incomplete(root: Element, why: str) -> Element:
    suite = SubElement(root, "testsuite", name="the run is whole")
    case = SubElement(suite, "testcase", name="the run is whole", classname="run", time="0")
    SubElement(case, "failure", message=_attribute(why), type=FAIL)
    return _counted(suite)


def _counted(suite: Element) -> Element:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return suite


def _words(result: RuleResult, check: RowCheck) -> str:
    _, _, measured, interval, outcome = row_cells(result, check)
    found = f"{measured} ({interval})" if interval else measured
    return f"{outcome}: {found}; limit: {result.rule.limit.words(result.rule.value)}"


def _attribute(text: str) -> str:
    """Text without what XML 1.0 cannot hold; etree escapes the rest."""
    return clean(text)

"""JUnit XML, the report of tests that continuous integration reads. Its only writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from commbench.output.table import clean

PASSED, FAILURE, SKIPPED = "system-out", "failure", "skipped"
"""The outcomes of a test case: the elements that hold its message."""


class JUnitCase(NamedTuple):
    """One test case."""

    name: str
    outcome: str = PASSED
    message: str = ""
    type: str = ""
    """What kind of failure it is."""
    seconds: float = 0.0


class JUnitSuite(NamedTuple):
    """A named group of test cases."""

    name: str
    cases: Sequence[JUnitCase]
    class_name: str = ""
    """The class name of its cases; the suite's name if empty."""
    seconds: float | None = None
    """How long the suite took; the sum over its cases if None."""


def junit_xml(suites: Sequence[JUnitSuite], name: str = "") -> bytes:
    """The document. Characters that XML 1.0 cannot hold become blanks."""
    root = Element("testsuites", {"name": clean(name)} if name else {})
    for suite in suites:
        within = SubElement(root, "testsuite", name=clean(suite.name))
        for case in suite.cases:
            _add_case(within, case, clean(suite.class_name or suite.name))
        _count(within, [suite])
    _count(root, suites)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_case(within: Element, case: JUnitCase, class_name: str) -> None:
    seconds, message = f"{case.seconds:.3f}", clean(case.message)
    element = SubElement(
        within, "testcase", name=clean(case.name), classname=class_name, time=seconds
    )
    if case.outcome != PASSED:
        kind = {"type": case.type} if case.outcome == FAILURE and case.type else {}
        element = SubElement(element, case.outcome, {"message": message, **kind})
    elif message:
        element = SubElement(element, PASSED)
    if message and case.outcome != SKIPPED:
        element.text = message


def _count(element: Element, suites: Sequence[JUnitSuite]) -> None:
    outcomes = [case.outcome for suite in suites for case in suite.cases]
    seconds = (
        sum(case.seconds for case in suite.cases) if suite.seconds is None else suite.seconds
        for suite in suites
    )
    for name, number in (
        ("tests", len(outcomes)), ("failures", outcomes.count(FAILURE)), ("errors", 0),
        ("skipped", outcomes.count(SKIPPED)), ("time", f"{sum(seconds):.3f}"),
    ):  # fmt: skip
        element.set(name, str(number))

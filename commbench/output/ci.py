"""What continuous integration reads: annotations and the summary of a step in GitHub Actions, and
JUnit XML, of which this is the only writer.

A line that begins with `::`, also after blanks, is a command to GitHub's runner; so is `##[` within
a line. Text from files is therefore escaped in the commands; text.safe treats all other output.
Source: actions/toolkit, packages/core/src/command.ts; actions/runner, ActionCommand.cs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import RecordsError
from commbench.output.text import clean

ERROR, WARNING, NOTICE = "error", "warning", "notice"
"""The levels of an annotation."""


def annotation(level: str, title: str, text: str) -> str:
    """The command that makes an annotation; `text` may have several lines."""
    lines = "\n".join(clean(line) for line in text.split("\n"))
    name = _escaped(clean(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(lines)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def add_to_summary(markdown: str) -> None:
    """Append Markdown to the step's summary, where there is one; RecordsError where that fails."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(markdown)
    except OSError as error:
        raise RecordsError(
            f"cannot write the step's summary {path}: {error.strerror}",
            "GITHUB_STEP_SUMMARY names that file",
        ) from None


PASSED, FAILURE, UNJUDGED, SKIPPED = "system-out", "failure", "error", "skipped"
"""The outcomes of a test case: the elements that hold its message."""


class JUnitCase(NamedTuple):
    """One test case."""

    name: str
    outcome: str = PASSED
    message: str = ""
    type: str = ""
    """What kind of failure or error it is."""
    seconds: float = 0.0
    """0 where it is not known: then the case has no time."""
    body: str = ""
    """Lines that say more than the message; by default that."""


class JUnitSuite(NamedTuple):
    """A named group of test cases."""

    name: str
    cases: Sequence[JUnitCase]
    text: str = ""
    """Lines about them all."""


OWN_JUNIT = re.compile(
    rb'<\?xml[^<>]*>\s*<testsuites(?: (?!name)[^<>]*>\s*<testsuite)? name="commbench '
)
"""How the files of commbench begin: the first name in them is that of the command."""


def junit_xml(suites: Sequence[JUnitSuite], name: str = "") -> bytes:
    """The document. Characters that XML 1.0 cannot hold become blanks."""
    from xml.etree.ElementTree import Element, SubElement, indent, tostring  # seldom needed

    root = Element("testsuites", {"name": clean(name)} if name else {})
    for suite in suites:
        within = SubElement(root, "testsuite", name=clean(suite.name))
        for case in suite.cases:
            _add_case(within, case, clean(suite.name))
        if suite.text:
            SubElement(within, PASSED).text = "\n".join(map(clean, suite.text.splitlines()))
        _count(within, [suite])
    _count(root, suites)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_case(within: Any, case: JUnitCase, class_name: str) -> None:
    from xml.etree.ElementTree import SubElement

    message = clean(case.message)
    about = {"name": clean(case.name), "classname": class_name, **_time(case.seconds)}
    element = SubElement(within, "testcase", about)
    if case.outcome != PASSED:
        kind = {"type": case.type} if case.outcome != SKIPPED and case.type else {}
        element = SubElement(element, case.outcome, {"message": message, **kind})
    elif message:
        element = SubElement(element, PASSED)
    if message and case.outcome != SKIPPED:
        element.text = "\n".join(map(clean, case.body.splitlines())) or message


def _count(element: Any, suites: Sequence[JUnitSuite]) -> None:
    cases = [case for suite in suites for case in suite.cases]
    outcomes, seconds = [case.outcome for case in cases], sum(case.seconds for case in cases)
    counts = {
        "tests": len(outcomes), "failures": outcomes.count(FAILURE),
        "errors": outcomes.count(UNJUDGED), "skipped": outcomes.count(SKIPPED),
    }  # fmt: skip
    element.attrib |= {name: str(number) for name, number in counts.items()} | _time(seconds)


def _time(seconds: float) -> dict[str, str]:
    return {"time": f"{seconds:.3f}"} if seconds else {}

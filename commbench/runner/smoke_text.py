"""The result of the smoke test as text, JUnit XML and Markdown."""

from __future__ import annotations

from commbench.output.github import ERROR, NOTICE, annotation
from commbench.output.junit import FAILURE, PASSED, JUnitCase, JUnitSuite, junit_xml
from commbench.output.markdown import escape, table
from commbench.runner.smoke import OperationResult, SmokeResult

SUITE = "commbench smoke"


def smoke_verdict(result: SmokeResult) -> str:
    """The outcome in one line."""
    working = sum(not operation.failure for operation in result.operations)
    word = "FAIL" if result.error else "PASS"
    return f"{word}: {working} of {len(result.operations)} operations work ({result.seconds:.1f} s)"


def operation_outcome(operation: OperationResult) -> str:
    """The outcome of one operation in a few words."""
    if operation.failure:
        return f"FAIL: {operation.failure}"
    return f"ok, {operation.cases} case{'s' * (operation.cases != 1)}"


def smoke_junit(result: SmokeResult) -> bytes:
    """The result as JUnit XML: a test case per operation. It has a failure if there is an error."""
    cases = [
        JUnitCase(o.name, FAILURE if o.failure else PASSED, o.failure, seconds=o.seconds)
        for o in result.operations
    ]
    if result.error and not any(o.failure for o in result.operations):
        cases.append(JUnitCase("the run", FAILURE, result.error.message))
    return junit_xml([JUnitSuite(SUITE, cases, seconds=result.seconds)])


def smoke_annotation(result: SmokeResult) -> str:
    """The command that makes an annotation of GitHub: the outcome, and the operations that fail."""
    failed = [f"{o.name}: {o.failure}" for o in result.operations if o.failure]
    level = ERROR if result.error else NOTICE
    return annotation(level, SUITE, "\n".join([smoke_verdict(result), *failed]))


def smoke_markdown(result: SmokeResult) -> str:
    """The result as Markdown: the outcome, and a table of the operations."""
    mark = "🔴" if result.error else "🟢"
    rows = [(operation.name, operation_outcome(operation)) for operation in result.operations]
    lines = table(("operation", "outcome"), rows, left="operation,outcome")
    verdict = escape(f"{SUITE}: {smoke_verdict(result)}")
    return "\n".join([f"### {mark} {verdict}", "", *lines, ""])

"""What a document of a smoke test says, and what continuous integration reads of it."""

from __future__ import annotations

from operator import attrgetter

from commbench.output.ci import (
    ERROR,
    FAILURE,
    NOTICE,
    PASSED,
    JUnitCase,
    JUnitSuite,
    annotation,
    junit_xml,
)
from commbench.runner.smoke import OperationResult, SmokeResult
from commbench.units import format_count
from commbench.views.cells import NUMBER, TEXT, TIME, Column
from commbench.views.document import BAD, GOOD, Document, Table
from commbench.views.formats import View

SUITE = "commbench smoke"
COLUMNS = (
    Column("operation", attrgetter("name"), TEXT),
    Column("outcome", lambda operation: "FAIL" if operation.failure else "ok", TEXT),
    Column("sizes and\nforms checked", attrgetter("cases"), NUMBER),
    Column("time", attrgetter("time_s"), TIME, is_detail=True),
    Column("why", attrgetter("failure"), TEXT, 8, is_wrapped=True),
)


def document(result: SmokeResult) -> Document:
    """How many operations work, and each of them."""

    def tone(operation: OperationResult) -> str:
        return BAD if operation.failure else ""

    table = Table("", COLUMNS, result.operations, tone=tone)
    where = f"{format_count(result.ranks, f'{result.backend} rank')} on {result.device}"
    whole = BAD if result.error else GOOD
    return Document(SUITE, [where], [verdict(result)], [table], tone=whole)


def verdict(result: SmokeResult) -> str:
    """The outcome in one sentence."""
    working = sum(not operation.failure for operation in result.operations)
    word = "FAIL" if result.error else "PASS"
    found = f"{working} of {len(result.operations)} operations work and give right results"
    return f"{word}: {found} ({result.time_s:.1f} s)."


def smoke_junit(result: SmokeResult) -> bytes:
    """The result as JUnit XML: a test case per operation. It has a failure if there is an error."""
    cases = [
        JUnitCase(o.name, FAILURE if o.failure else PASSED, o.failure, seconds=o.time_s)
        for o in result.operations
    ]
    if result.error and not any(o.failure for o in result.operations):
        cases.append(JUnitCase("the run", FAILURE, result.error.message))
    return junit_xml([JUnitSuite(SUITE, cases, seconds=result.time_s)])


def smoke_annotation(result: SmokeResult) -> str:
    """The command that makes an annotation of GitHub: the outcome, and the operations that fail."""
    failed = [f"{o.name}: {o.failure}" for o in result.operations if o.failure]
    level = ERROR if result.error else NOTICE
    return annotation(level, SUITE, "\n".join([verdict(result), *failed]))


VIEW = View(document, schema=1)

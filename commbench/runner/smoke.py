"""The smoke test: a small run of every operation, which of them work, its document, and what
continuous integration reads of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.errors import CommbenchError, Interrupted, UnavailableError
from commbench.output import ci
from commbench.plan.operations import OPERATIONS
from commbench.plan.plan import Plan
from commbench.results.schema import OK, Measurement
from commbench.runner.launched_ranks import run_temporarily
from commbench.runner.planning import plan_run
from commbench.runner.run_options import parse_options
from commbench.runner.session import require_correct
from commbench.units import format_count
from commbench.views.cells import NUMBER, TEXT, TIME, Column
from commbench.views.document import BAD, GOOD, Document, Table
from commbench.views.formats import Result, View

DTYPES = ("float32", "bfloat16", "int64")
SIZES = (1000, 64 << 10, 1 << 20)
"""Bytes: one that ranks do not divide evenly, one within a segment of gloo, one beyond it."""
BUDGET_S = 0.8
"""Of a case: checks take 5 % of half of it, in which some fifty calls of a small size fit."""


class OperationResult(NamedTuple):
    """The outcome of one operation."""

    name: str
    cases: int
    time_s: float
    failure: str
    """What is wrong with its first case that failed, or how many cases were not reached; empty if
    all cases are ok."""
    is_cut_off: bool = False
    """Whether no case failed, but the run ended before all were measured."""

    @property
    def outcome(self) -> str:
        """In the table: FAIL only where a case failed."""
        cut_off = "partly measured" if self.cases else "not measured"
        return cut_off if self.is_cut_off else "FAIL" if self.failure else "ok"


@dataclass(frozen=True, repr=False)
class SmokeResult(Result, view="runner.smoke", rows="operations"):
    """What a smoke test found; true only where everything works."""

    ranks: int
    backend: str
    device: str
    operations: tuple[OperationResult, ...]
    error: CommbenchError | None
    """What ended the run, or the most important failure; None where everything works."""
    time_s: float
    """How long it took."""

    def __bool__(self) -> bool:
        return self.error is None


def plan_smoke(given: dict[str, Any]) -> Plan:
    """The plan of the smoke test with these run options, without operations that need more
    ranks."""
    options = parse_options(
        {"op": ("all", "p2p"), "dtype": DTYPES, "sizes": SIZES, "iters": 2, "warmup": 0,
         "order": "ascending", **given}
    )  # fmt: skip
    plan = plan_run(options).plan
    operations = [n for n in plan.operations if OPERATIONS[n].min_ranks <= plan.world_size]
    return replace(plan, budget_s=BUDGET_S, operations=tuple(operations))


def run_smoke(plan: Plan, *, is_silent: bool = True) -> SmokeResult:
    """Measure every operation once; an error that ends the run becomes part of the result."""
    started = time.monotonic()
    error: CommbenchError | None = None
    try:
        run = run_temporarily(plan, "smoke", is_silent=is_silent)
        require_correct(run)
    except CommbenchError as ended:
        error, run = ended, ended.run
    measurements = run.measurements if run else ()
    planned = Counter(case.operation for case in plan.cases())
    operations = tuple(_summarise(name, planned[name], measurements) for name in plan.operations)
    failed = next((o for o in operations if o.failure), None)
    if failed and not error:
        hint = "`commbench env` prints what this torch offers"
        error = UnavailableError(f"{failed.name} cannot be run here: {failed.failure}", hint)
    time_s = time.monotonic() - started
    return SmokeResult(plan.world_size, plan.backend, plan.device, operations, error, time_s)


def _summarise(name: str, planned: int, measurements: Sequence[Measurement]) -> OperationResult:
    found = [m for m in measurements if m.case.operation == name]
    bad = next((m for m in found if m.status != OK), None)
    failure = f"{bad.case.name}: {bad.status}, {bad.reason}" if bad else ""
    if is_cut_off := not failure and len(found) < planned:
        failure = f"the run ended after {len(found)} of {planned} cases"
    return OperationResult(name, len(found), sum(m.elapsed_s for m in found), failure, is_cut_off)


SUITE = "commbench smoke"
COLUMNS = (
    Column("operation", attrgetter("name"), TEXT),
    Column("outcome", attrgetter("outcome"), TEXT),
    Column("sizes and\nforms checked", attrgetter("cases"), NUMBER),
    Column("time", attrgetter("time_s"), TIME, is_detail=True),
    Column("why", attrgetter("failure"), TEXT, 8, is_wrapped=True),
)


def document(result: SmokeResult) -> Document:
    """How many operations work, and each of them."""
    table = Table("", COLUMNS, result.operations, tone=lambda o: BAD * (o.outcome == "FAIL"))
    where = f"{format_count(result.ranks, f'{result.backend} rank')} on {result.device}"
    return Document(SUITE, [where], [verdict(result)], [table], tone=BAD if result.error else GOOD)


def verdict(result: SmokeResult) -> str:
    """The outcome in one sentence."""
    working = sum(not operation.failure for operation in result.operations)
    cut_off = sum(operation.is_cut_off for operation in result.operations)
    failed = "STOPPED" if isinstance(result.error, Interrupted) else "FAIL"
    found = f"{working} of {len(result.operations)} operations work and give right results"
    found += f"; the run ended before {cut_off} of them were measured" * bool(cut_off)
    return f"{failed if result.error else 'PASS'}: {found} ({result.time_s:.1f} s)."


def smoke_junit(result: SmokeResult) -> bytes:
    """The result as JUnit XML: a test case per operation, skipped where the run ended before it was
    measured; and one for that end. It has a failure if there is an error."""
    cases = []
    for each in result.operations:
        end = ci.SKIPPED if each.is_cut_off else ci.FAILURE if each.failure else ci.PASSED
        cases.append(ci.JUnitCase(each.name, end, each.failure, seconds=each.time_s))
    is_told = any(o.failure for o in result.operations)
    if result.error and (not is_told or any(o.is_cut_off for o in result.operations)):
        cases.append(ci.JUnitCase("the run", ci.FAILURE, result.error.message))
    return ci.junit_xml([ci.JUnitSuite(SUITE, cases)])


def smoke_annotation(result: SmokeResult) -> list[str]:
    """The command that makes an annotation of GitHub: the outcome, and the operations that fail."""
    failed = [f"{o.name}: {o.failure}" for o in result.operations if o.failure]
    level = ci.ERROR if result.error else ci.NOTICE
    return [ci.annotation(level, SUITE, "\n".join([verdict(result), *failed]))]


VIEW = View(document, schema=1, junit=smoke_junit, annotations=smoke_annotation)

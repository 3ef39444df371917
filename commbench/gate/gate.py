"""Checks whether a run keeps rules, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from commbench.analysis.load import LoadedRun, as_loaded_run, make_case
from commbench.compare.comparison import COMPARED, ComparedRow, Comparison, compare
from commbench.compare.ratio import NOT_COMPARED
from commbench.errors import UsageError
from commbench.gate.limits import FAIL, PASS, SKIPPED, UNDECIDED, Estimate
from commbench.gate.rules import Rule
from commbench.results.schema import OK, Run
from commbench.spec.case import SKIPPED as CASE_SKIPPED
from commbench.spec.case import UNSUPPORTED, Case

CHECKED = (*COMPARED, "busbw_ci_low_GBps", "busbw_ci_high_GBps")
"""The columns that a check needs; loading no others is faster."""
NOT_MEASURED = (UNSUPPORTED, CASE_SKIPPED)
"""Statuses of rows that a run was not to measure. Other statuses than `ok` are failures."""
MISSING = "not in the run"


class RowCheck(NamedTuple):
    """One row under one rule."""

    case: Case
    """What the row measured."""
    outcome: str
    """One of OUTCOMES."""
    estimate: Estimate | None = None
    """The quantity that the rule limits; None where it was not measured."""
    reason: str = ""


class RuleResult(NamedTuple):
    """One rule, and its rows."""

    rule: Rule
    checks: tuple[RowCheck, ...]

    @property
    def outcome(self) -> str:
        """The worst outcome of the rows."""
        outcomes = {check.outcome for check in self.checks}
        return next((o for o in (FAIL, UNDECIDED, PASS) if o in outcomes), SKIPPED)

    @property
    def has_measured_rows(self) -> bool:
        """Whether the run measured any of the rows."""
        return any(c.outcome != SKIPPED and c.reason != MISSING for c in self.checks)

    def with_outcome(self, outcome: str) -> list[RowCheck]:
        """The rows with this outcome."""
        return [check for check in self.checks if check.outcome == outcome]


class GateResult(NamedTuple):
    """All rules, and the outcome of the whole."""

    run: LoadedRun
    baseline: LoadedRun | None
    comparison: Comparison | None
    """The run (B) against the baseline (A)."""
    results: tuple[RuleResult, ...]
    incomplete: str
    """Why the run is incomplete; then the gate fails. Empty where the run is complete, or where its
    file does not hold whether it is."""

    @property
    def outcome(self) -> str:
        """The worst outcome of the rules: `pass`, `undecided` or `fail`."""
        if self.incomplete:
            return FAIL
        outcomes = {result.outcome for result in self.results}
        return next((o for o in (FAIL, UNDECIDED) if o in outcomes), PASS)


def check(
    run: Run | LoadedRun,
    rules: Sequence[Rule],
    baseline: Run | LoadedRun | None = None,
    allow_unmatched: bool = False,
) -> GateResult:
    """Check a run against rules, and against a baseline where a rule needs one.

    Raises UsageError for a rule that matches no measured row, unless `allow_unmatched` or the rule
    is optional. Whether run and baseline may be compared at all: `require_comparable`.
    """
    run = as_loaded_run(run, CHECKED)
    comparison = compare(baseline, run, tolerance=0.0) if baseline else None
    results = tuple(RuleResult(rule, tuple(_checks(rule, run, comparison))) for rule in rules)
    for result in results:
        rule = result.rule
        if not (result.has_measured_rows or allow_unmatched or rule.optional):
            raise UsageError(
                f"no measured row of {run.name} is one of {rule.where!r}",
                "mend the rule, or say --allow-unmatched",
            )
    against = comparison.a if comparison else None
    return GateResult(run, against, comparison, results, _why_incomplete(run))


def _checks(rule: Rule, run: LoadedRun, comparison: Comparison | None) -> Iterator[RowCheck]:
    if not rule.limit.needs_baseline:
        for row in filter(rule.covers, run.rows):
            yield _check_row(rule, row)
        return
    if comparison is None:
        raise UsageError(
            f"{rule.title!r} needs a baseline", "name the run to compare with: --against BASELINE"
        )
    for compared in comparison.rows:
        if rule.covers(compared.a):
            yield _check_compared(rule, compared)
    for row in filter(rule.covers, comparison.only_b):
        yield RowCheck(make_case(row), SKIPPED, reason="not in the baseline")
    for row in filter(rule.covers, comparison.only_a):
        if row.status == OK:
            yield RowCheck(make_case(row), UNDECIDED, reason=MISSING)


def _check_row(rule: Rule, row: Any) -> RowCheck:
    case = make_case(row)
    if row.status != OK:
        return RowCheck(case, SKIPPED if row.status in NOT_MEASURED else FAIL, reason=row.status)
    if (estimate := rule.limit.estimate(row)) is None:  # a barrier has no bandwidth
        return RowCheck(case, SKIPPED, reason="no such figure")
    outcome, reason = rule.limit.decide(rule.value, estimate)
    return RowCheck(case, outcome, estimate, reason)


def _check_compared(rule: Rule, row: ComparedRow) -> RowCheck:
    """A is the baseline, B the run."""
    case = make_case(row.a)
    estimate = rule.limit.estimate(row)
    if row.verdict == NOT_COMPARED or estimate is None:
        return _not_compared(case, row)
    outcome, reason = rule.limit.decide(rule.value, estimate)
    return RowCheck(case, outcome, estimate, reason)


def _not_compared(case: Case, row: ComparedRow) -> RowCheck:
    if row.b.status not in (OK, *NOT_MEASURED):
        return RowCheck(case, FAIL, reason=row.b.status)
    if row.a.status != OK:
        return RowCheck(case, SKIPPED, reason=f"{row.a.status} in the baseline")
    if row.b.status != OK:
        return RowCheck(case, FAIL, reason=f"{row.b.status}, not so in the baseline")
    return RowCheck(case, UNDECIDED, reason="nothing timed")


def _why_incomplete(run: LoadedRun) -> str:
    if run.run is None:
        return ""
    end = run.run.end
    if end is None:
        return "it has not ended: it still goes on, or was cut off"
    return "" if end.status == "complete" else f"it ended as {end.status}: {end.reason}"

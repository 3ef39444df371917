"""Whether a run keeps its rules, row by row, and what a gate says of it as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.load import LoadedRun
from commbench.analysis.row_matching import case_of
from commbench.compare.comparison import Comparison, compare
from commbench.compare.ratio import NOT_COMPARED
from commbench.errors import UsageError
from commbench.gate.limits import FAIL, PASS, SKIPPED, UNDECIDED, Estimate
from commbench.gate.rules import Rule
from commbench.results.schema import OK
from commbench.spec.case import Case

if TYPE_CHECKING:
    from pandas import DataFrame

NOT_MEASURED = ("unsupported", "skipped")
"""Statuses of rows that were never meant to be timed; all others than `ok` are failures."""

MISSING = "not in the run"


class RowCheck(NamedTuple):
    """What came of one row under one rule."""

    case: Case
    """What the row measured."""
    outcome: str
    measured: Estimate | None = None
    reason: str = ""


class RuleResult(NamedTuple):
    """What came of one rule."""

    rule: Rule
    findings: tuple[RowCheck, ...]

    @property
    def outcome(self) -> str:
        """The worst of its rows."""
        outcomes = {finding.outcome for finding in self.findings}
        return next((o for o in (FAIL, UNDECIDED, PASS) if o in outcomes), SKIPPED)

    @property
    def matched(self) -> bool:
        """Whether the run measured any of its rows."""
        return any(f.outcome != SKIPPED and f.reason != MISSING for f in self.findings)

    def having(self, outcome: str) -> list[RowCheck]:
        """The rows with this outcome."""
        return [finding for finding in self.findings if finding.outcome == outcome]


class GateResult(NamedTuple):
    """What came of all rules."""

    run: LoadedRun
    baseline: LoadedRun | None
    comparison: Comparison | None
    verdicts: tuple[RuleResult, ...]
    incomplete: str
    """Why the run is not whole, which no gate lets pass; empty where it is, or nobody knows."""

    @property
    def outcome(self) -> str:
        """The worst of the rules."""
        if self.incomplete:
            return FAIL
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return next((o for o in (FAIL, UNDECIDED) if o in outcomes), PASS)


def check(
    run: LoadedRun, baseline: LoadedRun | None, rules: Sequence[Rule], allow_unmatched: bool = False
) -> GateResult:
    """Hold a run against rules. Raises UsageError for a rule that matches no measured row."""
    comparison = compare(baseline, run, 0.0) if baseline else None
    verdicts = tuple(RuleResult(rule, tuple(_findings(rule, run, comparison))) for rule in rules)
    for verdict in verdicts:
        if not verdict.matched and not (allow_unmatched or verdict.rule.optional):
            raise UsageError(
                f"no measured row of {run.name} is one of {verdict.rule.where!r}",
                "mend the rule, or say --allow-unmatched",
            )
    return GateResult(run, baseline, comparison, verdicts, _why_incomplete(run))


def _findings(rule: Rule, run: LoadedRun, comparison: Comparison | None) -> Iterator[RowCheck]:
    if not rule.limit.needs_baseline:
        for row in _matching(rule, run.frame):
            yield _absolute(rule, row)
        return
    if comparison is None:
        raise UsageError(
            f"{rule.title!r} needs a baseline", "name the run to compare with: --against BASELINE"
        )
    for row in _matching(rule, comparison.rows):
        yield _relative(rule, row)
    for row in _matching(rule, comparison.only_b):
        yield RowCheck(case_of(row), SKIPPED, reason="not in the baseline")
    for row in _matching(rule, comparison.only_a):
        if row.status == OK:
            yield RowCheck(case_of(row), UNDECIDED, reason=MISSING)


def _matching(rule: Rule, rows: DataFrame) -> Iterator[Any]:
    sizes = rows["size_bytes"]
    chosen = (sizes >= rule.smallest) & (sizes <= rule.largest)
    if rule.operation:
        chosen &= (rows["operation"] == rule.operation).astype(bool)
    if rule.dtype:
        chosen &= (rows["dtype"] == rule.dtype).astype(bool)
    yield from rows[chosen].itertuples()


def _absolute(rule: Rule, row: Any) -> RowCheck:
    case = case_of(row)
    if row.status != OK:
        return RowCheck(case, SKIPPED if row.status in NOT_MEASURED else FAIL, reason=row.status)
    measured = rule.limit.measured(row)
    if measured.value != measured.value:  # NaN: a barrier has no bandwidth
        return RowCheck(case, SKIPPED, reason="no such figure")
    outcome, why = rule.limit.outcome(rule.value, measured)
    return RowCheck(case, outcome, measured, why)


def _relative(rule: Rule, row: Any) -> RowCheck:
    """A is the baseline, B the run."""
    case = case_of(row)
    if row.verdict == NOT_COMPARED:
        return _not_compared(case, row)
    measured = rule.limit.measured(row)
    outcome, why = rule.limit.outcome(rule.value, measured)
    return RowCheck(case, outcome, measured, why)


def _not_compared(case: Case, row: Any) -> RowCheck:
    if row.status_b not in (OK, *NOT_MEASURED):
        return RowCheck(case, FAIL, reason=row.status_b)
    if row.status_a != OK:
        return RowCheck(case, SKIPPED, reason=f"{row.status_a} in the baseline")
    if row.status_b != OK:
        return RowCheck(case, FAIL, reason=f"{row.status_b}, not so in the baseline")
    return RowCheck(case, UNDECIDED, reason="nothing timed")


def _why_incomplete(source: LoadedRun) -> str:
    if source.run is None:
        return ""
    end = source.run.end
    if end is None:
        return "it has not ended: it still goes on, or was cut off"
    return "" if end.status == "complete" else f"it ended as {end.status}: {end.reason}"

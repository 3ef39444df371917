"""Checks whether a run keeps rules, row by row, and decides the outcome of the whole.

A check passes only if it has looked: see `RuleResult.outcome` and `GateResult.outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis.diagnostics import WAITED, has_waited
from commbench.analysis.load import LoadedRun, as_loaded_run
from commbench.analysis.statistics import launch_degrees
from commbench.answers.check.expected import hardware_of, remarks
from commbench.answers.check.rules import NEEDED_BASELINE, Rule, unmatched
from commbench.answers.compare import ratio
from commbench.answers.compare.comparison import CHECKED, Comparison, compare
from commbench.answers.compare.pooling import PooledRatio
from commbench.errors import GATE_FAILS, NO_VERDICT_REACHED, UsageError
from commbench.output.text import short_repr
from commbench.plan.case import SKIPPED, UNSUPPORTED, Case
from commbench.plan.links import Hardware
from commbench.results.schema import CUT_OFF, OK, WRONG, Run
from commbench.stats import FAIL, LIKELY, NOT_MEASURED, PASS, SLOWER, UNDECIDED, Estimate
from commbench.units import format_count
from commbench.views.formats import Result

NOT_PLANNED = (UNSUPPORTED, SKIPPED)
"""Statuses of rows that a run was not to measure. Other statuses than `ok` are failures."""
NO_VERDICT = "no verdict"
"""The outcome of a rule, or of a check, about which the measurement says too little."""
EXIT_CODES = {PASS: 0, FAIL: GATE_FAILS, NO_VERDICT: NO_VERDICT_REACHED}
"""The exit code of `commbench check` for each outcome of a GateResult."""
ONLY_BASELINE, ONLY_RUN = "only in the baseline", "not in the baseline"
NO_BANDWIDTH, UNCHECKED = "no data, so no bandwidth", "results not checked"
"""Why a row is not judged."""
WIDEST = 2.0
"""An interval whose ends differ by more says too little by itself; with its range, ratio.WIDEST."""
WIDE = f"an interval of more than a factor of {WIDEST:g}: too noisy to pass by itself"
TOO_WIDE = f"an interval of more than a factor of {ratio.WIDEST:g}: too noisy to pass"
WITH_RANGE = "only with the other sizes of their range"
NOT_TOGETHER = "beyond the limit, but not for {} rows together"
"""How a row passes or fails that does not by itself, and why one beyond the limit does not fail."""


@short_repr("case.name", "outcome", "demand")
class RowCheck(NamedTuple):
    """One row under one rule."""

    rule: Rule
    """With the limit of this row, where the rule has one for each; see Rule.of_row."""
    case: Case
    """What the row measured."""
    outcome: str
    """One of OUTCOMES."""
    estimate: Estimate | None = None
    """The quantity that the rule limits; None where not measured."""
    reason: str = ""
    """Why it has no estimate or is open; WITH_RANGE where it passes or fails so."""
    is_unmatched: bool = False
    """Whether only one of the two runs has a time for this row."""
    without_host: str = ""
    """The outcome by its own interval, where what the host did leaves it open."""
    decided_by: Estimate | None = None
    """It with the interval that decides, where that is another one: see `reason`."""
    time: Estimate | None = None
    """Of a row that is not judged, in the run that has it."""

    @property
    def excess(self) -> float:
        """How many times the limit the value is: below 1 within it; infinite without a value."""
        return self.rule.limit.excess(self.rule.value, self.estimate) if self.estimate else inf

    @property
    def is_beyond(self) -> bool:
        """Whether its whole interval is beyond the limit."""
        return self.estimate is not None and self.rule.judge(self.estimate) == FAIL

    @property
    def demand(self) -> str:
        """What the rule demands of it, in a few words."""
        return self.rule.limit.words(self.rule.value)

    @property
    def effect(self) -> str:
        """What the row means for the rule: FAIL, NO_VERDICT, PASS, or empty for nothing."""
        if self.outcome == LIKELY:
            return self.rule.undecided
        if self.outcome == UNDECIDED:
            is_told = self.rule.undecided == FAIL or not self.is_beyond
            return self.rule.undecided * is_told or NO_VERDICT
        if self.outcome == NOT_MEASURED:
            return NO_VERDICT if self.is_unmatched and not self.rule.optional else ""
        return self.outcome


class Checks(Collection[RowCheck]):
    """The rows of a rule. Those that pass may be a million: they are counted, and made anew."""

    def __init__(self, make: Callable[[], Iterable[RowCheck]]) -> None:
        self._make = make
        self.others: list[RowCheck] = []
        """The rows that do not pass."""
        self.passed = self.with_range = self.without_interval = 0
        for check in make():
            found = check.estimate
            self.without_interval += found is not None and not found.has_interval
            if check.outcome == PASS:
                self.passed += 1
                self.with_range += check.reason == WITH_RANGE
            else:
                self.others.append(check)

    def passing(self, reason: str = "") -> Checks:
        """The rows that pass by themselves, or for a reason."""
        return Checks(lambda: (c for c in self if (c.outcome, c.reason) == (PASS, reason)))

    def __len__(self) -> int:
        return self.passed + len(self.others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checks) and [*self] == [*other]

    def __contains__(self, check: object) -> bool:
        return any(check == each for each in self)

    def __iter__(self) -> Iterator[RowCheck]:
        return iter(self._make())


@short_repr("rule.title", "outcome")
class RuleResult(NamedTuple):
    """One rule, and its rows."""

    rule: Rule
    checks: Checks
    remarks: tuple[str, ...] = ()
    """What its hardware says: that the rule is impossible, or from where the limits come."""

    @property
    def outcome(self) -> str:
        """FAIL if a row fails. NO_VERDICT if a row prevents a verdict, or fewer rows pass than are
        likely to. PASS otherwise. NOT_MEASURED if no row was judged and the rule is optional."""
        passed, others = self.checks.passed, self.checks.others
        effects = {check.effect for check in others}
        likely = sum(check.outcome == LIKELY and not check.effect for check in others)
        effects |= {NO_VERDICT} if likely > passed else {PASS} if passed else set()
        found = next((o for o in (FAIL, NO_VERDICT, PASS) if o in effects), "")
        is_open = not self.rule.optional or self.with_outcome(*stats.OPEN)
        return found or (NO_VERDICT if is_open else NOT_MEASURED)

    def with_outcome(self, *outcomes: str) -> list[RowCheck]:
        """The rows with these outcomes, in the order of the outcomes."""
        checks = self.checks if PASS in outcomes else self.checks.others
        found = (check for check in checks if check.outcome in outcomes)
        return sorted(found, key=lambda check: outcomes.index(check.outcome))


@dataclass(frozen=True, repr=False)
class GateResult(Result, view="answers.check.document", rows="rules rows"):
    """All rules, and the outcome of the whole; true only where that is `pass`."""

    run: LoadedRun
    baseline: LoadedRun | None
    comparison: Comparison | None
    """The run (B) against the baseline (A)."""
    results: tuple[RuleResult, ...]
    incomplete: str
    """Why the run is incomplete: then the check fails. Empty where it is not, or not known."""

    @property
    def outcome(self) -> str:
        """`fail` if a rule fails or the run is incomplete; else `no verdict` if a rule has none, or
        none passes; else `pass`."""
        outcomes = {result.outcome for result in self.results}
        if self.incomplete or FAIL in outcomes:
            return FAIL
        return PASS if PASS in outcomes and NO_VERDICT not in outcomes else NO_VERDICT

    def __bool__(self) -> bool:
        return self.outcome == PASS

    @property
    def runs(self) -> list[LoadedRun]:
        """The run, and the baseline where there is one."""
        return [run for run in (self.run, self.baseline) if run]

    def covers(self, case: Any) -> bool:
        """Whether a rule covers a case, or a row."""
        return any(result.rule.covers(case) for result in self.results)

    @property
    def exit_code(self) -> int:
        """The exit code of `commbench check`."""
        return EXIT_CODES[self.outcome]

    @property
    def worst(self) -> RowCheck | None:
        """The row that fails and is furthest beyond its limit."""
        failing = (check for result in self.results for check in result.with_outcome(FAIL))
        return max(failing, key=attrgetter("excess"), default=None)


def check(
    run: Run | LoadedRun,
    rules: Sequence[Rule],
    baseline: Run | LoadedRun | None = None,
    allow_unmatched: bool = False,
    undecided: str = "",
    hardware: Hardware | None = None,
    allow_unchecked: bool = False,
) -> GateResult:
    """Check a run against rules, and against a baseline where a rule needs one.

    `allow_unmatched` holds for all rules, as `optional` does for one; `undecided` and
    `allow_unchecked` are those of Rule. `hardware` is by default what the run names; limits that it
    makes impossible are remarked on. Raises UsageError for a rule that lacks its baseline, or where
    a rule must match a row and none does. See also `require_comparable`.
    """
    run = as_loaded_run(run, CHECKED)
    hardware = hardware or hardware_of(run)
    baseline = as_loaded_run(baseline, CHECKED) if baseline else None
    comparison = compare(baseline, run, tolerance=0.0) if baseline else None
    results = []
    for given in rules:
        rule = given._replace(undecided=undecided, optional=allow_unmatched or given.optional)
        rule = rule._replace(allow_unchecked=allow_unchecked or given.allow_unchecked)
        said = remarks(rule, run, hardware) if rule.remarks is None else rule.remarks
        results.append(Judge(rule, run, comparison).result()._replace(remarks=tuple(said)))
    required = next((result.rule for result in results if not result.rule.optional), None)
    if required and not run.incomplete and not any(result.checks for result in results):
        raise unmatched(required, run)
    return GateResult(run, baseline, comparison, tuple(results), run.incomplete)


class Judge:
    """Judges the rows of a rule, several times; what needs all of them is found once."""

    def __init__(self, rule: Rule, run: LoadedRun, comparison: Comparison | None) -> None:
        self.rule, self.run = rule, run
        self.comparison = comparison if rule.limit.needs_baseline else None
        if rule.limit.needs_baseline and comparison is None:
            flag = f"--{rule.limit.name.replace('_', '-')}"
            raise UsageError(f"{flag} needs a baseline", NEEDED_BASELINE)

    def result(self) -> RuleResult:
        """The rule and its rows, without remarks."""
        return RuleResult(self.rule, Checks(self.checks))

    def checks(self) -> Iterator[RowCheck]:
        """The rows of the rule."""
        rule, comparison = self.rule, self.comparison
        for row, found in self._alone():
            is_open = found.outcome == UNDECIDED or found.is_beyond
            yield self._with_others(found, row) if is_open else found
        if comparison is None:
            return
        for row in filter(rule.covers, comparison.only_a):
            yield _not_measured(rule, row, ONLY_BASELINE, _has_time(row))
        for row in filter(rule.covers, comparison.only_b):
            if row.status not in NOT_PLANNED and (flaw := _flaw(row)):
                yield RowCheck(rule, row.case, FAIL, None, flaw)
            else:
                why = comparison.a.history.absent if comparison.a.history else ONLY_RUN
                yield _not_measured(rule, row, why, _has_time(row))

    def _alone(self) -> Iterator[tuple[Any, RowCheck]]:
        """Each row that the rule may judge (of the run, or a ComparedRow), and its own check."""
        if self.comparison is None:
            for row in filter(self.rule.covers, self.run.rows):
                yield row, _check_row(self.rule, row, row)
            return
        for pair in self.comparison.rows:
            if self.rule.covers(pair.a):
                yield pair, _check_row(self.rule, pair, pair.b, pair.a)

    @cached_property
    def number(self) -> int:
        """How many rows are judged together: those with a figure that can be judged."""
        return sum(check.estimate is not None for _, check in self._alone())

    @cached_property
    def ranges(self) -> Sequence[PooledRatio]:
        """The ranges of sizes."""
        return find_ranges(self.rule, self.comparison)

    def _hold(self, row: Any, found: Estimate, number: int) -> Estimate:
        """The figure of a row with the interval that holds for so many rows together."""
        if self.rule.limit.needs_baseline:
            return ratio.hold_together(row, number) or found
        return stats.hold_together(found, number, launch_degrees(row.launches))

    def _with_others(self, check: RowCheck, row: Any) -> RowCheck:
        """The check of a row that is undecided, or beyond the limit, by itself. With its value
        within the limit, it passes if its interval is so with its range, launches are known, and
        not each row is to pass alone (`--undecided fail`); else it is LIKELY to, if nothing makes
        it doubtful. It fails with its range, or by the interval for all rows together."""
        rule, own = check.rule, next((each for each in self.ranges if each.covers(row)), None)
        may_pass = own and row.a.launches and row.b.launches and rule.undecided != FAIL
        if own and may_pass and check.reason in ("", WIDE) and check.excess <= 1:
            found = own.ratio_of(row)
            if found and rule.judge(found) == PASS:
                return check._replace(outcome=PASS, reason=WITH_RANGE, decided_by=found)
        if check.outcome == UNDECIDED and not check.reason and check.excess <= 1:
            return check._replace(outcome=LIKELY)
        if check.outcome != FAIL or not (found := check.estimate):
            return check
        together, alone = (self._hold(row, found, number) for number in (self.number, 1))
        if rule.judge(together) == FAIL:
            return check
        # All rows of a run are slower where its host is: a history of one time tells nothing of it.
        if own and check.is_beyond and own.verdict == SLOWER and not (row.level and row.why_apart):
            return check._replace(reason=WITH_RANGE, decided_by=own.ratio_of(row))
        if rule.judge(alone) != FAIL:
            return check._replace(outcome=UNDECIDED, reason=row.why_apart, decided_by=alone)
        why, apart = NOT_TOGETHER.format(self.number), rule.limit.needs_baseline and row.why_apart
        if apart and rule.judge(row.host.hold(found, self.number, row.degrees, 1.0)) == FAIL:
            why = apart
        return check._replace(outcome=UNDECIDED, reason=why, decided_by=together)


def find_ranges(rule: Rule, comparison: Comparison | None) -> Sequence[PooledRatio]:
    """The ranges of sizes under a limit which is the same for all rows, each with its verdict."""
    if comparison is None or rule.of_row:
        return ()
    rows = tuple(row for row in comparison.rows if rule.covers(row.a))
    return replace(comparison, rows=rows, tolerance=rule.value - 1).pooled


def _check_row(rule: Rule, limited: Any, row: Any, baseline: Any = None) -> RowCheck:
    """Check a row of the run, which has a baseline or not. `limited` has the quantity that the rule
    limits: the row, or a ComparedRow."""
    is_planned, has_baseline = row.status not in NOT_PLANNED, baseline is not None
    if is_planned and (flaw := _flaw(row)):
        return RowCheck(rule, row.case, FAIL, None, flaw)
    if has_baseline and (flaw := _flaw(baseline)):
        return _not_measured(rule, row, f"{flaw} in the baseline", _has_time(row))
    if has_baseline and not is_planned:
        return RowCheck(rule, row.case, FAIL, None, f"{row.status}, not so in the baseline")
    if not is_planned:
        return _not_measured(rule, row, row.status)
    if rule.of_row is not None and _has_time(row):
        limit = rule.of_row(row)
        if limit.value is None:
            return _not_measured(rule, row, limit.reason)
        rule = rule._replace(value=limit.value)
    if (estimate := rule.limit.estimate(limited)) is None:  # a barrier has no bandwidth
        is_unmatched = has_baseline and (_has_time(baseline) or _has_time(row))
        why = "nothing timed" if row.time_s is None or has_baseline else NO_BANDWIDTH
        return _not_measured(rule, row, why, is_unmatched)
    if has_baseline and ratio.other_work(baseline, row):
        return _not_measured(rule, row, "the baseline computes another amount")
    in_turns = has_baseline and limited.in_turns
    found = _decide(rule, row, estimate, baseline, in_turns)
    if found.outcome == UNDECIDED and rule.limit.needs_baseline:
        alone = _decide(rule, row, limited.host.without(estimate), baseline, in_turns).outcome
        return found._replace(without_host=alone if alone != UNDECIDED else "")
    return found


def _decide(rule: Rule, row: Any, estimate: Estimate, baseline: Any, in_turns: bool) -> RowCheck:
    """The outcome of a row. One that is not checked, or is too unsure, may fail but does not pass.
    One with a baseline does neither where ranks of a side waited for a core; without one, it passes
    within the limit nevertheless, since noise only makes calls slower."""
    outcome = rule.judge(estimate)
    found = RowCheck(rule, row.case, outcome, estimate)
    doubt = ratio.why_undecided(baseline, row, in_turns) if baseline else ""
    if not baseline and outcome == FAIL and has_waited(row.queued_share):
        doubt = WAITED
    if outcome == FAIL and not doubt:
        return found
    if not rule.allow_unchecked and found.case.has_result:
        for one, where in ((row, ""), (baseline or row, " in the baseline")):
            if one.wrong is None:
                return _not_measured(rule, row, UNCHECKED + where)
    if estimate.is_wider(WIDEST) and outcome == UNDECIDED and found.excess <= 1:
        doubt = doubt or (TOO_WIDE if estimate.is_wider(ratio.WIDEST) else WIDE)
    return found._replace(outcome=UNDECIDED, reason=doubt) if doubt else found


def _not_measured(rule: Rule, row: Any, reason: str, is_unmatched: bool = False) -> RowCheck:
    time = row.time if _has_time(row) else None
    return RowCheck(rule, row.case, NOT_MEASURED, None, reason, is_unmatched, time=time)


def _has_time(row: Any) -> bool:
    return row.status == OK and row.time_s is not None


def _flaw(row: Any) -> str:
    """Why the time of a row does not count; empty where it does."""
    if row.status != OK:
        return "wrong results" if row.status == WRONG else str(row.status)
    if row.wrong:
        return f"{format_count(row.wrong, 'wrong element')}, although its status is {OK}"
    return CUT_OFF if row.stop_reason == CUT_OFF else ""

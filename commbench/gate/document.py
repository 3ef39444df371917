"""What a document of a check says: the outcome, each rule with its rows, warnings, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from commbench.analysis.advice import more_precisely
from commbench.analysis.load import LoadedRun
from commbench.compare.both_runs import difference_tables, launches_note, run_warnings
from commbench.compare.comparison import distinct_names
from commbench.gate.gate import NO_VERDICT, UNCHECKED, GateResult, RowCheck, RuleResult
from commbench.gate.rules import steps_note
from commbench.output.paragraphs import list_some
from commbench.stats.verdict import FAIL, NOT_MEASURED, OUTCOMES, PASS, UNDECIDED
from commbench.units import format_count
from commbench.views.cells import BYTES, TEXT, Column, in_brackets
from commbench.views.document import BAD, GOOD, Block, Document, Items, Pictures, Section, Table
from commbench.views.formats import View

MOST_ROWS = 20
"""Rows of one rule that a terminal shows, unless all are asked for."""
_MOST_NAMES = 3
WORDS = {FAIL: "FAIL", NO_VERDICT: "NO VERDICT", PASS: "PASS", NOT_MEASURED: "not measured"}
"""The outcomes of rules, in the order in which they are shown."""
_TONES = {PASS: GOOD, FAIL: BAD, NO_VERDICT: BAD}


def document(gate: GateResult) -> Document:
    """The outcome, the rules with their rows, what limits them, what to do, and what differs."""
    worst_first = sorted(gate.results, key=lambda result: [*WORDS].index(result.outcome))
    blocks: list[Block] = [_rule_section(gate, result) for result in worst_first]
    blocks.append(Items(notes(gate), "Notes"))
    warnings = run_warnings(_runs(gate))
    blocks.append(Items([f"{warning.run}: {warning.what}" for warning in warnings], "Warnings"))
    blocks.append(Items(advice(gate), "What to do"))
    run, *baseline = distinct_names(_runs(gate))
    sides = [f"A = {name}, the baseline; B = {run}" for name in baseline]
    if gate.comparison:
        blocks += difference_tables(gate.comparison)
    blocks.append(Pictures(lambda: _pictures(gate)))
    title = f"Check of {gate_title(gate)}"
    return Document(title, sides, [verdict(gate)], blocks, tone=_TONES[gate.outcome])


def _pictures(gate: GateResult) -> Sequence[Any]:
    from commbench.compare.plot import comparison_pictures
    from commbench.report.plots import run_pictures

    if gate.comparison:
        limits = {r.rule.value for r in gate.results if r.rule.limit.needs_baseline}
        return comparison_pictures([gate.comparison], max(limits, default=1.0))
    return run_pictures([gate.run.run]) if gate.run.run else []


def _runs(gate: GateResult) -> list[LoadedRun]:
    return [run for run in (gate.run, gate.baseline) if run]


def gate_title(gate: GateResult) -> str:
    """Which run is checked, against which baseline."""
    return " against ".join(distinct_names(_runs(gate)))


def verdict(gate: GateResult) -> str:
    """The outcome in one sentence, with the row that is furthest beyond its limit."""
    reasons = "; ".join(dict.fromkeys(_reasons(gate)))
    return f"{WORDS[gate.outcome]}: {reasons}."


def _reasons(gate: GateResult) -> Iterator[str]:
    if gate.incomplete:
        yield f"the run is incomplete, {gate.incomplete}"
        return
    if gate.outcome == NO_VERDICT:
        found = [result for result in gate.results if result.outcome == NO_VERDICT]
        for result in found:
            for (outcome, reason), names in _by_reason(result.preventing or result.checks.others):
                yield f"{format_count(len(names), 'row')} {outcome}: {reason}"
            if not result.checks:
                yield f"no row matches the rule {result.rule.title!r}"
        if not found:
            yield "no rule has a row to judge"
        return
    failing = {check.case.name for check in gate.with_outcome(FAIL)}
    undecided = {check.case.name for check in gate.with_outcome(UNDECIDED)} - failing
    is_pass = gate.outcome == PASS
    number = gate.judged - len(undecided) if is_pass else len(failing)
    if number:
        of_all = f"{number} of {format_count(gate.judged, 'row')}"
        yield f"{of_all} {'within the limits' if is_pass else 'failed'}"
    if worst := gate.worst:
        yield f"worst: {worst.case.name} {_what(worst)} (rule: {demand(worst)})"
    if undecided:
        counted = gate.results[0].rule.undecided
        as_what = f" counted as {counted}ed (--undecided {counted})" if counted else ""
        yield f"{format_count(len(undecided), 'undecided row')}{as_what}"
    if unmatched := {check.case.name for check in gate.unmatched}:
        is_ignored = all(check.rule.optional for check in gate.unmatched)
        ignored = ", ignored (--allow-unmatched)" if is_ignored else ""
        yield f"{format_count(len(unmatched), 'row')} in one of the two runs only{ignored}"


def _by_reason(checks: Iterable[RowCheck]) -> Iterable[tuple[tuple[str, str], list[str]]]:
    """Each outcome with its reason, and the names of its rows."""
    found: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        inside = "the limit is inside the interval" if check.outcome == UNDECIDED else ""
        found.setdefault((check.outcome, check.reason or inside), []).append(check.case.name)
    return found.items()


# A rule and its rows.


def _rule_section(gate: GateResult, result: RuleResult) -> Section:
    limit = result.rule.limit
    columns = [
        Column("size", lambda c: c.case.size_bytes if c.case.dtype else None, BYTES),
        Column(limit.heading, attrgetter("estimate"), limit.unit),
        Column("95 %\ninterval", attrgetter("estimate"), limit.interval),
        Column("limit", lambda c: c.rule.value if c.estimate else None, limit.unit, 7),
        Column("outcome", outcome_text, TEXT),
        Column("why", attrgetter("reason"), TEXT, 8, is_wrapped=True, is_detail=True),
    ]
    table = Table(
        "",
        [column for column in columns if column.heading != "limit" or result.rule.of_row],
        result.checks,
        lambda check: (
            check.case.title_without("operation") if check.case.step else check.case.title
        ),
        tone=lambda check: BAD if check.effect in (FAIL, NO_VERDICT) else "",
        brief=result.with_outcome(FAIL, UNDECIDED)[:MOST_ROWS],
    )
    title = f"{WORDS[result.outcome]}  {result.rule.title}: {rule_counts(result)}"
    return Section(title, [table, Items(rule_notes(gate, result))])


def outcome_text(check: RowCheck) -> str:
    """The outcome of a row; of an undecided one also on which side of the limit its value is."""
    side = f"value {'beyond' if check.excess > 1 else 'within'}"
    return (
        f"{UNDECIDED} ({'doubtful' if check.reason else side})"
        if check.outcome == UNDECIDED
        else check.outcome
    )


def demand(check: RowCheck) -> str:
    """What the rule demands of a row, in a few words."""
    return check.rule.limit.words(check.rule.value)


def _what(check: RowCheck) -> str:
    """What a row does, with its value: `takes 600 us`."""
    limit = check.rule.limit
    if not check.estimate:
        return f"has no valid time ({check.reason})"
    return limit.sentence.format(limit.unit.write(check.estimate))


def finding(check: RowCheck) -> str:
    """What a row does, with its value and interval: `takes 600 us (590 … 610 us)`. The reason where
    there is no value."""
    if not check.estimate:
        return check.reason
    interval = check.rule.limit.interval.write(check.estimate)
    return f"{_what(check)}{in_brackets(interval)}{check.reason and f'; {check.reason}'}"


def rule_counts(result: RuleResult) -> str:
    """How many rows of a rule have each outcome: `1 fail, 2 pass`."""
    counts = Counter(map(outcome_text, result.with_outcome(*OUTCOMES[:-1])))
    counts[PASS] = result.checks.passed
    return ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "no row"


def rule_notes(gate: GateResult, result: RuleResult) -> list[str]:
    """Sentences about a rule: why rows have no value, what decided without an interval, and the row
    that is closest to the limit where all pass."""
    if not result.checks:
        steps = steps_note(result.rule, gate.run.rows)
        return [f"No row of {gate.run.name} matches this rule.{steps}", *result.remarks]
    found = [*result.remarks]
    reasoned = [check for check in result.checks.others if check.reason]
    for (outcome, reason), names in _by_reason(reasoned):
        listed = list_some(names, _MOST_NAMES)
        rows = format_count(len(names), "row")
        found.append(f"{outcome.capitalize()} ({reason}), {rows}: {listed}.")
    if bare := result.checks.without_interval:
        alone = f"{format_count(bare, 'row')} decided by the median or mean alone"
        found.append(f"{alone}: an interval takes the samples of 6 iterations.")
    if not result.checks.others:
        closest = max(result.checks, key=attrgetter("excess"))
        found.append(f"Closest to the limit: {closest.case.name} {finding(closest)}.")
    return found


# What limits the check, and what to do.


def notes(gate: GateResult) -> list[str]:
    """That the baseline is incomplete, and that there are single launches."""
    found = launches_note(gate.comparison) if gate.comparison else []
    if gate.baseline and gate.baseline.incomplete:
        found.append(f"the baseline {gate.baseline.name} is incomplete, {gate.baseline.incomplete}")
    return [f"{text[0].upper()}{text[1:]}." for text in found]


def advice(gate: GateResult) -> list[str]:
    """What to do about a check without a verdict."""
    found = [result for result in gate.results if result.outcome == NO_VERDICT]
    checks = [check for result in found for check in result.checks.others]
    effective = {(c.outcome, bool(c.reason)) for c in checks if c.effect == NO_VERDICT}
    header = gate.run.header
    header = None if header and "imported_from" in header.environment else header
    rules = {
        f"Undecided: the limit is inside the interval. Measure again with "
        f"`{more_precisely(header)}`, or choose what undecided rows count as: "
        "--undecided pass or --undecided fail.": any(
            check.outcome == UNDECIDED and not check.reason for check in checks
        ),
        "Doubtful: noise hides what is slower. Measure both runs on a quiet host.": (
            (UNDECIDED, True) in effective
        ),
        "Check the results, or judge the times alone: --allow-unchecked.": any(
            check.reason.startswith(UNCHECKED) for check in checks
        ),
        "Measure the same rows in both runs, limit the rule to common rows, or ignore the "
        "others: --allow-unmatched.": (NOT_MEASURED, True) in effective,
        "Correct the rule that matches no row, or allow it: --allow-unmatched.": any(
            not result.checks for result in found
        ),
    }
    return [text for text, applies in rules.items() if applies]


def as_json(gate: GateResult) -> dict[str, Any]:
    """The outcome, and each rule with its rows."""
    return {
        "run": gate.run.name,
        "baseline": gate.baseline and gate.baseline.name,
        "outcome": gate.outcome,
        "exit_code": gate.exit_code,
        "verdict": verdict(gate),
        "incomplete": gate.incomplete or None,
        "notes": notes(gate),
        "warnings": run_warnings(_runs(gate)),
        "advice": advice(gate),
        "rules": [
            {
                "rule": result.rule.title,
                "limit": result.rule.limit.name,
                "outcome": result.outcome,
                "notes": rule_notes(gate, result),
                "rows": map(_row_json, result.checks),
            }
            for result in gate.results
        ],
    }


def _row_json(check: RowCheck) -> dict[str, Any]:
    return {
        "row": check.case.name,
        "operation": check.case.operation,
        "size_bytes": check.case.size_bytes,
        "outcome": check.outcome,
        "value": check.estimate,
        "limit": check.rule.value if check.estimate else None,
        "reason": check.reason or None,
    }


VIEW = View(document, schema=2, data=as_json)

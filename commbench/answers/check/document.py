"""What a document of a check says: the outcome, each rule with its rows, what limits it and what to
do; and the same as JSON, as JUnit XML and as GitHub's annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any

from commbench.analysis.csv_file import make_csv
from commbench.analysis.diagnostics import WAITED, WAITED_SENTENCE, waited_sentences
from commbench.analysis.load import distinct_names
from commbench.answers.check.advice import advice
from commbench.answers.check.gate import NO_VERDICT, WITH_RANGE, GateResult, RowCheck, RuleResult
from commbench.answers.check.rules import unmatched
from commbench.answers.compare import document as comparing
from commbench.answers.compare.causes import known_causes, launch_notes
from commbench.answers.compare.ratio import HOST
from commbench.answers.history.baseline import earlier_runs
from commbench.answers.show.run_notes import run_warnings, warnings_section
from commbench.output import ci
from commbench.stats import FAIL, LIKELY, NOT_MEASURED, OPEN, OUTCOMES, PASS, UNDECIDED
from commbench.units import format_count
from commbench.views import cells, formats
from commbench.views.document import BAD, GOOD, UNSURE, Document, Items, Pictures, Section, Table

MOST_ROWS = 8
"""Rows of one rule that a terminal shows, unless all are asked for."""
MOST_SPREAD = 0.6
"""A check that passes says how much launches differ, above this part of the smallest limit."""
MOST_RULES = 3
"""Rules that the first sentence names."""
MOST_IN_ANNOTATION = 5
"""GitHub shows ten annotations of a step: one per rule is enough."""
WORDS = {FAIL: "FAIL", NO_VERDICT: "NO VERDICT", PASS: "PASS", NOT_MEASURED: "cannot be judged"}
"""The outcomes of rules, in the order in which they are shown."""
_SAID = {FAIL: "failed", LIKELY: "likely passed", PASS: "passed", NOT_MEASURED: "cannot be judged"}
"""How a sentence says the outcome of a row, where it has another word for it."""
_TOGETHER = f"for all rows together {WITH_RANGE}"
"""How a row fails that is beyond the limit by itself and with its range."""
_TONES = {PASS: GOOD, FAIL: BAD, NO_VERDICT: UNSURE}
_ROW_TONES = {FAIL: BAD, NO_VERDICT: UNSURE}


def document(gate: GateResult) -> Document:
    """The outcome, the rules with their rows, what limits them, what to do, and what differs."""
    worst_first = sorted(gate.results, key=lambda result: [*WORDS].index(result.outcome))
    name = earlier_runs(gate.baseline) or "the baseline"
    sides = [(f"A, {name}", gate.baseline)] if gate.baseline else []
    said, told, notes = verdict(gate), _reasons(gate), _notes(gate)
    is_said = WAITED in said  # and what to do is below
    answer = [said, *(each for each in told if not (is_said and WAITED_SENTENCE in each))]
    if gate.outcome in (PASS, NO_VERDICT) and _differs_beyond_limit(gate):
        answer, notes = [*answer, *notes[:1]], notes[1:]
    warnings = run_warnings(gate.runs, gate.covers)
    blocks = [
        Items(advice(gate), "What to do"),
        Pictures(lambda: _pictures(gate)),
        *([Table("Runs", comparing.SIDE_COLUMNS, [*sides, ("B", gate.run)])] if sides else []),
        *(block for result in worst_first for block in _rule_blocks(gate, result, told)),
        warnings_section(warnings, most=0),
        Items(notes, "Notes"),
        *(comparing.difference_tables(gate.comparison) if gate.comparison else []),
    ]
    title = f"Check of {gate_title(gate)}"
    return Document(title, (), answer, blocks, tone=_TONES[gate.outcome])


def _reasons(gate: GateResult) -> list[str]:
    """What a history lacks, and whether its level rose; what may be the cause of the outcome."""
    of_history = bool(gate.baseline and gate.baseline.history)
    told = dict.fromkeys(text for result in gate.results for text in result.remarks * of_history)
    if gate.comparison:
        is_slower = bool(gate.worst and gate.worst.estimate)
        return [*told, *known_causes(gate.comparison, is_slower or gate.outcome == PASS)]
    queued = [row.queued_share for row in gate.run.rows if gate.covers(row)]
    checks = (check for result in gate.results for check in result.checks)
    is_judged = any(check.outcome != NOT_MEASURED for check in checks)
    return [*told, *waited_sentences(queued * is_judged, [gate.run.header])]


def _notes(gate: GateResult) -> list[str]:
    return launch_notes(gate.comparison) if gate.comparison else []


def _differs_beyond_limit(gate: GateResult) -> bool:
    """Whether launches, or their ratios, differ by more than a part of the smallest limit."""
    limits = [r.rule.value for r in gate.results if r.rule.limit.needs_baseline]
    runs = gate.comparison and next((row.runs for row in gate.comparison.rows), None)
    return max((each.spread for each in runs or ()), default=0.0) > MOST_SPREAD * (
        min(limits, default=inf) - 1
    )


def _pictures(gate: GateResult) -> Sequence[Any]:
    from commbench.answers.compare.plot import comparison_pictures
    from commbench.answers.show.plots import run_pictures

    if gate.comparison:
        limits = {r.rule.value for r in gate.results if r.rule.limit.needs_baseline}
        return comparison_pictures([gate.comparison], max(limits, default=1.0))
    return run_pictures([gate.run.run]) if gate.run.run else []


def gate_title(gate: GateResult) -> str:
    """Which run is checked, against which baseline."""
    return " against ".join(distinct_names(gate.runs))


def verdict(gate: GateResult) -> str:
    """The outcome in one sentence, with the row that is furthest beyond its limit."""
    reasons = [f"the run is incomplete, {gate.incomplete}"] if gate.incomplete else []
    judged = [result for result in gate.results if result.checks]
    word = " against ".join(filter(None, (WORDS[gate.outcome], earlier_runs(gate.baseline))))
    reasons += [
        f"under {r.rule.title!r} " * (len(judged) > 1) + counts([r]) for r in judged[:MOST_RULES]
    ]
    if more := judged[MOST_RULES:]:
        reasons.append(f"{format_count(len(more), 'more rule')}: {counts(more)}")
    unsure = [r for r in judged if r.outcome == NO_VERDICT and r.with_outcome(*OPEN)]
    if not all(any(check.effect == NO_VERDICT for check in r.checks.others) for r in unsure):
        reasons.append("fewer rows passed than likely passed")
    if (worst := gate.worst) and worst.estimate:
        told = f"{worst.case.name} {finding(worst)}; allowed: {worst.demand}"
        reasons.append(f"worst failed row: {told}")
    reasons += [
        "{} ({})".format(*unmatched(result.rule, gate.run).texts)
        for result in gate.results
        if result.outcome == NO_VERDICT and not result.checks
    ]
    if gate.baseline and gate.baseline.incomplete:
        reasons.append(f"the baseline is incomplete, {gate.baseline.incomplete}")
    return f"{word}: {'; '.join(reasons) or 'no rule has a row to judge'}."


# A rule and its rows.


def _rule_blocks(gate: GateResult, result: RuleResult, told: Collection[str]) -> list[Any]:
    """A table for each outcome and its reason; the notes that are not told above. What a terminal
    shows no row of has no heading of its own."""
    ordered = sorted(result.checks.others, key=lambda c: (OUTCOMES.index(c.outcome), why(c)))
    passing = map(result.checks.passing, ("", WITH_RANGE)[: 1 + bool(result.checks.with_range)])
    groups = [*([*same] for _, same in groupby(ordered, _outcome)), *passing]
    history = gate.baseline and gate.baseline.history
    levels = history.levels if history else {}
    tables = [_table(checks, result.outcome, levels) for checks in groups if checks]
    word = f"{WORDS[result.outcome]}  " * (len(gate.results) > 1)
    notes = [note for note in rule_notes(result) if note not in told]
    title = f"{word}{result.rule.title}"
    if len(tables) == 1 and not tables[0].brief:
        return [tables[0]._replace(title=f"{title}, {tables[0].title}"), Items(notes)]
    return [Section(title, [*tables, Items(notes)])]


def _table(checks: Collection[RowCheck], whole: str, levels: Mapping[str, Any]) -> Table:
    """Rows with one outcome, of a rule with the outcome `whole`. A terminal shows those that fail
    or are undecided, a few that pass where all do, and those that likely pass where that is why the
    rule does not."""
    first = next(iter(checks))
    limit, of = first.rule.limit, lambda check: check if check.estimate else None
    value, interval = map(_of_check, (limit.unit, limit.interval))
    columns = [
        cells.SIZE,
        cells.Column(limit.heading, of, value),
        cells.Column("95 %\ninterval", of, interval),
        cells.Column("interval with\nits range", attrgetter("with_range"), limit.interval),
        *([cells.Column("limit", _limit, limit.unit, 7)] if first.rule.of_row else []),
        cells.Column("earlier\nruns", lambda c: _earlier(levels.get(c.case.key())), cells.TEXT, 6),
    ]
    is_shown = first.outcome in (FAIL, UNDECIDED) or (whole == PASS and len(checks) <= MOST_ROWS)
    is_shown |= first.outcome == LIKELY and (whole == NO_VERDICT or first.effect == FAIL)
    return Table(
        f"{len(checks)} {_outcome(first)}",
        columns,
        checks,
        lambda c: c.case.title_without(*["operation"] * bool(c.case.step)),
        tone=lambda check: _ROW_TONES.get(check.effect, ""),
        brief=_furthest(checks) if is_shown else [],
    )


def _earlier(level: Any) -> str:
    """How many runs of a history the level of a row has, where others do not count."""
    return f"{level.runs} of {level.earlier}" if level and level.runs < level.earlier else ""


def _of_check(unit: cells.Unit) -> cells.Unit:
    """How the value of a RowCheck is written, or its interval: what fails, for being beyond the
    limit, does not read as the limit."""

    def write(check: RowCheck) -> str:
        return unit.write(check.estimate, check.rule.value if check.outcome == FAIL else None)

    return unit._replace(write=write)


def _furthest(checks: Collection[RowCheck]) -> list[RowCheck]:
    """Those that are furthest beyond the limit, in their order."""
    every = [*checks]
    most = sorted(every, key=attrgetter("excess"), reverse=True)[:MOST_ROWS]
    return [check for check in every if any(check is each for each in most)]


def _limit(check: RowCheck) -> float | None:
    return check.rule.value if check.estimate else None


def why(check: RowCheck) -> str:
    """Why a row has its outcome; of one whose interval contains the limit, on which side of it its
    value is."""
    if check.outcome not in OPEN:
        return _TOGETHER if (check.outcome, check.reason) == (FAIL, WITH_RANGE) else check.reason
    side = f"value {'beyond' if check.excess > 1 else 'within'} the limit, interval not"
    effects = {PASS: "counted as pass", FAIL: "counted as fail"}
    return "; ".join(filter(None, (_reason(check) or side, effects.get(check.effect))))


def _reason(check: RowCheck) -> str:
    if not check.without_host:
        return check.reason
    return HOST.format(f"{'within' if check.without_host == PASS else 'beyond'} the limit")


def _outcome(check: RowCheck) -> str:
    """The outcome of a row, and why."""
    word, reason = _SAID.get(check.outcome, check.outcome), why(check)
    return word + cells.in_brackets(reason * (reason != word))


def counts(results: Sequence[RuleResult]) -> str:
    """How many rows of these rules have each outcome, and why: `1 of 3 rows failed, 2 passed`."""
    passed, together = (
        sum(getattr(result.checks, name) for result in results) for name in ("passed", "with_range")
    )
    words = f"passed{cells.in_brackets(f'{together} {WITH_RANGE}' * bool(together))}"
    failed = Counter(check.reason for result in results for check in result.with_outcome(FAIL))
    both = {"", WITH_RANGE} if failed[""] and failed[WITH_RANGE] else set()
    decided, others = (
        Counter(
            f"{_SAID[FAIL]} ({failed[WITH_RANGE]} {_TOGETHER})"
            if check.outcome == FAIL and check.reason in both else _outcome(check)
            for result in results for check in result.with_outcome(*outcomes)
        )
        for outcomes in ((FAIL, UNDECIDED), (LIKELY, NOT_MEASURED))
    )  # fmt: skip
    found = decided + Counter({words: passed}) + others
    rows = format_count(sum(found.values()), "row")
    named = ", ".join(f"{number} {what}" for what, number in found.items())
    return named.replace(" ", f" of {rows} ", 1) or "no row"


def finding(check: RowCheck) -> str:
    """What a row does, with its value and interval: `takes 600 (590 … 610) us`. The reason where
    there is no value."""
    if not check.estimate:
        return "has no valid time"
    limit = check.rule.limit
    value, interval = (_of_check(unit).write(check) for unit in (limit.unit, limit.interval))
    if value == cells.TOO_NOISY:
        return f"is {cells.TOO_NOISY_TO_COMPARE}"
    found = limit.sentence.format(cells.with_interval(value, interval))
    of_range = check.with_range and cells.in_brackets(limit.interval.write(check.with_range))
    return f"{found}, with its range{of_range}" if of_range else found


def rule_notes(result: RuleResult) -> list[str]:
    """Sentences about a rule: what its hardware says, what decided without an interval, and the row
    that is closest to the limit where it passes."""
    found = [*result.remarks, *["No row matches it."] * (not result.checks)]
    if bare := result.checks.without_interval:
        rows = format_count(bare, "row")
        found.append(f"No interval ({rows}): the value alone decides; intervals need 6 iterations.")
    if result.outcome == PASS:
        timed = (check for check in result.checks if check.estimate)
        closest = max(timed, key=attrgetter("excess"))
        found.append(f"Closest to the limit: {closest.case.name} {finding(closest)}.")
    return found


# Other formats.


def as_json(gate: GateResult) -> dict[str, Any]:
    """The outcome, and each rule with its rows."""
    return {
        "run": gate.run.name,
        "baseline": gate.baseline and gate.baseline.name,
        "outcome": gate.outcome,
        "exit_code": gate.exit_code,
        "verdict": verdict(gate),
        "incomplete": gate.incomplete or None,
        "baseline_incomplete": (gate.baseline and gate.baseline.incomplete) or None,
        "reasons": _reasons(gate),
        "notes": _notes(gate),
        "differences": gate.comparison.differences if gate.comparison else [],
        "warnings": [
            {"run": run, "name": w.name, "rows": w.which, "message": w.message,
             "explanation": w.explanation} for run, w in run_warnings(gate.runs)
        ],
        "advice": advice(gate),
        "rules": [
            {
                "rule": result.rule.title,
                "limit": result.rule.limit.name,
                "outcome": result.outcome,
                "notes": rule_notes(result),
                "rows": map(_row_json, result.checks),
            }
            for result in gate.results
        ],
    }  # fmt: skip


def _row_json(check: RowCheck) -> dict[str, Any]:
    of_range = {"with_range": check.with_range} if check.with_range else {}
    return {
        "row": check.case.name,
        "operation": check.case.operation,
        "size_bytes": check.case.size_bytes,
        "outcome": check.outcome.replace(" ", "_"),
        "value": check.estimate,
        "limit": _limit(check),
        "reason": _reason(check) or None,
    } | of_range


def gate_junit(gate: GateResult) -> bytes:
    """The check as JUnit XML: a suite per rule, a test case per row, and one for the verdict. It
    has a failure or an error if and only if the check does not pass."""
    outcomes = {FAIL: ci.FAILURE, NO_VERDICT: ci.UNJUDGED, PASS: ci.PASSED}
    measured = gate.run.run.measurements if gate.run.run else ()
    seconds = {measurement.case.key(): measurement.elapsed_s for measurement in measured}

    def make_case(result: RuleResult, check: RowCheck) -> ci.JUnitCase:
        # The message of a failure has the outcome and its reason, its body the rest.
        outcome, took_s = outcomes.get(check.effect, ci.SKIPPED), seconds.get(check.case.key(), 0.0)
        kind = check.effect if check.effect == NO_VERDICT else check.outcome
        is_short = outcome in (ci.FAILURE, ci.UNJUDGED)
        line = f"{check.case.name} {finding(check)}" if is_short else _line(check)
        message = _outcome(check) if is_short else line
        body = "\n".join([f"{line}; limit: {check.demand}.", *result.remarks])
        return ci.JUnitCase(check.case.name, outcome, message, kind, took_s, body)

    suites = [
        ci.JUnitSuite(result.rule.title, [make_case(result, check) for check in result.checks])
        for result in gate.results
    ]
    body = "\n".join([verdict(gate), *_reasons(gate), *advice(gate)])
    word, outcome = WORDS[gate.outcome], outcomes[gate.outcome]
    whole = ci.JUnitCase("verdict", outcome, word, gate.outcome, body=body)
    title = f"commbench check: {gate_title(gate)}"
    return ci.junit_xml([*suites, ci.JUnitSuite("commbench check", [whole])], title)


def _line(check: RowCheck) -> str:
    return f"{_outcome(check)}: {check.case.name} {finding(check)}"


def make_annotations(gate: GateResult) -> list[str]:
    """A command for each rule that fails, has no verdict or has rows that may fail, and one for an
    incomplete run; one for the whole where there is none of these."""
    levels = {FAIL: ci.ERROR, NO_VERDICT: ci.ERROR, PASS: ci.NOTICE}
    found = [(ci.ERROR, verdict(gate))] if gate.incomplete else []
    for result in gate.results:
        level = levels.get(result.outcome, ci.NOTICE)
        checks = result.with_outcome(FAIL, *OPEN)
        if level == ci.ERROR or result.with_outcome(*OPEN):
            head = f"{WORDS[result.outcome]}: {result.rule.title} ({counts([result])})"
            lines = [head, *map(_line, checks[:MOST_IN_ANNOTATION]), *rule_notes(result)]
            text = "\n".join(lines)
            found.append((ci.ERROR if level == ci.ERROR else ci.WARNING, text))
    title = f"commbench check: {gate_title(gate)}"
    whole = [(levels[gate.outcome], verdict(gate))]
    return [ci.annotation(level, title, text) for level, text in found or whole]


def _csv(gate: GateResult) -> str:
    """Its rows, with the columns of GateResult.frame."""
    names = ("limit", "outcome", "row", "operation", "size_bytes", "reason")
    values = ["value"] + ["with_range"] * any(r.checks.with_range for r in gate.results)
    parts = [(name, part) for name in values for part in ("value", "low", "high")]
    lines: list[Sequence[Any]] = [("rule", *names, *map(".".join, parts))]
    for result in gate.results:
        for found in map(formats.as_json, map(_row_json, result.checks)):
            own = [(found.get(name) or {}).get(part) for name, part in parts]
            lines.append((result.rule.title, *map(found.get, names), *own))
    return make_csv(lines)


VIEW = formats.View(
    document, schema=3, data=as_json, more={"csv": _csv},
    junit=gate_junit, annotations=make_annotations,
)  # fmt: skip

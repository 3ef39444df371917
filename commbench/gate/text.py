"""The result of a gate as text and as Markdown: each rule, and the rows that fail or may fail."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.compare.summary import launches_note
from commbench.compare.text import clip, facts_text
from commbench.gate.gate import MISSING, GateResult, RowCheck, RuleResult
from commbench.gate.limits import FAIL, PASS, SKIPPED, UNDECIDED
from commbench.output.markdown import details, escape
from commbench.output.markdown import table as markdown_table
from commbench.output.paragraphs import WIDTH, fill
from commbench.output.table import BOLD, RED, clean, style, table
from commbench.units import format_bytes

HEADINGS = ("row", "size", "measured", "95 % interval", "outcome")
MOST_ROWS = 50
"""Rows of one rule that are printed; --junit writes all."""
MARKS = {FAIL: "🔴 fail", UNDECIDED: "🟡 undecided", PASS: "🟢 pass", SKIPPED: "skipped"}


def gate_text(gate: GateResult) -> str:
    """The gate for a terminal, at most 100 columns wide."""
    parts = [style(clean(gate_title(gate))[:WIDTH], BOLD)]
    if gate.incomplete:
        parts.append(style(_wrapped(f"FAIL  the run is not whole: {gate.incomplete}"), RED))
    parts += [_rule_text(result) for result in gate.results]
    if gate.comparison and gate.comparison.mismatches:
        title = "Not the same, checked all the same (--force):"
        parts.append(facts_text(title, gate.comparison.mismatches))
    if gate.comparison and gate.comparison.differences:
        title = "What differs between baseline (A) and run (B):"
        parts.append(facts_text(title, gate.comparison.differences))
    if gate.comparison:
        notes = launches_note(gate.comparison)
        parts += [_wrapped(f"Baseline (A) and run (B): {note}.") for note in notes]
    return "\n\n".join([*parts, gate_summary(gate)])


def gate_title(gate: GateResult) -> str:
    """Which run is checked, against which baseline."""
    against = f" against {gate.baseline.name}" if gate.baseline else ""
    return f"check of {gate.run.name}{against}"


def gate_summary(gate: GateResult) -> str:
    """How many rules fail, are undecided, or pass."""
    outcomes = [result.outcome for result in gate.results]
    words = {FAIL: "failed", UNDECIDED: "undecided", PASS: "passed", SKIPPED: "without rows"}
    parts = [f"{outcomes.count(o)} {word}" for o, word in words.items() if o in outcomes]
    whole = " The run is not whole." if gate.incomplete else ""
    return f"Rules: {', '.join(parts)}.{whole}"


def rule_line(result: RuleResult) -> str:
    """A rule, and how many of its rows have each outcome."""
    counts = [
        f"{len(result.with_outcome(outcome))} {word}"
        for outcome, word in (
            (FAIL, "failed"), (UNDECIDED, "undecided"), (PASS, "passed"), (SKIPPED, "skipped")
        )
        if result.with_outcome(outcome)
    ]  # fmt: skip
    return f"{result.rule.title} ({', '.join(counts) or 'no rows'})"


def row_cells(result: RuleResult, check: RowCheck) -> tuple[str, ...]:
    """A row as cells under HEADINGS."""
    case, show, found = check.case, result.rule.limit.show, check.estimate
    name = case.title, format_bytes(case.size_bytes) if case.dtype else ""
    if found is None:
        return *name, check.reason, "", check.outcome
    interval = ""
    if found.low is not None and found.high is not None:
        low, high = (show(end, found.value) for end in (found.low, found.high))
        interval = f"{low.split(' ')[0]} … {high}"
    why = f", {check.reason}" if check.reason else ""
    return *name, show(found.value, found.value), interval, check.outcome + why


def rows_to_show(result: RuleResult) -> list[RowCheck]:
    """The rows that fail, then the undecided ones, without those that `missing_note` counts."""
    found = [*result.with_outcome(FAIL), *result.with_outcome(UNDECIDED)]
    return [f for f in found if f.reason != MISSING] if missing_note(result) else found


def missing_note(result: RuleResult) -> str:
    """How many rows of the baseline the run lacks. Empty for at most one, which is shown as a
    row."""
    number = sum(check.reason == MISSING for check in result.with_outcome(UNDECIDED))
    return f"{number} rows of the baseline are {MISSING}" if number > 1 else ""


def _rule_text(result: RuleResult) -> str:
    word = {FAIL: "FAIL", UNDECIDED: "undecided"}.get(result.outcome, result.outcome)
    first = _wrapped(f"{word}  {rule_line(result)}")
    lines = [style(first, RED) if result.outcome == FAIL else first]
    shown = rows_to_show(result)[:MOST_ROWS]
    if shown:
        lines += _table([row_cells(result, check) for check in shown])
    more = len(rows_to_show(result)) - len(shown)
    lines += [f"  and {more} more rows"] if more else []
    missing = missing_note(result)
    return "\n".join([*lines, *([f"  {missing}"] if missing else [])])


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table of rows, their names cut so that it fits."""
    lines = table(HEADINGS, rows, left="row,outcome")
    too_long = max(map(len, lines)) - WIDTH
    if too_long > 0:
        longest = max(len(row[0]) for row in rows) - too_long
        lines = table(HEADINGS, [(clip(r[0], longest), *r[1:]) for r in rows], left="row,outcome")
    return lines


def _wrapped(text: str) -> str:
    return fill(text, rest="    ")


def gate_markdown(gate: GateResult) -> str:
    """The gate for a step's summary: outcome first, a table of rules, rows folded away."""
    mark = MARKS[gate.outcome]
    lines = [f"### {mark}: {escape(gate_title(gate))}", "", escape(gate_summary(gate)), ""]
    if gate.incomplete:
        lines += [f"The run is not whole: {escape(gate.incomplete)}", ""]
    rules = [(MARKS[v.outcome], rule_line(v)) for v in gate.results]
    lines += [*markdown_table(("outcome", "rule"), rows=rules, left="outcome,rule"), ""]
    for result in gate.results:
        if missing := missing_note(result):
            lines += [escape(f"{result.rule.title}: {missing}."), ""]
    rows = [
        (result.rule.title, *row_cells(result, check))
        for result in gate.results
        for check in rows_to_show(result)[:MOST_ROWS]
    ]
    if rows:
        marked = markdown_table(("rule", *HEADINGS), rows, left="rule,row,outcome")
        lines += details(f"{len(rows)} rows that failed or are undecided", marked)
    return "\n".join(lines) + "\n"

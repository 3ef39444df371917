"""The result of a gate as text, Markdown and JUnit XML, and for GitHub Actions.

A line that begins with `::`, also after blanks, is a command to GitHub's runner; so is `##[` within
a line. Text from files is therefore escaped in the commands; table.safe treats all other output.
Source: actions/toolkit, packages/core/src/command.ts; actions/runner, ActionCommand.cs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from commbench.compare.summary import launches_note
from commbench.compare.text import clip, facts_text
from commbench.errors import RecordsError
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
_MOST_IN_ANNOTATION = 5
"""GitHub shows ten annotations of a step: one per rule is enough."""
MARKS = {FAIL: "🔴 fail", UNDECIDED: "🟡 undecided", PASS: "🟢 pass", SKIPPED: "skipped"}


def gate_text(gate: GateResult) -> str:
    """The gate for a terminal, at most 100 columns wide."""
    parts = [style(clean(gate_title(gate))[:WIDTH], BOLD)]
    if gate.incomplete:
        parts.append(style(_wrapped(f"FAIL  the run is not whole: {gate.incomplete}"), RED))
    parts += [_rule_text(result) for result in gate.results]
    if found := gate.comparison:
        for title, facts in (
            ("Not the same, checked all the same (--force):", found.mismatches),
            ("What differs between baseline (A) and run (B):", found.differences),
        ):
            parts += [facts_text(title, facts)] if facts else []
        parts += [_wrapped(f"Baseline (A) and run (B): {note}.") for note in launches_note(found)]
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
    """How many rows of the baseline the run lacks; empty for one, which is shown as a row."""
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


def gate_junit(gate: GateResult, undecided_fails: bool) -> bytes:
    """The document. An undecided row is a failure if `undecided_fails`, otherwise skipped."""
    from commbench.output import junit  # imports xml, which most checks do not need

    failing = (FAIL, UNDECIDED) if undecided_fails else (FAIL,)
    suites = [
        junit.JUnitSuite(
            result.rule.title,
            [
                junit.JUnitCase(
                    check.case.name,
                    junit.FAILURE if check.outcome in failing
                    else junit.PASSED if check.outcome == PASS
                    else junit.SKIPPED,
                    _junit_message(result, check),
                    check.outcome,
                )
                for check in result.checks
            ],
        )
        for result in gate.results
    ]  # fmt: skip
    if gate.incomplete:
        case = junit.JUnitCase("the run is whole", junit.FAILURE, gate.incomplete, FAIL)
        suites.append(junit.JUnitSuite("the run is whole", [case], "run"))
    return junit.junit_xml(suites, gate_title(gate))


def _junit_message(result: RuleResult, check: RowCheck) -> str:
    _, _, value, interval, outcome = row_cells(result, check)
    found = f"{value} ({interval})" if interval else value
    return f"{outcome}: {found}; limit: {result.rule.limit.words(result.rule.value)}"


def make_annotations(gate: GateResult, undecided_fails: bool) -> list[str]:
    """A command for each rule that failed or is undecided, and one for an incomplete run."""
    title = gate_title(gate)
    lines = []
    if gate.incomplete:
        lines.append(_command("error", title, f"the run is not whole: {gate.incomplete}"))
    levels = {FAIL: "error", UNDECIDED: "error" if undecided_fails else "warning"}
    for result in (r for r in gate.results if r.outcome in levels):
        rows = [" ".join(filter(None, row_cells(result, row))) for row in rows_to_show(result)]
        more = (
            [f"and {len(rows) - _MOST_IN_ANNOTATION} more"]
            if len(rows) > _MOST_IN_ANNOTATION
            else []
        )
        text = "\n".join([rule_line(result), *rows[:_MOST_IN_ANNOTATION], *more])
        lines.append(_command(levels[result.outcome], title, text))
    return lines or [_command("notice", title, gate_summary(gate))]


def add_summary(gate: GateResult, environment: Mapping[str, str] = os.environ) -> None:
    """Append the result as Markdown to the step's summary, where there is one."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(gate_markdown(gate))
    except OSError as error:
        raise RecordsError(
            f"cannot write the step's summary {path}: {error.strerror}",
            "GITHUB_STEP_SUMMARY names that file",
        ) from None


def _command(level: str, title: str, text: str) -> str:
    lines = "\n".join(clean(line) for line in text.split("\n"))
    name = _escaped(clean(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(lines)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

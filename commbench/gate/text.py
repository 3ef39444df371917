"""The result of a check as sentences and table cells, and as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from commbench.analysis.advice import more_precisely
from commbench.analysis.load import LoadedRun
from commbench.compare.comparison import distinct_names
from commbench.compare.document import differences_table
from commbench.gate.gate import NO_VERDICT, UNCHECKED, GateResult, RowCheck, RuleResult
from commbench.gate.notes import gate_notes, warning_notes
from commbench.gate.rules import steps_note
from commbench.output.paragraphs import fill, list_some
from commbench.output.table import BOLD, GREEN, RED, clean, clip, labelled_table, style, table
from commbench.stats.verdict import FAIL, NOT_MEASURED, OUTCOMES, PASS, UNDECIDED
from commbench.units import format_bytes
from commbench.views.terminal import blocks_text

MOST_ROWS = 20
"""Rows of one rule that are printed; --verbose prints all, --junit writes all."""
_TABLE_WIDTH = 80
_MOST_NAMES = 3
WORDS = {PASS: "PASS", FAIL: "FAIL", NO_VERDICT: "NO VERDICT", NOT_MEASURED: "not measured"}
_STYLES = {PASS: GREEN, FAIL: RED, NO_VERDICT: RED}


def gate_text(gate: GateResult, verbose: bool = False) -> str:
    """The check for a terminal: the verdict, the rules with their rows, what to do, what differs.

    Passing rows are counted only, unless `verbose`.
    """
    parts = [style(fill(verdict(gate)), _STYLES[gate.outcome])]
    parts += [_fill(note) for note in gate_notes(gate)]
    if warnings := warning_notes(gate):
        parts.append("\n".join(_fill(warning) for warning in warnings))
    parts += [_rule_text(gate, result, verbose) for result in worst_first(gate)]
    if hints := advice(gate):
        parts.append("\n".join(_fill(hint) for hint in hints))
    if found := gate.comparison:
        for title, facts in (
            ("These must match and do not (--force):", found.mismatches),
            ("Other differences between the baseline (A) and the run (B):", found.differences),
        ):
            parts += blocks_text([differences_table(title, facts)]) if facts else []
    return "\n\n".join(parts)


def _fill(text: str, first: str = "") -> str:
    return fill(text, first, "  ", break_on_hyphens=False)


def gate_title(gate: GateResult) -> str:
    """Which run is checked, against which baseline."""
    if not gate.baseline:
        return gate.run.name
    return " against ".join(distinct_names((gate.run, gate.baseline)))


def worst_first(gate: GateResult) -> list[RuleResult]:
    """The rules: those that fail, those without a verdict, the others."""
    order = (FAIL, NO_VERDICT, PASS, NOT_MEASURED)
    return sorted(gate.results, key=lambda result: order.index(result.outcome))


def verdict(gate: GateResult) -> str:
    """The outcome in one sentence, with the row that is furthest beyond its limit."""
    reasons = {PASS: _why_pass, FAIL: _why_fail, NO_VERDICT: _why_no_verdict}
    return clean(f"{WORDS[gate.outcome]}: {gate_title(gate)}: {reasons[gate.outcome](gate)}.")


def _why_pass(gate: GateResult) -> str:
    rows = _count_judged(gate)
    undecided = [row for row in _by_row(gate) if any(c.outcome == UNDECIDED for _, c in row)]
    beyond = sum(any(check.is_beyond for _, check in row) for row in undecided)
    within = rows - len(undecided)
    accepted = any(result.undecided == PASS for result in gate.results)
    parts = [f"{_of(within, rows)} within {_limits(len(gate.results))}"] if within else []
    if undecided and accepted:
        are = "row is" if len(undecided) == 1 else "rows are"
        whose = "whose value is" if len(undecided) == 1 else f"{beyond} of them with a value"
        some = f", {whose} beyond the limit" if beyond else ""
        parts.append(f"{len(undecided)} undecided {are} accepted (--undecided pass){some}")
    elif undecided:
        parts.append(f"{len(undecided)} undecided with a value within the limit")
    return ", ".join(parts + _uncounted(gate))


def _count_judged(gate: GateResult) -> int:
    """The rows that are more than `not measured` under any rule."""
    if len(gate.results) == 1:
        checks = gate.results[0].checks
        return checks.passed + sum(check.outcome != NOT_MEASURED for check in checks.others)
    judged = (c for r in gate.results for c in r.checks if c.outcome != NOT_MEASURED)
    return len({check.case.name for check in judged})


def _by_row(gate: GateResult) -> Iterable[list[tuple[RuleResult, RowCheck]]]:
    """The checks that fail or are undecided, those of one row together."""
    rows: dict[str, list[tuple[RuleResult, RowCheck]]] = {}
    for result in gate.results:
        for check in result.checks.others:
            if check.outcome != NOT_MEASURED:
                rows.setdefault(check.case.name, []).append((result, check))
    return rows.values()


def _uncounted(gate: GateResult) -> list[str]:
    """How many rows only one of the runs has, where there are any."""
    found = {
        check.case.name: result.allow_unmatched
        for result in gate.results
        for check in result.checks.others
        if check.is_unmatched
    }
    if not found:
        return []
    are = "row is" if len(found) == 1 else "rows are"
    ignored = " and ignored (--allow-unmatched)" if all(found.values()) else ""
    return [f"{len(found)} {are} in one of the two runs only{ignored}"]


def _of(number: int, rows: int, one: str = "is", several: str = "are") -> str:
    verb = one if number == 1 else several
    if number == rows:
        return f"{ {1: 'the only row', 2: 'both rows'}.get(rows, f'all {rows} rows') } {verb}"
    return f"{number} of {rows} rows {verb}"


def _limits(number: int) -> str:
    return "the limit" if number == 1 else f"the {number} limits"


def _why_fail(gate: GateResult) -> str:
    if gate.incomplete:
        return f"the run is incomplete, {gate.incomplete}"
    number = _count_judged(gate)
    failing, counted = [], []
    for row in _by_row(gate):
        if any(check.outcome == FAIL for _, check in row):
            failing.append(row)
        elif any(result.effect(check) == FAIL for result, check in row):
            counted.append(row)  # undecided rows that --undecided fail makes failures
    parts = []
    if counted:
        undecided = f"{_of(len(counted), number)} undecided"
        parts = [f"{undecided}; --undecided fail counts {_them(len(counted))} as failed"]
    if failing:
        broken = [found for row in failing for found in row if found[1].outcome == FAIL]
        result, check = max(broken, key=lambda found: _excess(*found))
        worst = f"{check.case.name} {_finding(result, check)} (rule: {demand(result, check)})"
        if len(failing) > 1 or counted:
            which = "; worst" if len(failing) > 1 else ""
            worst = f"{_of(len(failing), number, 'fails', 'fail')}{which}: {worst}"
        elif len(broken) > 1:
            worst = f"one row breaks {len(broken)} rules; worst: {worst}"
        parts.insert(0, worst)
    return "; ".join(parts + _uncounted(gate))


def _them(number: int) -> str:
    return "it" if number == 1 else "them"


def demand(result: RuleResult, check: RowCheck) -> str:
    """What the rule demands of a row, in a few words."""
    return result.rule.limit.words(result.limit_of(check))


def _finding(result: RuleResult, check: RowCheck) -> str:
    """What a row does, with its value: `takes 600 us`."""
    if not check.estimate:
        return f"has no valid time ({check.reason})"
    return result.rule.limit.sentence.format(_value(result, check))


def finding(result: RuleResult, check: RowCheck) -> str:
    """What a row does, with its value and interval: `takes 600 us (590 … 610 us)`. The reason where
    there is no value."""
    if not check.estimate:
        return check.reason
    interval = f" ({row_cells(result, check)[2]})" if check.estimate.has_interval else ""
    return f"{_finding(result, check)}{interval}{check.doubt and f'; {check.doubt}'}"


def _why_no_verdict(gate: GateResult) -> str:
    found = [result for result in gate.results if result.outcome == NO_VERDICT]
    preventing = [(result, check) for result in found for check in result.preventing()]
    undecided = [(r, c) for r, c in preventing if c.outcome == UNDECIDED and not c.doubt]
    rows = _count_judged(gate)
    names = {check.case.name for _, check in undecided}
    doubts = Counter(check.doubt for _, check in preventing if check.doubt)
    parts = [f"{_count(number, 'row')} undecided because {why}" for why, number in doubts.items()]
    if len(undecided) == 1:
        result, check = undecided[0]
        _, value, interval, _ = row_cells(result, check)
        parts.append(
            f"{check.case.name} is undecided: its value {value} is beyond the limit, but a part of "
            f"its interval ({interval}) is not"
        )
    elif undecided:
        parts.append(
            f"{_of(len(names), rows)} undecided: their values are beyond the limit, but parts of "
            "their intervals are not"
        )
    parts += _uncounted(gate)
    for result in found:
        if not result.preventing():
            parts.append(_why_none_passes(result))
    return "; ".join(parts) or "no rule has a row to judge"


def _why_none_passes(result: RuleResult) -> str:
    """Why a rule without a verdict has none, although no single row prevents it."""
    rule = f"under the rule {result.rule.title!r}"
    if undecided := len(result.with_outcome(UNDECIDED)):
        others = len(result.checks) - undecided
        rest = ", the others are not measured" if others else ""
        return f"{_of(undecided, undecided + others)} undecided{rest} {rule}"
    if result.checks:
        return f"{_of(len(result.checks), len(result.checks))} not measured {rule}"
    return f"no row of the run matches the rule {result.rule.title!r}"


def rule_counts(result: RuleResult) -> str:
    """How many rows of a rule have each outcome: `1 fail, 2 pass`."""
    parts = []
    for outcome in OUTCOMES[:-1]:
        found = result.with_outcome(outcome)
        sides = Counter(map(_outcome, found))
        parts += [f"{sides[side]} {side}" for side in sorted(sides)]
    parts += [f"{passed} {PASS}"] if (passed := result.checks.passed) else []
    return ", ".join(parts) or "no row"


def row_cells(result: RuleResult, check: RowCheck) -> tuple[str, str, str, str]:
    """A row's size, value, interval and outcome."""
    size = format_bytes(check.case.size_bytes) if check.case.dtype else ""
    if not (found := check.estimate):
        return size, "", check.reason, check.outcome
    interval = "none"
    if found.low is not None and found.high is not None:
        show = result.rule.limit.show
        low, high = (show(end, found.value) for end in (found.low, found.high))
        interval = f"{low.split(' ')[0]} … {high}"
    return size, _value(result, check), interval, _outcome(check)


def _outcome(check: RowCheck) -> str:
    """The outcome of a row; of an undecided one also on which side of the limit its value is."""
    side = "doubtful" if check.doubt else f"value {'beyond' if check.is_beyond else 'within'}"
    return f"{UNDECIDED} ({side})" if check.outcome == UNDECIDED else check.outcome


def rows_to_show(result: RuleResult, verbose: bool = False) -> list[RowCheck]:
    """The rows that fail, then the undecided ones; with `verbose` all. Rows that are not measured
    are in `rule_notes`."""
    return result.with_outcome(*(OUTCOMES if verbose else (FAIL, UNDECIDED)))


def rule_notes(gate: GateResult, result: RuleResult) -> list[str]:
    """Sentences about a rule: what is not measured, what decided without an interval, and the row
    that is closest to the limit where all pass."""
    if not result.checks:
        said = (
            f"No row of {gate.run.name} matches this rule.{steps_note(result.rule, gate.run.rows)}"
        )
        return [said, *result.remarks]
    notes = [*result.remarks]
    reasons: dict[tuple[str, str], list[str]] = {}
    for check in result.with_outcome(UNDECIDED, NOT_MEASURED):
        if reason := check.doubt or check.reason:
            reasons.setdefault((check.outcome, reason), []).append(check.case.name)
    for (outcome, reason), names in reasons.items():
        shown = list_some(names, _MOST_NAMES)
        notes.append(f"{_count(len(names), 'row')} {outcome} ({reason}): {shown}.")
    if bare := result.checks.without_interval:
        runs = [gate.run, *([gate.baseline] if result.rule.limit.needs_baseline else [])]
        notes.append(_note_without_interval(bare, [run for run in runs if run]))
    if not result.checks.others:
        closest = max(result.checks, key=lambda check: _excess(result, check))
        notes.append(f"Closest to the limit: {closest.case.name} {finding(result, closest)}.")
    return notes


def _note_without_interval(rows: int, runs: Sequence[LoadedRun]) -> str:
    """That rows were decided without an interval, and which of the runs have none."""
    causes: dict[str, list[str]] = {}
    for run in runs:
        if any(row.time and not row.time.has_interval for row in run.rows):
            tool = _importing_tool(run)
            cause = "no samples" if run.header is None else "fewer than 6 iterations"
            cause = f"{tool} printed means, no samples" if tool else cause
            causes.setdefault(cause, []).append(run.name)
    word = "mean" if all("means" in cause for cause in causes) else "median"
    why = "; ".join(f"{cause} ({', '.join(names)})" for cause, names in causes.items())
    decided = f"{_count(rows, 'row is', 'rows are')} decided by the {word} alone"
    return f"{decided}. No interval is known: {why}."


def _importing_tool(run: LoadedRun) -> str:
    """The tool whose file the run was imported from; empty for a run of commbench."""
    is_import = run.header and "imported_from" in run.header.environment
    return run.header.launcher if is_import and run.header else ""


def advice(gate: GateResult) -> list[str]:
    """What to do about a check without a verdict."""
    found = [result for result in gate.results if result.outcome == NO_VERDICT]
    prevented = {check.outcome for result in found for check in result.preventing()}
    texts = []
    undecided = [check for result in found for check in result.with_outcome(UNDECIDED)]
    if any(not check.doubt for check in undecided):
        texts.append(
            "Undecided: the limit is inside the interval. Measure again with "
            f"`{_more_precisely(gate.run)}`, or choose what undecided rows count as: "
            "--undecided pass or --undecided fail."
        )
    if any(check.doubt for result in found for check in result.preventing()):
        texts.append("Doubtful: noise hides what is slower. Measure both runs on a quiet host.")
    if any(c.reason.startswith(UNCHECKED) for r in found for c in r.checks.others):
        texts.append("Check the results, or judge the times alone: --allow-unchecked.")
    if NOT_MEASURED in prevented:
        texts.append(
            "Measure the same rows in both runs, limit the rule to common rows, or ignore the "
            "others: --allow-unmatched."
        )
    if any(not result.checks for result in found):
        texts.append("Correct the rule that matches no row, or allow it: --allow-unmatched.")
    return texts


def _more_precisely(run: LoadedRun) -> str:
    """Options of `commbench run` that make the intervals narrower."""
    is_known = run.header and not _importing_tool(run)
    return more_precisely(run.header if is_known else None)


def _rule_text(gate: GateResult, result: RuleResult, verbose: bool) -> str:
    line = f"{WORDS[result.outcome]}  {result.rule.title}"
    lines = [style(fill(line, rest="  "), _STYLES.get(result.outcome, BOLD))]
    lines += [fill(rule_counts(result), "  ", "    ")] if result.checks else []
    rows = rows_to_show(result, verbose)
    shown = rows if verbose else rows[:MOST_ROWS]
    lines += _table(result, shown) if shown else []
    if len(rows) > len(shown):
        lines.append(f"  {len(rows) - len(shown)} more rows: --verbose prints them.")
    lines += [_fill(note, "  ") for note in rule_notes(gate, result)]
    return "\n".join(lines)


def _table(result: RuleResult, rows: Sequence[RowCheck]) -> list[str]:
    """Lines of a table of rows; each kind of case has a line of its own above its rows. The steps
    of a workload have a table of their own, first, with a column of their names."""
    steps = [row for row in rows if row.case.step]
    if steps and len(steps) < len(rows):
        calls = [row for row in rows if not row.case.step]
        return [*_table(result, steps), "", *_table(result, calls)]
    headings = ("size", result.rule.limit.heading, "95 % interval", "outcome")
    if steps:
        names = [row.case.title_without("operation") for row in steps]
        cells = [row_cells(result, row)[1:] for row in steps]
        named = [(name, *rest) for name, rest in zip(names, cells, strict=True)]
        return labelled_table((steps[0].case.operation, *headings[1:]), named, left="outcome")
    kinds = list(dict.fromkeys(row.case.title for row in rows))
    rows = sorted(rows, key=lambda row: kinds.index(row.case.title))
    lines = table(headings, [row_cells(result, row) for row in rows], left="outcome")
    head, body = lines[: -len(rows)], iter(lines[-len(rows) :])
    for title, same in groupby(rows, lambda row: row.case.title):
        head.append(f"  {clip(title, _TABLE_WIDTH - 2)}")
        head += [next(body) for _ in same]
    return head


def _excess(result: RuleResult, check: RowCheck) -> float:
    """How far a row is beyond its limit; most of all where it has no valid time."""
    limit, value = result.rule.limit, result.limit_of(check)
    return limit.excess(value, check.estimate) if check.estimate else float("inf")


def _value(result: RuleResult, check: RowCheck) -> str:
    assert check.estimate is not None
    return result.rule.limit.show(check.estimate.value, check.estimate.value)


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"

"""What sentences say of a check: its outcome, and that of each row, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from commbench.analysis.diagnostics import WAITED, waited_sentences
from commbench.analysis.load import LoadedRun, distinct_names
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.answers.check.gate import NO_VERDICT, WITH_RANGE, GateResult, RowCheck, RuleResult
from commbench.answers.check.rules import unmatched
from commbench.answers.compare.causes import known_causes, launch_notes
from commbench.answers.compare.ratio import HOST
from commbench.answers.history.cuts import FEWEST
from commbench.answers.history.level import Level
from commbench.output.text import span
from commbench.plan.case import Case
from commbench.stats import (
    FAIL,
    FASTER,
    LIKELY,
    NOT_MEASURED,
    OPEN,
    PASS,
    UNDECIDED,
    Estimate,
    decide,
)
from commbench.units import format_count
from commbench.views import cells

MOST_RULES = 3
"""Rules that sentences name."""
WORDS = {FAIL: "FAIL", NO_VERDICT: "NO VERDICT", PASS: "PASS", NOT_MEASURED: "cannot be judged"}
"""The outcomes of rules, in the order in which they are shown."""
SAID = {
    FAIL: "failed", UNDECIDED: "undecided", PASS: "passed", LIKELY: "likely passed",
    NOT_MEASURED: "cannot be judged",
}  # fmt: skip
"""How a sentence says the outcome of a row."""
_RULES = {FAIL: "failed", NO_VERDICT: "have no verdict", PASS: "passed"}
_TOGETHER = "beyond the limit together with their range"
"""How a row fails that is beyond the limit by itself and with its range."""


def reasons_of(gate: GateResult) -> list[str]:
    """What the verdict leaves out; what a history lacks, and whether its level rose; what may be
    the cause of the outcome."""
    history, told = gate.baseline and gate.baseline.history, _statements(gate)[1:]
    if history:
        told += [f"Compared with {runs}."] if (runs := earlier_runs(gate.baseline)) else []
        told += [text for result in gate.results for text in result.remarks]
        told += [*_faster(gate), *_slow_by_chance(gate)]
        failed = [check for result in gate.results for check in result.with_outcome(FAIL)]
        levels = [history.levels.get(check.case.key()) for check in failed]
        if any(level.is_close for level in levels if level):
            told.append(
                "The earlier runs were made within minutes: a row fails only if an interval twice "
                "as wide is beyond the limit."
            )
    if gate.comparison:
        is_slower = bool(gate.worst and gate.worst.estimate)
        causes = known_causes(gate.comparison, is_slower or gate.outcome == PASS)
        return [*dict.fromkeys(told), *causes]
    queued = [row.queued_share for row in gate.run.rows if gate.covers(row)]
    checks = (check for result in gate.results for check in result.checks)
    is_judged = any(check.outcome != NOT_MEASURED for check in checks)
    return told + waited_sentences(queued * is_judged, [gate.run.header])


def _faster(gate: GateResult) -> Iterator[str]:
    """Which rows are faster than usual, by more than the limit allows a row to be slower."""
    found = {
        check.case: check.estimate
        for result in gate.results if result.rule.limit.needs_baseline for check in result.checks
        if decide(check.estimate, check.rule.value - 1) == FASTER and check.estimate
    }  # fmt: skip
    if found:
        times = cells.ratios_text(found.values())
        yield f"{_names(gate, found)} took {times} times as long as usual: faster."


def _names(gate: GateResult, cases: Iterable[Case]) -> str:
    return name_rows([*cases], [row.case for row in gate.run.rows], LONGEST)


def _slow_by_chance(gate: GateResult) -> Iterator[str]:
    """That intervals of rows which do not pass reach as far as an earlier run that was slow by
    chance."""
    levels = gate.baseline.history.levels if gate.baseline and gate.baseline.history else {}
    checks = (check for result in gate.results for check in result.checks.others)
    rows = {check.case: levels[key] for check in checks if (key := check.case.key()) in levels}
    slow = {case: level for case, level in rows.items() if level.slow_run_ratio}
    if slow:
        most = max(slow.values(), key=lambda level: level.slow_run_ratio or 0.0)
        text = slow_run_text(most, "up to " * (len(slow) > 1))
        lower = f"so the intervals of {_names(gate, slow)} begin lower"
        yield f"{text}: a run that is less slow may be so by chance, too, {lower}."


def slow_run_text(level: Level, up_to: str = "") -> str:
    """Which run was slow by chance: `Run 5 took 1.4 times as long as usual, and a later one did
    not`; empty where none was."""
    times = level.slow_run_ratio and f"{up_to}{cells.ratio_text(level.slow_run_ratio)}"
    run = f"Run {level.slowest_run} took {times} times as long as usual"
    return f"{run}, and a later one did not" if times else ""


def notes_of(gate: GateResult) -> list[str]:
    """What else is to be known of the launches of both runs."""
    return launch_notes(gate.comparison) if gate.comparison else []


def gate_title(gate: GateResult) -> str:
    """Which run is checked, against which baseline."""
    return " against ".join(distinct_names(gate.runs))


def verdict(gate: GateResult) -> str:
    """The outcome and its reason, in one short sentence."""
    return _statements(gate)[0]


def _statements(gate: GateResult) -> list[str]:
    """The verdict; then why each rule decides, where reasons differ, the row that is furthest
    beyond its limit, and how many rows have each outcome."""
    judged = [result for result in gate.results if result.outcome != NOT_MEASURED]
    deciding = [result for result in judged if result.outcome == gate.outcome]
    texts = [_because(result, gate.run) for result in deciding]
    if is_same := len({*texts}) == 1 < len(deciding):
        del texts[1:]
    elif len(judged) > 1:
        named = zip(deciding, texts, strict=True)
        texts = [f"under {result.rule.title!r} {text}" for result, text in named]
    if len(deciding) > 1:
        head = f"{len(deciding)} of {len(judged)} rules {_RULES[gate.outcome]}"
        texts = [f"{head}; {texts[0]}"] if is_same else [head, *texts[:MOST_RULES]]
    if gate.incomplete:
        texts.insert(0, f"the run is incomplete, {gate.incomplete}")
    texts = texts or ["no rule has a row to judge"]
    beyond = [
        check for result in gate.results if result.rule.limit.needs_baseline
        for check in result.with_outcome(UNDECIDED)
        if check.estimate and check.excess > 1 and not cells.is_too_noisy(check.estimate)
    ]  # fmt: skip
    if (worst := gate.worst) and worst.estimate:
        told = f"{worst.case.name} {finding(worst)}; limit: {worst.demand}"
        texts.append(f"worst row: {told}")
    elif slow := [c.estimate for c in beyond if not c.reason.startswith(WAITED)]:
        others = " whose ranks did not wait" * (len(slow) < len(beyond))
        rows, times = format_count(len(slow), "row"), cells.ratios_text(slow)
        texts.append(f"{rows}{others} took {times} times as long: beyond the limit, but not surely")
    if len(judged) == 1 and len(found := _tally(judged)) > 1:
        texts.append(f"rows: {_listed(found)}")
    if gate.baseline and gate.baseline.incomplete:
        texts.append(f"the baseline is incomplete, {gate.baseline.incomplete}")
    first, *more = texts
    return [f"{WORDS[gate.outcome]}: {first}.", *(f"{t[:1].upper()}{t[1:]}." for t in more)]


def _because(result: RuleResult, run: LoadedRun) -> str:
    """Why a rule has its outcome: how many rows decide it, and the reason of most of them."""
    rows = format_count(len(result.checks), "row")
    if result.outcome == PASS and result.checks.passed:
        return f"{result.checks.passed} of {rows} passed"
    if not (found := _deciding(result)):
        if not result.checks:
            return f"no row matches: {unmatched(result.rule, run).hint}"
        if not (passed := result.checks.passed):
            return f"none of {rows} surely passed"
        likely = len(result.with_outcome(LIKELY))
        return f"of {rows} only {passed} passed, and {likely} likely passed"
    words = dict.fromkeys(SAID[check.outcome] for check in found)
    [(reason, number)] = Counter(why(check) or "beyond the limit" for check in found).most_common(1)
    of_them = f"; {number} of them: " if number < len(found) else ": "
    return f"{len(found)} of {rows} {' or '.join(words)}{of_them}{reason}"


def _deciding(result: RuleResult) -> list[RowCheck]:
    """The rows that give a rule its outcome; those that cannot be judged where there are no others,
    and none where too few pass."""
    others = result.checks.others
    found = [check for check in others if check.effect == result.outcome]
    return found or ([] if result.with_outcome(*OPEN) else others)


def earlier_runs(baseline: LoadedRun | None) -> str:
    """How many runs the levels of a history have: `11 earlier runs`, `5 of 7 earlier runs`, or `a
    level of 3 runs, whose noise is known from 12 runs`; empty where it has none."""
    if not (baseline and baseline.history and baseline.history.levels):
        return ""
    levels = [*baseline.history.levels.values()]
    runs, known, earlier = (
        span(str, [getattr(each, name) for each in levels]) for name in ("runs", "known", "earlier")
    )
    by_row = " by row" * (" to " in runs)
    is_whole = all(each.number == each.earlier for each in levels)
    if is_whole or min(each.number for each in levels) >= FEWEST:
        return f"{runs}{f' of {earlier}' * (runs != earlier)} earlier runs{by_row}"
    level = f"a level of {runs} run{'s' * (runs != '1')}{by_row}"
    return f"{level}, whose noise is known from {known} runs"


def why(check: RowCheck) -> str:
    """Why a row has its outcome; of one whose interval contains the limit, on which side of it its
    value is."""
    if check.outcome not in OPEN:
        return _TOGETHER if (check.outcome, check.reason) == (FAIL, WITH_RANGE) else check.reason
    side = f"{'beyond' if check.excess > 1 else 'within'} the limit, but not the whole interval"
    effects = {PASS: "counted as pass", FAIL: "counted as fail"}
    return "; ".join(filter(None, (reason_of(check) or side, effects.get(check.effect))))


def reason_of(check: RowCheck) -> str:
    """Why a row is open or not judged, as the gate found it; empty for others."""
    if not check.without_host:
        return check.reason
    return HOST.format(f"{'within' if check.without_host == PASS else 'beyond'} the limit")


def outcome_of(check: RowCheck) -> str:
    """The outcome of a row, and why."""
    word, reason = SAID[check.outcome], why(check)
    return word + cells.in_brackets(reason * (reason != word))


def counts(results: Sequence[RuleResult]) -> str:
    """How many rows of these rules have each outcome: `1 of 3 rows failed, 2 passed`."""
    found = _tally(results)
    rows = format_count(sum(found.values()), "row")
    return _listed(found).replace(" ", f" of {rows} ", 1) or "no row"


def _tally(results: Sequence[RuleResult]) -> dict[str, int]:
    """How many rows have each outcome."""
    found = Counter(check.outcome for result in results for check in result.checks.others)
    found[PASS] = sum(result.checks.passed for result in results)
    return {each: found[each] for each in SAID if found[each]}


def _listed(found: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {SAID[outcome]}" for outcome, number in found.items())


def finding(check: RowCheck) -> str:
    """What a row does, with its value and interval: `takes 600 (590 … 610) us`. The reason where
    there is no value; its time where it has a valid one and is not judged."""
    if check.time:
        return f"takes {cells.time_with_interval_text(check.time)} ({check.reason})"
    if not check.estimate:
        return "has no valid time"
    limit = check.rule.limit
    value, interval = (u.write(check.estimate) for u in (limit.unit, limit.interval))
    if value == cells.TOO_NOISY:
        return f"is {cells.TOO_NOISY_TO_COMPARE}"
    found = limit.sentence.format(cells.with_interval(value, interval))
    of_range = cells.in_brackets(limit.interval.write(check.decided_by))
    return f"{found}, with its range{of_range}" if check.reason == WITH_RANGE else found


def _most_excess(check: RowCheck) -> float:
    """How many times the limit the end of the interval is that is closest to it, or beyond."""
    limit = check.rule.limit
    low, high = check.estimate.ends if check.estimate else (inf, inf)
    return limit.excess(check.rule.value, Estimate(low if limit.is_least else high))


def rule_notes(result: RuleResult) -> list[str]:
    """Sentences about a rule: what its hardware says, what decided without an interval, and the row
    that is closest to the limit where it passes."""
    found = [*result.remarks, *["No row matches it."] * (not result.checks)]
    if bare := result.checks.without_interval:
        rows = format_count(bare, "row")
        found.append(f"No interval ({rows}): the value alone decides.")
    if result.outcome == PASS:
        timed = (check for check in result.checks if check.estimate)
        closest = max(timed, key=_most_excess)
        found.append(f"Closest to the limit: {closest.case.name} {finding(closest)}.")
        ends = [c.estimate.ends[1] for c in result.checks if c.estimate and c.reason == WITH_RANGE]
        if ends and result.rule.limit.needs_baseline:
            most = cells.ratio_text(Estimate(max(ends)))
            found.append(f"A slowdown of one size alone may be hidden: up to {most} times.")
    return found

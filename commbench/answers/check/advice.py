"""What to do about a check that fails or has no verdict; advice.txt has the texts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import exp, floor, hypot, log
from operator import attrgetter
from pathlib import Path
from shlex import quote

from commbench import stats
from commbench.analysis.clearer import clearer
from commbench.analysis.diagnostics import WAITED, has_waited, waited_hint
from commbench.analysis.row_names import named_bytes
from commbench.analysis.statistics import Z
from commbench.answers.check import gate as judging
from commbench.answers.check.gate import GateResult, Judge, RowCheck, RuleResult, find_ranges
from commbench.answers.check.rules import Rule
from commbench.answers.check.sentences import slow_run_text
from commbench.answers.compare import causes
from commbench.answers.compare.comparison import Comparison
from commbench.answers.compare.ratio import APART, CLOSE
from commbench.answers.compare.turns import varied
from commbench.answers.history.baseline import LATER_RUNS, WAITED_TOO
from commbench.answers.history.level import Level
from commbench.answers.history.store import db_option
from commbench.answers.show.rows import LATENCY_BOUND
from commbench.output.text import list_some, read_sections
from commbench.results.run_folder import resume_command
from commbench.results.schema import RunHeader, is_imported
from commbench.stats import FAIL, FASTER, LIKELY, NOT_MEASURED, OPEN, PASS, UNDECIDED, Estimate
from commbench.units import format_GBps, format_rough_percent, size_end
from commbench.views import cells
from commbench.views.cells import ratio_interval_text

MOST_LIMIT = 50
"""In percent: a larger limit is not proposed."""


def advice(gate: GateResult) -> list[str]:
    """What to do about a check that fails or has no verdict."""
    if gate.incomplete or gate.worst:
        return _after_failure(gate)
    # Without a row that fails by itself: those that are counted as fail, or prevent a verdict.
    found = [result for result in gate.results if result.outcome == gate.outcome != PASS]
    checks = [check for result in found for check in result.checks.others]
    header = gate.run.header
    header = None if header and is_imported(header) else header
    blocking = [check for check in checks if check.effect == judging.NO_VERDICT]
    history = gate.baseline and gate.baseline.history
    absent = history.absent if history else ""
    undecided = [c for c in checks if c.outcome in OPEN and c.effect != PASS]
    noisy = [c for c in undecided if not (c.without_host or c.reason.startswith((WAITED, CLOSE)))]
    are_few = any(absent and c.reason == absent for c in blocking)
    passing = _passing(gate) if noisy else None
    levels = history.levels if history else {}
    own = [c for c in noisy if c.rule.limit.needs_baseline and c.case.key() in levels]
    is_host = history and not noisy and any(c.without_host for c in undecided)
    applies: dict[str, object] = {
        "waited": any(c.reason.startswith(WAITED) for c in undecided),
        "close": any(c.reason == CLOSE for c in undecided),
        "host": is_host,
        "clearer": noisy or (any(c.without_host for c in undecided) and not is_host),
        "passing": passing is not None,
        "unsure": any(not (c.reason or c.rule.undecided) for c in undecided),
        "together": any(c.is_beyond and c.reason != APART for c in noisy),
        "unchecked": any(c.reason.startswith(judging.UNCHECKED) for c in checks),
        "own call": any(c.case.call for c in own) and not any(c.reason == CLOSE for c in undecided),
        "too few runs": are_few,
        "some waited": are_few
        and (WAITED_TOO in absent or any(has_waited(r.queued_share) for r in gate.run.rows)),
        "unmatched": any(c.outcome == NOT_MEASURED and c.reason != absent for c in blocking),
        "no row": any({c.reason for c in r.checks} <= {judging.NO_BANDWIDTH} for r in found),
        "faster": gate.outcome == PASS and _is_faster(gate),
    }
    again = f"{clearer(header, both=gate.comparison is not None and not absent)}."
    if own:
        own = [check for check in own if not check.is_beyond] or own
        own = [check for check in own if check.outcome == UNDECIDED] or own
        own = [check for check in own if check.excess > 1] or own
        widest = max(own, key=lambda check: levels[check.case.key()].full_half)
        again = what_is_unsure(levels[widest.case.key()], widest.estimate, header, _db(gate))
        again = f"{widest.case.name}: {again}" if len(gate.run.rows) > 1 else again
    elif gate.comparison and not absent:
        again = _clearer(gate.comparison, found, noisy)
    return _texts(gate, applies, again, passing)


def _clearer(
    comparison: Comparison, results: Sequence[RuleResult], noisy: Sequence[RowCheck]
) -> str:
    """What makes the ranges of noisy rows clearer, and what they would show then."""
    strict = _strictest(results)
    cases = {check.case for check in noisy}
    rows = [row for row in comparison.rows if row.b.case in cases]
    ranges = find_ranges(strict, comparison) if strict else ()
    unsure = [each for each in ranges if any(map(each.covers, rows))]
    return causes.clearer(comparison, unsure, strict and strict.value - 1, rows)


def _passing(gate: GateResult) -> int | None:
    """The least limit, in percent up to MOST_LIMIT, within which every row passes as it was
    measured, of one rule against a baseline; None where there is none."""
    rule = gate.results[0].rule
    if len(gate.results) > 1 or not rule.limit.needs_baseline:
        return None

    def passes(percent: int) -> bool:
        tried = rule._replace(value=1 + percent / 100)
        found = Judge(tried, gate.run, gate.comparison).result()
        return found.outcome == PASS and not found.with_outcome(LIKELY)

    limits = range(floor(100 * (rule.value - 1)) + 1, MOST_LIMIT + 1)
    at = bisect_left(limits, True, key=passes)
    return limits[at] if at < len(limits) else None


def _strictest(results: Sequence[RuleResult]) -> Rule | None:
    """The rule with the smallest limit of a ratio; None where none has one."""
    rules = [result.rule for result in results if result.rule.limit.needs_baseline]
    return min(rules, key=attrgetter("value"), default=None)


def _is_faster(gate: GateResult) -> bool:
    """Whether a range is faster than in the baseline by more than the limit, not in turns."""
    if gate.comparison is None or gate.comparison.are_in_turns or gate.comparison.a.history:
        return False
    strict = _strictest(gate.results)
    ranges = find_ranges(strict, gate.comparison) if strict else ()
    return any(each.verdict == FASTER for each in ranges)


def _after_failure(gate: GateResult) -> list[str]:
    """What to look at, and what measures again or compares."""
    failed = [check for result in gate.results for check in result.with_outcome(FAIL)]
    history, found = gate.baseline and gate.baseline.history, gate.comparison
    worst = gate.worst
    has_value = worst and worst.estimate
    of_baseline = worst and worst.rule.limit.needs_baseline
    is_slower = found and not history and has_value and of_baseline
    in_turns = found and found.are_in_turns
    waited = found and causes.launches_that_waited(found)
    is_others = gate.run.header and is_imported(gate.run.header)
    is_least = worst and worst.rule.limit.is_least and not worst.rule.smallest
    applies = {
        "incomplete": gate.incomplete and not is_others,
        "incomplete import": gate.incomplete and is_others,
        "invalid": not all(check.estimate for check in failed),
        "p5": found and is_slower and not in_turns and any(row.undisturbed for row in found.rows),
        "slower": is_slower and not in_turns,
        "slower in turns": is_slower and in_turns and not waited,
        "slower, some waited": is_slower and in_turns and waited,
        "history": history and has_value and of_baseline,
        "small": worst and is_least and named_bytes(worst.case) < LATENCY_BOUND,
        "beyond": has_value and not of_baseline,
    }
    return _texts(gate, applies)


def _texts(
    gate: GateResult, applies: Mapping[str, object], again: str = "", passing: int | None = None
) -> list[str]:
    """The texts that apply."""
    texts = read_sections(Path(__file__).with_suffix(".txt"))
    base, run = quote(str(gate.baseline.path)) if gate.baseline else "", quote(str(gate.run.path))
    history = gate.baseline and gate.baseline.history
    node = f" --node {quote(history.node)}" if history and history.node else ""
    add = f"`commbench history add {run}{node}{_db(gate)}` adds this run."
    if history and history.has_run:
        add = "This run is in the history already; it is judged by the runs before it."
    if history and history.absent.endswith(LATER_RUNS.format("")):
        add = "Only runs before this one count: check a newer run."
    case, of_worst = gate.worst and gate.worst.case, ""
    if case:
        size = f" --size {size_end(named_bytes(case))}" if named_bytes(case) else ""
        of_worst = f" --op {case.operation}{size}"
    differs = "Versions, variables and what else is recorded are the same."
    cause = "Then measure again: where only some runs fail, it is the host (`commbench doctor`)."
    if gate.comparison and gate.comparison.differences:
        names = list_some([each.shown for each in gate.comparison.differences], MOST_NAMED)
        differs = f"They differ in {names}."
        cause = "Then measure again without what differs: that shows whether it is the cause."
    judged = [case] if case else [row.case for row in gate.run.rows]
    differences = gate.comparison.differences if gate.comparison else ()
    kinds, option = varied(differences, any(each.call for each in judged), gate.run.header)
    blanks = {
        "clearer": again, "passing": passing, "base": base, "run": run,
        "waited": waited_hint(each.header for each in gate.runs if not each.history)
        + " Another CPU mode begins a new series of the history." * bool(history),
        "worst": case and case.name, "of_worst": of_worst,
        "resume": resume_command(gate.run.path),
        "db": _db(gate), "add": add,
        "floor": gate.worst and f"{format_GBps(gate.worst.rule.value)}GB/s",
        "differs": differs, "cause": cause,
        "in_turns": causes.in_turns(None if history else gate.comparison, kinds, option),
    }  # fmt: skip
    return [texts[name].strip().format(**blanks) for name, is_so in applies.items() if is_so]


def _db(gate: GateResult) -> str:
    """The option that names the history, where it is another one than by default."""
    return db_option(gate.baseline.path) if gate.baseline else ""


MOST_NAMED = 4
"""Differences that a sentence names."""
MANY = 30
"""It is said what so many runs of a history would give."""


def what_is_unsure(level: Level, ratio: Estimate | None, header: RunHeader | None, db: str) -> str:
    """Whether the run or the history is why the interval of a ratio is wide, and what would make it
    narrower. `db` is the option that names the history."""
    slow, every = slow_run_text(level), level.known + level.outliers
    others = max(level.outliers, bool(slow))
    number = f"{every - others} of {every} earlier" if others else f"{every} earlier"
    number = number if level.known > 1 else "earlier"
    differ = f"{number} runs differ by {format_rough_percent(level.deviation)}"
    value = ratio.value if ratio else 1.0
    half, own = level.half(), Z * hypot(level.own, level.usual)
    forget = f"`commbench history forget {level.slowest_run}{db}`"
    if slow and value > exp(level.full_half):
        return (
            f"{slow}, so this run may be slow by chance, too. If the next two runs are as slow, "
            f"the check fails. If you know why run {level.slowest_run} was slow, {forget} leaves it"
            " out."
        )
    if Z * level.own > half:
        within = f" within {format_rough_percent(exp(own) - 1)}"
        if own > log(2):
            within = f" only within a factor of {exp(own):.2g}"
        known = "not known" if own > log(100) else f"known{within}"
        return (
            f"This run is the uncertain part: its time is {known}, and {differ}. "
            f"{clearer(header, both=False)}."
        )

    def interval(half: float) -> str:
        return ratio_interval_text(stats.around(log(value), half).map(exp))

    best, of_many = interval(Z * level.deviation), interval(level.half(MANY - level.runs))
    is_more = level.runs < MANY and of_many not in ("", best)
    then = f"With {MANY} runs the interval would be {of_many}, with any number of such runs"
    then = then if is_more else "With any number of such runs the interval would be"
    chance = ""
    if slow:
        chance = f" {slow}. If you know why, {forget} leaves it out."
    found = [
        f"The history is the uncertain part: {differ}, so a single run may, too.{chance} {then} "
        f"{best or cells.TOO_NOISY} at best. To narrow that, let all runs differ less: a quiet host"
        " (`commbench doctor`), more launches in each.",
    ]
    if (alone := exp(2 * half) - 1) < 99:
        found.append(
            f"A single run shows only a change of {format_rough_percent(alone)} or more; `commbench"
            f" history show{db}` finds smaller ones that last."
        )
    return " ".join(found)

"""What a check decides: the outcome of each row, of each rule, and of the whole."""

from __future__ import annotations

from functools import partial
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from synthetic import header, in_memory, plan, steady

from commbench.analysis.load import LoadedRun
from commbench.answers.check.document import VIEW, gate_junit, make_annotations
from commbench.answers.check.gate import NO_VERDICT, Checks, GateResult, RowCheck, RuleResult, check
from commbench.answers.check.rules import parse_rule
from commbench.answers.check.sentences import reasons_of, verdict
from commbench.answers.compare.comparison import compare
from commbench.plan.case import Case
from commbench.results.schema import Batch, Measurement, Run, RunEnd
from commbench.stats import FAIL, LIKELY, NOT_MEASURED, PASS, UNDECIDED, Estimate

pytestmark = pytest.mark.usefixtures("launches_alike")


def test_a_slowdown_between_fast_and_slow_batches_is_found() -> None:
    # A run of batches that are fast or, less often, very slow; the other is always in between. The
    # medians differ 39-fold beyond doubt.
    fast, slow = [100e-6] * 40, [9e-3] * 2
    a = in_memory("a", [[fast] * 4 + [slow] * 3])
    b = in_memory("b", [[[3.9e-3] * 40] * 7])
    (row,) = compare(a, b).rows
    assert row.ratio.value == pytest.approx(39.0)
    gate = check(b, [parse_rule("max_slowdown", "10%")], a)
    assert (gate.outcome, gate.exit_code) == (FAIL, 1)


ROWS = {
    "pass": (PASS, 0.5e-3, False),
    "fail": (FAIL, 2e-3, False),
    "likely": (LIKELY, 0.95e-3, False),
    "undecided": (UNDECIDED, 1.05e-3, False),
    "doubtful": (UNDECIDED, 0.5e-3, False),
    "unsupported": (NOT_MEASURED, None, False),
    "unmatched": (NOT_MEASURED, None, True),
}


def parse_rows(text: str) -> list[tuple[str, ...]]:
    """The rows of each rule in `pass, fail | pass`."""
    return [tuple(filter(None, rule.strip().split(", "))) for rule in text.split("|")]


def gate_of(
    *rules: tuple[str, ...],
    undecided: str = "",
    allow_unmatched: bool = False,
    incomplete: str = "",
) -> GateResult:
    """A check with rules that have these rows."""
    results = []
    for rows in rules:
        rule = parse_rule("max_time", "1ms")._replace(undecided=undecided, optional=allow_unmatched)
        checks = []
        for number, row in enumerate(rows):
            outcome, time_s, is_unmatched = ROWS[row]
            size = 1024 << number
            case = Case(number, "all_reduce", "float32", "sum", None, "", "each", size, size // 4)
            found = time_s and Estimate(time_s, 0.9 * time_s, 1.1 * time_s)
            reason = "" if found and row != "doubtful" else "why"
            checks.append(RowCheck(rule, case, outcome, found, reason, is_unmatched=is_unmatched))
        results.append(RuleResult(rule, Checks(partial(tuple, checks))))
    loaded = LoadedRun("new", "new", (), ())  # type: ignore[arg-type]
    return GateResult(loaded, None, None, tuple(results), incomplete)


@pytest.mark.parametrize(
    ("rows", "code", "code_of_pass", "code_of_fail"),
    [
        ("pass", 0, 0, 0),
        ("fail", 1, 1, 1),
        ("pass, fail", 1, 1, 1),
        ("pass, likely", 0, 0, 1),
        ("pass, undecided", 7, 0, 1),
        ("pass, doubtful", 7, 0, 1),
        ("likely", 7, 0, 1),
        ("undecided", 7, 0, 1),
        ("fail, undecided", 1, 1, 1),
        ("pass, unmatched", 7, 7, 7),
        ("fail, unmatched", 1, 1, 1),
        ("pass, unsupported", 0, 0, 0),
        ("unsupported", 7, 7, 7),
        ("", 7, 7, 7),
        ("pass | ", 7, 7, 7),
        ("pass | fail", 1, 1, 1),
        ("fail | ", 1, 1, 1),
        ("pass | likely", 7, 0, 1),
    ],
)
def test_the_exit_code_of_rows_with_these_outcomes(
    rows: str, code: int, code_of_pass: int, code_of_fail: int
) -> None:
    gates = [gate_of(*parse_rows(rows), undecided=choice) for choice in ("", PASS, FAIL)]
    assert [gate.exit_code for gate in gates] == [code, code_of_pass, code_of_fail]
    assert all(bool(gate) == (gate.exit_code == 0) for gate in gates)
    strict = gate_of(*parse_rows(rows), undecided=NO_VERDICT)
    assert strict.exit_code == (7 if code == 0 and "likely" in rows else code)
    gate = gate_of(*parse_rows(rows), incomplete="it failed: rank 1 died")
    assert gate.exit_code == 1 and not gate
    assert verdict(gate).startswith("FAIL: the run is incomplete, it failed: rank 1 died")


ALLOWED = {
    "pass, unmatched": 0, "pass | unmatched": 0, "pass | ": 0, "unmatched": 7, "": 7,
    "pass | likely": 7, "pass | unmatched, undecided": 7, "fail, unmatched": 1,
}  # fmt: skip


@pytest.mark.parametrize("rows", ALLOWED)
def test_unmatched_rows_may_be_allowed_but_something_must_pass(rows: str) -> None:
    assert gate_of(*parse_rows(rows), allow_unmatched=True).exit_code == ALLOWED[rows]


def test_the_row_furthest_beyond_its_limit_is_the_worst() -> None:
    run = in_memory("new", [steady(1e-4), steady(3e-4), steady(2e-4)])
    rules = [parse_rule("max_time", "50us"), parse_rule("min_busbw", "1TB/s")]
    for rule in rules:
        worst = check(run, [rule]).worst
        assert worst is not None
        checks = check(run, [rule]).results[0].with_outcome(FAIL)
        assert worst.excess == max(each.excess for each in checks) > 1
        assert f"Worst row: {worst.case.name}" in reasons_of(check(run, [rule]))[0]


GATES = some.builds(
    lambda rules, **choices: gate_of(*map(tuple, rules), **choices),
    some.lists(some.lists(some.sampled_from(sorted(ROWS)), max_size=4), min_size=1, max_size=3),
    undecided=some.sampled_from(["", PASS, FAIL]),
    allow_unmatched=some.booleans(),
    incomplete=some.sampled_from(["", "it failed: x"]),
)


@settings(deadline=None)
@given(GATES)
def test_every_report_agrees_with_the_exit_code(gate: GateResult) -> None:
    root = ElementTree.fromstring(gate_junit(gate))
    failures, errors = int(root.get("failures", "")), int(root.get("errors", ""))
    assert ((failures > 0, errors + failures > 0)) == (gate.exit_code == 1, gate.exit_code != 0)
    effects = [c.effect for result in gate.results for c in result.checks]
    effects += [gate.outcome] * (gate.outcome not in effects)
    found = [
        len(root.findall(f".//testcase/{name}")) for name in ("failure", "error", "system-out")
    ]
    assert verdict(gate) in "".join(root.itertext())
    assert [effects.count(effect) for effect in (FAIL, NO_VERDICT, PASS)] == found
    levels = {line.split()[0] for line in make_annotations(gate)}
    assert ("::error" in levels) == (gate.exit_code != 0)
    word = {0: "PASS", 1: "FAIL: ", 7: "NO VERDICT: "}[gate.exit_code]
    assert verdict(gate).startswith(word)
    for name in VIEW.formats:
        assert word in VIEW.write(gate, name) or name in VIEW.more
    rows = [check for result in gate.results for check in result.checks]
    assert len(VIEW.write(gate, "csv").splitlines()) == len(rows) + 1


@settings(deadline=None)
@given(GATES)
def test_a_check_passes_only_if_it_looked(gate: GateResult) -> None:
    if gate.exit_code:
        return
    judged = {PASS, LIKELY, UNDECIDED} if gate.results[0].rule.undecided == PASS else {PASS}
    assert any(c.outcome in judged for result in gate.results for c in result.checks)
    assert not any(result.with_outcome(FAIL) for result in gate.results)


def test_rows_that_compute_another_amount_than_the_baseline_are_not_judged() -> None:
    def run_with(units: int) -> Run:
        asked = plan(sizes=(4096,), overlap=("matmul:8x8x8",), iterations=9)
        batch = Batch((1e-3,) * 9, work=f"{units} x matmul 8x8x8 float32")
        found = tuple(Measurement(case, "ok", wrong=0, batches=(batch,)) for case in asked.cases())
        return Run("mine", header(asked, "mine"), found, RunEnd("complete"))

    rule = parse_rule("max_slowdown", "5%")
    (result,) = check(run_with(9), [rule], baseline=run_with(8)).results
    assert [row.outcome for row in result.checks] == [PASS, NOT_MEASURED, NOT_MEASURED]
    (result,) = check(run_with(9), [rule], baseline=run_with(9)).results
    assert [row.outcome for row in result.checks] == [PASS, PASS, PASS]

"""How often a check fails a program against itself, and which slowdown it still finds, in runs of 3
launches that are drawn. `python tests/gate_power.py` prints how often for other settings."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest
from gate_power import checked
from synthetic import in_memory

from commbench.analysis.load import as_loaded_run
from commbench.answers.check.advice import advice
from commbench.answers.check.gate import (
    CHECKED,
    NO_VERDICT,
    NOT_TOGETHER,
    TOO_WIDE,
    WIDE,
    Judge,
    _decide,
    check,
)
from commbench.answers.check.rules import parse_rule
from commbench.answers.compare.causes import _soon_left_out
from commbench.answers.compare.comparison import compare
from commbench.answers.compare.host import LeftOut, name_launches
from commbench.answers.compare.ratio import APART
from commbench.stats import FAIL, LIKELY, PASS, Estimate


def failing(
    rows: int, spread: float, seed: int, slow: float = 1.0, are_all: bool = False
) -> tuple[int, int]:
    """How many rows fail together, and how many would by themselves."""
    (result,) = checked(rows, spread, seed, slow, are_all).results
    alone = [c for c in result.checks.others if c.is_beyond]
    together = result.with_outcome(FAIL)
    reasons = {APART, NOT_TOGETHER.format(rows)}
    assert {c.reason for c in alone if c not in together} <= reasons
    return len(together), len(alone)


# Of 600, 300 and 120 checks of one program none fails where the log medians of its launches differ
# by 8 % (each row judged by itself: 0.7, 3 and 5 %), and 0.2, 0 and 0 % by 15 % (1.3, 7 and 13 %).
@pytest.mark.parametrize(
    ("rows", "spread", "most"),
    [(1, 0.08, 0.05), (12, 0.08, 0.05), (50, 0.08, 0.05), (1, 0.15, 0.05), (12, 0.15, 0.05),
     (50, 0.15, 0.05)],
)  # fmt: skip
@pytest.mark.parametrize("checks", [20, pytest.param(200, marks=pytest.mark.full)])
def test_a_program_seldom_fails_against_itself(
    rows: int, spread: float, most: float, checks: int
) -> None:
    found = [failing(rows, spread, seed) for seed in range(checks)]
    failed, before = (sum(map(bool, each)) / checks for each in zip(*found, strict=True))
    assert failed <= min(most, before) + 0.05 * (checks == 20)


# A row that takes 1.5, 1.7 and 2 times as long, with launches that differ by 4 %, fails in 27, 73
# and 96 % of 100 checks if it is alone; one of 12 rows that takes 1.7, 2 and 2.5 times as long in
# 11, 60 and 95 %.
@pytest.mark.parametrize(("rows", "slow"), [(1, 2.2), (12, 3.0), (50, 4.0)])
def test_a_slow_row_is_found_among_many(rows: int, slow: float) -> None:
    found = [failing(rows, 0.04, seed, slow)[0] for seed in range(20)]
    assert sum(map(bool, found)) >= 18


# Where all of 12 rows take 1.4, 1.5, 1.6 and 1.7 times as long, 16, 60, 93 and 100 % of 100 checks
# fail.
def test_a_program_that_is_slower_at_all_sizes_is_found() -> None:
    found = [failing(12, 0.04, seed, 1.7, are_all=True)[0] for seed in range(20)]
    assert sum(map(bool, found)) >= 18


# Where each row is to pass by itself, few checks do.
def test_a_program_passes_against_itself() -> None:
    found = [checked(12, 0.04, seed, limit="25%") for seed in range(10)]
    assert sum(each.outcome == PASS for each in found) >= 9
    assert sum(each.results[0].checks.with_range > 0 for each in found) >= 8
    for row in (row for each in found for row in each.results[0].checks if row.decided_by):
        # It has its own figure, whose interval alone would not pass, and that of its range.
        assert row.outcome == PASS and row.estimate.high > 1.25 > row.decided_by.high
    strict = [checked(12, 0.04, seed, limit="25%", undecided=FAIL) for seed in range(10)]
    assert sum(each.outcome == PASS for each in strict) <= 3


def test_a_check_needs_as_many_rows_that_pass_as_likely_do() -> None:
    outcomes = {}
    for seed in range(12):
        gate = checked(12, 0.02, seed)
        found = Counter(row.outcome for row in gate.results[0].checks)
        assert gate.outcome == ("pass" if found[PASS] >= found[LIKELY] else "no verdict")
        outcomes[gate.outcome] = found
    assert set(outcomes) == {"pass", "no verdict"}
    assert outcomes["no verdict"][LIKELY] > 6


def test_a_row_that_says_nothing_by_itself_does_not_pass_with_its_range() -> None:
    gate = checked(12, 0.04, 1, limit="25%")
    rule, pair = gate.results[0].rule, gate.comparison.rows[0]
    judge = Judge(rule, gate.run, gate.comparison)
    for most, outcome, why in ((3.9, PASS, WIDE), (4.1, "undecided", TOO_WIDE)):
        noisy = Estimate(1.0, 1 / sqrt(most), sqrt(most))
        found = _decide(rule, pair.b, noisy, pair.a, False)
        assert (found.outcome, found.reason) == ("undecided", why)
        assert judge._with_others(found, pair).outcome == outcome


# One row of 12 that takes 1.6 times as long passes in none of 100 checks with 10 or 25 %.
def test_a_slow_row_does_not_pass_with_its_range() -> None:
    for limit in ("10%", "25%"):
        found = [checked(12, 0.04, seed, 1.6, limit=limit) for seed in range(10)]
        assert not any(each.outcome == PASS for each in found)


def test_no_row_passes_with_its_range_where_launches_are_not_known() -> None:
    found = [checked(12, 0.04, seed, limit="25%", has_launches=False) for seed in range(5)]
    assert not any(each.results[0].checks.with_range for each in found)


# In 20 of 20: one bad launch of all rows makes their ratios unsure, not their differences.
def test_a_bad_launch_does_not_join_a_slow_row_with_the_others() -> None:
    for seed in range(5):
        gate = checked(4, 0.03, seed, 1.5, launches=6, in_turns=True, late=2.5)
        slow, others = gate.comparison.pooled
        assert (slow.rows, others.rows) == (1, 3)
        assert slow.ratio.value > 1.3 * others.ratio.value


# In turns, what the host does to both launches of a turn (here 20 %) hides nothing, and the ranges
# of equal runs contain 1 as often as they say.
@pytest.mark.parametrize(("spread", "most"), [(0.04, 0), (0.15, 4)])
def test_what_the_host_does_in_a_turn_hides_nothing(spread: float, most: int) -> None:
    found = [
        checked(12, spread, seed, 1.3, are_all=True, launches=6, in_turns=True).outcome
        for seed in range(8)
    ]
    assert found == ["fail"] * 8 if spread < 0.1 else "pass" not in found
    equal = [checked(12, spread, seed, launches=6, in_turns=True) for seed in range(40)]
    ranges = [each.ratio.ends for gate in equal for each in gate.comparison.pooled]
    assert len(ranges) >= 40
    assert sum(not low <= 1 <= high for low, high in ranges) <= most
    assert FAIL not in [gate.outcome for gate in equal]


def test_a_launch_in_turns_whose_ranks_waited_does_not_count() -> None:
    """Then a check decides as without that launch; what it measured alone would hide all."""
    for slow, outcome in ((1.0, "pass"), (1.3, "fail")):
        for waiting, number in ((0.36, 18), (0.02, 0)):
            gates = [
                checked(8, 0.03, seed, slow, are_all=True, launches=6, in_turns=True, late=2.5,
                        waiting=waiting)
                for seed in range(20)
            ]  # fmt: skip
            found = sum(gate.outcome == outcome for gate in gates)
            assert found >= number if number else found <= 2, (slow, waiting, found)
            said = (
                "Launch 1 does not count: ranks of run 1 waited for a core 36 % of the time there, "
                "2 % in the others."
            )
            assert (said in " ".join(gates[0].text().split())) == bool(number)


def test_several_launches_and_rounds_are_named() -> None:
    found = [LeftOut(number, 0, 0.4, 0.1) for number in (1, 4)]
    assert name_launches(found, "launch") == "Launches 1 and 4"
    assert name_launches(found[:1], "round") == "Round 1"


@pytest.mark.parametrize(("launches", "number"), [(3, 0), (4, 1)])
def test_three_turns_are_left_at_least(launches: int, number: int) -> None:
    gate = checked(4, 0.03, 1, launches=launches, in_turns=True, late=2.5, waiting=0.5)
    assert len(gate.comparison.left_out) == number
    said = _soon_left_out(gate.comparison, 6, "launch")
    assert said.startswith("Launch 1 counts only because there are 3: ranks of") == (number == 0)
    assert not _soon_left_out(gate.comparison, 3, "launch")


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_few_calls_give_no_more_certainty(calls: int) -> None:
    samples = [1e-4, 1.1e-4, 1.02e-4, 1.05e-4, 1.04e-4][:calls]
    old, new, slow = (
        in_memory("run", [[[each * times for each in samples]]]) for times in (1.0, 1.54, 99.0)
    )
    slowdown, longest = parse_rule("max_slowdown", "10%"), parse_rule("max_time", "150us")
    baseline = as_loaded_run(old, CHECKED)
    gate = check(new, [slowdown], baseline)
    assert gate.outcome == check(new, [longest]).outcome == NO_VERDICT
    assert not compare(old, new).is_slower
    # A file that says nothing of launches has the value alone, as those of other tools.
    unknown = dict.fromkeys(("launches", "time_ci_low_s", "time_ci_high_s"))
    foreign = baseline._replace(rows=[row._replace(**unknown) for row in baseline.rows])
    assert check(new, [slowdown], foreign).outcome == FAIL
    if calls > 2:
        failed = check(slow, [slowdown], baseline)
        assert (failed.outcome, "p5" in " ".join(advice(failed))) == (FAIL, False)

"""How often a check fails a program against itself, and which slowdown it still finds: runs that
are drawn, of 3 launches of 4 batches of 10 samples with 5 % noise, whose launches differ."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import in_memory

from commbench.answers.check.gate import NOT_TOGETHER, check
from commbench.answers.check.rules import parse_rule
from commbench.stats import FAIL

LIMIT = parse_rule("max_slowdown", "10%")


def failing(
    rows: int, spread: float, seed: int, slow: float = 1.0, are_all: bool = False
) -> tuple[int, int]:
    """How many rows fail together, and how many would by themselves; the first row, or each, is
    `slow` times as slow as in the baseline. The log medians of the launches of a row differ by
    `spread`."""
    chance = np.random.default_rng(seed)
    samples = 1e-4 * chance.lognormal(0, 0.05, (2, rows, 3, 4, 10))
    samples *= chance.lognormal(0, spread, (2, rows, 3, 1, 1))
    samples[1, : rows if are_all else 1] *= slow
    sides = samples.reshape(2, rows, 12, 10).tolist()
    old, new = (in_memory(f"run {n}", side, launches=3) for n, side in enumerate(sides))
    (result,) = check(new, [LIMIT], old).results
    alone = [c for c in result.checks.others if c.is_beyond]
    together = result.with_outcome(FAIL)
    reasons = {c.reason for c in alone if c not in together}
    assert reasons <= {NOT_TOGETHER.format(rows)}
    return len(together), len(alone)


# Of 1,500, 500 and 200 checks of one program 0.3, 0.0 and 0.5 % fail where the log medians of its
# launches differ by 8 % (each row judged by itself: 0.3, 1.4 and 6 %), and 0.9, 3.4 and 4 % by 15 %
# (0.9, 12 and 37 %).
@pytest.mark.parametrize(
    ("rows", "spread", "most"),
    [(1, 0.08, 0.05), (12, 0.08, 0.05), (50, 0.08, 0.05), (1, 0.15, 0.05), (12, 0.15, 0.06),
     (50, 0.15, 0.07)],
)  # fmt: skip
@pytest.mark.parametrize("checks", [20, pytest.param(200, marks=pytest.mark.full)])
def test_a_program_seldom_fails_against_itself(
    rows: int, spread: float, most: float, checks: int
) -> None:
    found = [failing(rows, spread, seed) for seed in range(checks)]
    failed, before = (sum(map(bool, each)) / checks for each in zip(*found, strict=True))
    assert failed <= min(most, before) + 0.05 * (checks == 20)


# A row that takes 1.25, 1.3, 1.35 and 1.4 times as long, with launches that differ by 4 %, fails
# in 90, 99, 100 and 100 % of the checks if it is alone, in 39, 78, 95 and 99 % of 12 rows, and in
# 18, 55, 80 and 94 % of 50 rows.
@pytest.mark.parametrize(("rows", "slow"), [(1, 1.3), (12, 1.4), (50, 1.5)])
def test_a_slow_row_is_found_among_many(rows: int, slow: float) -> None:
    found = [failing(rows, 0.04, seed, slow)[0] for seed in range(20)]
    assert sum(map(bool, found)) >= 18


# Where all of 12 rows take 1.15 and 1.2 times as long, 12 and 99 % of the checks fail; of 50 rows
# 3 and 100 %.
def test_a_program_that_is_slower_at_all_sizes_is_found() -> None:
    found = [failing(12, 0.04, seed, 1.25, are_all=True)[0] for seed in range(20)]
    assert sum(map(bool, found)) >= 18

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


def failing(rows: int, spread: float, seed: int, slow: float = 1.0) -> tuple[int, int]:
    """How many rows fail together, and how many would by themselves; the first row is `slow` times
    as slow as in the baseline. The log medians of the launches of a row differ by `spread`."""
    chance = np.random.default_rng(seed)
    samples = 1e-4 * chance.lognormal(0, 0.05, (2, rows, 3, 4, 10))
    samples *= chance.lognormal(0, spread, (2, rows, 3, 1, 1))
    samples[1, 0] *= slow
    sides = samples.reshape(2, rows, 12, 10).tolist()
    old, new = (in_memory(f"run {n}", side, launches=3) for n, side in enumerate(sides))
    (result,) = check(new, [LIMIT], old).results
    alone = [c for c in result.checks.others if c.is_beyond]
    together = result.with_outcome(FAIL)
    reasons = {c.reason for c in alone if c not in together}
    assert reasons <= {NOT_TOGETHER.format(rows)}
    return len(together), len(alone)


# Of 2,000 checks of one program, how many fail in percent, and how many would if each row were
# judged by itself. The usual spread of launches is 4 %; other programs make it larger.
@pytest.mark.parametrize(
    ("rows", "spread"), [(1, 0.08), (12, 0.08), (50, 0.08), (1, 0.15), (12, 0.15), (50, 0.15)]
)
@pytest.mark.parametrize("checks", [20, pytest.param(2000, marks=pytest.mark.full)])
def test_a_program_seldom_fails_against_itself(rows: int, spread: float, checks: int) -> None:
    found = [failing(rows, spread, seed) for seed in range(checks)]
    failed, before = (sum(map(bool, each)) / checks for each in zip(*found, strict=True))
    print(f"{rows} rows, {spread}: {before:.1%} before, {failed:.1%} now")
    assert failed <= 0.05 + 0.05 * (checks == 20)


# How often a row that takes so many times as long fails among so many rows, with launches that
# differ by 4 %.
@pytest.mark.parametrize(
    ("rows", "slow", "least"), [(1, 1.25, 0.8), (12, 1.35, 0.8), (50, 1.5, 0.8)]
)
@pytest.mark.parametrize("checks", [20, pytest.param(500, marks=pytest.mark.full)])
def test_a_slow_row_is_found_among_many(rows: int, slow: float, least: float, checks: int) -> None:
    found = [failing(rows, 0.04, seed, slow) for seed in range(checks)]
    failed, before = (sum(map(bool, each)) / checks for each in zip(*found, strict=True))
    print(f"{rows} rows, one {slow} times as long: {before:.1%} before, {failed:.1%} now")
    assert failed >= least

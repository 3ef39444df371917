"""Comparisons of runs whose launches differ by 4 %, as those of gloo usually do: how often equal
runs are called different, and how often a difference is found."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from synthetic import in_memory, steady

from commbench.compare.comparison import Comparison, compare
from commbench.compare.ratio import of_launches
from commbench.results.schema import Run
from commbench.stats.estimate import Estimate

ROWS = 8


def run(seed: int, launches: int, factor: float = 1.0, spread: float = 0.04) -> Run:
    """Rows of 12 batches of 10 samples with 5 % noise. Launches differ in all rows alike."""
    chance = np.random.default_rng(seed)
    samples = factor * 1e-4 * chance.lognormal(0, 0.05, (ROWS, 12, 10))
    of_launch = np.repeat(chance.lognormal(0, spread, launches), 12 // launches)
    return in_memory(f"seed {seed}", (samples * of_launch[:, None]).tolist(), launches=launches)


def pairs(number: int, launches: int, factor: float = 1.0) -> list[Comparison]:
    return [
        compare(run(2 * seed, launches), run(2 * seed + 1, launches, factor))
        for seed in range(number)
    ]


def share(found: Sequence[Any], *verdicts: str) -> float:
    return sum(each.verdict in verdicts for each in found) / len(found)


@pytest.mark.parametrize("number", [60, pytest.param(600, marks=pytest.mark.full)])
@pytest.mark.parametrize("launches", [1, 3, 6])
def test_equal_runs_are_called_different_in_at_most_5_percent(number: int, launches: int) -> None:
    found = pairs(number, launches)
    assert share([row for each in found for row in each.rows], "faster", "slower") <= 0.05
    assert share([range_ for each in found for range_ in each.pooled], "faster", "slower") <= 0.05


@pytest.mark.parametrize("number", [30, pytest.param(300, marks=pytest.mark.full)])
@pytest.mark.parametrize("launches", [1, 3])
def test_a_slowdown_of_40_percent_is_found(number: int, launches: int) -> None:
    found = pairs(number, launches, 1.4)
    assert sum(share(each.pooled, "slower") == 1 for each in found) >= 0.9 * number


def test_single_launches_are_undecided_within_what_launches_usually_differ_by() -> None:
    # 1.96 x 4 % x sqrt(2) is 11.1 %, of which the logarithm is meant: 0.895 to 1.117.
    for factor, verdict in ((0.9, "undecided"), (1.0, "undecided"), (1.1, "undecided"),
                            (1.15, "slower"), (1 / 1.15, "faster")):  # fmt: skip
        a, b = (in_memory(name, [steady(1e-4 * f)] * 3) for name, f in (("a", 1), ("b", factor)))
        found = compare(a, b)
        assert {each.verdict for each in (*found.rows, *found.pooled)} == {verdict}, factor


def test_the_usual_spread_is_that_of_both_sides_launches_and_of_the_backend() -> None:
    ratio = Estimate(1.0, 0.99, 1.01)
    for launches, backend, usual in (
        ((1, 1), "gloo", 1.96 * 0.04 * sqrt(2)),
        ((1, 4), "gloo", 1.96 * 0.04 * sqrt(1.25)),
        ((1, 1), "nccl", 1.96 * 0.03 * sqrt(2)),
        ((1, None), "unheard of", 1.96 * 0.03),
    ):
        low, high = of_launches(ratio, launches, backend).ends
        assert low and high and log(high) == pytest.approx(usual, rel=1e-4) == -log(low)
    for launches in ((3, 3), (None, None)):
        assert of_launches(ratio, launches, "gloo") == ratio
    far = Estimate(1.2, 1.19, 1.21)
    assert of_launches(far, (1, 1), "gloo") == far

"""Crossovers of two ways."""

from __future__ import annotations

from math import exp
from random import Random

import numpy as np
import pytest

from commbench.advise.crossings import find_crossing
from commbench.stats.estimate import Estimate

SIZES = [1 << k for k in range(10, 21)]


def crossing_of(middles: list[float], part: float = 0.03) -> object:
    ratios = [Estimate(m, m * exp(-part), m * exp(part)) for m in middles]
    chance = np.random.default_rng(1)
    drawn = [m * np.exp(part / 1.96 * chance.standard_normal(200)) for m in middles]
    for values, middle in zip(drawn, middles, strict=True):
        values[0] = middle
    return find_crossing(SIZES[: len(middles)], ratios, 0.02, drawn)


@pytest.mark.parametrize("at", [1500, 2048, 3000, 100_000, 700_000])
@pytest.mark.parametrize("power", [0.5, -0.5, 1.0])
def test_a_planted_crossover_lies_between_the_measured_sizes_around_it(
    at: int, power: float
) -> None:
    found = crossing_of([(size / at) ** power for size in SIZES])
    assert found is not None
    assert found.at == pytest.approx(at, rel=0.02)
    assert found.low <= at <= found.high
    assert found.below < at < found.above
    assert found.rises == (power > 0)
    assert found.above / found.below <= 4 if at == 2048 else found.above / found.below == 2


def test_undecided_sizes_widen_the_crossover_to_the_decided_ones_around_them() -> None:
    found = crossing_of([0.8, 0.8, 0.99, 1.0, 1.01, 1.2, 1.2])
    assert (found.below, found.above) == (SIZES[1], SIZES[5])
    assert found.high - found.low > 1000


def test_noise_and_several_turns_make_no_crossover() -> None:
    chance = Random(3)
    for _ in range(50):
        assert crossing_of([exp(chance.gauss(0, 0.01)) for _ in SIZES]) is None
    assert crossing_of([0.5, 2.0, 0.5, 2.0]) is None
    assert crossing_of([1.5] * 8) is None

"""Nodes of made-up fleets with a known truth: false alarms, detection, small fleets, masking."""

from __future__ import annotations

from math import log1p
from typing import Any

import numpy as np
import pytest
from fleet_power import ALL, HALVES, PARTS, false_alarms, named, power, slowed, superbench
from synthetic_fleet import MODELS, matrix

from commbench.answers.fleet.slow_nodes import (
    LEAST_NODES,
    ORDERED,
    RANGE,
    WHOLE,
    find_slow_nodes,
    make_parts,
)

NOTHING = np.full((64, 20), np.nan)
CORRELATED = MODELS["correlated"]


def test_parts_are_all_cases_kinds_ranges_of_sizes_and_slower_halves() -> None:
    parts = make_parts(["a", "a", "b", "b"], [1, 8, 1, 8])
    assert [(part.kind, part.cases) for part in parts] == [
        (WHOLE, (0, 1, 2, 3)), (RANGE, (0, 1)), (RANGE, (2, 3)), (RANGE, (1, 3)), (RANGE, (0, 2)),
        (ORDERED, (0, 1, 2, 3)),
    ]  # fmt: skip
    assert [part.cases for part in make_parts(["a"], [1024])] == [(0,)]
    assert len(make_parts(["a"] * 100, range(100))) < 20


FULL = pytest.mark.full


@pytest.mark.parametrize(("fleets", "most"), [(25, 0.04), pytest.param(1000, 0.01, marks=FULL)])
@pytest.mark.parametrize("name", MODELS)
def test_a_sound_fleet_has_hardly_ever_a_node_named(name: str, fleets: int, most: float) -> None:
    assert false_alarms(MODELS[name], fleets) <= most


@pytest.mark.parametrize(("fleets", "least"), [(20, 0.85), pytest.param(200, 0.95, marks=FULL)])
@pytest.mark.parametrize("part", HALVES)
def test_a_node_that_is_slower_by_five_percent_in_half_of_its_cases_is_named(
    part: str, fleets: int, least: float
) -> None:
    assert power(CORRELATED, fleets, HALVES[part], 0.05) >= least


@pytest.mark.parametrize("nodes", [6, 16, 64])
def test_a_node_that_is_slower_by_the_least_is_named_in_most_fleets(nodes: int) -> None:
    found = 0
    for seed in range(20):
        times = matrix(MODELS["heavy tails"], seed, nodes)
        nothing = np.full(times.shape, np.nan)
        times[seed % nodes] += log1p(find_slow_nodes(times, nothing, PARTS, 0.01).least)
        found += named(times)[seed % nodes]
    assert found >= 18


@pytest.mark.parametrize(
    ("seed", "nodes", "part", "by", "slow"),
    [
        (3, 64, ALL, 0.3, 1), (4, 64, ALL, -0.3, 0), (4, 64, HALVES["sizes"], -0.3, 0),
        (6, 64, ALL, 0.4, 9), (5, 64, HALVES["sizes"], 0.5, 12),
        *((9, nodes, ALL, by, int(by > 0)) for nodes in (LEAST_NODES, 5, 9) for by in (0, 1e3)),
    ],
)  # fmt: skip
def test_slow_nodes_are_named_and_faster_and_sound_ones_are_not(
    seed: int, nodes: int, part: list[bool], by: float, slow: int
) -> None:
    times = matrix(CORRELATED, seed, nodes=nodes)
    times[: max(1, slow), part] += log1p(by)
    found = named(times)
    assert found == [True] * slow + [False] * (nodes - slow)
    if slow > 1:
        times[slow : slow + 4] -= log1p(by)  # faster nodes hide none
        assert named(times) == found
        assert not any(named(matrix(CORRELATED, seed)[slow:]))


@FULL
@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_small_sound_fleets_have_no_more_false_alarms(nodes: int) -> None:
    assert false_alarms(CORRELATED, 1000, nodes=nodes) <= 0.01


def test_superbenchs_rule_names_sound_nodes_and_is_not_held_by_a_level() -> None:
    assert false_alarms(CORRELATED, 20, superbench) > 0.5


def test_the_order_of_nodes_does_not_matter() -> None:
    times = slowed(matrix(CORRELATED, 7), HALVES["operations"], 0.08)
    shuffled = np.random.default_rng(1).permutation(64)
    first = find_slow_nodes(times, NOTHING, PARTS, 0.01)
    second = find_slow_nodes(times[shuffled], NOTHING, PARTS, 0.01)
    assert [first.chances[at] for at in shuffled] == pytest.approx(second.chances)


def test_a_node_whose_interval_is_wide_is_less_likely_to_be_named() -> None:
    times = slowed(matrix(CORRELATED, 8), ALL, 0.3)
    errors = np.full(times.shape, 0.01)
    sure = find_slow_nodes(times, errors, PARTS, 0.01).chances[0]
    errors[0] = 0.2
    assert find_slow_nodes(times, errors, PARTS, 0.01).chances[0] > max(10 * sure, 0.01)


def test_times_that_are_all_equal_are_sound() -> None:
    assert not any(named(np.zeros((8, 20))))
    times = slowed(np.zeros((8, 20)), ALL, 0.1)
    assert named(times) == [True] + [False] * 7


def test_cases_that_a_node_lacks_do_not_matter() -> None:
    times: Any = slowed(matrix(CORRELATED, 10), HALVES["sizes"], 0.2)
    times[0, :5] = times[7, 3:9] = times[20, 11] = np.nan
    assert named(times) == [True] + [False] * 63


def test_one_case_is_enough() -> None:
    times = np.random.default_rng(11).normal(0, 0.02, (32, 1))
    times[5] += 1
    scores = find_slow_nodes(times, np.full((32, 1), np.nan), make_parts(["a"], [1024]), 0.01)
    assert [at for at, chance in enumerate(scores.chances) if chance <= 0.01] == [5]

"""Nodes of made-up fleets with a known truth: false alarms, detection, small fleets, masking."""

from __future__ import annotations

from math import log
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
from commbench.stats import student_tail

NOTHING = np.full((64, 20), np.nan)
CORRELATED = MODELS["correlated"]


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (8, 2.30600), (35, 2.03011)]
)
def test_the_tail_of_students_t_is_that_of_tables(degrees: int, t: float) -> None:
    assert student_tail(t, degrees) == pytest.approx(0.025, rel=1e-4)
    assert student_tail(-t, degrees) == pytest.approx(0.975, rel=1e-4)


def test_the_tail_of_students_t_falls_to_nothing() -> None:
    tails = [student_tail(t, 5) for t in (0.0, 1.0, 10.0, 1e3, 1e9)]
    assert tails[0] == pytest.approx(0.5)
    assert tails == sorted(tails, reverse=True)
    assert tails[-1] == pytest.approx(0.0, abs=1e-12)


def test_parts_are_all_cases_kinds_ranges_of_sizes_and_slower_halves() -> None:
    parts = make_parts(["a", "a", "b", "b"], [1, 8, 1, 8])
    assert [(part.kind, part.cases) for part in parts] == [
        (WHOLE, (0, 1, 2, 3)), (RANGE, (0, 1)), (RANGE, (2, 3)), (RANGE, (1, 3)), (RANGE, (0, 2)),
        (ORDERED, (0, 1, 2, 3)),
    ]  # fmt: skip
    assert [part.cases for part in make_parts(["a"], [1024])] == [(0,)]
    assert len(make_parts(["a"] * 100, range(100))) < 20


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_fleet_has_hardly_ever_a_node_named(name: str) -> None:
    assert false_alarms(MODELS[name], 25) <= 0.04


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_of_a_thousand_sound_fleets_ten_at_most_have_a_node_named(name: str) -> None:
    assert false_alarms(MODELS[name], 1000) <= 0.01


@pytest.mark.full
@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_small_sound_fleets_have_no_more_false_alarms(nodes: int) -> None:
    assert false_alarms(CORRELATED, 1000, nodes=nodes) <= 0.01


@pytest.mark.parametrize("part", HALVES)
def test_a_node_that_is_slower_by_five_percent_in_half_of_its_cases_is_named(part: str) -> None:
    assert power(CORRELATED, 20, HALVES[part], 0.05) >= 0.85


@pytest.mark.full
@pytest.mark.parametrize("part", HALVES)
def test_of_200_such_nodes_190_are_named(part: str) -> None:
    assert power(CORRELATED, 200, HALVES[part], 0.05) >= 0.95


def test_a_node_that_is_slower_in_all_cases_is_named() -> None:
    found = named(slowed(matrix(CORRELATED, 3), ALL, 0.3))
    assert found == [True] + [False] * 63


def test_a_faster_node_is_not_named() -> None:
    assert not any(named(slowed(matrix(CORRELATED, 4), ALL, -0.3)))
    assert not any(named(slowed(matrix(CORRELATED, 4), HALVES["sizes"], -0.3)))


def test_several_slow_nodes_do_not_hide_each_other() -> None:
    times = matrix(CORRELATED, 5)
    times[:12, HALVES["sizes"]] += log(1.5)
    times[12:16] -= log(1.5)
    assert named(times) == [True] * 12 + [False] * 52


def test_what_is_left_after_the_slow_nodes_are_taken_away_passes() -> None:
    times = matrix(CORRELATED, 6)
    times[:9] += log(1.4)
    slow = np.array(named(times))
    assert slow.sum() == 9
    assert not any(named(times[~slow]))


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


@pytest.mark.parametrize("nodes", [LEAST_NODES, 5, 9])
def test_small_fleets_are_judged(nodes: int) -> None:
    times = matrix(CORRELATED, 9, nodes=nodes)
    assert not any(named(times))
    assert named(slowed(times, ALL, 1e3)) == [True] + [False] * (nodes - 1)


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

"""The terms of the cost models are those of the literature."""

from __future__ import annotations

from math import log2

import pytest

from commbench.models.cost_models import COST_MODELS, PARAMETERS, find_model, models_of
from commbench.spec.operations import OPERATIONS

ALPHA, BETA = 5e-6, 1e-10


def cost(
    operation: str, name: str, parameters: tuple[float, ...], n: int, size: int, per_node: int = 1
) -> float:
    terms = find_model(operation, name).terms(n, per_node, size)
    return sum(p * t for p, t in zip(parameters, terms, strict=True))


@pytest.mark.parametrize("n", [2, 8, 1024])
@pytest.mark.parametrize("size", [8, 1 << 20, 1 << 30])
def test_all_reduce_is_what_the_textbooks_say(n: int, size: int) -> None:
    """Thakur, Rabenseifner, Gropp 2005, without reduction; P bytes over a bandwidth BW."""
    depth = log2(n)
    share = (n - 1) / n
    common = (0.0, ALPHA, BETA)
    assert cost("all_reduce", "ring", common, n, size) == pytest.approx(
        2 * (n - 1) * ALPHA + 2 * share * size * BETA
    )
    assert cost("all_reduce", "Rabenseifner", common, n, size) == pytest.approx(
        2 * depth * ALPHA + 2 * share * size * BETA
    )
    # reduce and broadcast over a tree: 2 log2 N rounds
    assert cost("all_reduce", "reduce + broadcast", common, n, size) == pytest.approx(
        2 * depth * (ALPHA + size * BETA)
    )
    # the same, pipelined: alpha log N + beta P/BW
    assert cost("all_reduce", "double binary tree", common, n, size) == pytest.approx(
        2 * depth * ALPHA + 2 * share * size * BETA
    )


def test_a_tree_beats_a_ring_where_latency_counts_and_only_there() -> None:
    tree, ring = (0.0, ALPHA, BETA), (0.0, ALPHA, BETA)
    for n in (4, 64, 24576):
        small = [
            cost("all_reduce", name, parameters, n, 8)
            for name, parameters in (("ring", ring), ("double binary tree", tree))
        ]
        assert small[0] / small[1] == pytest.approx((n - 1) / log2(n), rel=1e-3)
        large = [
            cost("all_reduce", name, parameters, n, 1 << 45)
            for name, parameters in (("ring", ring), ("double binary tree", tree))
        ]
        assert large[0] / large[1] == pytest.approx(1, rel=0.01)


def test_a_tree_over_hosts_has_the_hosts_as_leaves() -> None:
    parameters = (0.0, ALPHA, 0.0)
    assert cost("all_reduce", "double binary tree", parameters, 96, 8, per_node=6) == pytest.approx(
        2 * 4 * ALPHA
    )
    within = cost("all_reduce", "double binary tree", parameters, 8, 8, per_node=8)
    assert within == pytest.approx(2 * 3 * ALPHA)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_model_for_one_and_for_several_numbers_of_ranks(name: str) -> None:
    assert {model.spans_ranks for model in models_of(name)} == {True, False}


def test_names_are_unique_for_an_operation_and_terms_are_not_negative() -> None:
    for operation in OPERATIONS:
        names = [model.name for model in models_of(operation)]
        assert len(names) == len(set(names))
    for model in COST_MODELS:
        for n, per_node in ((2, 2), (3, 1), (6, 4), (512, 8)):
            terms = model.terms(n, per_node, 1 << 20)
            assert len(terms) == len(PARAMETERS)
            assert all(term >= 0 for term in terms)

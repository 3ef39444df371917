"""Experts: bytes and crossovers."""

from __future__ import annotations

from itertools import combinations

import pytest
from planted_times import affine

from commbench.advise.moe import EXCHANGED, GATHERED, Routing, find_moe

ROUTING = Routing(topk=2, experts=16, hidden=1024, element_bytes=2)


@pytest.mark.parametrize(
    ("topk", "experts", "ranks"), [(1, 8, 4), (2, 8, 4), (4, 12, 3), (8, 8, 2)]
)
def test_a_token_goes_to_the_ranks_of_its_experts_each_counted_once(
    topk: int, experts: int, ranks: int
) -> None:
    per_rank = experts // ranks
    chosen = list(combinations(range(experts), topk))
    mean = sum(len({expert // per_rank for expert in own}) for own in chosen) / len(chosen)
    copies = Routing(topk, experts, 1, 1).copies(ranks)
    assert copies == pytest.approx(mean)


def test_the_crossover_is_where_the_formulas_cross() -> None:
    ranks, beta = 8, 1e-9
    gather, exchange = affine(50e-6, beta), affine(250e-6, beta)
    tables = [table._replace(ranks=ranks) for table in (gather, gather, exchange)]
    found = find_moe(tables, ROUTING, 0.02)
    assert found and found.crossing
    each = 2 * beta * 1024 * 2  # seconds of a token that goes to one rank, there and back
    tokens = 2 * 200e-6 / (each * (ranks - ROUTING.copies(ranks)))
    assert found.crossing.at == pytest.approx(tokens, rel=0.1)
    assert found.crossing.rises and found.faster == [GATHERED, EXCHANGED]
    assert found.crossing.below < tokens < found.crossing.above
    assert found.crossing.above <= 4 * found.crossing.below


def test_all_to_all_gains_nothing_where_tokens_go_to_all_ranks() -> None:
    table = affine(50e-6, 1e-9, part=0.01)._replace(ranks=2)
    found = find_moe([table] * 3, Routing(16, 16, 1024, 2), 0.02)
    assert found and found.crossing is None and found.copies == 2
    assert {round(point.ratio.value, 6) for point in found.curve} == {1.0} and not found.faster


def test_tokens_whose_bytes_were_not_measured_are_left_out() -> None:
    table = affine(50e-6, 1e-9, (1 << 16, 1 << 20))._replace(ranks=4)
    found = find_moe([table] * 3, ROUTING, 0.02)
    assert found and [point.tokens for point in found.curve] == [32, 64, 128]
    assert find_moe([table] * 3, ROUTING._replace(hidden=1 << 24), 0.02) is None

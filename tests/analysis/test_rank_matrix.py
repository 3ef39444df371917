from __future__ import annotations

from math import exp, log

import numpy
import pytest
from synthetic_matrix import ACROSS_HOSTS, planted_matrix

from commbench.analysis.rank_matrix import (
    BANDWIDTH,
    LATENCY,
    RankMatrix,
    group_medians,
    make_cells,
    median_polish,
    robust_scale,
    t_quantile,
)


def test_a_pair_that_was_not_measured_has_no_value() -> None:
    matrix = RankMatrix(BANDWIDTH, {(0, 1): 2e9}, ("a", "b"))
    assert (matrix.ranks, matrix.value(0, 1), matrix.value(1, 0)) == (2, 2e9, None)


def test_of_a_latency_each_pair_is_one_cell() -> None:
    values = {(0, 1): 1e-6, (1, 0): 1e-6, (2, 0): 4e-6}
    cells = make_cells(RankMatrix(LATENCY, values, ("a", "a", "b")))
    assert list(zip(cells.senders, cells.receivers, cells.is_within, strict=True)) == [
        (0, 1, True), (2, 0, False)
    ]  # fmt: skip
    assert cells.quality[1] == pytest.approx(-log(4e-6))


def test_medians_of_groups_are_those_of_numpy() -> None:
    labels = numpy.array([0, 2, 2, 0, 0, 2, 3])
    values = numpy.array([5.0, 1, 8, 1, 2, 4, 7])
    found = group_medians(labels, values, 5)
    assert list(found[[0, 2, 3]]) == [2, 4, 7] and numpy.isnan(found[[1, 4]]).all()


def test_median_polish_finds_the_effects_of_ranks() -> None:
    matrix = planted_matrix(8, noise=0.0)
    values = {
        (a, b): value * {3: 0.5}.get(a, 1) * {5: 0.8}.get(b, 1) * {(1, 2): 0.1}.get((a, b), 1)
        for (a, b), value in matrix.values.items()
    }
    cells = make_cells(matrix._replace(values=values))
    sending, receiving, residuals = median_polish(cells, 8)
    assert [round(exp(each), 3) for each in sending] == [1, 1, 1, 0.5, 1, 1, 1, 1]
    assert [round(exp(each), 3) for each in receiving] == [1, 1, 1, 1, 1, 0.8, 1, 1]
    left = {
        (int(a), int(b)): round(exp(each), 3)
        for a, b, each in zip(cells.senders, cells.receivers, residuals, strict=True)
        if abs(each) > 1e-9
    }
    assert left == {(1, 2): 0.1}
    assert exp(cells.quality.max()) == pytest.approx(ACROSS_HOSTS)


def test_outliers_do_not_widen_a_robust_scale() -> None:
    values = numpy.random.default_rng(1).normal(0, 1, 1000)
    values[:20] = -50
    assert robust_scale(values) == pytest.approx(1, abs=0.1)
    assert robust_scale(values, with_tail=True) == pytest.approx(1.2, abs=0.2)


def test_few_values_need_a_wider_limit() -> None:
    # Of Student's distribution, by numerical integration: 3.957 and 3.422.
    assert t_quantile(3.0, 10) == pytest.approx(3.96, abs=0.1)
    assert t_quantile(3.0, 20) == pytest.approx(3.42, abs=0.05)
    assert t_quantile(3.0, 10_000) == pytest.approx(3.0, abs=0.01)

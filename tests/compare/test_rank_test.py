"""The rank test against p-values from tables and from counting by hand."""

from __future__ import annotations

from itertools import combinations

import pytest

from commbench.compare.rank_test import mann_whitney

# Mann and Whitney 1947, table I: P(U <= u) for sizes n, m; doubled here.
EXACT = [
    ([1, 2, 3], [4, 5, 6], 2 * 0.05),
    ([1, 2, 3, 4], [5, 6, 7, 8], 2 * 1 / 70),
    ([1, 2, 3, 5], [4, 6, 7, 8], 2 * 2 / 70),
    ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 * 1 / 252),
    ([1, 4], [2, 3], 1.0),
]


@pytest.mark.parametrize(("first", "second", "expected"), EXACT)
def test_exact_p_values_of_few_values(
    first: list[float], second: list[float], expected: float
) -> None:
    assert mann_whitney(first, second) == pytest.approx(expected)
    assert mann_whitney(second, first) == pytest.approx(expected)


def test_ties_are_counted_as_they_are() -> None:
    first, second = [1.0, 1.0, 2.0, 4.0], [2.0, 3.0, 4.0, 4.0, 5.0]
    everything = first + second
    rank = {v: sum(x < v for x in everything) + (everything.count(v) + 1) / 2 for v in everything}
    observed = sum(rank[value] for value in first)
    sums = [sum(rank[everything[i]] for i in chosen) for chosen in combinations(range(9), 4)]
    below = sum(found <= observed for found in sums) / len(sums)
    above = sum(found >= observed for found in sums) / len(sums)
    assert mann_whitney(first, second) == pytest.approx(2 * min(below, above))


def test_nothing_to_rank_and_nothing_but_ties_prove_nothing() -> None:
    assert mann_whitney([], [1.0]) == 1.0
    assert mann_whitney([2.0] * 30, [2.0] * 30) == 1.0


def test_many_values_use_the_normal_distribution() -> None:
    # U = 50 of 400, mean 200, variance 20 * 20 * 41 / 12: z = (150 - 0.5) / 36.97 = 4.044
    assert mann_whitney(range(20), range(10, 30)) == pytest.approx(5.2e-5, rel=0.02)
    # 11 against 10 without overlap: exact would be 2 / C(21, 10) = 5.7e-6; z = 3.838
    assert mann_whitney(range(11), range(11, 21)) == pytest.approx(1.24e-4, rel=0.02)

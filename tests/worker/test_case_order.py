"""In which order cases are measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.spec.plan import ORDERS
from commbench.worker.sampling import MAX_LEAD, CaseOrder

quick = settings(deadline=None, max_examples=60)
cases = st.sets(st.integers(0, 50), min_size=1, max_size=12)


def measured_order(
    order: str, seed: int, unfinished: Collection[int], progress: Callable[[int], float]
) -> Iterator[int]:
    """The cases that are measured one after another, while the caller takes out finished ones."""
    following = CaseOrder(order, seed)
    while (case := following.next(unfinished, progress)) is not None:
        yield case


def together(_: int) -> float:
    """All cases have had the same part of what they need."""
    return 0.0


def follow(order: str, seed: int, needs: dict[int, int]) -> list[int]:
    """The batches until every case has had as many as it needs."""
    unfinished = dict(needs)
    found = []
    for case in measured_order(order, seed, unfinished, together):
        found.append(case)
        unfinished[case] -= 1
        if not unfinished[case]:
            del unfinished[case]
    return found


def rounds(order: Iterator[int], size: int, number: int) -> list[list[int]]:
    return [list(islice(order, size)) for _ in range(number)]


@quick
@given(cases, st.integers(0, 2**40))
def test_each_round_measures_each_unfinished_case_once(unfinished: set[int], seed: int) -> None:
    for found in rounds(measured_order("shuffled", seed, unfinished, together), len(unfinished), 5):
        assert sorted(found) == sorted(unfinished)


@quick
@given(st.dictionaries(st.integers(0, 50), st.integers(1, 6), max_size=10), st.integers(0, 99))
def test_a_finished_case_drops_out_and_all_others_go_on(needs: dict[int, int], seed: int) -> None:
    found = follow("shuffled", seed, needs)
    expected = [
        {case for case, need in needs.items() if need > done}
        for done in range(max(needs.values(), default=0))
    ]
    for round_ in expected:
        measured, found = found[: len(round_)], found[len(round_) :]
        assert set(measured) == round_
    assert found == []


@quick
@given(st.dictionaries(st.integers(0, 50), st.integers(1, 6), max_size=10), st.integers(0, 99))
def test_ascending_finishes_one_case_after_another(needs: dict[int, int], seed: int) -> None:
    assert follow("ascending", seed, needs) == [
        case for case in sorted(needs) for _ in range(needs[case])
    ]


def test_the_same_seed_makes_the_same_order_and_another_seed_another() -> None:
    def order(seed: int) -> list[int]:
        return list(islice(measured_order("shuffled", seed, set(range(8)), together), 80))

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(20)}) == 20


def test_rounds_have_orders_of_their_own() -> None:
    found = rounds(measured_order("shuffled", 0, set(range(8)), together), 8, 20)
    assert len(set(map(tuple, found))) == 20
    assert sorted(found[0]) != found[0]


def test_every_case_is_first_in_its_share_of_the_rounds() -> None:
    # Of 6000 rounds each of six cases begins 1000, give or take 29 (one standard deviation).
    found = rounds(measured_order("shuffled", 1, set(range(6)), together), 6, 6000)
    for case in range(6):
        assert sum(order[0] == case for order in found) == pytest.approx(1000, abs=120)


@quick
@given(st.dictionaries(st.integers(0, 50), st.integers(1, 40), min_size=1, max_size=10))
def test_the_batches_of_every_case_are_spread_over_the_run(needs: dict[int, int]) -> None:
    had = dict.fromkeys(needs, 0)
    unfinished = set(needs)

    def done(case: int) -> float:
        return had[case] / needs[case]

    for case in measured_order("shuffled", 0, unfinished, done):
        assert done(case) < min(map(done, unfinished)) + MAX_LEAD + max(1 / needs[c] for c in needs)
        had[case] += 1
        if had[case] == needs[case]:
            unfinished.remove(case)
    assert had == needs


def test_a_case_of_two_batches_sits_out_while_others_catch_up() -> None:
    needs, order = {0: 10, 1: 10, 2: 2}, []
    unfinished = set(needs)
    for case in measured_order("shuffled", 0, unfinished, lambda c: order.count(c) / needs[c]):
        order.append(case)
        if order.count(case) == needs[case]:
            unfinished.remove(case)
    first, second = (place for place, case in enumerate(order) if case == 2)
    assert first < 3 and 9 <= second < 15


@pytest.mark.parametrize("order", ORDERS)
def test_without_cases_nothing_is_measured(order: str) -> None:
    assert list(measured_order(order, 0, set(), together)) == []

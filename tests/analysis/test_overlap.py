"""The four figures of an overlap and their intervals, from times that are given."""

from __future__ import annotations

from math import hypot

import pytest

from commbench.analysis.overlap import Overlap, find_overlap
from commbench.analysis.statistics import Summary
from commbench.results.schema import Batch


def figures(a: float, b: float, t: float, *, known: float = 0.0, told: bool = True) -> Overlap:
    """Of the times a, b and t in ms, known to that part on either side; communication and
    computation take 1.5 and 1.2 times as long at once as alone."""
    times = [
        Summary(10, 1e-3 * each, 1e-3 * each * (1 - known), 1e-3 * each * (1 + known))
        for each in (a, b, t)
    ]
    batch = Batch(
        samples_s=(1e-3 * t,) * 10,
        communication_s=(1.5e-3 * a,) * 10 if told else (),
        computation_s=(1.2e-3 * b,) * 10,
    )
    found = find_overlap(*times, [batch])
    assert found
    return found


@pytest.mark.parametrize(
    ("a", "b", "t", "hidden", "imb", "osu", "gain"),
    [
        (10, 10, 20, 0.0, 0.0, 0.0, 1.0),  # one after the other
        (10, 10, 15, 0.5, 0.5, 0.5, 4 / 3),
        (10, 10, 10, 1.0, 1.0, 1.0, 2.0),
        (10, 10, 25, 0.0, 0.0, 0.0, 0.8),  # they disturb each other
        (10, 20, 20, 1.0, 0.5, 1.0, 1.5),  # all of the shorter one is hidden
        (20, 10, 20, 1.0, 0.5, 0.5, 1.5),
        (10, 20, 25, 0.5, 0.25, 0.5, 1.2),
    ],
)
def test_figures_follow_from_the_times(
    a: float, b: float, t: float, hidden: float, imb: float, osu: float, gain: float
) -> None:
    found = figures(a, b, t)
    assert found.hidden.value == pytest.approx(hidden)
    assert found.imb_hidden == pytest.approx(imb)
    assert found.osu_hidden == pytest.approx(osu)
    assert found.gain.value == pytest.approx(gain)
    assert found.computation_slowdown.value == pytest.approx(0.2)
    assert found.communication_slowdown
    assert found.communication_slowdown.value == pytest.approx(0.5)


def test_shares_lie_between_nothing_and_all_and_so_do_their_intervals() -> None:
    for t in (8, 10, 20, 22):
        share = figures(10, 10, t, known=0.2).hidden
        assert share.low is not None and share.high is not None
        assert 0 <= share.low <= share.value <= share.high <= 1


def test_the_interval_of_a_share_adds_the_moves_of_its_medians_as_squares() -> None:
    share = figures(10, 10, 15, known=0.01).hidden
    # a down: (19.9 - 15) / 9.9, a up: (20.1 - 15) / 10; the same for b; t: 0.15 / 10 each way
    down = hypot(0.5 - 4.9 / 9.9, 0.5 - 4.9 / 9.9, 0.015)
    up = hypot(0.01, 0.01, 0.015)
    assert (share.low, share.high) == pytest.approx((0.5 - down, 0.5 + up))


def test_where_the_end_of_a_communication_is_unknown_only_its_slowdown_is_missing() -> None:
    found = figures(10, 10, 15, told=False)
    assert found.communication_s is None and found.communication_slowdown is None
    assert found.computation_slowdown.value == pytest.approx(0.2)


def test_the_end_of_only_some_batches_is_not_enough() -> None:
    times = [Summary(6, each) for each in (1.0, 1.0, 1.5)]
    batches = [
        Batch(samples_s=(1.5,), communication_s=(1.5,), computation_s=(1.0,)),
        Batch(samples_s=(1.5,), computation_s=(1.0,)),
    ]
    found = find_overlap(*times, batches)
    assert found and found.communication_slowdown is None
    assert find_overlap(*times, [Batch(samples_s=(1.5,))]) is None

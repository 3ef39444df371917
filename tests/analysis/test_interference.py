"""What was in the way of a measurement, from batches that are made up."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_rows import batches

from commbench.analysis.interference import (
    STALL_FACTOR,
    STALL_S,
    Interference,
    find_interference,
    mean_by_rank,
)
from commbench.results.schema import Batch


def stalled(*samples_s: tuple[float, ...], **same: Any) -> float | None:
    return find_interference(batches(*samples_s, **same)).stalled_share


def test_without_batches_nothing_is_known() -> None:
    assert find_interference(()) == Interference(
        calls=None, stalled_share=None, queued_share=None, switches_per_iteration=None,
        throttled_share=None, stolen_share=None, entry_skew_s=None, operation_s=None,
        last_share=(),
    )  # fmt: skip


def test_figures_are_taken_over_all_batches() -> None:
    first = Batch(
        samples_s=(1e-3,) * 3, calls=2, last_in=(3, 0), entry_skew_s=1e-6, operation_s=8e-4,
        elapsed_s=0.010, queued_s=0.001, switches=3, throttled_s=0.0, stolen_s=0.002,
    )  # fmt: skip
    second = Batch(
        samples_s=(1e-3,) * 5, calls=2, last_in=(1, 4), entry_skew_s=3e-6, operation_s=9e-4,
        elapsed_s=0.030, queued_s=0.009, switches=1, throttled_s=0.004, stolen_s=0.0,
    )  # fmt: skip
    assert find_interference((first, second)) == Interference(
        calls=2,
        stalled_share=0.0,
        queued_share=pytest.approx(0.010 / 0.040),
        switches_per_iteration=4 / 8,
        throttled_share=pytest.approx(0.1),
        stolen_share=pytest.approx(0.05),
        entry_skew_s=pytest.approx(2e-6),
        operation_s=pytest.approx(8.5e-4),
        last_share=(0.5, 0.5),
    )


# An iteration is stalled if it takes 1.5 ms more and half as long again as the fastest tenth.
@pytest.mark.parametrize(
    ("usual", "odd", "is_stalled"),
    [
        (1e-4, 1.59e-3, False),
        (1e-4, 1.61e-3, True),
        (2.9e-3, 4.39e-3, False),
        (2.9e-3, 4.41e-3, True),
        (3.1e-3, 4.61e-3, False),
        (3.1e-3, 4.66e-3, True),
        (1.0, 1.49, False),
        (1.0, 1.51, True),
    ],
)
def test_an_iteration_is_stalled_that_took_1_5_ms_more_and_half_as_long_again(
    usual: float, odd: float, is_stalled: bool
) -> None:
    assert (STALL_S, STALL_FACTOR) == (1.5e-3, 1.5)
    assert stalled((usual,) * 9 + (odd,)) == (0.1 if is_stalled else 0.0)


def test_the_usual_time_is_the_fastest_tenths_and_not_a_single_fast_iteration_of_many() -> None:
    assert stalled((1e-4, 1e-4, *(4e-3,) * 8)) == 0.8
    assert stalled((1e-4, *(4e-3,) * 9)) == 0.9
    assert stalled((1e-6, *(4e-3,) * 19)) == 0.0


def test_a_stall_is_spread_over_the_calls_of_a_pipelined_iteration() -> None:
    # 1.5 ms over 20 calls are 75 us a call.
    assert stalled((1e-4,) * 9 + (170e-6,), calls=20) == 0.0
    assert stalled((1e-4,) * 9 + (180e-6,), calls=20) == 0.1


@pytest.mark.parametrize("field", ["queued_s", "throttled_s", "stolen_s"])
def test_a_share_is_unknown_where_any_batch_does_not_know_it(field: str) -> None:
    known = Batch(samples_s=(1.0,), elapsed_s=1.0, **{field: 0.5})
    unknown = Batch(samples_s=(1.0,), elapsed_s=1.0)
    share = field.replace("_s", "_share")
    assert getattr(find_interference((known,)), share) == 0.5
    assert getattr(find_interference((known, unknown)), share) is None


def test_what_some_batch_does_not_know_is_not_told() -> None:
    found = find_interference((Batch(samples_s=(1.0,), queued_s=0.5, switches=3),))
    assert (found.queued_share, found.switches_per_iteration) == (None, None), "loop not timed"
    shared = Batch(samples_s=(1.0,), entry_skew_s=0.1, operation_s=0.9, last_in=(0, 1))
    found = find_interference((shared, Batch(samples_s=(1.0,))))
    assert (found.entry_skew_s, found.operation_s, found.last_share) == (None, None, ())
    # Batches with different numbers of calls.
    found = find_interference((*batches((1e-4,) * 9, calls=20), *batches((1e-2,) * 9, calls=19)))
    assert (found.stalled_share, found.calls) == (None, 20)


def test_a_figure_of_each_rank_is_its_mean_weighted_by_iterations() -> None:
    few = Batch(samples_s=(1.0,) * 2, rank_behind_s=(1.0, 4.0))
    many = Batch(samples_s=(1.0,) * 6, rank_behind_s=(3.0, 0.0))
    assert mean_by_rank((few, many), "rank_behind_s") == pytest.approx([2.5, 1.0])
    assert mean_by_rank((few, many), "rank_medians_s") == []
    assert mean_by_rank((few, Batch(samples_s=(1.0,))), "rank_behind_s") == []
    assert mean_by_rank((), "rank_behind_s") == []

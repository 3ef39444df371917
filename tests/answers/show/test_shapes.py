"""What a run found about its shapes of communication. The runs are synthetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from synthetic import header, plan

from commbench.analysis.rows import make_rows
from commbench.answers.show.shapes import Finding, find_shapes, shapes_sentence
from commbench.plan.case import READY, Case
from commbench.plan.splits import UNIFORM, parse_imbalance
from commbench.results.records import RankInfo
from commbench.results.schema import Batch, Measurement, Run, RunEnd

NEAR = [1 + 0.004 * (i - 4) for i in range(9)]


def run_of(time_ms: Callable[[Case], float], **asked: Any) -> Run:
    """A run whose calls take so long, nine samples within 2 % each."""
    found = []
    for case in (case for case in plan(iterations=9, **asked).cases() if case.status == READY):
        batch = Batch(tuple(time_ms(case) * 1e-3 * near for near in NEAR))
        found.append(Measurement(case, "ok", "", "fixed", wrong=0, batches=(batch,)))
    return Run("mine", header(plan(**asked), "mine"), tuple(found), RunEnd("complete"))


def only(run: Run) -> Finding:
    (found,) = find_shapes(make_rows(run))
    return found


def test_unequal_blocks_are_compared_with_equal_ones_at_the_largest_size() -> None:
    def time_ms(case: Case) -> float:
        return (1.9 if case.imbalance == "zipf:1" else 1.0) * (case.size_bytes >> 20)

    sizes = {"operations": ("all_to_all_v",), "sizes": (1 << 20, 4 << 20), "world_size": 4}
    found = only(run_of(time_ms, imbalance=(UNIFORM, "zipf:1"), **sizes))
    assert (found.shape, found.call, found.size_bytes >> 20) == ("uneven", "all_to_all_v", 4)
    assert (found.what, found.other) == ("zipf:1", "receives")
    assert found.figures["ratio"].value == pytest.approx(1.9)
    assert found.figures["max_over_mean"] == pytest.approx(1.92, abs=0.01)
    assert found.verdict == "slower"
    alone = run_of(time_ms, imbalance=("zipf:1",), **sizes)
    assert not find_shapes(make_rows(alone))
    assert parse_imbalance(" 1") == UNIFORM


def test_the_fastest_form_is_found_at_the_smallest_and_at_the_largest_size() -> None:
    times = {
        "flat": (0.5, 0.5), "separate": (4, 8), "async": (3, 8.1), "coalesced": (3.01, 7.99),
        "flat_copy": (1, 12),
    }  # fmt: skip

    def time_ms(case: Case) -> float:
        return times[case.form][case.size_bytes > 1 << 16]

    small, large = find_shapes(
        make_rows(run_of(time_ms, sizes=(1 << 16, 1 << 20), tensors=("4",), forms=("all",)))
    )
    assert (small.size_bytes, small.what, small.other) == (1 << 16, "flat_copy", "separate")
    assert small.figures["ratio"].value == pytest.approx(4)
    assert (large.size_bytes, large.what) == (1 << 20, "coalesced, separate or async")
    assert (large.other, large.verdict) == ("flat_copy", "slower")


def test_the_surest_of_several_kinds_is_said() -> None:
    times = {"reduce_scatter+all_gather": 2.0, "gather+broadcast": 1.5, "direct": 3.0}
    asked = {"operations": ("all_reduce", "all_gather"), "sizes": (1 << 20,)}
    found = only(run_of(lambda case: times[case.form], forms=tuple(times), **asked))
    assert (found.call, found.what) == ("all_gather", "gather+broadcast")
    assert found.figures["ratio"].value == pytest.approx(2)


def test_more_ranks_than_cores_are_named_as_the_cause() -> None:
    run = run_of(lambda _: 1.0, operations=("ping_pong", "stream"), sizes=(1 << 10, 1 << 20))
    latency, bandwidth = find_shapes(make_rows(run))
    assert (latency.size_bytes, bandwidth.size_bytes) == (1 << 10, 1 << 20)
    assert latency.figures["time_s"].value == pytest.approx(1e-3)
    for cores, said in (((0,), True), ((0, 1), False)):
        ranks = tuple(RankInfo(r, "a", r, "cpu", cores, "quiet") for r in range(2))
        text = shapes_sentence(run.header._replace(ranks=ranks), [latency, bandwidth])
        assert ("2 ranks share 1 core:" in text) == said

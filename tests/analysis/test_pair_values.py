"""From the batches of a run to the figures of each pair of ranks."""

from __future__ import annotations

import pytest
from synthetic import header
from synthetic_pairs import MIB, pairs_plan

from commbench.analysis.pair_values import (
    first_ranks,
    has_matrix,
    main_matrices,
    outside_matrix,
    pair_matrices,
)
from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY
from commbench.analysis.rows import make_rows
from commbench.results.schema import Batch, Measurement, Run
from commbench.spec.case import Case
from commbench.spec.plan import Plan


def own_time(case: Case, rank: int) -> float:
    """A time that no other rank has in a case, in seconds."""
    return 1e-3 * (1 + rank + 10 * case.index)


def pairs_run(asked: Plan) -> Run:
    """A run in which the ranks of a case have times of their own, in two batches."""
    measurements = []
    for case in asked.cases():
        times = tuple(own_time(case, rank) for rank in asked.ranks_of(case))
        samples = (max(times),) * 2
        batch = Batch(samples_s=samples, rank_medians_s=times)
        measurements.append(Measurement(case, "ok", batches=(batch, batch)))
    return Run("run", header(asked, "pairs"), tuple(measurements), None)


@pytest.mark.parametrize("ranks", [4, 5])
def test_the_value_of_a_pair_is_the_time_of_its_first_rank(ranks: int) -> None:
    asked = pairs_plan(world_size=ranks)
    latency, bandwidth = pair_matrices(pairs_run(asked))
    every = {(i, j) for i in range(ranks) for j in range(ranks) if i != j}
    assert latency.matrix.values.keys() == bandwidth.matrix.values.keys() == every
    assert (latency.size_bytes, latency.matrix.quantity) == (8, LATENCY)
    assert (bandwidth.size_bytes, bandwidth.matrix.quantity) == (MIB, BANDWIDTH)
    for case in asked.cases():
        for _, (first, second) in first_ranks(asked, case):
            assert (first < second) == (not case.pairs.endswith(":back"))
            time = own_time(case, first)
            if case.operation == "stream":
                assert bandwidth.matrix.value(first, second) == MIB / time
            else:
                assert latency.matrix.value(first, second) == time
                assert latency.matrix.value(second, first) == time


def test_pairs_are_those_of_each_group_in_the_numbers_of_all_ranks() -> None:
    asked = pairs_plan(groups="0,2;1,3", world_size=5)
    run = pairs_run(asked)
    _, bandwidth = pair_matrices(run)
    assert bandwidth.matrix.values.keys() == {(0, 2), (2, 0), (1, 3), (3, 1)}
    (there,) = (c for c in asked.cases() if (c.operation, c.pairs) == ("stream", "round:0"))
    assert bandwidth.matrix.value(1, 3) == MIB / own_time(there, 1)
    assert bandwidth.matrix.hosts == ("node1",) * 5


def test_batches_count_by_their_iterations_and_those_without_ranks_do_not() -> None:
    asked = pairs_plan(operations=("ping_pong",), world_size=2, latency_size=None)
    (case,) = asked.cases()
    batches = (
        Batch(samples_s=(1.0,), rank_medians_s=(9e-6, 9e-6)),
        Batch(samples_s=(1.0,) * 3, rank_medians_s=(5e-6, 7e-6)),
        Batch(samples_s=(1.0,) * 9),
    )
    run = Run("", header(asked, ""), (Measurement(case, "ok", batches=batches),), None)
    (found,) = pair_matrices(run)
    assert found.matrix.values == {(0, 1): 5e-6, (1, 0): 5e-6}


def test_the_main_matrices_are_the_latency_of_the_smallest_and_the_bandwidth_of_the_largest() -> (
    None
):
    run = pairs_run(pairs_plan(sizes=(1024, MIB), latency_size=None))
    found = pair_matrices(run)
    assert [one.size_bytes for one in found] == [1024, MIB, 1024, MIB]
    assert [one.size_bytes for one in main_matrices(found)] == [1024, MIB]


def test_rows_of_other_calls_are_outside_of_a_matrix() -> None:
    asked = pairs_plan(operations=("ping_pong", "exchange", "all_reduce"), latency_size=None)
    rows = outside_matrix(make_rows(pairs_run(asked)))
    assert {row.measurement.case.operation for row in rows} == {"exchange", "all_reduce"}
    halves = pairs_plan(pairs=("halves",), latency_size=None)
    assert not has_matrix(halves)
    assert len(outside_matrix(make_rows(pairs_run(halves)))) == 2

"""Times between measured sizes, and simulated steps."""

from __future__ import annotations

from math import sqrt

import pytest
from planted_times import NCCL, affine, run_of

from commbench.analysis.rows import make_rows
from commbench.answers.advise.measured import make_tables
from commbench.answers.advise.simulation import (
    ESTIMATED,
    MIB,
    MOST_BUCKETS,
    Slowdown,
    Step,
    TimeTable,
    cut,
    find_buckets,
    interval,
    least_size,
    pass_times,
)
from commbench.errors import UsageError
from commbench.plan.case import Case
from commbench.results.schema import Run
from commbench.stats import Estimate

SIZES = (1 << 12, 1 << 16, 1 << 20)


def seconds(case: Case) -> float:
    return 100e-6 + case.size_bytes * 1e-9


def test_between_two_sizes_a_straight_line_is_exact_and_below_them_the_end_is_kept() -> None:
    draw = affine(100e-6, 1e-9, SIZES).draw()
    for size in (1 << 12, 5000, 123_456, 1 << 20):
        assert draw.at(size)[0] == pytest.approx(100e-6 + size * 1e-9)
    assert draw.at(1)[0] == draw.at(1 << 12)[0]


@pytest.mark.parametrize(("beta", "expected"), [(1e-9, 1100e-6), (-1e-11, 100e-6 - 1e-11 * 2**19)])
def test_beyond_the_largest_size_times_continue_the_last_line_and_never_fall(
    beta: float, expected: float
) -> None:
    draw = affine(100e-6, beta, (1 << 12, 1 << 16, 1 << 19), part=0.1).draw()
    found = draw.at(1_000_000)
    assert found[0] == pytest.approx(expected)
    assert (found >= draw.times[-1]).all()


def test_replicates_have_the_interval_of_the_rows() -> None:
    found = interval(affine(100e-6, 1e-9, SIZES, part=0.1).draw().at(1 << 16))
    middle = 100e-6 + (1 << 16) * 1e-9
    assert found.value == pytest.approx(middle)
    assert found.low == pytest.approx(middle * 0.9, rel=0.03)
    assert found.high == pytest.approx(middle * 1.1, rel=0.03)


def table_of(run: Run) -> TimeTable:
    return make_tables(make_rows(run))[""]


def test_back_to_back_calls_are_what_a_bucket_takes_after_another_one() -> None:
    run = run_of(
        lambda case: seconds(case) / (1 if case.timing == "isolated" else 2), noise=1e-6,
        sizes=SIZES, timing="both", **NCCL,
    )  # fmt: skip
    draw = table_of(run).draw()
    assert draw.busy_at(1 << 16)[0] == pytest.approx(draw.at(1 << 16)[0] / 2, rel=1e-3)
    alone = table_of(run_of(seconds, sizes=SIZES, timing="pipelined", **NCCL))
    assert (alone.sizes, alone.kind) == (SIZES, "all_reduce float32 sum in_place pipelined")


def test_gloo_works_on_two_calls_at_once_that_share_the_link() -> None:
    table = table_of(run_of(seconds, noise=1e-6, sizes=SIZES))
    assert table.busy and table.busy.kind == ESTIMATED
    draw = table.draw()
    for size, part in ((1 << 12, 2), (1 << 20, 1)):
        assert draw.busy_at(size)[0] == pytest.approx(draw.at(size)[0] / part, rel=1e-3)


def test_calls_that_were_started_together_replace_the_estimate() -> None:
    run = run_of(
        lambda case: (0.7 * 4 if case.form == "async" else 1) * seconds(case), noise=1e-6,
        sizes=SIZES, tensors=("1", "4"), forms=("async",),
    )  # fmt: skip
    table = table_of(run)
    assert table.busy and table.busy.sizes == tuple(size // 4 for size in SIZES)
    expected = 0.7 * seconds(run.measurements[-1].case)
    assert table.draw().busy_at(SIZES[-1] // 4)[0] == pytest.approx(expected, rel=0.01)


NONE = Slowdown()
ALPHA, BETA = 400e-6, 1 / 10e9
BUCKETS_SIZES = tuple(1 << k for k in range(20, 30))
GRADIENTS = 512 * MIB


def simulated(table: TimeTable, step: Step, bucket: int, slowdown: Slowdown = NONE) -> float:
    return float(pass_times(table.draw(), cut(step, bucket, bucket), step, slowdown)[0])


def test_a_gain_also_counts_that_nothing_may_be_hidden() -> None:
    table, step = affine(ALPHA, BETA, BUCKETS_SIZES), Step(GRADIENTS, 0.5)
    found = find_buckets(table, step, NONE, 0.02, now_bytes=GRADIENTS)
    many = found.recommended.buckets
    in_turns = (0.5 + ALPHA + BETA * GRADIENTS) / (0.5 + many * ALPHA + BETA * GRADIENTS)
    assert found.gain_in_turns and found.gain_in_turns.value == pytest.approx(in_turns)
    assert in_turns < 1 < found.gain.value
    assert found.sure_gain.ends == pytest.approx((in_turns, found.gain.value))
    measured = Slowdown(Estimate(0.0), Estimate(0.0), "matmul")
    found = find_buckets(table, step, measured, 0.02, now_bytes=GRADIENTS)
    assert found.gain_in_turns is None and found.sure_gain.ends == found.gain.ends


@pytest.mark.parametrize("buckets", [1, 2, 8, 64, 512])
def test_a_pass_takes_what_its_closed_forms_say(buckets: int) -> None:
    table, bucket = affine(ALPHA, BETA, BUCKETS_SIZES), GRADIENTS // buckets
    # Bound by computation, it ends with one bucket; by communication, with all but the first wait.
    closed = {
        0.5: 0.5 + ALPHA + BETA * bucket,
        0.02: 0.02 / buckets + buckets * ALPHA + BETA * GRADIENTS,
    }
    for backward_s, expected in closed.items():
        assert simulated(table, Step(GRADIENTS, backward_s), bucket) == pytest.approx(expected)
    # Calls that follow one another take their own time.
    busy = table._replace(busy=affine(ALPHA / 2, BETA, BUCKETS_SIZES))
    expected = closed[0.02] - (buckets - 1) * ALPHA / 2
    assert simulated(busy, Step(GRADIENTS, 0.02), bucket) == pytest.approx(expected)


def test_the_best_bucket_of_a_pass_bound_by_computation_is_the_smallest_that_keeps_up() -> None:
    closed = ALPHA / (0.1 / GRADIENTS - BETA)
    found = find_buckets(affine(ALPHA, BETA, BUCKETS_SIZES), Step(GRADIENTS, 0.1), NONE, 0.02)
    assert found.communication_s.value < 0.1
    # The next size that is tried is at most a quarter larger.
    assert closed * 0.8 <= found.best.bucket_bytes <= closed * 1.3
    assert found.best.time_s.value == pytest.approx(0.1 + ALPHA + BETA * closed, rel=0.01)


def test_the_best_bucket_of_a_pass_bound_by_communication_is_g_times_root_of_alpha_over_c() -> None:
    closed = GRADIENTS * sqrt(ALPHA / 0.02)
    found = find_buckets(affine(ALPHA, BETA, BUCKETS_SIZES), Step(GRADIENTS, 0.02), NONE, 0.02)
    assert found.communication_s.value > 0.02
    assert closed / 1.4 <= found.best.bucket_bytes <= closed * 1.4
    least = BETA * GRADIENTS + 2 * sqrt(ALPHA * 0.02)
    assert found.best.time_s.value == pytest.approx(least, rel=0.01)
    low, high = found.good_bytes
    assert low <= found.recommended.bucket_bytes <= high
    for point in found.curve:
        is_good = low <= point.bucket_bytes <= high
        assert (point.time_s.value <= 1.02 * found.best.time_s.value) == is_good


def test_torch_closes_a_bucket_when_it_has_reached_its_size() -> None:
    assert cut(Step(10 * MIB, 1.0), 4 * MIB, MIB) == [MIB, 4 * MIB, 4 * MIB, MIB]
    # Of tensors of 3 MiB, the first bucket has one, and the others have two.
    assert cut(Step(12 * MIB, 1.0, tensors=4), 4 * MIB, MIB) == [3 * MIB, 6 * MIB, 3 * MIB]


def test_computation_and_communication_slow_each_other_while_both_go_on() -> None:
    step, half, slowdown = Step(100 * MIB, 1.0), 50 * MIB, Slowdown(Estimate(0.25), Estimate(1.0))
    # Two buckets: the first one is sent while the second half of the gradients is computed.
    call = half * 1e-9
    # The call takes twice as long, and meanwhile the computation runs at 1/1.25 of its rate.
    expected = 1.0 + 2 * call * 0.2 + call
    assert simulated(affine(0.0, 1e-9), step, half, slowdown) == pytest.approx(expected)
    # A call that outlasts the computation is slowed until the computation ends, and no longer.
    call = half * 20e-9
    expected = 0.5 + 0.5 * 1.25 + (call - 0.5 * 1.25 / 2) + call
    assert simulated(affine(0.0, 20e-9), step, half, slowdown) == pytest.approx(expected)


def test_the_interval_of_a_slowdown_is_in_the_time_and_in_the_gain() -> None:
    table, step = affine(ALPHA, BETA, BUCKETS_SIZES), Step(GRADIENTS, 0.1)
    sure, unsure = (
        find_buckets(table, step, Slowdown(communication=each), 0.02, MIB)
        for each in (Estimate(1.9), Estimate(1.9, -0.7, 4.3))
    )
    assert not sure.recommended.time_s.has_interval
    assert unsure.recommended.time_s.value == pytest.approx(sure.recommended.time_s.value)
    low, high = unsure.recommended.time_s.ends
    assert high > 1.3 * low
    _, calls = Slowdown(communication=Estimate(1.9, -0.7, 4.3)).draw()
    assert (calls[0], calls.min()) == (2.9, 1.0)
    assert interval(calls).ends == pytest.approx((1.0, 5.3), rel=0.1)


def test_a_measured_size_is_recommended_where_it_is_as_good_as_one_between() -> None:
    table = affine(ALPHA, BETA, BUCKETS_SIZES)
    found = find_buckets(table, Step(GRADIENTS, 0.1), NONE, 0.02, GRADIENTS)
    assert found.recommended.largest_bytes in table.sizes
    assert found.good_bytes[0] < found.recommended.bucket_bytes < found.good_bytes[1]


def test_only_measured_sizes_are_tried_and_larger_ones_are_called_unknown() -> None:
    few = affine(10e-3, BETA, (1 << 12, 1 << 16, 1 << 20))
    found = find_buckets(few, Step(8 * MIB, 0.02), NONE, 0.02)
    assert {point.bucket_bytes for point in found.curve} <= set(range(1 << 12, (1 << 20) + 1))
    assert found.beyond
    assert found.largest_sent == 7 * MIB  # torch's default makes one bucket of 7 MiB after 1 MiB
    assert not find_buckets(affine(ALPHA, BETA, BUCKETS_SIZES), Step(MIB, 0.02), NONE, 0.02).beyond


def test_sizes_that_make_too_many_buckets_are_not_simulated() -> None:
    table, step = affine(ALPHA, BETA), Step(512 * MIB, 0.02)
    found = find_buckets(table, step, NONE, 0.02)
    assert found.curve[0].buckets == MOST_BUCKETS
    assert least_size(step) == found.curve[0].bucket_bytes > table.smallest
    # So many buckets are impossible with a few tensors.
    assert least_size(step._replace(tensors=64)) == 1
    with pytest.raises(UsageError, match="524,288 buckets of 1 KiB are too many to simulate"):
        find_buckets(table, step, NONE, 0.02, 1 << 10)
    # Thousands of buckets of the size in use are all simulated.
    now = find_buckets(table, step, NONE, 0.02, 128 << 10).now
    assert now.buckets == 4096
    assert now.time_s.value == pytest.approx(0.02 / 4096 + 4096 * ALPHA + BETA * 512 * MIB)


def test_the_gain_has_an_interval_that_grows_with_those_of_the_rows() -> None:
    step = Step(GRADIENTS, 0.02)
    gains = [
        find_buckets(affine(ALPHA, BETA, BUCKETS_SIZES[4:], part), step, NONE, 0.02, 4 * MIB).gain
        for part in (0.0, 0.02, 0.1)
    ]
    widths = [(gain.high or 0) - (gain.low or 0) for gain in gains]
    assert widths[0] == pytest.approx(0, abs=1e-9)
    assert widths[0] < widths[1] < widths[2]
    assert len({round(gain.value, 9) for gain in gains}) == 1


def test_a_size_between_measured_ones_is_as_unsure_as_the_curve_bends_there() -> None:
    def widths(times: list[float]) -> list[float]:
        """Of the interval at 1.5 and at 2: its upper end over its lower one."""
        table = TimeTable("all_reduce", (1, 2, 4, 8), tuple(map(Estimate, times)))
        found = (interval(table.draw().at(size)) for size in (1.5, 2, 3, 6))
        return [(each.high or 1.0) / (each.low or 1.0) for each in found]

    straight, jump = widths([3.0, 5.0, 9.0, 17.0]), widths([3.0, 3.1, 9.0, 17.0])
    assert max(straight) < 1.001
    assert jump[1] == 1 and min(jump[0], jump[2]) > 1.5

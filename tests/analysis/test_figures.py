"""Overlap, shares of a peak and half-bandwidth sizes, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import hypot
from typing import Any

import pytest
from synthetic_journal import CASES
from synthetic_rows import batches, row

import commbench
from commbench.analysis import diagnostic_figures
from commbench.analysis.diagnostic_figures import Interference, mean_by_rank
from commbench.analysis.figures import (
    BUS_BOUND,
    NODE_BOUND,
    CurveSummary,
    Overlap,
    find_overlap,
    find_peak_fraction,
    summarise_curve,
    why_no_peak_fraction,
)
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import Summary
from commbench.errors import UsageError
from commbench.plan.links import parse_peak
from commbench.plan.operation import MESSAGE_COUNTS
from commbench.plan.operations import OPERATIONS
from commbench.results.samples import in_order, samples_of, with_rank_times
from commbench.results.schema import Batch, Measurement, RankTimes
from commbench.stats import Estimate


def figures(a: float, b: float, t: float, *, known: float = 0.0) -> Overlap:
    """Of the times a, b and t in ms, known to that part on either side; communication and
    computation take 1.5 and 1.2 times as long at once as alone."""
    times = [
        Summary(10, 1e-3 * each, 1e-3 * each * (1 - known), 1e-3 * each * (1 + known))
        for each in (a, b, t)
    ]
    batch = Batch(
        samples_s=(1e-3 * t,) * 10,
        communication_s=(1.5e-3 * a,) * 10,
        computation_s=(1.2e-3 * b,) * 10,
    )
    found = find_overlap(*times, [batch])
    assert found
    return found


@pytest.mark.parametrize(
    ("a", "b", "t", "hidden", "imb", "osu", "gain"),
    [(10, 10, 20, 0.0, 0.0, 0.0, 1.0),  # one after the other
     (10, 10, 15, 0.5, 0.5, 0.5, 4 / 3), (10, 10, 10, 1.0, 1.0, 1.0, 2.0),
     (10, 10, 25, 0.0, 0.0, 0.0, 0.8),  # they disturb each other
     (10, 20, 20, 1.0, 0.5, 1.0, 1.5),  # all of the shorter one is hidden
     (20, 10, 20, 1.0, 0.5, 0.5, 1.5), (10, 20, 25, 0.5, 0.25, 0.5, 1.2)],
)  # fmt: skip
def test_figures_follow_from_the_times(
    a: float, b: float, t: float, hidden: float, imb: float, osu: float, gain: float
) -> None:
    found = figures(a, b, t)
    shares = (found.hidden.value, found.imb_hidden, found.osu_hidden, found.gain.value)
    assert shares == pytest.approx((hidden, imb, osu, gain))
    slower = found.computation_slowdown, found.communication_slowdown
    assert [each and each.value for each in slower] == pytest.approx([0.2, 0.5])


def test_the_interval_of_a_share_adds_the_moves_of_its_medians_as_squares() -> None:
    share = figures(10, 10, 15, known=0.01).hidden
    # a down: (19.9 - 15) / 9.9, a up: (20.1 - 15) / 10; the same for b; t: 0.15 / 10 each way
    down = hypot(0.5 - 4.9 / 9.9, 0.5 - 4.9 / 9.9, 0.015)
    up = hypot(0.01, 0.01, 0.015)
    assert (share.low, share.high) == pytest.approx((0.5 - down, 0.5 + up))


def test_the_end_of_only_some_batches_is_not_enough() -> None:
    times = [Summary(6, each) for each in (1.0, 1.0, 1.5)]
    batches = [
        Batch(samples_s=(1.5,), communication_s=(1.5,), computation_s=(1.0,)),
        Batch(samples_s=(1.5,), computation_s=(1.0,)),
    ]
    found = find_overlap(*times, batches)
    assert found and found.communication_slowdown is None
    assert find_overlap(*times, [Batch(samples_s=(1.5,))]) is None


def quoted(name: str, **call: Any) -> ResultRow:
    """The row of a call that someone claims to have timed."""
    return commbench.explain(name, **call).rows[0].row


def claimed(name: str, ranks: int, nodes: int = 1) -> ResultRow:
    """The same of a call with an algbw of 1 GB/s."""
    time = f"{(1 << 30) / 1e9}s"
    return quoted(name, ranks=ranks, nodes=nodes, size=str(1 << 30), time=time)


PEAK, NODE_PEAK = parse_peak("2GB/s"), parse_peak("2GB/s/node")


@pytest.mark.parametrize(
    ("name", "by_rank", "by_node"),
    [
        # 8 ranks on 4 nodes: factors of 8, and of 4; half of each is the share of 2 GB/s.
        ("all_reduce", 2 * 7 / 8, 2 * 3 / 4), ("broadcast", 1, 1), ("reduce", 1, 1),
        *((name, 7 / 8, 3 / 4) for name in ("all_gather", "reduce_scatter", "gather", "scatter")),
        ("send_recv", 1, 1),
        ("all_to_all", 7 / 8, 2 * 3 / 4),  # both ranks of a node have blocks for other nodes
    ],
)  # fmt: skip
def test_the_share_is_what_some_link_or_some_node_had_to_move(
    name: str, by_rank: float, by_node: float
) -> None:
    row = claimed(name, 8, 4)
    for peak, bound, factor in ((PEAK, BUS_BOUND, by_rank), (NODE_PEAK, NODE_BOUND, by_node)):
        found = find_peak_fraction(row, peak)
        assert found and found.bound == bound
        figures = (found.factor, found.rate_bytes_per_s, found.fraction)
        assert figures == pytest.approx((factor, factor * 1e9, factor / 2))


def test_only_where_a_factor_exceeds_1_can_a_reducing_network_beat_the_link() -> None:
    found = {}
    for name, operation in OPERATIONS.items():
        share = find_peak_fraction(claimed(name, 8), PEAK) if operation.has_data else None
        if share and share.ceiling != 1:
            found[name] = share.ceiling
    reducing = ("all_reduce", "one_shot_all_reduce", "two_shot_all_reduce", "multimem_all_reduce")
    assert found == dict.fromkeys(reducing, 1.75)
    two = find_peak_fraction(claimed("all_reduce", 2), PEAK)
    assert two is not None and two.ceiling == 1


def test_a_row_that_cannot_be_held_against_a_peak_says_why() -> None:
    two = claimed("all_reduce", 2)
    shared = replace(two, header=two.header._replace(gpu_shared=True))
    for found, peak, why in (
        (claimed("broadcast", 1), PEAK, "with one rank nothing crosses a link"),
        (two, NODE_PEAK, "all ranks are on one node, so nothing crosses the network between nodes"),
        (shared, PEAK, "ranks shared a GPU, so its time does not measure performance"),
        (quoted("barrier", ranks=4, time="10us"), PEAK, "it has no bandwidth"),
    ):
        assert find_peak_fraction(found, peak) is None
        assert why_no_peak_fraction(found, peak) == why


@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "size", "message"),
    [
        ("all_gather", 8, 1, 8,
         "all_gather float32 out_of_place 8 B cannot be measured: less than one float32 per rank"),
        ("send_recv", 1, 1, 8,
         "send_recv float32 out_of_place 8 B cannot be measured: send_recv needs at least 2 ranks"),
        ("all_reduce", 2, 3, 8, "2 ranks cannot be on 3 nodes"),
        ("all_reduce", 0, 1, 8, "--ranks is 0"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_is_refused(
    name: str, ranks: int, nodes: int, size: int, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        quoted(name, ranks=ranks, nodes=nodes, size=str(size), time="1s")
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("name", "fewest"),
    [("all_reduce", [0, 1, 2, 2, 3, 3, 10]), ("barrier", [0, 1, 2, 2, 3, 3, 10]),
     ("send_recv", [0, 1, 1, 1, 1, 1, 1])],
)  # fmt: skip
def test_the_fewest_messages_are_the_rounded_up_logarithm_but_for_a_shift(
    name: str, fewest: list[int]
) -> None:
    ranks = (1, 2, 3, 4, 5, 8, 1000)
    assert [MESSAGE_COUNTS[OPERATIONS[name].messages](n) for n in ranks] == fewest


def summary(times_s: dict[int, float], operation: str = "broadcast") -> CurveSummary:
    """That of a row for each size; the bus bandwidth of a broadcast is size over time."""
    return summarise_curve([
        row(*batches([time] * 9), operations=(operation,), sizes=(size,))
        for size, time in times_s.items()
    ])  # fmt: skip


def size(found: ResultRow | None) -> int:
    assert found
    return found.measurement.case.size_bytes


def test_the_half_bandwidth_size_of_a_line_is_latency_times_bandwidth() -> None:
    # t = a + S / b reaches half of b at S = a b (Hockney): here 1e-4 s x 1e9 bytes/s.
    line = {1 << n: 1e-4 + (1 << n) / 1e9 for n in range(10, 31)}
    found = summary(line)
    assert size(found.latency) == 1 << 10
    assert size(found.peak) == 1 << 30
    assert found.half and found.half.value == pytest.approx(1e5, rel=0.03)
    assert not found.is_below


def test_the_latency_is_the_least_time_of_small_sizes_and_of_no_large_one() -> None:
    assert size(summary({1 << 10: 3e-4, 4 << 10: 2e-4, 16 << 10: 1e-4}).latency) == 4 << 10
    assert summary({16 << 10: 1e-4, 32 << 10: 1e-4}).latency is None


def test_between_two_sizes_the_bandwidth_is_linear_on_logarithmic_axes() -> None:
    # 1, 4 and 16 bytes/s: half of the peak lies where log(8 / 4) / log(16 / 4) is one half.
    # Sizes after the peak and the order of rows do not matter.
    for times in (
        {64: 64.0, 256: 64.0, 1024: 64.0}, {4096: 1e4, 1024: 64.0, 256: 64.0, 64: 64.0},
    ):  # fmt: skip
        found = summary(times)
        assert found.half and found.half.value == pytest.approx(512)
        assert size(found.peak) == 1024
    noisy = summary({64: 1.0, 128: 1e3, 256: 1.0, 512: 2.0})  # the last crossing counts
    assert noisy.half and 128 < noisy.half.value < 256
    far = summary({64: 1.0, 1024: 4.0})  # nothing is known between these
    assert far.half and far.half.ends == (64, 1024)
    above = summary({64: 1.0, 128: 1.5})  # it starts above half of its peak
    assert (above.half, above.is_below) == (Estimate(64), True)


def test_every_row_that_may_lie_below_half_of_the_peak_widens_the_half_bandwidth_size() -> None:
    def find_half(uncertain: list[float]) -> Estimate:
        seconds = {64: [64.0], 128: [21.0], 256: uncertain, 512: [51.2]}
        found = summarise_curve([
            row(*batches(*([time] for time in times * (9 // len(times)))),
                operations=("broadcast",), sizes=(size,))
            for size, times in seconds.items()
        ])  # fmt: skip
        assert found.half and 64 < found.half.value < 128
        return found.half

    assert find_half([40.0]).ends[1] < 128
    assert 256 < find_half([40.0, 40.0, 60.0]).ends[1] < 512  # perhaps 4.3 bytes/s of 10


def test_the_interval_of_the_half_bandwidth_size_lies_within_the_measured_sizes() -> None:
    seconds = {64: [10.0, 10.0, 3.0], 128: [10.0, 10.0, 40.0], 256: [10.0, 10.0, 30.0]}
    found = summarise_curve([
        row(*batches(*([time] for time in times * 3)), operations=("broadcast",), sizes=(size,))
        for size, times in seconds.items()
    ])  # fmt: skip
    assert found.half and found.half.ends[0] == 64


def test_what_has_no_bandwidth_or_one_size_has_no_half_bandwidth_size() -> None:
    barrier = summary({1024: 1e-4}, "barrier")
    assert (barrier.peak, barrier.half) == (None, None)
    assert barrier.latency
    one = summary({1024: 1e-4})
    assert (size(one.peak), one.half) == (1024, None)
    assert summarise_curve([row()]) == CurveSummary(None, None, None)


def find_interference(found: Sequence[Batch], rank_times: Sequence[RankTimes] = ()) -> Interference:
    return diagnostic_figures.find_interference(found, in_order(samples_of(found)), rank_times)


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
    found = with_rank_times(Measurement(CASES[0], "ok", batches=(first, second)))
    assert find_interference(found.batches, rank_times=found.rank_times) == Interference(
        calls=2,
        stalled_share=0.0,
        queued_share=pytest.approx((3 * 0.1 + 5 * 0.3) / 8),
        switches_per_iteration=4 / 8,
        throttled_share=pytest.approx(5 * 0.004 / 0.030 / 8),
        stolen_share=pytest.approx(3 * 0.2 / 8),
        entry_skew_s=pytest.approx(2e-6),
        operation_s=pytest.approx(8.5e-4),
        last_share=(0.5, 0.5),
    )


def test_ranks_wait_for_a_core_no_longer_than_the_loop_takes() -> None:
    crowded = Batch(samples_s=(1e-3,) * 3, elapsed_s=0.010, queued_s=0.0137)
    assert find_interference((crowded,)).queued_share == 1.0


def test_one_batch_that_stood_still_does_not_decide_that_ranks_waited() -> None:
    calm = Batch(samples_s=(1e-3,) * 10, elapsed_s=0.010, queued_s=0.0)
    stalled = calm._replace(samples_s=(1e-3,) * 9 + (1.0,), elapsed_s=1.01, queued_s=1.0)
    found = find_interference((*[calm] * 9, stalled)).queued_share
    assert found == pytest.approx(0.1 / 1.01, rel=1e-6), "by time it would be 91 %"


# An iteration is stalled if it takes 1.5 ms more and half as long again as the fastest tenth.
@pytest.mark.parametrize(
    ("usual", "short", "long"),
    [(1e-4, 1.59e-3, 1.61e-3), (2.9e-3, 4.39e-3, 4.41e-3), (3.1e-3, 4.61e-3, 4.66e-3),
     (1.0, 1.49, 1.51)],
)  # fmt: skip
def test_an_iteration_is_stalled_that_took_1_5_ms_more_and_half_as_long_again(
    usual: float, short: float, long: float
) -> None:
    assert stalled((usual,) * 9 + (short,)) == 0.0
    assert stalled((usual,) * 9 + (long,)) == 0.1


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
    few, many = RankTimes(0, 2, [], [1.0, 4.0], []), RankTimes(1, 6, [], [3.0, 0.0], [])
    assert mean_by_rank((few, many), "behind_s") == pytest.approx([2.5, 1.0])
    assert mean_by_rank((few, many), "medians_s") == mean_by_rank((), "behind_s") == []
    assert mean_by_rank((few, RankTimes(2, 1, [], [], [])), "behind_s") == []

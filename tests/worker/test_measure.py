"""A block of iterations: what is timed, and what all ranks' blocks say together, by hand."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.host.cpu_counters import FIELDS, UNKNOWN, CpuCounters
from commbench.results.schema import Batch
from commbench.worker.communicator import Communicator
from commbench.worker.context import RankContext
from commbench.worker.measure import (
    GatheredSamples,
    back_to_back,
    loop_overhead_s,
    time_block,
    timed_loop,
)
from commbench.worker.timers import HostTimer
from commbench.worker.watchdog.rank_state import ITERATION, open_state

CALM = (0,) * len(FIELDS)
US = 1e-6


def block(
    durations_us: list[float], starts_us: list[float], strained: tuple[int, ...] = CALM
) -> torch.Tensor:
    """What one rank sends: its durations and starts, and what strained it in ns."""
    ns = [[round(1000 * value) for value in row] for row in (durations_us, starts_us)]
    return torch.tensor([[*ns[0], *strained], [*ns[1], *CALM]])


def gathered(*blocks: torch.Tensor, calls: int = 1, shares_clock: bool = True) -> GatheredSamples:
    return GatheredSamples(torch.stack(blocks), calls, shares_clock)


def us(*values: float) -> Any:
    return pytest.approx(tuple(value * US for value in values), abs=1e-10)


# Three iterations of three ranks, on one clock; a rank's end is its start plus its duration:
#                 enters            leaves             the latest to enter, and to leave
#   rank 0     0   100   200     50   150   260
#   rank 1     5   101   200     52   149   250        20 later: rank 2     60
#   rank 2    20   104   203     60   158   240         4: rank 2          158
#                                                       3: rank 2          260
THREE = gathered(
    block([50, 50, 60], [0, 100, 200]),
    block([47, 48, 50], [5, 101, 200]),
    block([40, 54, 37], [20, 104, 203]),
)


def test_each_sample_is_the_slowest_ranks() -> None:
    assert THREE.slowest_s == us(50, 54, 60)
    assert THREE.batch(warmup=0, launch=0).samples_s == THREE.slowest_s


def test_each_rank_has_its_own_median() -> None:
    assert THREE.batch(0, 0).rank_medians_s == us(50, 48, 40)


def test_skew_is_the_latest_minus_the_earliest_to_enter() -> None:
    # 20, 4 and 3 us.
    assert THREE.batch(0, 0).entry_skew_s == pytest.approx(4 * US)


def test_the_operation_begins_when_the_last_has_entered_and_ends_when_the_last_has_left() -> None:
    # 60 - 20, 158 - 104, 260 - 203 are 40, 54, 57 us.
    assert THREE.batch(0, 0).operation_s == pytest.approx(54 * US)


def test_a_rank_is_behind_by_how_much_later_than_the_first_it_enters_or_leaves() -> None:
    # Entering: 0 0 0, 5 1 0, 20 4 3; leaving: 0 1 20, 2 0 10, 10 9 0; the larger of each pair:
    # 0 1 20, 5 1 10, 20 9 3.
    assert THREE.batch(0, 0).rank_behind_s == us(1, 5, 9)


def test_who_enters_last_is_counted_by_iteration() -> None:
    assert THREE.batch(0, 0).last_in == (0, 0, 3)
    mixed = gathered(block([9, 9, 9], [0, 10, 21]), block([9, 9, 9], [1, 11, 20]))
    assert mixed.batch(0, 0).last_in == (1, 2)


def test_of_ranks_that_enter_at_once_the_first_is_counted() -> None:
    together = gathered(block([9, 9], [5, 50]), block([9, 9], [5, 50]))
    assert together.batch(0, 0).last_in == (2, 0)


def test_without_a_common_clock_nothing_is_said_of_coming_and_going() -> None:
    batch = gathered(*THREE.blocks, shares_clock=False).batch(0, 0)
    assert (batch.entry_skew_s, batch.operation_s) == (None, None)
    assert (batch.rank_behind_s, batch.last_in) == ((), ())
    assert (batch.samples_s, batch.rank_medians_s) == (us(50, 54, 60), us(50, 48, 40))


def test_durations_of_a_pipelined_iteration_are_per_call_and_its_skew_is_not() -> None:
    batch = gathered(*THREE.blocks, calls=10).batch(0, 0)
    assert batch.calls == 10
    assert batch.samples_s == us(5, 5.4, 6)
    assert batch.rank_medians_s == us(5, 4.8, 4)
    assert batch.operation_s == pytest.approx(5.4 * US)
    assert batch.entry_skew_s == pytest.approx(4 * US)
    assert batch.rank_behind_s == us(1, 5, 9)


def test_one_rank_alone_waits_for_nobody() -> None:
    batch = gathered(block([50, 52], [0, 100])).batch(warmup=7, launch=3)
    assert batch == Batch(
        samples_s=us(50, 52), calls=1, warmup=7, rank_medians_s=us(51), rank_behind_s=(0.0,),
        last_in=(2,), entry_skew_s=0.0, operation_s=pytest.approx(51 * US), elapsed_s=0.0,
        queued_s=0.0, switches=0, throttled_s=0.0, stolen_s=0.0, launch=3,
    )  # fmt: skip


def test_of_what_strained_ranks_the_worst_is_kept_in_seconds() -> None:
    assert FIELDS == ("elapsed_s", "queued_s", "switches", "throttled_s", "stolen_s")
    batch = gathered(
        block([9], [0], (2_000_000_000, 1_000_000, 7, 0, 10_000_000)),
        block([9], [0], (1_000_000_000, 3_000_000, 2, 5_000, 0)),
    ).batch(0, 0)
    assert (batch.elapsed_s, batch.queued_s, batch.switches) == (2.0, pytest.approx(3e-3), 7)
    assert (batch.throttled_s, batch.stolen_s) == (pytest.approx(5e-6), pytest.approx(0.01))


def test_what_no_rank_could_read_is_unknown_and_what_some_could_is_theirs() -> None:
    blind = (1_000, UNKNOWN, 3, UNKNOWN, UNKNOWN)
    batch = gathered(block([9], [0], blind), block([9], [0], blind)).batch(0, 0)
    assert (batch.queued_s, batch.throttled_s, batch.stolen_s) == (None, None, None)
    assert batch.switches == 3
    seeing = (1_000, 0, 3, 0, 4_000)
    batch = gathered(block([9], [0], blind), block([9], [0], seeing)).batch(0, 0)
    assert (batch.queued_s, batch.throttled_s, batch.stolen_s) == (0.0, 0.0, pytest.approx(4e-6))


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 5), st.integers(1, 9))
def test_figures_of_ranks_on_one_clock_agree_with_each_other(
    data: st.DataObject, ranks: int, iterations: int
) -> None:
    row = st.lists(st.integers(0, 10**9), min_size=iterations, max_size=iterations)
    found = [(data.draw(row), data.draw(row)) for _ in range(ranks)]
    batch = GatheredSamples(
        torch.stack([torch.tensor([[*d, *CALM], [*s, *CALM]]) for d, s in found]), 1, True
    ).batch(0, 0)
    assert batch.samples_s == pytest.approx(
        tuple(max(d[i] for d, _ in found) * 1e-9 for i in range(iterations)), abs=1e-10
    )
    assert sum(batch.last_in) == iterations
    assert len(batch.last_in) == len(batch.rank_medians_s) == len(batch.rank_behind_s) == ranks
    assert batch.entry_skew_s is not None and batch.operation_s is not None
    assert min(batch.rank_behind_s) >= 0
    latest = [max(s[i] + d[i] for d, s in found) for i in range(iterations)]
    earliest = [min(s[i] for _, s in found) for i in range(iterations)]
    spans = sorted(end - start for end, start in zip(latest, earliest, strict=True))
    assert batch.operation_s <= spans[-1] * 1e-9 + 1e-9


def test_the_loop_aligns_and_stamps_each_iteration_once_and_in_order() -> None:
    happened: list[object] = []

    def note(what: object) -> Callable[..., object]:
        return lambda *index: happened.append((what, *index))

    row = open_state(None, 0)
    timed_loop(note("call"), note("align"), note("start"), note("stop"), 3, row)
    assert row[ITERATION] == 2
    assert happened == [
        step for i in range(3) for step in (("align",), ("start", i), ("call",), ("stop", i))
    ]


@pytest.mark.parametrize("calls", [2, 20])
def test_a_pipelined_iteration_makes_its_calls_back_to_back(calls: int) -> None:
    made: list[int] = []
    several = back_to_back(lambda: made.append(1), calls)
    several()
    assert len(made) == calls


def test_an_isolated_iteration_is_the_call_itself() -> None:
    def call() -> None:
        pass

    assert back_to_back(call, 1) is call


def clock() -> HostTimer:
    """The clock of a rank that is alone; nothing is aligned."""
    rank_context = RankContext(
        rank=0, world_size=1, local_rank=0, local_world_size=1, launcher="",
        meeting_point="",
    )  # fmt: skip
    timer = HostTimer(Communicator(rank_context, torch.device("cpu"), None))
    timer.align = lambda: None
    return timer


def test_a_block_has_a_duration_and_a_start_for_each_iteration_and_what_strained_it() -> None:
    collecting = []
    found = time_block(
        clock(), CpuCounters(), lambda: collecting.append(gc.isenabled()), 5, open_state(None, 0)
    )
    assert (found.dtype, tuple(found.shape)) == (torch.int64, (2, 5 + len(FIELDS)))
    assert collecting == [False] * 5
    assert gc.isenabled()
    durations, starts = found[:, :5].tolist()
    assert min(durations) > 0
    assert starts == sorted(starts)
    elapsed, queued, switches, throttled, stolen = found[0, 5:].tolist()
    assert elapsed >= sum(durations)
    assert min(queued, throttled, stolen) >= UNKNOWN
    assert switches >= 0


def test_garbage_is_collected_again_after_a_call_that_fails() -> None:
    def fail() -> None:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        time_block(clock(), CpuCounters(), fail, 3, open_state(None, 0))
    assert gc.isenabled()


def test_the_overhead_of_the_loop_is_found_without_any_call() -> None:
    assert loop_overhead_s(clock()) > 0

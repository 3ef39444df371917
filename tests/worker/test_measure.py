"""The timed loop, and what one rank measures in a batch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest
import torch

from commbench.host.cpu_counters import FIELDS, UNKNOWN, CpuCounters
from commbench.spec.plan import Plan
from commbench.worker.communicator import Communicator
from commbench.worker.device import Cpu
from commbench.worker.measure import (
    by_turns,
    loop_overhead_s,
    make_iterations,
    time_batch,
    timed_loop,
)
from commbench.worker.timers import HostTimer
from commbench.worker.watchdog.rank_state import ITERATION, open_state


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


CASE = Plan(
    operations=("all_reduce",), sizes=(64,), backend="gloo", device="cpu", world_size=2
).cases()[0]


@pytest.mark.parametrize("calls", [2, 20])
def test_a_pipelined_iteration_makes_its_calls_back_to_back(calls: int) -> None:
    made: list[int] = []
    (several,) = make_iterations(Cpu(), CASE, [lambda: made.append(1)], calls)
    several()
    assert len(made) == calls


def test_an_isolated_iteration_is_the_call_itself() -> None:
    def call() -> None:
        pass

    assert make_iterations(Cpu(), CASE, [call], 1) == [call]
    assert by_turns([call], 0) is call


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 20])
def test_calls_take_pieces_of_memory_by_turns_and_leave_none_out(calls: int) -> None:
    made: list[int] = []
    pieces = [partial(made.append, piece) for piece in range(5)]
    iterations = make_iterations(Cpu(), CASE, pieces, calls)
    for iteration in iterations:
        iteration()
    assert set(made) == set(range(5))
    assert made == [number % 5 for number in range(len(made))]
    assert len(made) == calls * len(iterations)


def test_iterations_go_on_with_the_piece_after_the_last_one() -> None:
    made: list[int] = []
    run = by_turns([partial(made.append, piece) for piece in range(3)], 2)
    for _ in range(5):
        run()
    assert made == [2, 0, 1, 2, 0]


def clock() -> HostTimer:
    """The clock of a rank that is alone; nothing is aligned."""
    timer = HostTimer(Communicator(0, 1, Cpu()))
    timer.align = lambda: None
    return timer


def test_a_batch_has_a_duration_and_a_start_for_each_iteration_and_counters() -> None:
    collecting = []
    found = time_batch(
        clock(), CpuCounters(), lambda: collecting.append(gc.isenabled()), 5, open_state(None, 0)
    )
    *parts, enqueue, gpu = found
    assert (enqueue, gpu) == (None, None)
    assert {(part.dtype, part.dim()) for part in parts} == {(torch.int64, 1)}
    assert [len(part) for part in parts] == [5, 5, len(FIELDS)]
    assert collecting == [False] * 5
    assert gc.isenabled()
    durations, starts, counters = (part.tolist() for part in parts)
    assert min(durations) > 0
    assert starts == sorted(starts)
    elapsed, queued, switches, throttled, stolen = counters
    assert elapsed >= sum(durations)
    assert min(queued, throttled, stolen) >= UNKNOWN
    assert switches >= 0


def test_garbage_is_collected_again_after_a_call_that_fails() -> None:
    def fail() -> None:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        time_batch(clock(), CpuCounters(), fail, 3, open_state(None, 0))
    assert gc.isenabled()


def test_the_overhead_of_the_loop_is_found_without_any_call() -> None:
    assert loop_overhead_s(clock()) > 0


def test_garbage_stays_uncollected_where_the_program_has_turned_that_off() -> None:
    gc.disable()
    try:
        time_batch(clock(), CpuCounters(), lambda: None, 3, open_state(None, 0))
        assert not gc.isenabled()
    finally:
        gc.enable()

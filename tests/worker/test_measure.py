"""The timed loop, what one rank measures in a batch, and how long a stand-in for a GPU spins
before a call."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from commands import Commbench, Ended
from fake_device import Fake, FakeDevice, run_on_fake

from commbench.host.cpu import FIELDS, UNKNOWN, CpuCounters
from commbench.plan.plan import Plan
from commbench.plan.workload import Call, Program, Step, Workload
from commbench.results.files import write_workload
from commbench.worker import measure
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.measure import DeviceEventTimer, Timer, by_turns, time_batch, timed_loop
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


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 20])
def test_calls_take_pieces_of_memory_by_turns_and_leave_none_out(calls: int) -> None:
    made: list[int] = []
    pieces = [partial(made.append, piece) for piece in range(5)]
    iterations = measure.make_iterations(Device(), CASE, pieces, calls)
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


def clock() -> Timer:
    """The clock of a rank that is alone; nothing is aligned."""
    timer = Timer(Communicator(0, 1, Device()))
    timer.align = lambda: None
    return timer


def test_a_batch_has_a_duration_and_a_start_for_each_iteration_and_counters() -> None:
    collecting = []
    found = time_batch(
        clock(), CpuCounters(), lambda: collecting.append(gc.isenabled()), 5, open_state(None, 0)
    )
    *parts, enqueue, gpu, _ = found
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


def has_queued(ended: Ended, case: int) -> bool:
    """Whether iterations of a case were queued on the device, and timed there."""
    (found,) = {batch.get("enqueue_s") is not None for batch in ended.batches(case)}
    return found


@pytest.mark.parametrize(("timing", "iterations"), [("isolated", "60"), ("pipelined", "4")])
def test_what_the_host_does_in_a_call_counts_whatever_the_device_does_meanwhile(
    program: Commbench, timing: str, iterations: str
) -> None:
    fake = Fake(before_s=1e-3, after_s=0.2e-3)
    options = ("--op", "all_reduce,barrier", "--sizes", "1K", "--iters", iterations)
    ended = run_on_fake(program, fake, *options, "--timing", timing, is_hot=False).good()
    for case, row in zip(ended.cases(), ended.rows(), strict=True):
        is_blocking = row["operation"] == "barrier"
        assert has_queued(ended, case["case"]["index"]) != is_blocking
        if is_blocking:  # the stand-in sleeps for at least so long, in every call
            assert float(row["time_min_us"]) >= 1200, row["operation"]
            assert "launch_bound" not in row["warnings"]


@pytest.mark.parametrize("blocks", [True, False])
def test_a_step_with_a_call_that_blocks_the_host_is_timed_by_the_host(
    program: Commbench, tmp_path: Path, blocks: bool
) -> None:
    reduction = Call("all_reduce", "world", "float32", 1024, reduce_op="sum")
    calls = (reduction, Call("barrier", "world"), reduction) if blocks else (reduction,)
    step = Step("train", (Program((0, 1), calls),))
    everyone = {"world": ((0, 1),)}
    write_workload(tmp_path / "step.json", Workload("step", "a test", 2, everyone, (step,)))
    options = ("--workload", str(tmp_path / "step.json"), "--iters", "4")
    ended = run_on_fake(program, Fake(), *options, is_hot=False).good()
    (index,) = (c["case"]["index"] for c in ended.cases() if c["case"].get("variant") == "calls")
    assert has_queued(ended, index) != blocks


class Spinning(FakeDevice):
    """Notes how long it spins."""

    def __init__(self, fake: Fake) -> None:
        super().__init__(0, fake)
        self.spins_s: list[float] = []

    def spin(self, seconds: float) -> None:
        self.spins_s.append(seconds)
        super().spin(seconds)


def timer_of(device: FakeDevice) -> DeviceEventTimer:
    timer = DeviceEventTimer(Communicator(0, 1, device))
    timer.aligner = device.in_stream(lambda: None)
    return timer


def late(timer: DeviceEventTimer, call: Callable[[], object], iterations: int = 4) -> int:
    """How many iterations of a batch of these calls are late."""
    timed_loop(call, timer.align, *timer.prepare(iterations), iterations, open_state(None, 0))
    timer.collect()
    assert len(timer.late) == iterations
    return sum(timer.late)


def test_a_call_that_is_late_makes_the_device_spin_longer_for_calls_of_its_kind_only() -> None:
    device = Spinning(Fake(enqueue_s=0.0))
    timer = timer_of(device)
    for kind in ("late", "other", "late"):
        timer.align_over(None, kind)
        late(timer, device.synchronize if kind == "late" else device.in_stream(lambda: None))
    first, other, again = device.spins_s[:4], device.spins_s[4:8], device.spins_s[8:]
    assert {*first} == {*other}
    assert first[0] == max(first) > 2 * first[1], "nothing is queued before the first one"
    assert min(again[1:]) >= 2 * first[1]


def test_the_device_spins_until_the_host_has_queued_even_a_long_iteration() -> None:
    device = Spinning(Fake(enqueue_s=1e-3))
    timer = timer_of(device)
    queue = device.in_stream(lambda: None)

    def call() -> None:
        for _ in range(9):
            queue()

    assert late(timer, call) > 0
    assert min(late(timer, call) for _ in range(5)) <= 1
    assert device.spins_s[-1] >= 18e-3  # twice what the host needs


def test_the_device_spins_longer_than_the_host_needs_for_an_iteration_before_any_is_late() -> None:
    device = Spinning(Fake(enqueue_s=0.5e-3))
    timer = timer_of(device)
    late(timer, timer.aligner, 10)  # as the aligner is timed before the first case
    timer.align_over(None, "a case")
    assert late(timer, device.in_stream(lambda: None), 100) <= 10
    assert 1e-3 < device.spins_s[-1] < 50e-3

"""The timed loop, and one batch of it on this rank."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch

from commbench.host.cpu_counters import FIELDS, CpuCounters
from commbench.host.nvml import GpuState
from commbench.spec.case import Case
from commbench.spec.timing_modes import GRAPH
from commbench.worker.device import Device
from commbench.worker.timers import Timer
from commbench.worker.watchdog.rank_state import ITERATION, StateBuffer, open_state

OVERHEAD_ITERATIONS = 100
OVERHEAD_HOLD_S = 0.05
"""A device waits for so long until all of these iterations are queued."""


class LocalSamples(NamedTuple):
    """What one rank measured in a batch; int64 tensors."""

    durations: torch.Tensor
    """Of each iteration, in ns."""
    starts: torch.Tensor
    """When each iteration started, in ns on the timer's clock; 0 where clocks differ."""
    counters: torch.Tensor
    """What the kernel counted during the batch, by cpu_counters.FIELDS."""
    enqueue: torch.Tensor | None = None
    """Two numbers: the median time in ns that the host needed to queue an iteration, and the number
    of iterations that came late to the device (timers.HostTimes); None on a CPU."""
    state: GpuState | None = None
    """Of the device, when the last iteration had been queued; None where that is unknown."""


def no_samples(iterations: int, is_async: bool) -> LocalSamples:
    """What a rank has of a batch that it takes no part in."""
    zeros = torch.zeros(iterations, dtype=torch.int64)
    counters = torch.zeros(len(FIELDS), dtype=torch.int64)
    return LocalSamples(zeros, zeros, counters, zeros.new_zeros(2) if is_async else None)


def timed_loop(
    call: Callable[[], object],
    align: Callable[[], object],
    start: Callable[[int], object],
    stop: Callable[[int], object],
    iterations: int,
    state: StateBuffer,
) -> None:
    """Run `call` that many times: align the ranks before each call, stamp the time before and after
    it, and note the number of the iteration in the rank's state."""
    for index in range(iterations):
        state[ITERATION] = index
        align()
        start(index)
        call()
        stop(index)


def make_iteration(
    device: Device, case: Case, call: Callable[[], object], calls: int
) -> Callable[[], object]:
    """The function that runs an iteration of so many calls of a case: each queued by itself, or all
    as one graph. Raises RuntimeError where they cannot be captured."""
    if case.launch_mode == GRAPH:
        return device.capture(call, calls)
    return back_to_back(device.in_stream(call), calls)


def one_after_another(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """A function that runs these calls: those of the groups that a rank is in."""
    if len(calls) == 1:
        return calls[0]

    def run_calls() -> None:
        for call in calls:
            call()

    return run_calls


def back_to_back(call: Callable[[], object], calls: int) -> Callable[[], object]:
    """A function that runs `call` that many times, as one iteration of pipelined timing."""
    if calls == 1:
        return call

    def repeat_call() -> None:
        for _ in range(calls):
            call()

    return repeat_call


def time_batch(
    timer: Timer,
    counters: CpuCounters,
    call: Callable[[], object],
    iterations: int,
    state: StateBuffer,
    read_state: Callable[[], GpuState | None] = lambda: None,
) -> LocalSamples:
    """Time that many iterations on this rank, with Python's garbage collector off.

    `read_state` is called once, when all of them are queued: a GPU still runs the last ones, so
    that its clocks are those under load.
    """
    start, stop = timer.prepare(iterations)
    gc.collect(0)
    was_enabled = gc.isenabled()
    gc.disable()
    before = counters.read()
    try:
        timed_loop(call, timer.align, start, stop, iterations, state)
    finally:
        if was_enabled:
            gc.enable()
    device_state = read_state()
    durations, starts = timer.collect()
    counted = counters.since(before)
    samples = LocalSamples(*(torch.tensor(found) for found in (durations, starts, counted)))
    if host := timer.host_times():
        enqueue = round(median(host.enqueue_ns)), sum(host.is_late)
        samples = samples._replace(enqueue=torch.tensor(enqueue))
    return samples._replace(state=device_state)


def loop_overhead_s(timer: Timer) -> float:
    """Seconds that the timed loop itself adds to an iteration: the median with a call that does
    nothing and without alignment."""
    start, stop = timer.prepare(OVERHEAD_ITERATIONS)
    timer.hold(OVERHEAD_HOLD_S)
    timed_loop(_nothing, _nothing, start, stop, OVERHEAD_ITERATIONS, open_state(None, 0))
    return median(timer.collect()[0]) * 1e-9


def _nothing() -> None:
    pass

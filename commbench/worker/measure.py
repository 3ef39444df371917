"""The timed loop, and one batch of it on this rank."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median
from typing import NamedTuple

import torch

from commbench.host.cpu_counters import FIELDS, CpuCounters
from commbench.host.nvml import GpuState
from commbench.spec.case import Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import GRAPH
from commbench.worker.device import Device
from commbench.worker.timers import Timer
from commbench.worker.watchdog.rank_state import ITERATION, StateBuffer, open_state

ALIGNER_ITERATIONS = 10
FEW_ALIGNER_ITERATIONS = 3
SLOW_ALIGNER_S = 5e-3
"""How often the aligner is timed, and how often where the first times are above this: many ranks
on few cores."""
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


Call = Callable[[], object]


def make_iterations(device: Device, case: Case, pieces: Sequence[Call], calls: int) -> list[Call]:
    """Functions that run an iteration of so many calls of a case each: every call queued by itself,
    or all as one graph; or each call run by the host, now. Raises RuntimeError where they cannot be
    captured.

    `pieces` has a call for each of the case's pieces of memory. Calls take them by turns, from one
    iteration to the next too, and all iterations together use each of them.
    """
    if OPERATIONS[case.operation].is_timed_by_host:
        return list(pieces)
    turns = cycle(pieces)
    parts = [list(islice(turns, calls)) for _ in range(-(-len(pieces) // calls))]
    if case.launch_mode == GRAPH:
        return [device.capture(part) for part in parts]
    return [back_to_back([device.in_stream(call) for call in part]) for part in parts]


def and_wait(device: Device, call: Call) -> Call:
    """A function that makes this call and waits until the device has done it."""
    if not device.is_async:
        return call

    def make_call() -> None:
        call()
        device.synchronize()

    return make_call


def back_to_back(calls: Sequence[Call]) -> Call:
    """A function that makes these calls one after another, as one iteration."""
    if len(calls) == 1:
        return calls[0]

    def make_calls() -> None:
        for call in calls:
            call()

    return make_calls


def by_turns(iterations: Sequence[Call], first: int) -> Call:
    """A function that runs one of these iterations, the next each time; it begins with `first`."""
    if len(iterations) == 1:
        return iterations[0]
    turns = cycle((*iterations[first:], *iterations[:first])).__next__
    return lambda: turns()()


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
    nothing and without alignment. On a device, only iterations count that were queued in time, if
    there are any: a busy host may not queue all of them while the device waits."""
    start, stop = timer.prepare(OVERHEAD_ITERATIONS)
    timer.hold(OVERHEAD_HOLD_S)
    timed_loop(_nothing, _nothing, start, stop, OVERHEAD_ITERATIONS, open_state(None, 0))
    durations = timer.collect()[0]
    if host := timer.host_times():
        in_time = [ns for ns, late in zip(durations, host.is_late, strict=True) if not late]
        durations = in_time or durations
    return median(durations) * 1e-9


def aligner_durations(timer: Timer, iterations: int) -> torch.Tensor:
    """The time of the aligner itself, in ns, where it is the call: an operation without data, and
    how far apart the ranks leave the aligner before it. All ranks take part."""
    start, stop = timer.prepare(iterations)
    state = open_state(None, 0)
    timed_loop(timer.aligner, timer.align, start, stop, iterations, state)
    return torch.tensor(timer.collect()[0])


def _nothing() -> None:
    pass

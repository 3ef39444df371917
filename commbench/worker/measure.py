"""The timed loop, one batch of it on this rank, and the timers, one per kind of device.

A timer stamps the time before and after each iteration. `align` synchronises the ranks before each
iteration: on a CPU by a barrier of the measured group, on a GPU by a one-element all_reduce in the
same stream, so that the host never waits in between.
"""

from __future__ import annotations

import gc
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from commbench.host import cpu, gpus
from commbench.plan import dimensions, operations
from commbench.plan.case import Case
from commbench.worker.communicator import Communicator
from commbench.worker.device import Call, Device, Event
from commbench.worker.watchdog.rank_state import ITERATION, StateBuffer, open_state

Stamp = Callable[[int], object]
"""Notes the time of iteration i."""


class Timer:
    """Stamps start and stop of each iteration of a batch: by the monotonic clock of the host,
    common to all processes of one boot."""

    shares_clock = True
    """Whether starts of ranks on one host can be compared."""
    resolution_s = time.get_clock_info("perf_counter").resolution
    enqueue_ns: Sequence[int] = ()
    """Of each iteration of the last batch, from before its start was queued on a device until its
    stop was; empty where the host runs the operations itself."""
    late: Sequence[bool] = ()
    """Whether the device came to the start before the host had queued the stop, so that the
    duration may contain a time in which the device waited for the host."""
    align: Call
    """Lets all ranks of a group, at first of the default one, begin the next call at the same
    time."""
    aligner: Call
    """The operation that aligns the ranks, by itself."""

    def __init__(self, comm: Communicator, align: Call | None = None) -> None:
        self.device = comm.device
        self.align = self.aligner = align or partial(dist.barrier, group=comm.group)

    def align_over(self, group: Any, kind: Hashable = None) -> None:  # noqa: ARG002
        """From now on, align the ranks of this process group, for iterations of that kind."""
        self.align = self.aligner = partial(dist.barrier, group=group)

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        """Allocate what a batch of that many iterations writes; the functions that stamp start and
        stop."""
        starts = self._starts = array("q", bytes(8 * iterations))
        ends = self._ends = array("q", bytes(8 * iterations))
        now = time.perf_counter_ns

        def start(index: int) -> None:
            starts[index] = now()

        def stop(index: int) -> None:
            ends[index] = now()

        return start, stop

    def collect(self) -> tuple[list[int], list[int]]:
        """Durations and starts of the last batch in ns; starts are 0 where clocks differ."""
        durations = [end - start for start, end in zip(self._starts, self._ends, strict=True)]
        return durations, list(self._starts)


RUN_AHEAD = 2
"""Iterations that the host queues while the device still runs an earlier one. With fewer the device
would wait for the host; with more nobody would see for long that an operation hangs."""
LEAST_SPIN_S, MOST_SPIN_S = 100e-6, 2e-3
"""How long the device spins before the ranks are aligned, so that the host can queue the whole
iteration before it begins. Where the host needs more than half of the most, the device spins for
twice as long as it needs."""
SPIN_OVER_QUEUE = 1.5
"""The device spins for so many times as long as the host needs for an iteration, alignment and all:
where it is faster, it waits for the host sooner or later. On an H100 the host needed 0.16 ms."""
LONGEST_SPIN_S = 50e-3
"""The most for any iteration: about 1,000 launches can wait for a device, and for a free place the
host waits."""
FIRST_SPIN_S = 1e-3
"""The least for the first iteration of a batch, before which the device has nothing to do."""
_UNKNOWN = (LEAST_SPIN_S, math.inf)
MOST_LATE = 0.1
"""The spin doubles after a batch with a larger share of late iterations: for its kind of iteration,
since other kinds may be queued in time."""


class DeviceEventTimer(Timer):
    """Pairs of events in the device's current stream; resolution about 0.5 us on CUDA.

    Everything of an iteration is queued before the ranks are aligned: the device first spins.
    So a duration is that of the operation alone, also where the operation takes less time than the
    host needs to queue it; NVIDIA's nvbandwidth blocks its streams in the same way.
    """

    shares_clock = False
    resolution_s = 0.5e-6

    def __init__(self, comm: Communicator) -> None:
        self.device = comm.device
        token = torch.zeros(1, device=comm.device.torch_device)
        self._group = comm.group
        self.aligner = comm.device.in_stream(lambda: dist.all_reduce(token, group=self._group))
        self._events: list[tuple[Event, Event]] = []
        self._running: deque[Event] = deque()
        """The stop events of the iterations that the device may not have finished."""
        self._kind: Hashable = None
        self._spin_s, self._queue_s = _UNKNOWN
        self._spins: dict[Hashable, tuple[float, float]] = {}
        """Of each kind of iteration: how long the device spins, and the least time in which the
        host queued one. Later it may wait for the spin: then it never needs less."""
        self._began = 0

    def align_over(self, group: Any, kind: Hashable = None) -> None:
        self._group, self._kind = group, kind
        before_s, _ = self._spins.get(None, _UNKNOWN)  # of the aligner itself
        self._spin_s, self._queue_s = self._spins.get(kind, (before_s, math.inf))

    def align(self) -> None:
        if len(self._running) > RUN_AHEAD:
            self._running.popleft().synchronize()
        self._began = time.perf_counter_ns()
        self.device.spin(self._spin_s if self._running else max(self._spin_s, FIRST_SPIN_S))
        self.aligner()

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        while len(self._events) < iterations:
            pair = self.device.make_event(), self.device.make_event()
            for event in pair:
                event.record()  # the first one allocates
            self._events.append(pair)
        pairs = self._pairs = self._events[:iterations]
        starts = self._starts = array("q", bytes(8 * iterations))
        enqueued = self._enqueued = array("q", bytes(8 * iterations))
        spans = self._spans = array("q", bytes(8 * iterations))
        late = self.late = [False] * iterations
        running, now = self._running, time.perf_counter_ns
        running.clear()
        self._began = 0

        def start(index: int) -> None:
            starts[index] = now()
            pairs[index][0].record()

        def stop(index: int) -> None:
            begin, end = pairs[index]
            end.record()
            enqueued[index] = now()
            spans[index] = enqueued[index] - (self._began or starts[index])
            late[index] = begin.query()
            running.append(end)

        return start, stop

    def collect(self) -> tuple[list[int], list[int]]:
        self.device.synchronize()
        self._running.clear()
        self._queue_s = min(self._queue_s, median(self._spans) * 1e-9)
        wanted_s = SPIN_OVER_QUEUE * self._queue_s
        if sum(self.late) > MOST_LATE * len(self.late):
            wanted_s = 2 * max(self._spin_s, self._queue_s)
        most_s = min(max(MOST_SPIN_S, 2 * self._queue_s), LONGEST_SPIN_S)
        self._spin_s = min(max(self._spin_s, wanted_s), most_s)
        self._spins[self._kind] = self._spin_s, self._queue_s
        queued = zip(self._starts, self._enqueued, strict=True)
        self.enqueue_ns = [end - start for start, end in queued]
        durations = [round(begin.elapsed_time(end) * 1e6) for begin, end in self._pairs]
        return durations, [0] * len(durations)


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
    of iterations that came late to the device (Timer.late); None on a CPU."""
    state: gpus.GpuState | None = None
    """Of the device, when the last iteration had been queued; None where that is unknown."""
    group_bytes: int = cpu.UNKNOWN
    """The memory of one of the process groups that the batch made."""


def no_samples(iterations: int, is_async: bool) -> LocalSamples:
    """What a rank has of a batch that it takes no part in."""
    zeros = torch.zeros(iterations, dtype=torch.int64)
    counters = torch.zeros(len(cpu.FIELDS), dtype=torch.int64)
    return LocalSamples(zeros, zeros, counters, zeros.new_zeros(2) if is_async else None)


def timed_loop(
    call: Call, align: Call, start: Stamp, stop: Stamp, iterations: int, state: StateBuffer
) -> None:
    """Run `call` that many times: align the ranks before each call, stamp the time before and after
    it, and note the number of the iteration in the rank's state."""
    for index in range(iterations):
        state[ITERATION] = index
        align()
        start(index)
        call()
        stop(index)


def make_iterations(device: Device, case: Case, pieces: Sequence[Call], calls: int) -> list[Call]:
    """Functions that run an iteration of so many calls of a case each: every call queued by itself,
    or all as one graph; or each call run by the host, now. Raises RuntimeError where they cannot be
    captured.

    `pieces` has a call for each of the case's pieces of memory. Calls take them by turns, from one
    iteration to the next too, and all iterations together use each of them.
    """
    if operations.OPERATIONS[case.operation].is_timed_by_host:
        return list(pieces)
    turns = cycle(pieces)
    parts = [list(islice(turns, calls)) for _ in range(-(-len(pieces) // calls))]
    if case.launch_mode == dimensions.GRAPH:
        return [device.capture(part) for part in parts]
    return [back_to_back([device.in_stream(call) for call in part]) for part in parts]


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
    timer: Timer, counters: cpu.CpuCounters, call: Call, iterations: int, state: StateBuffer
) -> LocalSamples:
    """Time that many iterations on this rank, with Python's garbage collector off.

    The device's state is read when all of them are queued: a GPU still runs the last ones, so that
    its clocks are those under load.
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
    device_state = timer.device.read_state()
    durations, starts = timer.collect()
    counted = counters.since(before)
    samples = LocalSamples(*(torch.tensor(found) for found in (durations, starts, counted)))
    if timer.enqueue_ns:
        enqueue = round(median(timer.enqueue_ns)), sum(timer.late)
        samples = samples._replace(enqueue=torch.tensor(enqueue))
    return samples._replace(state=device_state)


def loop_overhead_s(timer: Timer) -> float:
    """Seconds that the timed loop itself adds to an iteration: the median with a call that does
    nothing and without alignment. On a device, only iterations count that were queued in time, if
    there are any: a busy host may not queue all of them while the device waits."""
    start, stop = timer.prepare(OVERHEAD_ITERATIONS)
    timer.device.spin(OVERHEAD_HOLD_S)
    nothing: Call = lambda: None  # noqa: E731
    timed_loop(nothing, nothing, start, stop, OVERHEAD_ITERATIONS, open_state(None, 0))
    durations = timer.collect()[0]
    in_time = [ns for ns, late in zip(durations, timer.late, strict=False) if not late]
    return median(in_time or durations) * 1e-9


def time_calls(
    timer: Timer, call: Call, iterations: int, state: StateBuffer | None = None
) -> torch.Tensor:
    """The duration of each of so many calls on this rank, in ns; all ranks take part. Where the
    call is the aligner, that of an operation without data, and how far apart the ranks leave the
    aligner before it."""
    start, stop = timer.prepare(iterations)
    timed_loop(call, timer.align, start, stop, iterations, state or open_state(None, 0))
    return torch.tensor(timer.collect()[0])

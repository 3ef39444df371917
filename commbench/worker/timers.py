"""The timers, one per kind of device. A timer stamps the time before and after each iteration.

`align` synchronises the ranks before each iteration: on a CPU by a barrier of the measured group,
on a GPU by a one-element all_reduce in the same stream, so that the host never waits in between.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from commbench.worker.communicator import Communicator
from commbench.worker.device import Event

Stamp = Callable[[int], object]
"""Notes the time of iteration i."""


class HostTimes(NamedTuple):
    """What the host did while it queued the iterations of a batch on a device."""

    enqueue_ns: list[int]
    """Of each iteration, from before its start was queued until its stop was."""
    is_late: list[bool]
    """Whether the device came to the start before the host had queued the stop, so that the
    duration may contain a time in which the device waited for the host."""


class Timer:
    """Stamps start and stop of each iteration of a batch."""

    shares_clock: bool
    """Whether starts of ranks on one host can be compared."""
    resolution_s: float
    aligner: Callable[[], object]
    """The operation that aligns the ranks, by itself."""
    align: Callable[[], object]
    """Lets all ranks of a group, at first of the default one, begin the next call at the same
    time."""

    def align_over(self, group: Any, kind: Hashable = None) -> None:
        """From now on, align the ranks of this process group, for iterations of that kind."""
        raise NotImplementedError

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        """Allocate what a batch of that many iterations writes; the functions that stamp start and
        stop."""
        raise NotImplementedError

    def hold(self, seconds: float) -> None:
        """Let a device wait for so long before it runs what is queued next."""

    def collect(self) -> tuple[list[int], list[int]]:
        """Durations and starts of the last batch in ns; starts are 0 where clocks differ."""
        raise NotImplementedError

    def host_times(self) -> HostTimes | None:
        """What the host did in the last batch; None where it runs the operations itself."""
        return None


class HostTimer(Timer):
    """The monotonic clock of the host, common to all processes of one boot."""

    shares_clock = True
    resolution_s = time.get_clock_info("perf_counter").resolution

    def __init__(self, comm: Communicator, align: Callable[[], object] | None = None) -> None:
        self.align = self.aligner = align or partial(dist.barrier, group=comm.group)

    def align_over(self, group: Any, kind: Hashable = None) -> None:  # noqa: ARG002
        self.align = self.aligner = partial(dist.barrier, group=group)

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        starts = self._starts = array("q", bytes(8 * iterations))
        ends = self._ends = array("q", bytes(8 * iterations))
        now = time.perf_counter_ns

        def start(index: int) -> None:
            starts[index] = now()

        def stop(index: int) -> None:
            ends[index] = now()

        return start, stop

    def collect(self) -> tuple[list[int], list[int]]:
        durations = [end - start for start, end in zip(self._starts, self._ends, strict=True)]
        return durations, list(self._starts)


RUN_AHEAD = 2
"""Iterations that the host queues while the device still runs an earlier one. With fewer the device
would wait for the host; with more nobody would see for long that an operation hangs."""
LEAST_SPIN_S, MOST_SPIN_S = 100e-6, 2e-3
"""How long the device spins before the ranks are aligned, so that the host can queue the whole
iteration before it begins. Torch needs 15 to 25 us of the host for each collective. Where the host
needs more than half of the most, the device spins for twice as long as it needs."""
LONGEST_SPIN_S = 50e-3
"""The most for any iteration: about 1,000 launches can wait for a device, and for a free place the
host waits."""
_NOT_LATE = (LEAST_SPIN_S, math.inf)
MOST_LATE = 0.1
"""The spin becomes longer after a batch with a larger share of late iterations: for its kind of
iteration, since other kinds may be queued in time."""


class DeviceEventTimer(Timer):
    """Pairs of events in the device's current stream; resolution about 0.5 us on CUDA.

    Everything of an iteration is queued before the ranks are aligned: the device first spins.
    So a duration is that of the operation alone, also where the operation takes less time than the
    host needs to queue it; NVIDIA's nvbandwidth blocks its streams in the same way.
    """

    shares_clock = False
    resolution_s = 0.5e-6

    def __init__(self, comm: Communicator) -> None:
        self._device = comm.device
        token = torch.zeros(1, device=comm.device.torch_device)
        self._group = comm.group
        self.aligner = comm.device.in_stream(lambda: dist.all_reduce(token, group=self._group))
        self._events: list[tuple[Event, Event]] = []
        self._running: deque[Event] = deque()
        """The stop events of the iterations that the device may not have finished."""
        self._kind: Hashable = None
        self._spin_s, self._queue_s = _NOT_LATE
        self._spins: dict[Hashable, tuple[float, float]] = {}
        """Of each kind of iteration that was late: how long the device spins, and the least time in
        which the host queued one. Later it may wait for the spin: then it never needs less."""

    def align_over(self, group: Any, kind: Hashable = None) -> None:
        self._group, self._kind = group, kind
        self._spin_s, self._queue_s = self._spins.get(kind, _NOT_LATE)

    def align(self) -> None:
        if len(self._running) > RUN_AHEAD:
            self._running.popleft().synchronize()
        self._device.spin(self._spin_s)
        self.aligner()

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        while len(self._events) < iterations:
            pair = self._device.make_event(), self._device.make_event()
            for event in pair:
                event.record()  # the first one allocates
            self._events.append(pair)
        pairs = self._pairs = self._events[:iterations]
        starts = self._starts = array("q", bytes(8 * iterations))
        enqueued = self._enqueued = array("q", bytes(8 * iterations))
        late = self._late = [False] * iterations
        running, now = self._running, time.perf_counter_ns
        running.clear()

        def start(index: int) -> None:
            starts[index] = now()
            pairs[index][0].record()

        def stop(index: int) -> None:
            begin, end = pairs[index]
            end.record()
            enqueued[index] = now()
            late[index] = begin.query()
            running.append(end)

        return start, stop

    def hold(self, seconds: float) -> None:
        self._device.spin(seconds)

    def collect(self) -> tuple[list[int], list[int]]:
        self._device.synchronize()
        self._running.clear()
        if sum(self._late) > MOST_LATE * len(self._late):
            spans = zip(self._starts, self._enqueued, strict=True)
            self._queue_s = min(self._queue_s, min(end - start for start, end in spans) * 1e-9)
            longer_s = 2 * max(self._spin_s, self._queue_s)
            most_s = min(max(MOST_SPIN_S, 2 * self._queue_s), LONGEST_SPIN_S)
            self._spin_s = min(longer_s, most_s)
            self._spins[self._kind] = self._spin_s, self._queue_s
        durations = [round(begin.elapsed_time(end) * 1e6) for begin, end in self._pairs]
        return durations, [0] * len(durations)

    def host_times(self) -> HostTimes | None:
        spans = zip(self._starts, self._enqueued, strict=True)
        return HostTimes([end - start for start, end in spans], self._late)


def make_timer(comm: Communicator) -> Timer:
    """The timer for the device of a rank."""
    return DeviceEventTimer(comm) if comm.device.is_async else HostTimer(comm)

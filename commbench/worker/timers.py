"""The timers, one per kind of device. A timer stamps the time before and after each iteration.

`align` synchronises the ranks before each iteration: on a CPU by a barrier of the measured group,
on a GPU by a one-element all_reduce in the same stream, so that the host never waits in between.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from commbench.worker.communicator import Communicator

Stamp = Callable[[int], object]
"""Notes the time of iteration i."""


class Timer(Protocol):
    """Stamps start and stop of each iteration of a batch."""

    shares_clock: bool
    """Whether starts of ranks on one host can be compared."""
    resolution_s: float
    align: Callable[[], object]

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        """Allocate what a batch of that many iterations writes; the functions that stamp start and
        stop."""

    def collect(self) -> tuple[list[int], list[int]]:
        """Durations and starts of the last batch in ns; starts are 0 where clocks differ."""


class HostTimer:
    """The monotonic clock of the host, common to all processes of one boot."""

    shares_clock = True
    resolution_s = time.get_clock_info("perf_counter").resolution

    def __init__(self, comm: Communicator) -> None:
        group = comm.group
        self.align: Callable[[], object] = lambda: dist.barrier(group=group)

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


class DeviceEventTimer:
    """Pairs of events in the device's current stream; resolution about 0.5 us on CUDA."""

    shares_clock = False
    resolution_s = 0.5e-6

    def __init__(self, comm: Communicator) -> None:
        self._device = torch.get_device_module(comm.device)
        token = torch.zeros(1, device=comm.device)
        group = comm.group
        self.align: Callable[[], object] = lambda: dist.all_reduce(token, group=group)
        self._events: list[tuple[Any, Any]] = []

    def prepare(self, iterations: int) -> tuple[Stamp, Stamp]:
        event = self._device.Event
        while len(self._events) < iterations:
            self._events.append((event(enable_timing=True), event(enable_timing=True)))
        starts = [pair[0].record for pair in self._events]
        stops = [pair[1].record for pair in self._events]
        self._used = iterations
        return lambda index: starts[index](), lambda index: stops[index]()

    def collect(self) -> tuple[list[int], list[int]]:
        self._device.synchronize()
        pairs = self._events[: self._used]
        return [round(a.elapsed_time(b) * 1e6) for a, b in pairs], [0] * len(pairs)


def make_timer(comm: Communicator) -> Timer:
    """The timer for the device of a rank."""
    return HostTimer(comm) if comm.device.type == "cpu" else DeviceEventTimer(comm)

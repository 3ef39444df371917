"""The calls of an overlap: a communication, a computation that takes about as long, and both.

In a call of both, the communication is started with async_op=True, the rank computes, and then it
waits. The call notes when each of the two ended. On a device events do that: one in the stream of
the computation, and one in a further stream that waits for the communication alone. On a CPU the
thread of the backend that ends the communication calls back (torch's Work.get_future). That takes
about 10 us of that thread; a thread that waits for the Work would take more, since it has to be
woken up first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple, Protocol

import torch

from commbench.spec.case import Case
from commbench.spec.workloads import COMMUNICATION, COMPUTATION, TOGETHER, WORKLOADS, Unit
from commbench.worker.buffers import Buffers, make_async_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device, Event
from commbench.worker.measure import Call, timed_loop
from commbench.worker.timers import Timer
from commbench.worker.watchdog.rank_state import StateBuffer

CALIBRATION_S = 50e-3
"""How long each measurement of a calibration lasts, within these numbers of iterations."""
FEWEST, MOST = 3, 30
UNTIMED = 3
CALIBRATIONS = 3
"""How often the number of units is corrected. The first one is a single unit."""
MOST_UNITS = 1_000_000
LATEST_CALLBACK_S = 0.1
"""How long after its Work has ended the callback of a communication may come."""

Start = Callable[[], Any]


class Work(NamedTuple):
    """The computation of one overlap."""

    run: Call
    units: int
    unit: str
    """What a unit is."""

    @property
    def text(self) -> str:
        """Such as `12 x matmul 128x128x128 float32`."""
        return f"{self.units} x {self.unit}"


class Ends(Protocol):
    """Runs both at once, and notes when each ended."""

    def call(self, start: Start, compute: Call) -> None:
        """Start the communication, compute, and wait."""

    def prepare(self) -> None:
        """Forget the calls so far."""

    def collect(self) -> tuple[list[int], list[int]]:
        """For each call since `prepare`, when the communication ended and when the computation
        did, in ns from the beginning of the call; 0 where that is unknown."""


class HostEnds:
    """On a CPU: by its clock."""

    def __init__(self) -> None:
        self._marks: list[list[int]] = []
        """Of each call: when it began, and when communication and computation ended; 0: not
        yet."""
        self._has_futures = True

    def call(self, start: Start, compute: Call) -> None:
        now = time.perf_counter_ns
        mark = [now(), 0, 0]
        self._marks.append(mark)
        work = start()
        if self._has_futures:
            self._note_end(work, mark)
        compute()
        mark[2] = now()
        work.wait()

    def _note_end(self, work: Any, mark: list[int]) -> None:
        def note(_: Any) -> None:
            mark[1] = time.perf_counter_ns()

        try:
            work.get_future().add_done_callback(note)
        except (RuntimeError, AttributeError):
            self._has_futures = False  # this backend's works have none

    def prepare(self) -> None:
        self._marks = []

    def collect(self) -> tuple[list[int], list[int]]:
        deadline = time.perf_counter() + LATEST_CALLBACK_S * self._has_futures
        while not all(mark[1] for mark in self._marks) and time.perf_counter() < deadline:
            time.sleep(1e-3)
        ends = [[mark[end] and mark[end] - mark[0] for mark in self._marks] for end in (1, 2)]
        return ends[0], ends[1]


class DeviceEnds:
    """On a device: by events in its streams."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._events: list[tuple[Event, Event, Event]] = []
        """Of each call: when it began, and when communication and computation ended."""
        self._calls = 0

    def call(self, start: Start, compute: Call) -> None:
        device = self._device
        if self._calls == len(self._events):
            self._events.append((device.make_event(), device.make_event(), device.make_event()))
        began, communicated, computed = self._events[self._calls]
        self._calls += 1
        works: list[Any] = []

        def note_end() -> None:
            works[0].wait()
            communicated.record()

        began.record()
        device.in_stream(lambda: works.append(start()))()
        device.beside(note_end)
        device.in_stream(compute)()
        computed.record()
        device.in_stream(lambda: works[0].wait())()

    def prepare(self) -> None:
        self._calls = 0

    def collect(self) -> tuple[list[int], list[int]]:
        called = self._events[: self._calls]
        for _, communicated, computed in called:
            communicated.synchronize()
            computed.synchronize()
        return (
            [round(began.elapsed_time(end) * 1e6) for began, end, _ in called],
            [round(began.elapsed_time(end) * 1e6) for began, _, end in called],
        )


class Overlaps:
    """The computations of a rank, and the calls of its overlaps."""

    def __init__(
        self, comm: Communicator, timer: Timer, state: StateBuffer, ratio: float | None
    ) -> None:
        self._comm, self._timer, self._state = comm, timer, state
        self._ratio = ratio or 1.0
        self._ends: Ends = DeviceEnds(comm.device) if comm.device.is_async else HostEnds()
        self._units: dict[str, tuple[Unit, str]] = {}
        self._works: dict[tuple[Any, ...], Work] = {}

    def work(self, case: Case) -> Work:
        """The computation of a case that was calibrated."""
        return self._works[case.key("part")]

    def is_calibrated(self, case: Case) -> bool:
        """Whether the computation of a case has its length."""
        return case.key("part") in self._works

    def calibrate(self, case: Case, buffers: Buffers) -> None:
        """Make the computation of a case as long as its communication times the ratio. All ranks
        take part and come to the same number of units: the slowest rank counts."""
        communicate = self._alone(make_async_call(case, buffers))
        wanted_s = self._slowest_s(communicate) * self._ratio
        unit, name = self._unit(case.overlap)
        units = 1
        for _ in range(CALIBRATIONS):
            found_s = self._slowest_s(self._comm.device.in_stream(_repeat(unit, units)))
            units = min(MOST_UNITS, max(1, round(units * wanted_s / max(found_s, 1e-9))))
        self._works[case.key("part")] = Work(_repeat(unit, units), units, name)

    def make_call(self, case: Case, buffers: Buffers) -> Call:
        """The function that runs a part of an overlap once."""
        start, run = make_async_call(case, buffers), self.work(case).run
        calls: dict[str, Call] = {
            COMMUNICATION: self._alone(start),
            COMPUTATION: self._comm.device.in_stream(run),
            TOGETHER: partial(self._ends.call, start, run),
        }
        return calls[case.part]

    def prepare(self) -> None:
        """Forget when earlier calls ended."""
        self._ends.prepare()

    def slowest_ends_s(self, case: Case) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For each call since `prepare` the seconds to the end of the communication, and of the
        computation, of the slowest rank; on rank 0. Empty where they are unknown, and for a case
        that does not run both. All ranks take part."""
        if case.part != TOGETHER:
            return (), ()
        ends = self._comm.reduce_max(torch.tensor(self._ends.collect())).tolist()
        communicated, computed = (tuple(round(ns * 1e-9, 10) for ns in found) for found in ends)
        return (communicated if all(communicated) else ()), computed

    def _alone(self, start: Start) -> Call:
        return self._comm.device.in_stream(lambda: start().wait())

    def _unit(self, overlap: str) -> tuple[Unit, str]:
        if overlap not in self._units:
            name, _, detail = overlap.partition(":")
            device = self._comm.device
            self._units[overlap] = WORKLOADS[name].make(
                torch, device.torch_device, device.multiprocessors, detail
            )
        return self._units[overlap]

    def _slowest_s(self, call: Call) -> float:
        """The median time of a call on the slowest rank, alike on all ranks."""
        first_s = median(self._times(call, UNTIMED))
        number = min(MOST, max(FEWEST, int(CALIBRATION_S / max(first_s, 1e-9))))
        return median(self._times(call, number))

    def _times(self, call: Call, number: int) -> list[float]:
        start, stop = self._timer.prepare(number)
        timed_loop(call, self._timer.align, start, stop, number, self._state)
        slowest = self._comm.all_reduce_max(torch.tensor(self._timer.collect()[0]))
        return [ns * 1e-9 for ns in slowest.tolist()]


def _repeat(unit: Unit, number: int) -> Call:
    def run() -> None:
        for _ in range(number):
            unit()

    return run

"""The calls of an overlap: a communication, a computation that takes about as long, and both.

In a call of both, the communication is started with async_op=True, the rank computes, and then it
waits. The call notes when each of the two ended. On a device events do that: one in the stream of
the computation, and one in a further stream that waits for the communication alone. On a CPU the
thread of the backend that ends the communication calls back (torch's Work.get_future). A thread
that waits for the Work would disturb more, since it has to be woken up first (docs/overlap.md).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

from commbench.plan.case import Case
from commbench.plan.computations import AT_ONCE, COMPUTATION, MOST_UNITS, Unit, find_computation
from commbench.plan.operation import Works
from commbench.results.schema import Batch
from commbench.worker.buffers import GroupBuffers
from commbench.worker.call_forms import Start, make_async_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Call, Device, Event
from commbench.worker.measure import Timer, back_to_back, time_calls
from commbench.worker.watchdog.rank_state import wait_until

CALIBRATION_S = 50e-3
"""How long each measurement of a calibration lasts, within these numbers of iterations."""
FEWEST, MOST = 3, 30
UNTIMED = 3
CALIBRATIONS = 3
"""How often the number of units is corrected. The first one is a single unit."""
LATEST_CALLBACK_S = 0.1
"""How long after its Work has ended the callback of a communication may come."""


class HostEnds:
    """Runs both at once, and notes when each ended. On a CPU: by its clock."""

    def __init__(self) -> None:
        self._marks: list[list[int]] = []
        """Of each call: when it began, when the communication ended, and when the computation began
        and ended; 0: not yet."""
        self._has_futures = True
        """Whether the works of the operation tell when they end."""

    def call(self, start: Start, compute: Call) -> None:
        """Start the communication, compute, and wait."""
        now = time.perf_counter_ns
        mark = [now(), 0, 0, 0]
        self._marks.append(mark)
        work = start()
        if self._has_futures:
            self._note_end(work, mark)
        mark[2] = now()
        compute()
        mark[3] = now()
        work.wait()

    def _note_end(self, work: Any, mark: list[int]) -> None:
        def note(_: Any) -> None:
            mark[1] = time.perf_counter_ns()

        try:
            works = getattr(work, "works", (work,))
            mark[1] = 0 if works else mark[0]
            for each in works:
                each.get_future().add_done_callback(note)
        except (RuntimeError, AttributeError, NotImplementedError):
            self._has_futures = False  # this backend's works have none

    def prepare(self) -> None:
        """Forget the calls so far."""
        self._marks, self._has_futures = [], True

    def collect(self, calls: int) -> tuple[list[int], list[int]]:
        """For each of the last calls since `prepare`, so many, the ns from its beginning to the end
        of the communication, 0 where that is unknown, and those that the computation took. Empty
        where there were none."""
        marks = self._marks[-calls:]
        latest_s = LATEST_CALLBACK_S * self._has_futures
        wait_until(lambda: all(mark[1] for mark in marks), latest_s, poll_s=1e-3)
        communicated = [ended and ended - began for began, ended, _, _ in marks]
        return communicated, [ended - began for _, _, began, ended in marks]


class DeviceEnds:
    """The same on a device: by events in its streams."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._events: list[tuple[Event, Event, Event]] = []
        """Of each call: when it began, and when communication and computation ended. The device
        begins to compute at once."""
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

    def collect(self, calls: int) -> tuple[list[int], list[int]]:
        called = self._events[: self._calls][-calls:]
        for _, communicated, computed in called:
            communicated.synchronize()
            computed.synchronize()
        communicated = [round(began.elapsed_time(end) * 1e6) for began, end, _ in called]
        return communicated, [round(began.elapsed_time(end) * 1e6) for began, _, end in called]


class Overlaps:
    """The computations of a rank, and the calls of its overlaps."""

    def __init__(self, comm: Communicator, timer: Timer, ratio: float | None) -> None:
        self._comm, self._timer, self._ratio = comm, timer, ratio or 1.0
        self.ends = DeviceEnds(comm.device) if comm.device.is_async else HostEnds()
        """Notes when the parts of a call end."""
        self._units: dict[tuple[str, str], tuple[Unit, str]] = {}
        self._works: dict[tuple[Any, ...], tuple[Call, str]] = {}
        """The computation of each overlap, and what it is: `12 x matmul 128x128x128 float32`."""

    def is_calibrated(self, case: Case) -> bool:
        """Whether the computation of a case has its length."""
        return case.key("part") in self._works

    def calibrate(self, case: Case, parts: GroupBuffers, takes_part: bool) -> None:
        """Make the computation of a case as long as its communication times the ratio, unless the
        case says how many units it has. All ranks call it and come to the same number of units, by
        the slowest rank. A rank that does not take part in the case runs nothing."""
        computation = find_computation(case.overlap)
        assert computation is not None
        key, device = (computation.kind.name, computation.detail), self._comm.device
        if key not in self._units:
            where = torch, device.torch_device, device.multiprocessors
            self._units[key] = computation.kind.make(*where, computation.detail)
        unit, name = self._units[key]
        units, calibrations = computation.units or 1, 0 if computation.units else CALIBRATIONS
        if calibrations:
            wanted_s = self._slowest_s(self._alone(_make_start(parts)), takes_part) * self._ratio
        for _ in range(calibrations):
            found_s = self._slowest_s(device.in_stream(back_to_back([unit] * units)), takes_part)
            units = min(MOST_UNITS, max(1, round(units * wanted_s / max(found_s, 1e-9))))
        self._works[case.key("part")] = back_to_back([unit] * units), f"{units} x {name}"

    def make_call(self, case: Case, parts: GroupBuffers) -> Call:
        """The function that runs a part of an overlap once, in each of the rank's groups."""
        start, (compute, _) = _make_start(parts), self._works[case.key("part")]
        if case.part == AT_ONCE:
            return partial(self.ends.call, start, compute)
        if case.part == COMPUTATION:
            return self._comm.device.in_stream(compute)
        return self._alone(start)

    def add_ends(self, batch: Batch, case: Case) -> Batch:
        """The batch of a case with the name of its computation, and for a case that runs both with
        the ends of each, of the slowest rank; on rank 0. All ranks call it."""
        batch = batch._replace(work=self._works[case.key("part")][1])
        if case.part != AT_ONCE:
            return batch
        calls = len(batch.samples_s)
        found = self.ends.collect(calls)
        own = torch.tensor(found) if any(found) else torch.zeros((2, calls), dtype=torch.int64)
        ends = self._comm.reduce_max(own).tolist()
        communicated, computed = (tuple(round(ns * 1e-9, 10) for ns in found) for found in ends)
        known = communicated if all(communicated) else ()
        return batch._replace(communication_s=known, computation_s=computed)

    def _alone(self, start: Start) -> Call:
        return self._comm.device.in_stream(lambda: start().wait())

    def _slowest_s(self, call: Call, takes_part: bool) -> float:
        """About the time of a call on the slowest rank, alike on all ranks: the lower quartile,
        which other work on the host changes less than the median."""
        number = UNTIMED
        for is_first in (True, False):
            own = torch.zeros(number, dtype=torch.int64)
            if takes_part:
                own = time_calls(self._timer, call, number, self._comm.state)
            times = sorted(self._comm.all_reduce_max(own).tolist())
            if is_first:
                fitting = int(CALIBRATION_S * 1e9 / max(times[1], 1))
                number = min(MOST, max(FEWEST, fitting))
        return float(times[number // 4]) * 1e-9


def _make_start(parts: GroupBuffers) -> Start:
    """Starts the communication in each of a rank's groups; what is returned waits for all."""
    starts = [make_async_call(part) for part in parts]
    return starts[0] if len(starts) == 1 else lambda: Works([start() for start in starts])

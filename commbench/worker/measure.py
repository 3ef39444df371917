"""The timed loop, a block of it on one rank, and what all ranks' blocks say together."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch

from commbench.host.cpu_counters import FIELDS, UNKNOWN, CpuCounters
from commbench.results.schema import Batch
from commbench.worker.timers import Timer
from commbench.worker.watchdog.rank_state import ITERATION, StateBuffer, open_state

OVERHEAD_ITERATIONS = 1000


def timed_loop(
    call: Callable[[], object],
    align: Callable[[], object],
    start: Callable[[int], object],
    stop: Callable[[int], object],
    iterations: int,
    row: StateBuffer,
) -> None:
    """Perform `call` so many times: ranks aligned before each, a stamp before and after it, and
    the number of the iteration in the rank's row."""
    for index in range(iterations):
        row[ITERATION] = index
        align()
        start(index)
        call()
        stop(index)


def back_to_back(call: Callable[[], object], calls: int) -> Callable[[], object]:
    """A call that performs `call` so many times, as one iteration of pipelined timing."""
    if calls == 1:
        return call

    def several() -> None:
        for _ in range(calls):
            call()

    return several


def time_block(
    timer: Timer, strain: CpuCounters, call: Callable[[], object], iterations: int, row: StateBuffer
) -> torch.Tensor:
    """Durations and starts in ns of so many iterations on this rank, and what strained it
    meanwhile: int64 [2, iterations + len(FIELDS)], the last columns of the first row by FIELDS."""
    start, stop = timer.prepare(iterations)
    gc.collect(0)
    gc.disable()
    before = strain.read()
    try:
        timed_loop(call, timer.align, start, stop, iterations, row)
    finally:
        gc.enable()
    durations, starts = timer.collect()
    strained = strain.since(before)
    return torch.tensor([[*durations, *strained], [*starts, *[0] * len(FIELDS)]])


def loop_overhead_s(timer: Timer) -> float:
    """Seconds that the loop's own stamps add to an iteration: its median with a call that does
    nothing, and nothing to align."""
    start, stop = timer.prepare(OVERHEAD_ITERATIONS)
    timed_loop(_nothing, _nothing, start, stop, OVERHEAD_ITERATIONS, open_state(None, 0))
    return median(timer.collect()[0]) * 1e-9


def _nothing() -> None:
    pass


class GatheredSamples(NamedTuple):
    """A block as all ranks timed it: int64 [ranks, 2, iterations + len(FIELDS)]."""

    blocks: torch.Tensor
    calls: int
    shares_clock: bool
    """Whether starts of different ranks can be compared."""

    @property
    def slowest_s(self) -> tuple[float, ...]:
        """Per iteration the slowest rank's duration, per call."""
        return _seconds(self._durations.amax(dim=0), self.calls)

    @property
    def _durations(self) -> torch.Tensor:
        return self.blocks[:, 0, : -len(FIELDS)]

    @property
    def _starts(self) -> torch.Tensor:
        return self.blocks[:, 1, : -len(FIELDS)]

    def batch(self, warmup: int, launch: int) -> Batch:
        """What is recorded of the block."""
        worst = self.blocks[:, 0, -len(FIELDS) :].amax(dim=0).tolist()
        strained: dict[str, Any] = {
            name: value if name == "switches" else None if value == UNKNOWN else value * 1e-9
            for name, value in zip(FIELDS, worst, strict=True)
        }
        return Batch(
            samples_s=self.slowest_s,
            calls=self.calls,
            warmup=warmup,
            rank_medians_s=_seconds(_medians(self._durations), self.calls),
            launch=launch,
            **strained,
            **(self._coming_and_going() if self.shares_clock else {}),
        )

    def _coming_and_going(self) -> dict[str, Any]:
        """Who came late and who left late; on one clock."""
        starts, ends = self._starts, self._starts + self._durations
        late, slow = starts - starts.amin(dim=0), ends - ends.amin(dim=0)
        last = torch.bincount(starts.argmax(dim=0), minlength=len(starts))
        together = ends.amax(dim=0) - starts.amax(dim=0)
        return {
            "rank_behind_s": _seconds(_medians(torch.maximum(late, slow))),
            "last_in": tuple(last.tolist()),
            "entry_skew_s": _seconds(_medians(late.amax(dim=0, keepdim=True)))[0],
            "operation_s": _seconds(_medians(together.unsqueeze(0)), self.calls)[0],
        }


def _medians(rows: torch.Tensor) -> torch.Tensor:
    return rows.double().quantile(0.5, dim=1)


def _seconds(nanoseconds: torch.Tensor, calls: int = 1) -> tuple[float, ...]:
    """Seconds per call, to the tenth of a nanosecond: what clocks cannot tell is not kept."""
    return tuple(round(ns / calls * 1e-9, 10) for ns in nanoseconds.double().tolist())

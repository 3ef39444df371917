"""Combines the times of all ranks in a batch into what is recorded of it.

Rank 0 needs O(iterations + ranks) bytes: of each iteration it gets maxima and minima over the
ranks, along a tree in which every rank passes on as many numbers as it has itself, and of each rank
two medians. Of groups that call together it gets the samples of each, if they are few.
docs/measuring.md has the figures.

Rank 0 also measures the speed of the host itself now and then: little, and the same in every run,
so that a comparison of two runs knows whether the host was slower during one of them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import torch

from commbench.host import cpu, gpus
from commbench.results.schema import Batch
from commbench.worker import measure
from commbench.worker.communicator import Communicator
from commbench.worker.device import Call
from commbench.worker.groups import GroupView

MOST_GROUP_SAMPLES = 1 << 14
"""Of the samples of groups that call together, in a batch: recorded up to so many, groups times
iterations; else the median of each group alone."""


def slowest_durations_s(
    durations: torch.Tensor, comm: Communicator, calls: int = 1
) -> tuple[float, ...]:
    """Of each iteration the slowest rank's duration in seconds per call; on rank 0."""
    return _seconds(comm.reduce_max(durations), calls)


def aligner_s(timer: measure.Timer, comm: Communicator) -> float:
    """The time of the aligner itself on the slowest rank, on rank 0: the median of
    ALIGNER_ITERATIONS, of fewer where it is slow. All ranks take part."""
    few = measure.FEW_ALIGNER_ITERATIONS
    found = comm.all_reduce_max(measure.time_calls(timer, timer.aligner, few))
    if float(_median(found)) * 1e-9 < measure.SLOW_ALIGNER_S:
        more = measure.time_calls(timer, timer.aligner, measure.ALIGNER_ITERATIONS - few)
        found = torch.cat([found, comm.reduce_max(more)])
    return _seconds(_median(found))[0]


def reduce_batch(
    samples: measure.LocalSamples, comm: Communicator, calls: int = 1, base_ns: int | None = None,
    views: Sequence[GroupView] = (), groups: Sequence[Sequence[int]] = (),
) -> Batch:  # fmt: skip
    """What is recorded of a batch, on rank 0, zeros elsewhere; all ranks have to take part.

    `base_ns` is a time before all starts, the same on every rank; None where ranks do not share a
    clock, and the entries and exits of different ranks cannot be compared. `groups` are the groups
    of ranks that were measured, and `views` those of them that this rank is in; without groups, all
    ranks were measured.
    """
    durations, own = samples.durations, [_median(samples.durations)]
    parts = _pack(samples, comm, base_ns)
    joined = torch.cat(list(parts.values()))
    if groups and not views:  # what this rank has leaves the maxima as they are
        joined = torch.full_like(joined, _NOTHING)
    reduced = comm.reduce_max(joined) if base_ns is None else comm.all_reduce_max(joined)
    found = dict(zip(parts, reduced.split(list(map(len, parts.values()))), strict=True))
    if base_ns is not None:
        behind = found["starts"] - parts["starts"], found["first_ends"] + parts["ends"]
        own.append(_median(torch.maximum(*behind)))
    led = _led_samples(durations, comm, views, groups) if len(groups) > 1 else []
    has_samples = len(groups) * len(durations) <= MOST_GROUP_SAMPLES
    if not has_samples:
        led = [_median(slowest).unsqueeze(0) for slowest in led]
    gathered = comm.gather(torch.cat([torch.stack(own), *led]))
    if comm.rank:
        return Batch(samples_s=(0.0,) * len(durations), calls=calls)
    facts = _of_devices(found, calls) if base_ns is None else _skew(found, comm.ranks, calls)
    if led:
        # A rank has as many numbers of each of the groups that it leads.
        led_by = {g[0]: iter(gathered[g[0], len(own) :].split(len(led[0]))) for g in groups}
        by_group = [next(led_by[first]) for first, *_ in groups]
        facts["group_medians_s"] = _seconds(torch.stack([_median(g) for g in by_group]), calls)
        if has_samples:
            facts["group_samples_s"] = _seconds(torch.cat(by_group), calls)
    if groups:
        members = sorted({rank for group in groups for rank in group})
        gathered = gathered[members]
        if "last_in" in facts:
            facts["last_in"] = tuple(facts["last_in"][rank] for rank in members)
    if base_ns is not None:
        facts["rank_behind_s"] = _seconds(gathered[:, 1])
    facts |= _counters(found["counters"].tolist())
    facts["group_bytes"] = most if (most := int(found["group_bytes"])) >= 0 else None
    facts["rank_medians_s"] = _seconds(gathered[:, 0], calls)
    return Batch(samples_s=_seconds(found["slowest"], calls), calls=calls, **facts)


def _pack(
    samples: measure.LocalSamples, comm: Communicator, base_ns: int | None
) -> dict[str, torch.Tensor]:
    """What rank 0 needs the maximum of over all ranks; a minimum is the negative maximum of
    negatives."""
    durations = samples.durations
    parts = {"slowest": durations, "counters": samples.counters}
    parts["group_bytes"] = torch.tensor([samples.group_bytes])
    if base_ns is None:
        enqueue = durations[:0] if samples.enqueue is None else samples.enqueue
        state = _pack_state(samples.state)
        return parts | {"fastest": -durations, "enqueue": enqueue, "state": state}
    starts = samples.starts - base_ns
    ends = starts + durations
    # The latest start carries its rank in its lowest bits; of ranks that enter at once the lowest
    # counts.
    entries = (starts << (comm.ranks - 1).bit_length()) + (comm.ranks - 1 - comm.rank)
    return parts | {"starts": -starts, "first_ends": -ends, "ends": ends, "entries": entries}


def _led_samples(
    durations: torch.Tensor, comm: Communicator, views: Sequence[GroupView],
    groups: Sequence[Sequence[int]],
) -> list[torch.Tensor]:  # fmt: skip
    """For each group whose first rank this is, its slowest rank's time in each iteration; then
    zeros, so that every rank has equally many."""
    found = []
    for view in views:
        slowest = comm.reduce_max(durations, view)
        if view.rank == 0:
            found.append(slowest.double())
    most = max(Counter(group[0] for group in groups).values())
    return found + [torch.zeros(len(durations), dtype=torch.float64)] * (most - len(found))


def _of_devices(found: dict[str, torch.Tensor], calls: int) -> dict[str, Any]:
    """The fields of a Batch where ranks have no common clock."""
    facts: dict[str, Any] = {"fastest_rank_s": _seconds(_median(-found["fastest"]), calls)[0]}
    if len(enqueue := found["enqueue"]):
        facts |= {"enqueue_s": _seconds(enqueue[0])[0], "late_iterations": int(enqueue[1])}
    clock, power, temperature, *reasons = found["state"].tolist()
    names = gpus.THROTTLE_REASONS.values()
    return facts | {
        "clock_mhz": None if clock == _NOTHING else -clock,
        "power_w": None if power == _NOTHING else power / 1000,
        "temperature_c": None if temperature == _NOTHING else temperature,
        "throttle_reasons": tuple(n for n, is_set in zip(names, reasons, strict=True) if is_set),
    }


def _skew(found: dict[str, torch.Tensor], ranks: int, calls: int) -> dict[str, Any]:
    """The fields of a Batch where all ranks read one clock."""
    bits = (ranks - 1).bit_length()
    last_start = found["entries"] >> bits
    last_rank = ranks - 1 - (found["entries"] - (last_start << bits))
    return {
        "last_in": tuple(torch.bincount(last_rank, minlength=ranks).tolist()),
        "entry_skew_s": _seconds(_median(last_start + found["starts"]))[0],
        "operation_s": _seconds(_median(found["ends"] - last_start), calls)[0],
    }


_NOTHING = -(1 << 62)
"""Below every number that a device reports, so that the other ranks' numbers are the maximum."""


def _pack_state(state: gpus.GpuState | None) -> torch.Tensor:
    """Numbers whose maxima over the ranks say how their devices are: the lowest clock, the most
    power, the highest temperature, and each reason for throttling."""
    found = state or gpus.GpuState()
    numbers = [
        _NOTHING if found.clock_mhz is None else -found.clock_mhz,
        _NOTHING if found.power_w is None else round(found.power_w * 1000),
        _NOTHING if found.temperature_c is None else found.temperature_c,
        *(int(name in found.throttle_reasons) for name in gpus.THROTTLE_REASONS.values()),
    ]
    return torch.tensor(numbers)


def _counters(values: list[int]) -> dict[str, Any]:
    return {
        name: value if name == "switches" else None if value == cpu.UNKNOWN else value * 1e-9
        for name, value in zip(cpu.FIELDS, values, strict=True)
    }


def _median(values: torch.Tensor) -> torch.Tensor:
    """As quantile(0.5), which takes ten times as long for so few values."""
    ordered = values.double().sort().values
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _seconds(nanoseconds: torch.Tensor, calls: int = 1) -> tuple[float, ...]:
    """Seconds per call, to the tenth of a nanosecond: clocks cannot tell less."""
    return tuple(round(ns / calls * 1e-9, 10) for ns in nanoseconds.double().reshape(-1).tolist())


INTERVAL_S = 0.1
"""The least time between two measurements. One takes about 2 ms."""
MOST_S = 1e-3
"""Round trips, and copies, are repeated for so long; one of each is made on a slow host too."""
COPY_BYTES = 4 << 20


class HostSpeedProbe:
    """Measures the speed of the host now and then."""

    def __init__(self) -> None:
        self._due = 0.0
        self._source = torch.zeros(COPY_BYTES, dtype=torch.uint8)
        self._target = torch.zeros_like(self._source)
        self._echo: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            pipe = subprocess.PIPE
            self._echo = subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, bufsize=0)
            # Not on the core of this rank: the message has to wake another one.
            if others := set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0):
                os.sched_setaffinity(self._echo.pid, others)

    def measure_if_due(self) -> dict[str, Any]:
        """Fields of a Batch: the median seconds of a message to another process and back, None
        where none answers, and of a copy in memory. Empty where they were measured a short time
        ago."""
        if time.monotonic() < self._due:
            return {}
        round_trip_s = self._time_round_trip()
        copy_s = _median_s(lambda: self._target.copy_(self._source))
        self._due = time.monotonic() + INTERVAL_S
        return {"host_round_trip_s": round_trip_s, "host_copy_s": copy_s}

    def close(self) -> None:
        """End the other process."""
        if self._echo:
            self._echo.kill()
            self._echo.communicate()

    def _time_round_trip(self) -> float | None:
        echo = self._echo
        if not (echo and echo.stdin and echo.stdout):
            return None
        to, back = echo.stdin.fileno(), echo.stdout.fileno()

        def round_trip() -> None:
            os.write(to, b"\0")
            os.read(back, 1)

        with suppress(OSError):
            return _median_s(round_trip)
        return None


def _median_s(call: Call) -> float:
    spent: list[float] = []
    while not spent or sum(spent) < MOST_S:
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return median(spent)

"""Combines the times of all ranks in a batch into what is recorded of it.

Rank 0 needs O(iterations + ranks) bytes: of each iteration it gets maxima and minima over the
ranks, along a tree in which every rank passes on as many numbers as it has itself, and of each rank
two medians. Of groups that call together it gets the samples of each, if they are few.
docs/measuring.md has the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from commbench.host.cpu_counters import FIELDS, UNKNOWN
from commbench.host.nvml import THROTTLE_REASONS, GpuState
from commbench.results.schema import Batch
from commbench.worker.communicator import Communicator
from commbench.worker.groups import GroupView
from commbench.worker.measure import (
    ALIGNER_ITERATIONS,
    FEW_ALIGNER_ITERATIONS,
    SLOW_ALIGNER_S,
    LocalSamples,
    aligner_durations,
)
from commbench.worker.timers import Timer

MOST_GROUP_SAMPLES = 1 << 14
"""Of the samples of groups that call together, in a batch: recorded up to so many, groups times
iterations; else the median of each group alone."""


def slowest_durations_s(
    durations: torch.Tensor, comm: Communicator, calls: int = 1
) -> tuple[float, ...]:
    """Of each iteration the slowest rank's duration in seconds per call; on rank 0."""
    return _seconds(comm.reduce_max(durations), calls)


def aligner_s(timer: Timer, comm: Communicator) -> float:
    """The time of the aligner itself on the slowest rank, on rank 0: the median of
    ALIGNER_ITERATIONS, of fewer where it is slow. All ranks take part."""
    found = comm.all_reduce_max(aligner_durations(timer, FEW_ALIGNER_ITERATIONS))
    if float(_median(found)) * 1e-9 < SLOW_ALIGNER_S:
        more = aligner_durations(timer, ALIGNER_ITERATIONS - FEW_ALIGNER_ITERATIONS)
        found = torch.cat([found, comm.reduce_max(more)])
    return _seconds(_median(found))[0]


def reduce_batch(
    samples: LocalSamples,
    comm: Communicator,
    calls: int = 1,
    base_ns: int | None = None,
    views: Sequence[GroupView] = (),
    groups: Sequence[Sequence[int]] = (),
) -> Batch:
    """What is recorded of a batch, on rank 0, zeros elsewhere; all ranks have to take part.

    `base_ns` is a time before all starts, the same on every rank; None where ranks do not share a
    clock, and the entries and exits of different ranks cannot be compared. `groups` are the groups
    of ranks that were measured, and `views` those of them that this rank is in; without groups, all
    ranks were measured.
    """
    is_member = bool(views) or not groups
    if base_ns is None:
        slowest, counted, skew = _reduce_durations(samples, comm, calls, is_member)
        numbers = [_median(samples.durations)]
    else:
        slowest, counted, behind, skew = _reduce_on_one_clock(
            samples, comm, calls, base_ns, is_member
        )
        numbers = [_median(samples.durations), _median(behind)]
    led = _led_samples(samples.durations, comm, views, groups) if len(groups) > 1 else []
    has_samples = len(groups) * len(slowest) <= MOST_GROUP_SAMPLES
    if not has_samples:
        led = [_median(found).unsqueeze(0) for found in led]
    gathered = comm.gather(torch.cat([torch.stack(numbers), *led]))
    if comm.rank:
        return Batch(samples_s=(0.0,) * len(slowest), calls=calls)
    if led:
        by_group = _of_groups(gathered[:, len(numbers) :], groups, len(led[0]))
        skew["group_medians_s"] = _seconds(torch.stack([_median(g) for g in by_group]), calls)
        if has_samples:
            skew["group_samples_s"] = _seconds(torch.cat(by_group), calls)
    if groups:
        members = sorted({rank for group in groups for rank in group})
        gathered = gathered[members]
        if "last_in" in skew:
            skew["last_in"] = tuple(skew["last_in"][rank] for rank in members)
    if base_ns is not None:
        skew["rank_behind_s"] = _seconds(gathered[:, 1])
    return Batch(
        samples_s=_seconds(slowest, calls),
        calls=calls,
        rank_medians_s=_seconds(gathered[:, 0], calls),
        **_counters(counted.tolist()),
        **skew,
    )


def _led_samples(
    durations: torch.Tensor,
    comm: Communicator,
    views: Sequence[GroupView],
    groups: Sequence[Sequence[int]],
) -> list[torch.Tensor]:
    """For each group whose first rank this is, its slowest rank's time in each iteration; then
    zeros, so that every rank has equally many."""
    found = []
    for view in views:
        slowest = comm.reduce_max_in(view, durations)
        if view.rank == 0:
            found.append(slowest.double())
    most = max(Counter(group[0] for group in groups).values())
    return found + [torch.zeros(len(durations), dtype=torch.float64)] * (most - len(found))


def _of_groups(
    led: torch.Tensor, groups: Sequence[Sequence[int]], numbers: int
) -> list[torch.Tensor]:
    """So many numbers of each group, from those that each rank has of the groups it leads."""
    before: Counter[int] = Counter()
    found = []
    for first, *_ in groups:
        start = numbers * before[first]
        found.append(led[first, start : start + numbers])
        before[first] += 1
    return found


def _reduce_durations(
    samples: LocalSamples, comm: Communicator, calls: int, is_member: bool
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """The slowest durations, the largest counters, and what can be said of all ranks without a
    common clock."""
    durations = samples.durations
    enqueue = samples.enqueue if samples.enqueue is not None else durations[:0]
    parts = [durations, -durations, samples.counters, enqueue, _pack_state(samples.state)]
    slowest, fastest, counted, enqueue, state = comm.reduce_max(_joined(parts, is_member)).split(
        list(map(len, parts))
    )
    facts: dict[str, Any] = {"fastest_rank_s": _seconds(_median(-fastest), calls)[0]}
    if len(enqueue):
        facts["enqueue_s"] = _seconds(enqueue[0])[0]
        facts["late_iterations"] = int(enqueue[1])
    return slowest, counted, facts | _unpack_state(state.tolist())


def _reduce_on_one_clock(
    samples: LocalSamples, comm: Communicator, calls: int, base_ns: int, is_member: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
    """The slowest durations, the largest counters, how far this rank was behind the first one in
    each iteration, and the skew of all ranks. One reduction: a minimum is the negative maximum of
    negatives, and the latest start carries its rank in its lowest bits."""
    durations, starts = samples.durations, samples.starts - base_ns
    ends = starts + durations
    bits = (comm.ranks - 1).bit_length()
    # Of ranks that enter at once the lowest counts.
    entries = (starts << bits) + (comm.ranks - 1 - comm.rank)
    parts = [durations, -starts, -ends, ends, entries, samples.counters]
    reduced = comm.all_reduce_max(_joined(parts, is_member))
    slowest, first_start, first_end, last_end, last_entry, counted = reduced.split(
        [len(durations)] * 5 + [len(FIELDS)]
    )
    behind = torch.maximum(starts + first_start, ends + first_end)
    if comm.rank:
        return slowest, counted, behind, {}
    last_start = last_entry >> bits
    last_rank = comm.ranks - 1 - (last_entry - (last_start << bits))
    return slowest, counted, behind, {
        "last_in": tuple(torch.bincount(last_rank, minlength=comm.ranks).tolist()),
        "entry_skew_s": _seconds(_median(last_start + first_start))[0],
        "operation_s": _seconds(_median(last_end - last_start), calls)[0],
    }  # fmt: skip


def _joined(parts: Sequence[torch.Tensor], is_member: bool) -> torch.Tensor:
    """One tensor of these; of a rank that was not measured, one that leaves the maxima as they
    are."""
    joined = torch.cat(list(parts))
    return joined if is_member else torch.full_like(joined, _NOTHING)


_NOTHING = -(1 << 62)
"""Below every number that a device reports, so that the other ranks' numbers are the maximum."""


def _pack_state(state: GpuState | None) -> torch.Tensor:
    """Numbers whose maxima over the ranks say how their devices are: the lowest clock, the most
    power, the highest temperature, and each reason for throttling."""
    found = state or GpuState()
    numbers = [
        _NOTHING if found.clock_mhz is None else -found.clock_mhz,
        _NOTHING if found.power_w is None else round(found.power_w * 1000),
        _NOTHING if found.temperature_c is None else found.temperature_c,
        *(int(name in found.throttle_reasons) for name in THROTTLE_REASONS.values()),
    ]
    return torch.tensor(numbers)


def _unpack_state(numbers: list[int]) -> dict[str, Any]:
    """The fields of a Batch that such maxima give."""
    clock, power, temperature, *reasons = numbers
    names = THROTTLE_REASONS.values()
    return {
        "clock_mhz": None if clock == _NOTHING else -clock,
        "power_w": None if power == _NOTHING else power / 1000,
        "temperature_c": None if temperature == _NOTHING else temperature,
        "throttle_reasons": tuple(n for n, is_set in zip(names, reasons, strict=True) if is_set),
    }


def _counters(values: list[int]) -> dict[str, Any]:
    return {
        name: value if name == "switches" else None if value == UNKNOWN else value * 1e-9
        for name, value in zip(FIELDS, values, strict=True)
    }


def _median(values: torch.Tensor) -> torch.Tensor:
    """As quantile(0.5), which takes ten times as long for so few values."""
    ordered = values.double().sort().values
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _seconds(nanoseconds: torch.Tensor, calls: int = 1) -> tuple[float, ...]:
    """Seconds per call, to the tenth of a nanosecond: clocks cannot tell less."""
    return tuple(round(ns / calls * 1e-9, 10) for ns in nanoseconds.double().reshape(-1).tolist())

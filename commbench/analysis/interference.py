"""Figures of what disturbed a case: stalled iterations, waiting for processors, late ranks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from commbench.analysis.statistics import median, percentile
from commbench.results.batches import samples_of, without_samples
from commbench.results.samples import in_order, lengths_of
from commbench.results.schema import Batch

STALL_S = 1.5e-3
STALL_FACTOR = 1.5
"""An iteration is stalled if it took STALL_S longer than the 10th percentile, and STALL_FACTOR
times as long. A time slice of the scheduler costs that much, the operation's own scatter less."""


class Interference(NamedTuple):
    """Figures over all batches of one case; None where the batches do not hold the data."""

    calls: int | None
    stalled_share: float | None
    """Share of the iterations that are stalled."""
    queued_share: float | None
    """Time that threads of the worst rank waited for a processor, over the time of the loop."""
    switches_per_iteration: float | None
    throttled_share: float | None
    stolen_share: float | None
    entry_skew_s: float | None
    operation_s: float | None
    last_share: tuple[float, ...]
    """For each rank the share of the iterations in which it was the last to enter."""


def find_interference(
    batches: Sequence[Batch], ordered_s: Sequence[float] | None = None
) -> Interference:
    """What disturbed the batches of one case. `ordered_s` are all their samples, where the caller
    has sorted them already."""
    if ordered_s is None:
        ordered_s = in_order(samples_of(batches))
    iterations, batches = sum(lengths_of(samples_of(batches))), without_samples(batches)
    elapsed = sum(batch.elapsed_s for batch in batches)
    switches = sum(batch.switches for batch in batches)
    counted = [batch.last_in for batch in batches]
    last = [sum(counts) for counts in zip(*counted, strict=True)] if all(counted) else []
    return Interference(
        calls=batches[0].calls if batches else None,
        stalled_share=_stalled_share(batches, ordered_s),
        queued_share=_share([batch.queued_s for batch in batches], elapsed),
        switches_per_iteration=switches / iterations if iterations and elapsed else None,
        throttled_share=_share([batch.throttled_s for batch in batches], elapsed),
        stolen_share=_share([batch.stolen_s for batch in batches], elapsed),
        entry_skew_s=_median_if_known([batch.entry_skew_s for batch in batches]),
        operation_s=_median_if_known([batch.operation_s for batch in batches]),
        last_share=tuple(count / sum(last) for count in last) if sum(last) else (),
    )


def mean_by_rank(batches: Sequence[Batch], field: str) -> list[float]:
    """For each rank the mean of a field, weighted by iterations; empty where a batch lacks it."""
    weights = lengths_of(samples_of(batches))
    total, values = sum(weights), [getattr(batch, field) for batch in without_samples(batches)]
    if not total or not all(values):
        return []
    by_rank = zip(*values, strict=True)
    return [sum(w * v for w, v in zip(weights, own, strict=True)) / total for own in by_rank]


def gpu_throttled_share(batches: Sequence[Batch]) -> float | None:
    """The share of the batches in which a GPU was throttled; None where no clock is known."""
    known = [batch for batch in without_samples(batches) if batch.clock_mhz is not None]
    return sum(bool(batch.throttle_reasons) for batch in known) / len(known) if known else None


def throttle_reasons(batches: Sequence[Batch]) -> tuple[str, ...]:
    """Why a GPU was throttled in any of the batches, each reason once."""
    reasons = (batch.throttle_reasons for batch in without_samples(batches))
    return tuple(dict.fromkeys(chain.from_iterable(reasons)))


def gpu_clock_spread(batches: Sequence[Batch]) -> float | None:
    """The highest over the lowest clock of the slowest GPU in the batches, less 1."""
    clocks = [batch.clock_mhz for batch in without_samples(batches) if batch.clock_mhz]
    return max(clocks) / min(clocks) - 1 if len(clocks) > 1 else None


def _stalled_share(batches: Sequence[Batch], ordered: Sequence[float]) -> float | None:
    calls = {batch.calls for batch in batches}
    if not ordered or len(calls) > 1:
        return None
    usual = percentile(ordered, 0.1)
    limit = max(usual + STALL_S / calls.pop(), STALL_FACTOR * usual)
    return (len(ordered) - bisect_right(ordered, limit)) / len(ordered)


def _share(parts: Sequence[float | None], whole: float) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) / whole if len(known) == len(parts) and whole else None


def _median_if_known(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return median(known) if known and len(known) == len(values) else None

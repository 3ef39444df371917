"""What disturbed a measurement, over all batches of its case: stalls, queues, late ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from commbench.analysis.statistics import median, percentile
from commbench.results.schema import Batch

STALL_S = 1.5e-3
STALL_FACTOR = 1.5
"""An iteration is stalled if it took so much longer than the fastest tenth, and so many times as
long: what a time slice of the scheduler costs, and what no scatter of the operation itself does."""


class Interference(NamedTuple):
    """Figures over all batches to one case; None where there is nothing to tell them by."""

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
    """In which share of the iterations each rank was the last to enter."""


def strain_of(batches: Sequence[Batch]) -> Interference:
    """The figures of a case's batches."""
    elapsed = sum(batch.elapsed_s for batch in batches)
    iterations = sum(len(batch.samples_s) for batch in batches)
    told = [batch.last_in for batch in batches]
    last = [sum(counts) for counts in zip(*told, strict=True)] if all(told) else []
    return Interference(
        calls=batches[0].calls if batches else None,
        stalled_share=_stalled(batches),
        queued_share=_share([batch.queued_s for batch in batches], elapsed),
        switches_per_iteration=(
            sum(batch.switches for batch in batches) / iterations
            if iterations and elapsed
            else None
        ),
        throttled_share=_share([batch.throttled_s for batch in batches], elapsed),
        stolen_share=_share([batch.stolen_s for batch in batches], elapsed),
        entry_skew_s=_middle([batch.entry_skew_s for batch in batches]),
        operation_s=_middle([batch.operation_s for batch in batches]),
        last_share=tuple(count / sum(last) for count in last) if sum(last) else (),
    )


def weighted(batches: Sequence[Batch], field: str) -> list[float]:
    """The mean over all batches of a field that has a value for each rank, weighted by iterations;
    empty where it is not known."""
    total = sum(len(batch.samples_s) for batch in batches)
    values = [(len(batch.samples_s), getattr(batch, field)) for batch in batches]
    if not total or not all(found for _, found in values):
        return []
    columns = zip(*(found for _, found in values), strict=True)
    weights = [weight for weight, _ in values]
    return [sum(w * v for w, v in zip(weights, c, strict=True)) / total for c in columns]


def _stalled(batches: Sequence[Batch]) -> float | None:
    calls = {batch.calls for batch in batches}
    ordered = sorted(chain.from_iterable(batch.samples_s for batch in batches))
    if not ordered or len(calls) > 1:
        return None
    usual = percentile(ordered, 0.1)
    limit = max(usual + STALL_S / calls.pop(), STALL_FACTOR * usual)
    return sum(sample > limit for sample in ordered) / len(ordered)


def _share(parts: Sequence[float | None], whole: float) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) / whole if len(known) == len(parts) and whole else None


def _middle(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return median(known) if known and len(known) == len(values) else None

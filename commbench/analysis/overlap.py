"""How much of a communication a computation hides, and what each costs the other.

    hidden share                  (a + b - t) / min(a, b), from 0 to 1
    slowdown of the computation   b' / b - 1
    slowdown of the communication a' / a - 1
    gain                          (a + b) / t

a is the time of the communication alone, b that of the computation alone, t that of both at once;
a' is the time from the beginning of both to the end of the communication, and b' that of the
computation beside it. All are medians over iterations of the slowest rank. min(a, b) is the most
that can be hidden: this is the overlap of the IMB-NBC guide of Intel MPI Benchmarks. Others divide
otherwise:

    IMB-NBC (its source)          (a + b - t) / max(a, b), from 0 to 1
    OSU Micro-Benchmarks          1 - (t - b) / a, at least 0

The interval of a figure of medians follows from theirs (see stats.estimate). The medians are those
of different iterations, except that a' and b' do not enter a figure together with t.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.statistics import median, median_ci
from commbench.stats.estimate import Estimate, combine, combine_ratio

if TYPE_CHECKING:
    from commbench.analysis.statistics import Summary
    from commbench.results.schema import Batch


class Overlap(NamedTuple):
    """The figures of one row of both at once; shares and slowdowns are fractions."""

    communication_s: Estimate | None
    """From the beginning of both to the end of the communication, in seconds; None where the
    backend does not tell when that was."""
    computation_s: Estimate
    """Of the computation, while the communication goes on."""
    hidden: Estimate
    computation_slowdown: Estimate
    communication_slowdown: Estimate | None
    gain: Estimate
    imb_hidden: float
    osu_hidden: float


def find_overlap(
    communication: Summary, computation: Summary, both: Summary, batches: Sequence[Batch]
) -> Overlap | None:
    """The figures, from the times of each alone and of both, and the batches of both; None where a
    time is 0 or the batches do not tell when the computation ended."""
    a, b, t = communication.estimate, computation.estimate, both.estimate
    ended = median_of([batch.computation_s for batch in batches], batches)
    if not (ended and a.value and b.value and t.value):
        return None
    told = all(batch.communication_s for batch in batches)
    arrived = median_of([batch.communication_s for batch in batches], batches) if told else None
    return Overlap(
        communication_s=arrived,
        computation_s=ended,
        hidden=combine(_hidden, a, b, t).map(_clip_value),
        computation_slowdown=_slowdown(ended, b),
        communication_slowdown=_slowdown(arrived, a) if arrived else None,
        gain=combine_ratio(lambda a, b, t: (a + b) / t, a, b, t),
        imb_hidden=_clip_value((a.value + b.value - t.value) / max(a.value, b.value)),
        osu_hidden=max(0.0, 1 - (t.value - b.value) / a.value),
    )


def _hidden(a: float, b: float, t: float) -> float:
    return (a + b - t) / min(a, b) if a and b else 0.0


def _slowdown(together: Estimate, alone: Estimate) -> Estimate:
    return combine_ratio(lambda x, y: x / y, together, alone).map(lambda ratio: ratio - 1)


def _clip_value(value: float) -> float:
    return max(0.0, min(1.0, value))


def median_of(samples: Sequence[Sequence[float]], batches: Sequence[Batch]) -> Estimate | None:
    """The median of samples that come in these batches, with its interval; None without samples."""
    ordered = sorted(chain.from_iterable(samples))
    middle = median(ordered) if ordered else 0.0
    if not middle:
        return None
    launches: dict[int, list[float]] = {}
    for batch, found in zip(batches, samples, strict=True):
        launches.setdefault(batch.launch, []).extend(found)
    return Estimate(middle, *median_ci(samples, [*map(sorted, launches.values())]))

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

The interval of a figure f of medians x1, x2, ... follows from their 95 % intervals by the method of
variance estimates recovery (MOVER; Zou and Donner, Statistics in Medicine 27, 2008). Every median
moves f downwards by some d_i if it alone is put to one of the ends of its interval; then the lower
end of f is f - sqrt(sum of d_i^2), and the upper end follows in the same way. Of ratios the
logarithm is taken. The medians are those of different iterations, except that a' and b' do not
enter a figure together with t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import exp, hypot, log
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.statistics import median, median_ci

if TYPE_CHECKING:
    from commbench.analysis.statistics import Summary
    from commbench.results.schema import Batch


class Estimate(NamedTuple):
    """A figure with the ends of its 95 % interval; None: unknown."""

    value: float
    low: float | None = None
    high: float | None = None


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
    a, b, t = (Estimate(s.median, s.low, s.high) for s in (communication, computation, both))
    ended = median_of([batch.computation_s for batch in batches], batches)
    if not (ended and a.value and b.value and t.value):
        return None
    told = all(batch.communication_s for batch in batches)
    arrived = median_of([batch.communication_s for batch in batches], batches) if told else None
    return Overlap(
        communication_s=arrived,
        computation_s=ended,
        hidden=_clip(combine(_hidden, a, b, t)),
        computation_slowdown=_slowdown(ended, b),
        communication_slowdown=_slowdown(arrived, a) if arrived else None,
        gain=combine_ratio(lambda a, b, t: (a + b) / t, a, b, t),
        imb_hidden=_clip_value((a.value + b.value - t.value) / max(a.value, b.value)),
        osu_hidden=max(0.0, 1 - (t.value - b.value) / a.value),
    )


def combine(figure: Callable[..., float], *known: Estimate) -> Estimate:
    """A figure of several medians, with its interval by MOVER (see above)."""
    values = [estimate.value for estimate in known]
    value = figure(*values)
    down, up = [], []
    for index, estimate in enumerate(known):
        if estimate.low is None or estimate.high is None:
            return Estimate(value)
        found = [
            figure(*values[:index], end, *values[index + 1 :])
            for end in (estimate.low, estimate.high)
        ]
        down.append(max(0.0, value - min(found)))
        up.append(max(0.0, max(found) - value))
    return Estimate(value, value - hypot(*down), value + hypot(*up))


def combine_ratio(figure: Callable[..., float], *known: Estimate) -> Estimate:
    """The same for a figure that is above 0 wherever the medians are: of its logarithm."""
    if any(estimate.low is not None and estimate.low <= 0 for estimate in known):
        return Estimate(figure(*(estimate.value for estimate in known)))
    value, low, high = combine(lambda *values: log(figure(*values)), *known)
    if low is None or high is None:
        return Estimate(exp(value))
    return Estimate(exp(value), exp(low), exp(high))


def _hidden(a: float, b: float, t: float) -> float:
    return (a + b - t) / min(a, b) if a and b else 0.0


def _slowdown(together: Estimate, alone: Estimate) -> Estimate:
    ratio = combine_ratio(lambda x, y: x / y, together, alone)
    return Estimate(*(None if end is None else end - 1 for end in ratio))  # type: ignore[arg-type]


def _clip_value(value: float) -> float:
    return max(0.0, min(1.0, value))


def _clip(estimate: Estimate) -> Estimate:
    return Estimate(*(None if end is None else _clip_value(end) for end in estimate))  # type: ignore[arg-type]


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

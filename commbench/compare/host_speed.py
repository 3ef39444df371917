"""How much slower the host itself was during one of two runs, by what each run measured of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, log
from typing import NamedTuple

from commbench.analysis.statistics import launch_half_width, median
from commbench.results.schema import Batch, Run
from commbench.stats.estimate import Estimate


class HostFigure(NamedTuple):
    """What the ranks' host does in the same way in every run."""

    takes: str
    """What takes that long, for a sentence."""
    of_batch: Callable[[Batch], float | None]
    """Its time beside a batch, or what is proportional to it."""
    usual_spread: float
    """The standard deviation of its log medians between launches on a quiet host (72 launches on
    2 cores; of clocks an assumption)."""


FIGURES = (
    HostFigure("a message between processes", lambda b: b.host_round_trip_s, 0.12),
    HostFigure("a copy in memory", lambda b: b.host_copy_s, 0.05),
    HostFigure("a clock of the GPUs", lambda b: b.clock_mhz and 1 / b.clock_mhz, 0.02),
)


class HostChange(NamedTuple):
    """A figure that differs between two runs by more than chance."""

    takes: str
    ratio: Estimate
    """That of B over that of A."""


def find_host_changes(a: Run | None, b: Run | None) -> tuple[HostChange, ...]:
    """In what the host of run B was slower or faster than that of A; empty where that may be
    chance, or was not measured."""
    if not a or not b:
        return ()
    found = []
    for figure in FIGURES:
        logs = _logs_by_launch(a, figure), _logs_by_launch(b, figure)
        if not all(logs):
            continue
        value = sum(logs[1]) / len(logs[1]) - sum(logs[0]) / len(logs[0])
        half = hypot(*(launch_half_width(side, figure.usual_spread) for side in logs))
        if abs(value) > half:
            ratio = Estimate(exp(value), exp(value - half), exp(value + half))
            found.append(HostChange(figure.takes, ratio))
    return tuple(found)


def _logs_by_launch(run: Run, figure: HostFigure) -> list[float]:
    launches: dict[int, list[float]] = {}
    for measurement in run.measurements:
        for batch in measurement.batches:
            if value := figure.of_batch(batch):
                launches.setdefault(batch.launch, []).append(value)
    return [log(median(sorted(values))) for values in launches.values()]


def allow_for(changes: Sequence[HostChange], ratio: Estimate | None) -> Estimate | None:
    """The ratio of two times, with an interval that leaves to the host what it may have caused."""
    if ratio is None or not ratio.has_interval:
        return ratio
    factors = [1.0, *(change.ratio.value for change in changes)]
    low, high = ratio.ends
    return Estimate(ratio.value, low / max(factors), high / min(factors))

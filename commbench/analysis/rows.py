"""One row per case: the measurement, its statistics and its bandwidths.

    algbw = S / t        busbw = algbw x factor        t = median over iterations, slowest rank

Bandwidth comes from that time; bandwidths are never averaged. Source: nccl-tests,
doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.analysis.interference import Interference, strain_of, weighted
from commbench.analysis.statistics import Summary, median, summarise
from commbench.results.schema import Measurement, ReportedTiming, Run, RunHeader
from commbench.spec.operations import OPERATIONS


class ResultRow(NamedTuple):
    """A measurement with what follows from it; times in seconds, bandwidths in bytes/s."""

    header: RunHeader
    measurement: Measurement
    time: Summary | None
    """None where nothing was timed."""

    @property
    def algbw(self) -> float | None:
        """Algorithm bandwidth in bytes/s: S over the median time."""
        return self._algbw(self.time.median if self.time else None)

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s: algorithm bandwidth times the operation's factor."""
        return self.busbw_at(self.time.median if self.time else None)

    def busbw_at(self, seconds: float | None) -> float | None:
        """Bus bandwidth in bytes/s had it taken `seconds`."""
        factor = OPERATIONS[self.measurement.case.operation].busbw_factor
        algbw = self._algbw(seconds)
        if algbw is None or factor is None:
            return None
        return algbw * factor(self.header.plan.world_size)

    def _algbw(self, seconds: float | None) -> float | None:
        case = self.measurement.case
        return case.size_bytes / seconds if seconds and case.dtype else None

    @property
    def strain(self) -> Interference:
        """What was in the way of the measurement."""
        return strain_of(self.measurement.batches)

    @property
    def slowest_rank(self) -> int | None:
        """The rank that was furthest behind the first one, entering or leaving; where clocks are
        not shared the one whose own times are the longest. None for one rank."""
        batches = self.measurement.batches
        behind = weighted(batches, "rank_behind_s") or weighted(batches, "rank_medians_s")
        return behind.index(max(behind)) if len(behind) > 1 else None

    @property
    def launch_medians(self) -> tuple[float, ...]:
        """The median of each launch, in seconds."""
        return tuple(median(sorted(samples)) for samples in _by_launch(self.measurement))


def row_of(header: RunHeader, measurement: Measurement) -> ResultRow:
    """The row of one measurement."""
    batches = [batch.samples_s for batch in measurement.batches]
    time = summarise(batches, _by_launch(measurement)) if any(batches) else None
    if measurement.reported:
        time = _as_reported(measurement.reported)
    return ResultRow(header=header, measurement=measurement, time=time)


def _by_launch(measurement: Measurement) -> list[list[float]]:
    launches: dict[int, list[float]] = {}
    for batch in measurement.batches:
        launches.setdefault(batch.launch, []).extend(batch.samples_s)
    return [samples for _, samples in sorted(launches.items())]


def _as_reported(told: ReportedTiming) -> Summary:
    """What another tool's figures say of a distribution whose samples are not known."""
    return Summary(
        iterations=told.iterations,
        median=told.time_s,
        low=None,
        high=None,
        design_effect=1.0,
        minimum=told.minimum_s,
        mean=told.mean_s,
        p10=None,
        p90=None,
        p95=told.p95_s,
        p99=told.p99_s,
        maximum=told.maximum_s,
    )


def rows_of(run: Run) -> tuple[ResultRow, ...]:
    """The rows of a run, in the order they were measured."""
    return tuple(row_of(run.header, measurement) for measurement in run.measurements)

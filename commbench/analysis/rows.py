"""One row per case: the measurement, its statistics and its bandwidths.

    algbw = S / t        busbw = algbw x factor        t = median over iterations, slowest rank

Bandwidth comes from that time; bandwidths are never averaged. Source: nccl-tests,
doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.analysis.statistics import Summary, median, summarise
from commbench.analysis.strain import Strain, strain_of, weighted
from commbench.operations import OPERATIONS
from commbench.records.schema import Header, Measurement, Reported, Run


class Row(NamedTuple):
    """A measurement with what follows from it; times in seconds, bandwidths in bytes/s."""

    header: Header
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
    def strain(self) -> Strain:
        """What was in the way of the measurement."""
        return strain_of(self.measurement.visits)

    @property
    def slowest_rank(self) -> int | None:
        """The rank that was furthest behind the first one, entering or leaving; where clocks are
        not shared the one whose own times are the longest. None for one rank."""
        visits = self.measurement.visits
        behind = weighted(visits, "rank_behind_s") or weighted(visits, "rank_medians_s")
        return behind.index(max(behind)) if len(behind) > 1 else None

    @property
    def launch_medians(self) -> tuple[float, ...]:
        """The median of each launch, in seconds."""
        return tuple(median(sorted(samples)) for samples in _by_launch(self.measurement))


def row_of(header: Header, measurement: Measurement) -> Row:
    """The row of one measurement."""
    visits = [visit.samples_s for visit in measurement.visits]
    time = summarise(visits, _by_launch(measurement)) if any(visits) else None
    if measurement.reported:
        time = _as_reported(measurement.reported)
    return Row(header=header, measurement=measurement, time=time)


def _by_launch(measurement: Measurement) -> list[list[float]]:
    launches: dict[int, list[float]] = {}
    for visit in measurement.visits:
        launches.setdefault(visit.launch, []).extend(visit.samples_s)
    return [samples for _, samples in sorted(launches.items())]


def _as_reported(told: Reported) -> Summary:
    """What another tool's figures say of a distribution whose samples are not known."""
    return Summary(
        iterations=told.iterations,
        median=told.time_s,
        low=None,
        high=None,
        inflation=1.0,
        minimum=told.minimum_s,
        mean=told.mean_s,
        p10=None,
        p90=None,
        p95=told.p95_s,
        p99=told.p99_s,
        maximum=told.maximum_s,
    )


def rows_of(run: Run) -> tuple[Row, ...]:
    """The rows of a run, in the order they were measured."""
    return tuple(row_of(run.header, measurement) for measurement in run.measurements)

"""One row per case: the measurement, its statistics and its bandwidths, as results.csv has them.

    algbw = S / t        busbw = algbw x factor        t = median over iterations, slowest rank

Bandwidth comes from that time; bandwidths are never averaged. Source: nccl-tests,
doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from commbench.analysis.statistics import Summary, median, summarise
from commbench.analysis.strain import Strain, strain_of, weighted
from commbench.analysis.warnings import warnings_of
from commbench.operations import OPERATIONS
from commbench.records.schema import Header, Measurement, Reported, Run
from commbench.units import GB, MICRO

COLUMNS = (
    "label", "operation", "backend", "device", "world_size", "num_nodes", "dtype", "reduce_op",
    "root", "placement", "timing", "cpu_mode", "size_bytes", "count", "iterations", "stop_reason",
    "time_us", "time_ci_low_us", "time_ci_high_us", "time_min_us", "time_mean_us", "time_p95_us",
    "time_p99_us", "time_max_us", "algbw_GBps", "busbw_GBps", "busbw_ci_low_GBps",
    "busbw_ci_high_GBps", "entry_skew_us", "slowest_rank", "wrong", "status",
    "gpu_shared", "calls", "visits", "launches", "launch_min_us", "launch_max_us", "operation_us",
    "stalled_share", "queued_share", "switches_per_iteration", "warnings",
)  # fmt: skip
"""The columns of results.csv. More may be appended; none is renamed without a new schema."""


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

    def columns(self) -> dict[str, Any]:
        """The row by the names of COLUMNS; None means not measured."""
        plan, case, time = self.header.plan, self.measurement.case, self.time
        strain, launches = self.strain, self.launch_medians
        return {
            "label": self.header.label,
            "operation": case.operation,
            "backend": plan.backend,
            "device": plan.device,
            "world_size": plan.world_size,
            "num_nodes": self.header.num_nodes,
            "dtype": case.dtype,
            "reduce_op": case.reduce_op,
            "root": case.root,
            "placement": case.placement,
            "timing": case.timing,
            "cpu_mode": plan.cpu_mode,
            "size_bytes": case.size_bytes,
            "count": case.count,
            "iterations": time.iterations if time else 0,
            "stop_reason": self.measurement.stop_reason,
            "time_us": _scaled(time and time.median, MICRO),
            "time_ci_low_us": _scaled(time and time.low, MICRO),
            "time_ci_high_us": _scaled(time and time.high, MICRO),
            "time_min_us": _scaled(time and time.minimum, MICRO),
            "time_mean_us": _scaled(time and time.mean, MICRO),
            "time_p95_us": _scaled(time and time.p95, MICRO),
            "time_p99_us": _scaled(time and time.p99, MICRO),
            "time_max_us": _scaled(time and time.maximum, MICRO),
            "algbw_GBps": _scaled(self.algbw, GB),
            "busbw_GBps": _scaled(self.busbw, GB),
            "busbw_ci_low_GBps": _scaled(self.busbw_at(time.high if time else None), GB),
            "busbw_ci_high_GBps": _scaled(self.busbw_at(time.low if time else None), GB),
            "entry_skew_us": _scaled(strain.entry_skew_s, MICRO),
            "slowest_rank": self.slowest_rank,
            "wrong": self.measurement.wrong,
            "status": self.measurement.status,
            "gpu_shared": int(self.header.gpu_shared),
            "calls": strain.calls,
            "visits": len(self.measurement.visits),
            "launches": len(launches),
            "launch_min_us": _scaled(min(launches, default=None), MICRO),
            "launch_max_us": _scaled(max(launches, default=None), MICRO),
            "operation_us": _scaled(strain.operation_s, MICRO),
            "stalled_share": _scaled(strain.stalled_share, 1),
            "queued_share": _scaled(strain.queued_share, 1),
            "switches_per_iteration": _scaled(strain.switches_per_iteration, 1),
            "warnings": " ".join(warning.name for warning in warnings_of(self)),
        }


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


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else float(f"{value / unit:.7g}")

"""One row per case: the measurement, its statistics, its algorithm bandwidth and bus bandwidth.

    algbw = S / t        busbw = algbw x factor        t = median over iterations, slowest rank

Bandwidth is computed from that time; bandwidths are never averaged. Source: nccl-tests,
doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log
from operator import is_
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from commbench.analysis import diagnostic_figures, figures, nccl_log
from commbench.analysis.statistics import Summary, cover_launches, median, summarise
from commbench.plan.backends import usual_launch_spread
from commbench.plan.case import Case
from commbench.plan.computations import AT_ONCE, COMMUNICATION, COMPUTATION
from commbench.plan.groups import ALONE, TOGETHER, format_group
from commbench.plan.pairs import count_pairs
from commbench.results.samples import in_order, samples_of, with_rank_times, without_samples
from commbench.results.schema import CUT_OFF, OK, WRONG, Measurement, Run, RunHeader
from commbench.stats import Estimate, collect, ratio

if TYPE_CHECKING:
    from commbench.analysis.diagnostics import Diagnostic

WAYS = ("form", "call")
"""The dimensions in which other ways to the same result differ from the direct call."""
ALONE_OR_NOT = ("concurrency", "group_ranks")
"""The dimensions in which a group alone differs from all groups together."""


@dataclass(frozen=True)
class ResultRow:
    """A measurement and what is computed from it: times in seconds, bandwidths in bytes/s."""

    header: RunHeader
    measurement: Measurement
    time: Summary | None
    """None where nothing was timed, or results are wrong."""
    reference: ResultRow | None = None
    """The row of one direct call of the same bytes, where this one's call has another form."""

    def __repr__(self) -> str:
        return f"<ResultRow: {self.case.name}>"

    @property
    def case(self) -> Case:
        """What was measured."""
        return self.measurement.case

    @property
    def form_ratio(self) -> Estimate | None:
        """Its time over that of one direct call of the same bytes; None where that is not known."""
        times = (row.time.estimate if row and row.time else None for row in (self, self.reference))
        return ratio(*times)

    alone: Mapping[str, Estimate] = field(default_factory=dict)
    """For a case whose groups call together, the time of each group that was also measured alone,
    by its ranks."""

    parts: tuple[ResultRow, ResultRow] | None = None
    """For a communication and a computation at once, the rows of each alone, in this order."""

    @cached_property
    def overlap(self) -> figures.Overlap | None:
        """How well the computation hides the communication; None where that was not measured."""
        communication, computation = (row.time for row in self.parts or (self, self))
        if not (self.parts and self.time and communication and computation):
            return None
        batches = self.measurement.batches
        return figures.find_overlap(communication, computation, self.time, batches, self._spread)

    @property
    def queued_share(self) -> float | None:
        """The part of the time that its ranks waited for a core; None where it is not known."""
        return self.interference.queued_share

    @property
    def cpu_mode(self) -> str:
        """The CPU mode of its run."""
        return self.header.plan.cpu_mode

    @property
    def algbw(self) -> float | None:
        """Algorithm bandwidth in bytes/s: S over the median time."""
        seconds = self.time.median if self.time and self.case.has_bandwidth else 0.0
        return self.case.size_bytes / seconds if seconds else None

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s: algorithm bandwidth times the operation's factor."""
        factor, algbw = self.case.busbw_factor, self.algbw
        return None if algbw is None or factor is None else algbw * factor

    @property
    def known_busbw(self) -> Estimate | None:
        """The bus bandwidth with its interval."""
        return self.at_time(self.busbw)

    def at_time(self, bandwidth: float | None) -> Estimate | None:
        """One of its bandwidths, with the interval that follows from that of its time."""
        if bandwidth is None or not self.time:
            return None
        median, low, high = self.time.estimate
        ends = (median / high, median / low) if low and high else ()
        return Estimate(bandwidth, *(bandwidth * end for end in ends))

    @property
    def messages_per_s(self) -> float | None:
        """Messages per second of all pairs together, for an operation with a window: the number of
        pairs over t, since the slowest pair counts."""
        case = self.case
        if case.window is None or not self.time or not self.time.median:
            return None
        groups = self.header.plan.groups_of(case) if case.group else (range(case.ranks),)
        return sum(count_pairs(case.pairs, len(group)) for group in groups) / self.time.median

    @property
    def aggregate_bandwidth(self) -> float | None:
        """Bytes per second that these messages carry."""
        rate = self.messages_per_s
        return rate and rate * self.case.size_bytes

    @property
    def logical_bandwidth(self) -> float | None:
        """Bytes per second of the rank that sends or receives most, the block that it keeps
        included."""
        return self.algbw and self.case.load and self.algbw * self.case.load.largest

    @property
    def group_bytes(self) -> int | None:
        """The memory of a new process group on the rank where it needed most; None where no group
        was made, or that is unknown."""
        known = [batch.group_bytes for batch in without_samples(self.measurement.batches)]
        return max((size for size in known if size is not None), default=None)

    @property
    def ordered_s(self) -> Sequence[float]:
        """The samples in seconds, sorted."""
        return in_order(samples_of(self.measurement.batches))

    @cached_property
    def interference(self) -> diagnostic_figures.Interference:
        """What disturbed the measurement."""
        found = self.measurement
        return diagnostic_figures.find_interference(found.batches, self.ordered_s, found.rank_times)

    @cached_property
    def diagnoses(self) -> Mapping[Diagnostic, float]:
        """The diagnostics that apply to it; see diagnose_row."""
        from commbench.analysis.diagnostics import diagnose_row

        return diagnose_row(self)

    @cached_property
    def nccl_selection(self) -> tuple[str, str, str]:
        """The algorithm, protocol and number of channels that NCCL selected; empty where that is
        not known."""
        return nccl_log.find_selection(self.header.environment, self.case)

    @cached_property
    def group_times(self) -> dict[str, Estimate]:
        """The time of each group that was measured, by its ranks: the median over iterations, of
        its slowest rank, with its interval. Where groups call together and the journal has only the
        median of each batch, the median of these, weighted by the iterations of the batch, without
        one. Empty for all ranks as one group."""
        case = self.case
        batches = [batch for batch in self.measurement.batches if batch.samples_s]
        if not case.group or not self.time or not batches:
            return {}
        groups = [*map(format_group, self.header.plan.groups_of(case))]
        if len(groups) == 1:
            return {groups[0]: self.time.estimate}
        has_samples = all(batch.group_samples_s for batch in batches)
        found = {}
        for index, ranks in enumerate(groups):
            if has_samples:
                samples = [
                    batch.group_samples_s[(n := len(batch.samples_s)) * index : n * (index + 1)]
                    for batch in batches
                ]
                found[ranks] = figures.median_of(samples, batches, self._spread) or Estimate(0.0)
                continue
            weighted: list[float] = []
            for batch in batches:
                known = batch.group_medians_s
                middle = known[index] if known else median(sorted(batch.samples_s))
                weighted += [middle] * len(batch.samples_s)
            found[ranks] = Estimate(median(sorted(weighted)))
        return found

    @cached_property
    def worst_group(self) -> str:
        """The ranks of the slowest group; empty for all ranks as one group."""
        times = self.group_times
        return max(times, key=lambda ranks: times[ranks].value, default="")

    @cached_property
    def group_interference(self) -> dict[str, Estimate]:
        """For each group, its time when all groups call together over that when it calls alone, by
        the two medians; the interval follows from theirs (see stats.estimate)."""
        times = self.group_times if self.alone else {}
        ratios = {ranks: ratio(times.get(ranks), alone) for ranks, alone in self.alone.items()}
        return {ranks: found for ranks, found in ratios.items() if found}

    @cached_property
    def slowest_rank(self) -> int | None:
        """The rank that was furthest behind the first one, when it entered or left the call. Where
        clocks of hosts are not shared, the rank whose own times are the longest. None for one rank,
        and on GPUs, where the longest time is that of the rank which began first."""
        known = self.measurement.rank_times
        behind = diagnostic_figures.mean_by_rank(known, "behind_s")
        if not behind and self.header.plan.device == "cpu":
            behind = diagnostic_figures.mean_by_rank(known, "medians_s")
        if len(behind) < 2:
            return None
        return self.header.plan.ranks_of(self.case)[behind.index(max(behind))]

    @property
    def stop_reason(self) -> str:
        """As of find_stop_reason."""
        return find_stop_reason(self.header, self.measurement)

    @property
    def _spread(self) -> float:
        """What the log medians of launches usually differ by."""
        return usual_launch_spread(self.header.plan.backend)

    @cached_property
    def launch_medians(self) -> tuple[float, ...]:
        """The median of each launch, in seconds."""
        if not self.time or len(launches_of(self.measurement)) == 1:
            return (self.time.median,) if self.time else ()
        return tuple(map(median, samples_by_launch(self.measurement)))

    @property
    def odd_launch(self) -> tuple[int, float] | None:
        """The launch, counted from 1, that differs from all others more than three times as much as
        these from each other, and how many times as long it took; None where there is none."""
        medians = self.launch_medians
        middle = median(sorted(medians)) if len(medians) > 2 else 0.0
        if not middle or not min(medians):
            return None
        odd = max(range(len(medians)), key=lambda n: abs(log(medians[n] / middle)))
        *others, last = sorted(medians[:odd] + medians[odd + 1 :])
        times = medians[odd] / geometric_mean([*others, last])
        nearest = min(abs(log(medians[odd] / other)) for other in (others[0], last))
        return (odd + 1, times) if nearest > 3 * log(last / others[0]) else None

    @property
    def mean_time(self) -> Estimate | None:
        """The geometric mean of the medians of its launches, whose ratio is that of launches in
        turns, with the interval of the median; the median where it has one launch."""
        medians, found = self.launch_medians, self.time and self.time.estimate
        if not found or len(medians) < 2 or not min(medians):
            return found or None
        value, low, high = geometric_mean(medians), *found.ends
        return Estimate(value, *((min(low, value), max(high, value)) * found.has_interval))


def right_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows with right results, without those of an own call that is wrong in another one: how
    fast it is, is not told."""
    wrong = {row.case.call for row in rows if row.measurement.status == WRONG} - {""}
    return [r for r in rows if r.measurement.status == OK and r.case.call not in wrong]


def find_stop_reason(header: RunHeader, measurement: Measurement) -> str:
    """Why sampling stopped; that it was cut off, where launches of the plan are missing."""
    measured = len(launches_of(measurement))
    return CUT_OFF if 0 < measured < header.plan.launches else measurement.stop_reason


def make_row(header: RunHeader, measurement: Measurement) -> ResultRow:
    """The row of one measurement. What commbench timed of wrong results is no time of the call."""
    batches, reported = samples_of(measurement.batches), measurement.reported
    spread = usual_launch_spread(header.plan.backend)
    launches, time = samples_by_launch(measurement), None
    if any(batches) and measurement.status != WRONG:
        time = summarise(batches, launches, spread)
        own = time.iterations, time.minimum, time.maximum
        known = cover_launches(time.estimate, len(launches), spread, *own)
        time = time._replace(low=known.low, high=known.high)
    if reported:
        time = Summary(
            reported.iterations, reported.time_s, minimum=reported.minimum_s, mean=reported.mean_s,
            p95=reported.p95_s, p99=reported.p99_s, maximum=reported.maximum_s,
        )  # fmt: skip
    return ResultRow(header=header, measurement=with_rank_times(measurement), time=time)


_latest: list[tuple[tuple[object, ...], tuple[ResultRow, ...]]] = [((), ())]
"""The parts of a run from which rows were made last, and these rows."""


def make_rows(run: Run) -> tuple[ResultRow, ...]:
    """The rows of a run, in the order they were measured. Those of the latest run are kept, because
    what checks a run and what shows it need the same."""
    parts, (known, rows) = (run.header, run.measurements, run.end), _latest[0]
    if known and all(map(is_, parts, known)):
        return rows
    risen = run.end.risen if run.end else {}
    more = {diagnostic_figures.RISEN: risen} if any(risen.values()) else {}
    header = run.header._replace(environment=run.header.environment | more)
    rows = relate_rows([make_row(header, found) for found in run.measurements])
    _latest[0] = parts, rows
    return rows


def relate_rows(rows: Sequence[ResultRow]) -> tuple[ResultRow, ...]:
    """The rows of a run, with what each takes from others: the direct call of the same bytes, the
    times of its groups alone, and the communication and the computation alone of an overlap."""
    references = {row.case.key(*WAYS): row for row in rows if row.case.call_form.is_reference}
    parts = {row.case.key(): row for row in rows if row.case.part}
    alone: dict[tuple[object, ...], dict[str, Estimate]] = {}
    for row in rows:
        if row.case.concurrency == ALONE:
            alone.setdefault(row.case.key(*ALONE_OR_NOT), {}).update(row.group_times)
    related = []
    for row in rows:
        case = row.case
        found: dict[str, Any] = {}
        if not case.call_form.is_reference:
            found["reference"] = references.get(case.key(*WAYS))
        if case.concurrency == TOGETHER:
            found["alone"] = alone.get(case.key(*ALONE_OR_NOT), {})
        if case.part == AT_ONCE:
            keys = [case._replace(part=part).key() for part in (COMMUNICATION, COMPUTATION)]
            found["parts"] = tuple(parts[k] for k in keys) if parts.keys() >= {*keys} else None
        related.append(replace(row, **found) if found else row)
    return tuple(related)


def worst_alone(rows: Sequence[ResultRow]) -> tuple[ResultRow, ...]:
    """The rows; of the groups of a dimension that were measured alone only the slowest."""
    groups = collect((row.case.key("group_ranks"), row) for row in rows)
    return tuple(
        max(own, key=lambda row: row.time.median if row.time else -1.0) for own in groups.values()
    )


def launches_of(measurement: Measurement) -> set[int]:
    """The launches that have batches of a case."""
    return {batch.launch for batch in without_samples(measurement.batches)}


def samples_by_launch(measurement: Measurement) -> list[Sequence[float]]:
    """The samples of each launch that has some, in seconds, sorted."""
    samples = samples_of(measurement.batches)
    if len(launches_of(measurement)) == 1:
        return [in_order(samples)]
    launches = (batch.launch for batch in without_samples(measurement.batches))
    by_launch = collect(zip(launches, samples, strict=True))
    return [in_order(batches) for _, batches in sorted(by_launch.items())]

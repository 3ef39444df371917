"""What disturbed a row: stalled iterations, waiting for processors, late ranks, drift; and the
other figures that DIAGNOSTICS compares with their thresholds.

A figure is None where it is not known, or does not apply to the row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from commbench.analysis.figures import find_peak_fraction
from commbench.analysis.nccl_log import is_symmetric
from commbench.analysis.statistics import (
    design_effect,
    launch_factor,
    launch_half_width,
    median,
    medians,
    percentile,
)
from commbench.analysis.two_groups import FEWEST_FOR_SHAPE, STALL_FACTOR, find_two_groups
from commbench.plan.backends import ALLOCATORS, BACKENDS, find_unread, usual_launch_spread
from commbench.plan.computations import AT_ONCE
from commbench.plan.dimensions import describe_timing
from commbench.plan.operations import OPERATIONS
from commbench.results.samples import in_order, lengths_of, samples_of, without_samples
from commbench.results.schema import PRECISION, Batch, RankTimes, RunHeader, is_imported
from commbench.stats import collect

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow
    from commbench.results.records import RankInfo

T = TypeVar("T")

STALL_S = 1.5e-3
"""An iteration is stalled if it took STALL_S longer than the 10th percentile, and STALL_FACTOR
times as long. A time slice of the scheduler costs that much, the operation's own scatter less."""
FEWEST_BATCHES_FOR_DRIFT = 4
ROUNDED = 0.02
"""An interval that is wider than that of the launches by this part is no wider."""
LAUNCH_SHARE = 0.05
"""Queueing an iteration on a device matters where it takes this part of the iteration's time."""


class Interference(NamedTuple):
    """Figures over all batches of one case; None where the batches do not hold the data."""

    calls: int | None
    stalled_share: float | None
    """Share of the iterations that are stalled."""
    queued_share: float | None
    """The part of a batch's time, at most 1, for which a thread of its worst rank waited for a
    processor: the mean over batches, weighted by iterations, so that no long stall decides it; each
    launch weighs the same."""
    switches_per_iteration: float | None
    throttled_share: float | None
    stolen_share: float | None
    entry_skew_s: float | None
    operation_s: float | None
    last_share: tuple[float, ...]
    """For each rank the share of the iterations in which it was the last to enter."""


def find_interference(
    batches: Sequence[Batch], ordered_s: Sequence[float], rank_times: Sequence[RankTimes] = ()
) -> Interference:
    """What disturbed the batches of one case. `ordered_s` are all their samples, sorted, and
    `rank_times` what is known of each rank."""
    lengths, batches = lengths_of(samples_of(batches)), without_samples(batches)
    iterations, elapsed = sum(lengths), sum(batch.elapsed_s for batch in batches)
    switches = sum(batch.switches for batch in batches)
    counted = [times.last_in for times in rank_times]
    last = [sum(counts) for counts in zip(*counted, strict=True)] if all(counted) else []
    of_all = sum(last)

    def known(field: str) -> list[float]:
        """The values of a field; empty where one is not known."""
        values = [getattr(batch, field) for batch in batches]
        return [] if None in values else sorted(values)

    def share(field: str) -> float | None:
        """The mean part of a batch's time, weighted by iterations; each launch weighs the same."""
        if not known(field) or not elapsed or not iterations:
            return None
        pairs = ((n, b) for n, b in zip(lengths, batches, strict=True) if n and b.elapsed_s)
        parts = ((b.launch, (n, min(1.0, getattr(b, field) / b.elapsed_s))) for n, b in pairs)
        launches = collect(parts).values()
        means = [sum(n * part for n, part in own) / sum(n for n, _ in own) for own in launches]
        return fmean(means) if means else None

    return Interference(
        calls=batches[0].calls if batches else None,
        stalled_share=_stalled_share(batches, ordered_s),
        queued_share=share("queued_s"),
        switches_per_iteration=switches / iterations if iterations and elapsed else None,
        throttled_share=share("throttled_s"),
        stolen_share=share("stolen_s"),
        entry_skew_s=median(known("entry_skew_s")) if known("entry_skew_s") else None,
        operation_s=median(known("operation_s")) if known("operation_s") else None,
        last_share=tuple(count / of_all for count in last) if of_all else (),
    )


def _stalled_share(batches: Sequence[Batch], ordered: Sequence[float]) -> float | None:
    calls = {batch.calls for batch in batches}
    if not ordered or len(calls) > 1:
        return None
    usual = percentile(ordered, 0.1)
    limit = max(usual + STALL_S / calls.pop(), STALL_FACTOR * usual)
    return (len(ordered) - bisect_right(ordered, limit)) / len(ordered)


def mean_by_rank(rank_times: Sequence[RankTimes], field: str) -> list[float]:
    """For each rank the mean of a field, weighted by iterations; empty where a launch lacks it."""
    weights = [times.iterations for times in rank_times]
    total, values = sum(weights), [getattr(times, field) for times in rank_times]
    if not total or not all(values):
        return []
    by_rank = zip(*values, strict=True)
    return [sum(w * v for w, v in zip(weights, own, strict=True)) / total for own in by_rank]


def gpu_throttled_share(row: ResultRow) -> float | None:
    """The share of the batches in which a GPU was throttled; None where no clock is known."""
    batches = without_samples(row.measurement.batches)
    throttled = [bool(each.throttle_reasons) for each in batches if each.clock_mhz is not None]
    return sum(throttled) / len(throttled) if throttled else None


def throttle_reasons(row: ResultRow) -> tuple[str, ...]:
    """Why a GPU was throttled in any of the batches, each reason once."""
    reasons = (batch.throttle_reasons for batch in without_samples(row.measurement.batches))
    return tuple(dict.fromkeys(chain.from_iterable(reasons)))


def gpu_clock_spread(row: ResultRow) -> float | None:
    """The highest over the lowest clock of the slowest GPU in the batches, less 1."""
    batches = without_samples(row.measurement.batches)
    clocks = [batch.clock_mhz for batch in batches if batch.clock_mhz]
    return max(clocks) / min(clocks) - 1 if len(clocks) > 1 else None


def launch_spread(row: ResultRow, are_rounds: bool = False) -> float | None:
    """The standard deviation of the log medians of launches, whose range would grow with their
    number. Where a row has more launches than its plan, they are the rounds of a sweep."""
    medians, launches = row.launch_medians, row.header.plan.launches
    is_known = len(medians) > 1 and min(medians) and (len(medians) > launches) == are_rounds
    return stdev(map(log, medians)) if is_known else None


def ranks_per_core(header: RunHeader) -> float | None:
    """The most ranks that share a core, on any host; None on devices other than the CPU."""
    return _ranks_per_core(header.ranks) if header.plan.device == "cpu" else None


@lru_cache(maxsize=16)
def _ranks_per_core(ranks: tuple[RankInfo, ...]) -> float | None:
    """The larger of two figures, on the most crowded host: ranks over all cores they may use, and
    the most ranks that are bound to the same single core."""
    hosts = collect((rank.host, rank.cores) for rank in ranks)
    found = []
    for allowed in filter(all, hosts.values()):
        bound = Counter(cores[0] for cores in allowed if len(cores) == 1)
        found += [len(allowed) / len({*chain.from_iterable(allowed)}), *bound.values()]
    return max(found, default=None)


def overlap_threads_per_core(row: ResultRow) -> float | None:
    """For a rank on a CPU that communicates and computes at once, the threads that share a core:
    that of the rank, and that of its backend. None for other rows."""
    ranks = ranks_per_core(row.header) if row.case.part == AT_ONCE else None
    return None if ranks is None else 2 * ranks


def shown_asymmetric(row: ResultRow) -> float | None:
    """1 where NCCL's log does not show that a call used its symmetric windows; None for buffers in
    other memory, and for their registration itself."""
    case = row.case
    entry, registers = ALLOCATORS.get(case.memory), OPERATIONS[case.operation].registers
    if registers or not (entry and entry.needs_nccl and entry.is_symmetric):
        return None
    return float(not is_symmetric(row.nccl_selection[0]))


def imprecision(row: ResultRow) -> float | None:
    """The half-width of the interval of the median, over the one that --precision asks for, or the
    least that a single launch has; None where sampling has reached that, and only the launches
    differ by more."""
    has_reached = row.measurement.stop_reason == PRECISION or is_imported(row.header)
    if row.time is None or row.header.plan.iterations is not None or has_reached:
        return None
    precision, plan = row.time.precision, row.header.plan
    of_one = exp(launch_factor(1) * usual_launch_spread(plan.backend)) - 1
    least = max(plan.precision, of_one * (len(row.launch_medians) == 1))
    return None if precision is None else precision / least


def is_of_launches(row: ResultRow) -> bool:
    """Whether several launches make the interval so wide: more samples do not narrow it."""
    logs = [log(each) for each in row.launch_medians if each]
    if len(logs) < 2 or row.time is None or row.time.precision is None:
        return False
    half = launch_half_width(logs, usual_launch_spread(row.header.plan.backend))
    half += abs(log(row.time.median) - fmean(logs))  # it contains the interval of their mean
    return row.time.precision <= (1 + ROUNDED) * (exp(half) - 1)


def drift(row: ResultRow) -> float | None:
    """The difference of the medians of the later and the earlier half of the batches of the first
    launch, over the median of all; None where it may be chance, and for a soak, which judges drift
    itself."""
    if row.header.plan.is_soak:
        return None
    launches = [batch.launch for batch in without_samples(row.measurement.batches)]
    batches = samples_of(row.measurement.batches)
    if any(launches):
        batches = [own for own, launch in zip(batches, launches, strict=True) if launch == 0]
    if len(batches) < FEWEST_BATCHES_FOR_DRIFT or row.time is None or not row.time.median:
        return None
    effect = design_effect(batches, row.time.median) if any(launches) else row.time.design_effect
    if effect == 1 or not _has_trend(batches):
        return None
    half = len(batches) // 2
    early, late = (in_order(part) for part in (batches[:half], batches[-half:]))
    if len(early) + len(late) < FEWEST_FOR_SHAPE:
        return None
    return abs(median(late) - median(early)) / row.time.median


def _has_trend(batches: Sequence[Sequence[float]]) -> bool:
    """Whether the medians of batches rise or fall with time (Mann-Kendall test, 1 %)."""
    middles = medians(batches)
    number, score = len(middles), 0
    earlier: list[float] = []
    for middle in middles:  # how many of the earlier ones are below, less how many are above
        score += bisect_left(earlier, middle) + bisect_right(earlier, middle) - len(earlier)
        insort(earlier, middle)
    variance = number * (number - 1) * (2 * number + 5) / 18
    return abs(score) - 1 > 2.576 * sqrt(variance) or abs(score) == number * (number - 1) / 2


def bimodality(row: ResultRow) -> float | None:
    """The separation of the durations into two groups; None where it may be chance."""
    found = find_two_groups(row.ordered_s)
    return found.separation if found else None


def _iteration_s(row: ResultRow) -> float | None:
    """The median time of an iteration, which may be several calls; None where it is 0."""
    return (row.time.median * (row.interference.calls or 1) or None) if row.time else None


def skew(row: ResultRow) -> float | None:
    """The time between the first and the last rank's start of a call, over that of the call."""
    waited_s, iteration_s = row.interference.entry_skew_s, _iteration_s(row)
    is_aligned = describe_timing(row.case.timing).has_entry_skew
    return waited_s / iteration_s if is_aligned and waited_s is not None and iteration_s else None


def always_last(row: ResultRow) -> float | None:
    """The largest share of the calls in which the same rank started last; None for the root of a
    call, which may end last for what it does."""
    shares, part = row.interference.last_share, skew(row)
    if len(shares) < 2 or part is None or part <= 0.05:
        return None
    if row.time is None or row.time.iterations < FEWEST_FOR_SHAPE:
        return None
    return None if _last_rank(row) == row.case.root else max(shares)


def last_rank(row: ResultRow) -> list[str]:
    """The rank that `always_last` is about."""
    last = _last_rank(row)
    return ["a rank" if last is None else f"rank {last}"]


def _last_rank(row: ResultRow) -> int | None:
    """The rank that started last in most calls; None where that is not known."""
    shares, ranks = row.interference.last_share, row.header.plan.ranks_of(row.case)
    return ranks[shares.index(max(shares))] if shares else None


def clock_coarseness(row: ResultRow) -> float | None:
    """How coarse the clock is for the duration of an iteration: 1 where the clock's step is a tenth
    of it, or on a CPU the overhead of the timed loop a twentieth. That of a device is the time of
    two events, which says nothing about their step."""
    if not (iteration_s := _iteration_s(row)):
        return None
    overhead = row.header.overhead_s if row.header.plan.device == "cpu" else None
    return max(10 * (row.header.resolution_s or 0.0), 20 * (overhead or 0.0)) / iteration_s


def late_launches(row: ResultRow) -> float | None:
    """The share of the iterations that the host queued late on a device. None where the time that
    it needs to queue one is below a twentieth of the iteration, and cannot change it much."""
    lengths = lengths_of(samples_of(row.measurement.batches))
    batches = without_samples(row.measurement.batches)
    known = [(b, n) for b, n in zip(batches, lengths, strict=True) if b.enqueue_s is not None]
    slowest = max((batch.enqueue_s or 0.0 for batch, _ in known), default=None)
    if slowest is None or row.time is None or slowest < LAUNCH_SHARE * (_iteration_s(row) or 0.0):
        return None
    late = sum(batch.late_iterations or 0 for batch, _ in known)
    return late / sum(length for _, length in known)


def above_link(row: ResultRow) -> float | None:
    """The bandwidth over the most that the link named by --peak can carry; None without --peak."""
    if not row.header.plan.peak:
        return None
    from commbench.plan.links import parse_peak

    share = find_peak_fraction(row, parse_peak(row.header.plan.peak))
    return share.fraction / share.ceiling if share else None


def unread_variables(header: RunHeader) -> tuple[str, ...]:
    """The NCCL_* variables that are set although the backend is another, which does not read them.

    Only these: commbench and torch use gloo beside NCCL, and torchrun sets TORCH_NCCL_* itself."""
    names = [name for name in fact_of(header, "variables", dict) if name.startswith("NCCL_")]
    is_known = header.plan.backend in BACKENDS
    return find_unread(names, header.plan.backend) if names and is_known else ()


def different_variables(header: RunHeader) -> tuple[str, ...]:
    """The environment variables that some ranks have otherwise than rank 0."""
    named = mappings_of(header, "other_variables").values()
    return tuple(sorted({*chain.from_iterable(named)}))


RISEN = "risen_counters"
"""The fact of a header's environment that rows have besides: RunEnd.risen."""


def risen_counters(header: RunHeader) -> dict[str, int]:
    """The counters of faults that rose during the run, by host, place and name."""
    found = mappings_of(header, RISEN).items()
    return {f"{host} {name}": rise for host, risen in found for name, rise in risen.items()}


def fact_of(header: RunHeader, name: str, kind: type[T]) -> T:
    """A fact of the environment; empty where it is unknown or of another kind, so damaged."""
    found = header.environment.get(name)
    found = list(found) if isinstance(found, tuple) else found
    return found if isinstance(found, kind) else kind()


def mappings_of(header: RunHeader, name: str) -> dict[str, dict[str, Any]]:
    """The mappings that are in a fact of the environment; none where it is damaged."""
    named = fact_of(header, name, dict).items()
    return {str(key): inner for key, inner in named if isinstance(inner, dict)}


def far_ranks(header: RunHeader) -> list[int]:
    """The ranks that may run on a core of another NUMA node than their GPU's."""
    return [
        r.rank for r in header.ranks if r.near_cores is not None and r.near_cores < len(r.cores)
    ]

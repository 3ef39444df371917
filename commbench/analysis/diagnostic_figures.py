"""The figures that the warnings in diagnostics.py compare with their thresholds, of one row each.

A figure is None where it is not known, or does not apply to the row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import log, sqrt
from operator import mul
from typing import TYPE_CHECKING

from commbench.analysis.interference import STALL_FACTOR
from commbench.analysis.nccl_log import is_symmetric
from commbench.analysis.statistics import design_effect, median, medians, percentile
from commbench.results.batches import samples_of, without_samples
from commbench.results.samples import in_order, lengths_of
from commbench.results.schema import PRECISION
from commbench.spec.allocators import ALLOCATORS
from commbench.spec.backends import BACKENDS
from commbench.spec.computations import AT_ONCE
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import describe_timing

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow
    from commbench.results.schema import RankInfo, RunHeader

FEWEST_FOR_SHAPE = 20
"""With fewer samples the shape of their distribution is unknown."""
MOST_FOR_SHAPE = 20_000
"""More do not show it better."""
FEWEST_BATCHES_FOR_DRIFT = 4
SMALLEST_MODE = 0.15
"""Share of the samples that a group must have to count as a mode."""
DISTINCT = log(1.15)
"""Two modes that differ by less than 15 % count as one."""
LAUNCH_SHARE = 0.05
"""Queueing an iteration on a device matters where it takes this part of the iteration's time."""


def ranks_per_core(row: ResultRow) -> float | None:
    """The most ranks that share a core, on any host; None on devices other than the CPU."""
    return _ranks_per_core(row.header.ranks) if row.header.plan.device == "cpu" else None


def overlap_threads_per_core(row: ResultRow) -> float | None:
    """For a rank on a CPU that communicates and computes at once, the threads that share a core:
    that of the rank, and that of its backend. None for other rows."""
    ranks = ranks_per_core(row) if row.measurement.case.part == AT_ONCE else None
    return None if ranks is None else 2 * ranks


def shown_asymmetric(row: ResultRow) -> float | None:
    """1 where NCCL's log does not show that a call used its symmetric windows; None for buffers in
    other memory, and for their registration itself."""
    case = row.measurement.case
    entry, registers = ALLOCATORS.get(case.memory), OPERATIONS[case.operation].registers
    if registers or not (entry and entry.needs_nccl and entry.is_symmetric):
        return None
    return float(not is_symmetric(row.nccl_selection[0]))


@lru_cache(maxsize=16)
def _ranks_per_core(ranks: tuple[RankInfo, ...]) -> float | None:
    hosts: dict[str, list[tuple[int, ...]]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host, []).append(rank.cores)
    return max(map(_ranks_per_core_of_host, filter(all, hosts.values())), default=None)


def _ranks_per_core_of_host(ranks: Sequence[tuple[int, ...]]) -> float:
    """The larger of two figures: ranks over all cores they may use, and the most ranks that are
    bound to the same single core. `ranks` holds the allowed cores of each rank."""
    average = len(ranks) / len({core for cores in ranks for core in cores})
    bound = Counter(cores[0] for cores in ranks if len(cores) == 1)
    return max(average, *bound.values(), 0)


def imprecision(row: ResultRow) -> float | None:
    """The half-width of the interval of the median, over the one that --precision asks for; None
    where sampling has reached that, and only the launches differ by more."""
    has_reached = row.measurement.stop_reason == PRECISION
    if row.time is None or row.header.plan.iterations is not None or has_reached:
        return None
    precision = row.time.precision
    return None if precision is None else precision / row.header.plan.precision


def drift(row: ResultRow) -> float | None:
    """The difference of the medians of the later and the earlier half of the batches, over the
    median of all; None where it may be chance."""
    batches = samples_of(row.measurement.batches)
    others = without_samples(row.measurement.batches)
    if any(batch.launch for batch in others):
        batches = [own for own, b in zip(batches, others, strict=True) if b.launch == 0]
    if len(batches) < FEWEST_BATCHES_FOR_DRIFT or row.time is None or not row.time.median:
        return None
    is_only_launch = len(batches) == len(others)
    effect = row.time.design_effect
    if not is_only_launch:
        effect = design_effect(batches, row.time.median)
    if effect == 1 or not _has_trend(batches):
        return None
    half = len(batches) // 2
    halves = [in_order(part) for part in (batches[:half], batches[-half:])]
    if sum(map(len, halves)) < FEWEST_FOR_SHAPE:
        return None
    return abs(median(halves[1]) - median(halves[0])) / row.time.median


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
    """Ashman's D of the best split of the durations into two groups, on a log scale: the distance
    of the groups' means over their standard deviation. None where it may be chance.

    Two groups show above 2. One normal distribution cut in two has 2.7, a uniform one 3.5, and
    small samples more: 98 % of uniform samples stay below 3.25 + 14 / sqrt(n), by simulation.

    A few calls that the host stalled would hide two groups. So samples above STALL_FACTOR times the
    85th percentile are left out: they are too few for a group.
    """
    ordered = row.ordered_s
    ordered = ordered[bisect_right(ordered, 0.0) :]
    ordered = ordered[:: 1 + len(ordered) // MOST_FOR_SHAPE]  # enough of them, evenly chosen
    if len(ordered) < FEWEST_FOR_SHAPE:
        return None
    longest_s = STALL_FACTOR * percentile(ordered, 1 - SMALLEST_MODE)
    logs = [*map(log, ordered[: bisect_right(ordered, longest_s)])]
    number, least = len(logs), max(2, int(SMALLEST_MODE * len(logs)))
    if number < FEWEST_FOR_SHAPE:
        return None
    mean = sum(logs) / number
    deviations = [value - mean for value in logs]
    sums = list(accumulate(deviations, initial=0.0))
    # The variance between the two groups of each split, up to a factor.
    cuts = enumerate(sums[least : number - least + 1], least)
    between = [total * total / (cut * (number - cut)) for cut, total in cuts]
    cut = least + between.index(max(between))
    left, right = sums[cut] / cut, -sums[cut] / (number - cut)
    if right - left <= DISTINCT:
        return None
    squares = sum(map(mul, deviations, deviations))
    within = squares - cut * left**2 - (number - cut) * right**2
    separation = (right - left) / sqrt(max(within / number, 1e-12))
    return separation if separation > 3.25 + 14 / sqrt(number) else None


def skew(row: ResultRow) -> float | None:
    """The time between the first and the last rank's start of a call, over that of the call."""
    waited_s, case = row.interference.entry_skew_s, row.measurement.case
    if not describe_timing(case.timing).has_entry_skew:
        return None
    if waited_s is None or row.time is None or not row.time.median:
        return None
    return waited_s / (row.time.median * (row.interference.calls or 1))


def always_last(row: ResultRow) -> float | None:
    """The largest share of the calls in which the same rank started last."""
    shares, part = row.interference.last_share, skew(row)
    if len(shares) < 2 or part is None or part <= 0.05:
        return None
    if row.time is None or row.time.iterations < FEWEST_FOR_SHAPE:
        return None
    return max(shares)


def clock_coarseness(row: ResultRow) -> float | None:
    """How coarse the clock is for the duration of an iteration: 1 where the clock's step is a tenth
    of it, or on a CPU the overhead of the timed loop a twentieth. That of a device is the time of
    two events, which says nothing about their step."""
    if row.time is None or not row.time.median:
        return None
    iteration = row.time.median * (row.interference.calls or 1)
    overhead = row.header.overhead_s if row.header.plan.device == "cpu" else None
    return max(10 * (row.header.resolution_s or 0.0), 20 * (overhead or 0.0)) / iteration


def late_launches(row: ResultRow) -> float | None:
    """The share of the iterations that the host queued late on a device. None where the time that
    it needs to queue one is below a twentieth of the iteration, and cannot change it much."""
    lengths = lengths_of(samples_of(row.measurement.batches))
    known = [
        (batch, length)
        for batch, length in zip(without_samples(row.measurement.batches), lengths, strict=True)
        if batch.enqueue_s is not None
    ]
    if not known or row.time is None:
        return None
    iteration = row.time.median * (row.interference.calls or 1)
    if max(batch.enqueue_s or 0.0 for batch, _ in known) < LAUNCH_SHARE * iteration:
        return None
    late = sum(batch.late_iterations or 0 for batch, _ in known)
    return late / sum(length for _, length in known)


def launch_spread(row: ResultRow) -> float | None:
    """How much larger the largest median of a launch is than the smallest, as a fraction."""
    medians = row.launch_medians
    return max(medians) / min(medians) - 1 if len(medians) > 1 and min(medians) else None


def unread_variables(header: RunHeader) -> tuple[str, ...]:
    """The NCCL_* variables that are set although the backend is another, which does not read them.

    Only these: commbench and torch use gloo beside NCCL, and torchrun sets TORCH_NCCL_* itself."""
    variables = header.environment.get("variables")
    if not isinstance(variables, dict) or header.plan.backend not in BACKENDS:
        return ()
    names = [name for name in variables if name.startswith("NCCL_")]
    if not names:
        return ()
    from commbench.spec.variables import find_unread

    return find_unread(names, header.plan.backend)


def different_variables(header: RunHeader) -> tuple[str, ...]:
    """The environment variables that some ranks have otherwise than rank 0."""
    others = header.environment.get("other_variables")
    if not isinstance(others, dict):
        return ()
    named = (names for names in others.values() if isinstance(names, dict))
    return tuple(sorted(set(chain.from_iterable(named))))


RISEN = "risen_counters"
"""The fact of a header's environment that rows have besides: RunEnd.risen."""


def risen_counters(header: RunHeader) -> dict[str, int]:
    """The counters of faults that rose during the run, by host, place and name."""
    hosts = header.environment.get(RISEN)
    named = hosts.items() if isinstance(hosts, dict) else ()
    return {
        f"{host} {name}": rise
        for host, found in named
        if isinstance(found, dict)
        for name, rise in found.items()
    }


def far_ranks(header: RunHeader) -> list[int]:
    """The ranks that may run on a core of another NUMA node than their GPU's."""
    return [
        r.rank for r in header.ranks if r.near_cores is not None and r.near_cores < len(r.cores)
    ]


def above_link(row: ResultRow) -> float | None:
    """The bandwidth over the most that the link named by --peak can carry; None without --peak."""
    if not row.header.plan.peak:
        return None
    from commbench.analysis.peak import find_peak_fraction
    from commbench.spec.links import parse_peak

    share = find_peak_fraction(row, parse_peak(row.header.plan.peak))
    return share.fraction / share.ceiling if share else None

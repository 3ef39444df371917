"""The matrix of a run that measures pairs of ranks: bandwidth or latency from one rank (row) to
another (column).

The values are sparse: a quick search measures few of the n (n - 1) ordered pairs. In a case whose
ranks are pairs, the value of a pair comes from the times of its first rank, which begins and which
gets the answer: of ping_pong half a round trip, of stream a message. It is not the time of the
slowest rank, which is that of the slowest pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, sqrt
from statistics import NormalDist
from typing import NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import launch_half_width, launch_logs, percentile
from commbench.plan.backends import usual_launch_spread
from commbench.plan.case import Case
from commbench.plan.operations import OPERATIONS, PAIR_OPERATIONS
from commbench.plan.pairs import EVERY_PAIR, QUICK, is_list, is_round, list_pairs
from commbench.plan.plan import Plan
from commbench.results.samples import with_rank_times
from commbench.results.schema import Run, RunHeader
from commbench.stats import MAD_TO_SD, MEDIAN_TO_MEAN, Array, Estimate, np, student_quantile
from commbench.units import GB

Pair = tuple[int, int]
TYPICAL = 0.25
"""The quantile of the times of a pair that is its value. Other programs of a host slow some batches
of all pairs that meet in a round, and nothing makes a batch faster than the link is."""
_TAIL = 0.05
"""The share of the slowest links whose scatter is also looked at: it can be wider than normal."""
_FEW = 24
"""Of fewer values the standard deviation is used, because the MAD of few values varies much."""
_MAD_FREEDOM = 0.37
"""The efficiency of the MAD: it knows a scale as well as the deviation of so many values does."""
LEAST_FREEDOM = 3
"""With fewer degrees of freedom nothing is known about scatter."""
POLISH_ROUNDS = 10
"""Median polish changes little after a few rounds."""


class Quantity(NamedTuple):
    """What is measured between two ranks."""

    name: str
    unit: str
    """The unit in which people read it: `GB/s`."""
    scale: float
    """One such unit in that of the values, which is bytes/s or seconds."""
    is_better_high: bool
    has_direction: bool
    """Whether i to j and j to i are two measurements. The latency of a ping-pong is one for both:
    the matrix has it twice."""


BANDWIDTH = Quantity("bandwidth", "GB/s", GB, is_better_high=True, has_direction=True)
LATENCY = Quantity("latency", "us", 1e-6, is_better_high=False, has_direction=False)


class RankMatrix(NamedTuple):
    """A figure for ordered pairs of ranks: what one kind of call reached."""

    quantity: Quantity
    values: Mapping[Pair, float]
    """By (from, to), in bytes/s or seconds, above 0. A pair that was not measured is missing."""
    hosts: tuple[str, ...]
    """The host of each rank."""
    interfaces: tuple[str, ...] = ()
    """The network interface (or HCA) of each rank; empty where it is not known."""
    title: str = ""
    """The kind of call, without its pairs."""
    size_bytes: int = 0
    intervals: Mapping[Pair, tuple[float, float]] = {}
    """The 95 % interval of a value, known where it was measured in several launches."""

    def estimate(self, pair: Pair) -> Estimate | None:
        """The value of a pair with its interval; None where it was not measured."""
        if (value := self.values.get(pair)) is None:
            return None
        return Estimate(value, *self.intervals.get(pair, ()))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    def __repr__(self) -> str:
        what = f"{self.quantity.name}, {self.title}, {self.size_bytes} B"
        return f"<RankMatrix: {what}, {len(self.values)} values>"


def has_matrix(plan: Plan) -> bool:
    """Whether a plan measures rounds or lists of pairs, so that its result is a matrix. One pair
    has a matrix where its latency and its bandwidth are measured, each with one size. So have
    halves and neighbours, if the latency has a size of its own, as in `commbench pairs`."""
    is_link = set(plan.operations) == set(PAIR_OPERATIONS) and len(plan.sizes) == 1
    return any(OPERATIONS[name].is_paired for name in plan.operations) and any(
        text in (EVERY_PAIR, QUICK)
        or is_round(text)
        or (is_list(text) and "+" in text)
        or (is_link and (is_list(text) or plan.latency_size is not None))
        for text in plan.pairs
    )


def is_of_matrix(case: Case) -> bool:
    """Whether the pairs of a case each have a place in a matrix."""
    operation = OPERATIONS.get(case.operation)
    return bool(operation and case.pairs and (operation.is_latency or operation.is_one_way))


def outside_matrix(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows of a run without those whose values are in its matrices."""
    return [row for row in rows if not (is_of_matrix(row.case) and has_matrix(row.header.plan))]


class PairValues:
    """Collects the times of the pairs of one kind of call."""

    def __init__(self, header: RunHeader, case: Case) -> None:
        """`case` is one of its cases."""
        self._header, self._case = header, case
        self._batches: dict[Pair, list[tuple[float, int]]] = {}
        """The median of each batch, or of the batches of a launch, and its iterations."""

    def add(self, case: Case, times: Iterable[tuple[Sequence[float], int]]) -> None:
        """Add the times of each rank in some batches of a case, and their iterations."""
        pairs = first_ranks(self._header.plan, case)
        for times_s, iterations in times:
            for index, pair in pairs if times_s else ():
                self._batches.setdefault(pair, []).append((times_s[index], iterations))

    def matrix(self) -> RankMatrix:
        """The value of each pair: the lower quartile of the medians of its batches, weighted by
        their iterations. Its interval is as wide as the differences between launches make it."""
        case, ranks, plan = self._case, sorted(self._header.ranks), self._header.plan
        values, factors = {}, {}
        for pair, batches in self._batches.items():
            times = sorted(time for time, number in batches for _ in range(number))
            if times and (typical := percentile(times, TYPICAL)) > 0:
                values[pair] = typical
                logs = launch_logs([[time] for time, _ in batches])
                if plan.launches > 1 and logs[1:]:
                    factors[pair] = exp(launch_half_width(logs, usual_launch_spread(plan.backend)))
        quantity = LATENCY if OPERATIONS[case.operation].is_latency else BANDWIDTH
        if quantity == LATENCY:
            values |= {pair[::-1]: time for pair, time in values.items()}
            factors |= {pair[::-1]: factor for pair, factor in factors.items()}
        else:
            values = {pair: case.size_bytes / time for pair, time in values.items()}
        hosts = tuple(r.host for r in ranks) or ("unknown",) * plan.world_size
        interfaces = tuple(rank.interface for rank in ranks)
        return RankMatrix(
            quantity, values, hosts, interfaces if any(interfaces) else (),
            case.title_without("pairs"), case.size_bytes,
            {pair: (values[pair] / wide, values[pair] * wide) for pair, wide in factors.items()},
        )  # fmt: skip


def first_ranks(plan: Plan, case: Case) -> list[tuple[int, Pair]]:
    """The pairs of a case, each as its first rank and the other one, with the place of the first
    rank among the ranks of a batch."""
    members = {rank: index for index, rank in enumerate(plan.ranks_of(case))}
    return [
        (members[group[first]], (group[first], group[second]))
        for group in plan.groups_of(case)
        for first, second in list_pairs(case.pairs, len(group))
    ]


def find_peers(plan: Plan, case: Case, ranks: Collection[int]) -> dict[int, int]:
    """The other rank of the pair of each of these ranks; a rank without one is missing."""
    pairs = [pair for _, pair in first_ranks(plan, case)]
    both = dict(pairs) | {second: first for first, second in pairs}
    return {rank: peer for rank, peer in both.items() if rank in ranks}


def pair_matrices(run: Run) -> list[RankMatrix]:
    """The matrices of a run: one for each kind of call and size that has values; latency first."""
    kinds: dict[tuple[str, int], PairValues] = {}
    for measurement in run.measurements:
        case = measurement.case
        if is_of_matrix(case) and measurement.batches:
            known = with_rank_times(measurement).rank_times
            # 32 bits hold seven digits.
            times = [([float(f"{s:.7g}") for s in own.medians_s], own.iterations) for own in known]
            key = (case.title_without("pairs"), case.size_bytes)
            kinds.setdefault(key, PairValues(run.header, case)).add(case, times)
    found = [values.matrix() for values in kinds.values()]
    return sorted(
        (matrix for matrix in found if matrix.values),
        key=lambda matrix: (matrix.quantity != LATENCY, matrix.title, matrix.size_bytes),
    )


def matrices_of_rounds(run: Run) -> list[RankMatrix]:
    """The matrices of a run that measures pairs in rounds; none of another."""
    return pair_matrices(run) if has_matrix(run.header.plan) else []


def main_matrices(matrices: Iterable[RankMatrix]) -> list[RankMatrix]:
    """One matrix for each quantity: the latency of the smallest size, the bandwidth of the
    largest."""
    every = sorted(matrices, key=lambda matrix: matrix.size_bytes)
    latencies = [matrix for matrix in every if matrix.quantity == LATENCY]
    bandwidths = [matrix for matrix in every if matrix.quantity == BANDWIDTH]
    return latencies[:1] + bandwidths[-1:]


class Cells(NamedTuple):
    """The measured values of a matrix as numpy arrays of one length."""

    senders: Array
    receivers: Array
    quality: Array
    """The logarithm of a bandwidth, or minus that of a latency: higher is better."""
    is_within: Array
    """Whether both ranks are on one host."""


def make_cells(matrix: RankMatrix) -> Cells:
    """The values as arrays. Where both directions are one measurement, each pair is there once."""
    is_double = not matrix.quantity.has_direction
    found = {
        pair: value
        for pair, value in matrix.values.items()
        if not (is_double and pair[0] > pair[1] and pair[::-1] in matrix.values)
    }
    senders, receivers = np.array([*found], dtype=np.int64).reshape(-1, 2).T
    quality = np.log(np.array([*found.values()], dtype=float))
    hosts = number(matrix.hosts)
    sign = 1 if matrix.quantity.is_better_high else -1
    return Cells(senders, receivers, sign * quality, hosts[senders] == hosts[receivers])


def number(names: Sequence[object]) -> Array:
    """For each name the number of its first occurrence among the different names."""
    known = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.int64)


def group_medians(labels: Array, values: Array, groups: int) -> Array:
    """The median of the values of each label from 0 to `groups` - 1; nan for one without values.
    There is at least one value."""
    low = values.min()
    width = values.max() - low + 1  # one sort of one array is much faster than lexsort
    ordered = np.sort(labels * width + (values - low))
    counts = np.bincount(labels, minlength=groups)
    starts = np.cumsum(counts) - counts
    lower = np.clip(starts + (counts - 1) // 2, 0, len(values) - 1)
    upper = np.clip(starts + counts // 2, 0, len(values) - 1)
    middles = (ordered[lower] + ordered[upper]) / 2 - np.arange(groups) * width + low
    return np.where(counts > 0, middles, np.nan)


def median_polish(cells: Cells, ranks: int) -> Array:
    """What the effects of sending and of receiving by rank leave over, by cell: logarithms.

    Tukey's median polish (Exploratory Data Analysis, 1977): quality = level + effect of the sender
    + effect of the receiver + residual.
    """
    residuals: Array = cells.quality - np.median(cells.quality)
    for _ in range(POLISH_ROUNDS):
        before = residuals
        for labels in (cells.senders, cells.receivers):
            residuals = residuals - group_medians(labels, residuals, ranks)[labels]
        if np.abs(residuals - before).max() < 1e-4:
            break
    return residuals


def median_variance(count: int) -> float:
    """The variance of the median of so many values over that of one."""
    return 1 / count if count <= 2 else MEDIAN_TO_MEAN**2 / count


def robust_scale(values: Array, with_tail: bool = False) -> float:
    """The standard deviation of values around 0, without the influence of few outliers."""
    centred = values - np.median(values)
    if len(values) < _FEW:
        return sqrt(float((centred**2).sum()) / max(len(values) - 2, 1))
    scale = MAD_TO_SD * float(np.median(np.abs(centred)))
    if not with_tail:
        return scale
    tail = float(np.quantile(centred, _TAIL))
    return max(scale, tail / NormalDist().inv_cdf(_TAIL))


def t_quantile(z: float, freedom: int) -> float:
    """The quantile of Student's t for a quantile of the normal distribution, with degrees
    of freedom for the scale that robust_scale finds."""
    if freedom >= _FEW - 2:
        freedom = int(_MAD_FREEDOM * freedom)
    return student_quantile(z, freedom)

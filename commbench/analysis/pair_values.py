"""The figures of each pair of ranks in a run: from the batches of its cases to matrices.

In a case whose ranks are pairs, the value of a pair comes from the times of its first rank, which
begins and which gets the answer: of ping_pong half a round trip, of stream a message. It is not the
time of the slowest rank, which is that of the slowest pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY, RankMatrix
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import percentile
from commbench.results.schema import Batch, Run, RunHeader
from commbench.spec.case import Case
from commbench.spec.operations import OPERATIONS, PAIR_OPERATIONS
from commbench.spec.pairs import EVERY_PAIR, QUICK, find_peer, is_list, is_round, list_pairs
from commbench.spec.plan import Plan

Pair = tuple[int, int]
TYPICAL = 0.25
"""The quantile of the times of a pair that is its value. Other programs of a host slow some batches
of all pairs that meet in a round, and nothing makes a batch faster than the link is."""


class PairMatrix(NamedTuple):
    """What one kind of call reached between pairs of ranks."""

    title: str
    """The kind of call, without its pairs."""
    size_bytes: int
    matrix: RankMatrix


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
    return [
        row
        for row in rows
        if not (is_of_matrix(row.measurement.case) and has_matrix(row.header.plan))
    ]


class PairValues:
    """Collects the times of the pairs of one kind of call."""

    def __init__(self, plan: Plan, case: Case) -> None:
        """`case` is one of its cases."""
        self._plan = plan
        self._operation, self._size_bytes = OPERATIONS[case.operation], case.size_bytes
        self._times_s: dict[Pair, list[tuple[float, int]]] = {}
        """The median of each batch, and its iterations."""

    def add(self, case: Case, batches: Iterable[Batch]) -> None:
        """Add batches of a case; those without the times of each rank are left out."""
        pairs = first_ranks(self._plan, case)
        for batch in batches:
            if batch.rank_medians_s:
                for index, pair in pairs:
                    own = batch.rank_medians_s[index], len(batch.samples_s)
                    self._times_s.setdefault(pair, []).append(own)

    def matrix(self, header: RunHeader) -> RankMatrix:
        """The value of each pair: the lower quartile of the medians of its batches, weighted by
        their iterations."""
        found = {}
        for pair, batches in self._times_s.items():
            times = [time for time, number in batches for _ in range(number)]
            if times and (typical := percentile(sorted(times), TYPICAL)) > 0:
                found[pair] = typical
        hosts, interfaces = _places(header)
        iterations = {pair: sum(n for _, n in own) for pair, own in self._times_s.items()}
        if self._operation.is_latency:
            values = found | {(second, first): time for (first, second), time in found.items()}
            iterations |= {(second, first): n for (first, second), n in iterations.items()}
            return RankMatrix(LATENCY, values, hosts, interfaces, iterations)
        values = {pair: self._size_bytes / time for pair, time in found.items()}
        return RankMatrix(BANDWIDTH, values, hosts, interfaces, iterations)


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
    return {
        rank: group[peer.rank]
        for group in plan.groups_of(case)
        for at, rank in enumerate(group)
        if rank in ranks and (peer := find_peer(case.pairs, at, len(group)))
    }


def pair_matrices(run: Run) -> list[PairMatrix]:
    """The matrices of a run: one for each kind of call and size that has values; latency first."""
    kinds: dict[tuple[str, int], PairValues] = {}
    plan = run.header.plan
    for measurement in run.measurements:
        case = measurement.case
        if is_of_matrix(case) and measurement.batches:
            key = (case.title_without("pairs"), case.size_bytes)
            kinds.setdefault(key, PairValues(plan, case)).add(case, measurement.batches)
    found = [PairMatrix(*key, values.matrix(run.header)) for key, values in kinds.items()]
    return sorted(
        (one for one in found if one.matrix.values),
        key=lambda one: (one.matrix.quantity != LATENCY, one.title, one.size_bytes),
    )


def main_matrices(matrices: Iterable[PairMatrix]) -> list[PairMatrix]:
    """One matrix for each quantity: the latency of the smallest size, the bandwidth of the
    largest."""
    every = sorted(matrices, key=lambda one: one.size_bytes)
    latencies = [one for one in every if one.matrix.quantity == LATENCY]
    bandwidths = [one for one in every if one.matrix.quantity == BANDWIDTH]
    return latencies[:1] + bandwidths[-1:]


def _places(header: RunHeader) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The host and the network interface of each rank; no interfaces where none is known."""
    ranks = sorted(header.ranks)
    hosts = tuple(rank.host for rank in ranks) or ("unknown",) * header.plan.world_size
    interfaces = tuple(rank.interface for rank in ranks)
    return hosts, interfaces if any(interfaces) else ()

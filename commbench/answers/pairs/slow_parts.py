"""Finds the slow rank, host, interface or link of a matrix of pairs, or none; and what to measure
after a quick search.

Every part that could be slow (PARTS) predicts which pairs are slow. The part that explains most of
what is measured is compared with the other pairs, which are its peers. It is a finding if it is
slower by a limit that comes from the data: from the scatter of single pairs, from the differences
between parts of its kind, and from the number of parts that are compared. What a finding explains
is taken away before the next one is looked for, so one defect gives one finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import exp, log1p, sqrt
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from commbench.answers.pairs import matrix as matrices
from commbench.answers.pairs.matrix import Cells, Quantity, RankMatrix
from commbench.stats import Array, np

HOST, INTERFACE, RANK, LINK = "host", "interface", "rank", "link"
"""Kinds of parts. A link is the way between two ranks or two hosts."""
BOTH, OUT, IN = "both", "out", "in"
"""Directions: out is sending. Of a link, out is from its first end to its second."""
ALL, WITHIN, ACROSS = "all", "within hosts", "across hosts"
"""Which pairs of a rank or a host are slow."""

LEAST = 0.12
"""A part is named if it is at least so much slower than its peers, however little they scatter."""
_ALONE = 2.0
"""The logarithm of LEAST is so many times as large for a part that rests on one value: whatever
disturbed all batches of one pair looks like that."""
FALSE_ALARMS = 1e-3
"""The probability that scatter alone gives a finding in a sound matrix."""
MOST_FINDINGS = 16
_PER_RANK = 4
"""With so many values for each rank the effects of ranks are told from those of links."""
_MANY = 5000
"""Of so many values, all are taken for the peers of each part."""
_ENOUGH = 6
"""Of so many parts of a kind the differences are taken into account."""
_BEST = 12
"""So many candidates of each kind are compared exactly."""


class Part(NamedTuple):
    """A kind of part that can be slow, and the pairs of ranks that use it."""

    name: str
    direction: str
    scope: str
    is_of_hosts: bool = False


PARTS = (
    *(Part(HOST, direction, ACROSS, is_of_hosts=True) for direction in (BOTH, OUT, IN)),
    *(Part(HOST, BOTH, scope, is_of_hosts=True) for scope in (ALL, WITHIN)),
    *(Part(INTERFACE, direction, ACROSS) for direction in (BOTH, OUT, IN)),
    *(Part(RANK, direction, scope) for scope in (ALL, ACROSS, WITHIN)
      for direction in (BOTH, OUT, IN)),
    *(Part(LINK, direction, ACROSS, is_of_hosts=True) for direction in (BOTH, OUT)),
    *(Part(LINK, direction, ALL) for direction in (BOTH, OUT)),
)  # fmt: skip
"""Of two that have the same pairs, the first is named."""


class Finding(NamedTuple):
    """A part that is slower than its peers."""

    kind: str
    direction: str
    scope: str
    ranks: tuple[int, ...]
    """The rank, the ranks of the host, or those that use the interface; of a link those at its
    first end, the sending one if it is slow in one direction."""
    to_ranks: tuple[int, ...]
    """Of a link the ranks at its second end; otherwise empty."""
    value: float
    """The median of the pairs that use it, in bytes/s or seconds."""
    peers: float
    """What these pairs would reach at the speed of the peers, in bytes/s or seconds."""
    ratio: float
    """Its speed over that of its peers, below 1: 0.5 is half the bandwidth or twice the latency."""
    pairs: int
    """The number of measured values on which it rests."""
    peer_pairs: int
    """The number of measured values of its peers."""


class Diagnosis(NamedTuple):
    """What a matrix says about slow parts."""

    findings: tuple[Finding, ...]
    """The one that explains most comes first; empty where no part is slower than scatter can be."""
    link_limit: float | None
    """A single link whose ratio is above this is not named; None where no link can be tested."""
    rank_limit: float | None = None
    """A rank, or a host of one rank, of this ratio is named with a probability of 95 % or more;
    None where none can be tested."""


class _Candidate(NamedTuple):
    parts: _Parts
    label: int
    cells: Array
    """Indices of the values that use it."""
    effect: float
    """The logarithm of its ratio."""
    gain: float
    """By how much it lowers the sum of the absolute deviations from the level of its peers."""
    limit: float
    """How far below 0 the effect of a slow part is."""
    peers: int
    """The number of other values."""


class _Parts(NamedTuple):
    """All parts of one kind: which values use which part."""

    kind: Part
    ends: Array
    """For each rank the number of its host, its interface, or itself."""
    values: Array
    """Indices of values; of both directions, a value is there for either end."""
    labels: Array
    """The number of the part that each uses: of a link its place among the links of `links`."""
    links: Array | None = None
    """For each link the numbers of its ends, as first x ranks + second."""

    def ranks(self, label: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ranks of a part, and of a link those at its second end."""
        ends = (label, -1) if self.links is None else divmod(self.links[label], len(self.ends))
        first, second = (tuple((self.ends == end).nonzero()[0].tolist()) for end in ends)
        return first, second


def find_slow(
    matrix: RankMatrix, false_alarms: float = FALSE_ALARMS, least: float = LEAST
) -> Diagnosis:
    """The slow parts of a matrix of all pairs, or of some of them: those with the largest gain, one
    after the other.

    `false_alarms` is the probability that scatter alone gives a finding in a sound matrix. No part
    is named that is not slower than its peers by the share `least`.
    """
    measured = cells = matrices.make_cells(matrix)
    every = [*filter(None, (_find_parts(kind, cells, matrix) for kind in PARTS))]
    tests = sum(int(parts.labels.max()) + 1 for parts in every)
    findings: list[Finding] = []
    while True:
        scan = _Scan(cells, matrix, false_alarms / max(tests, 1), -log1p(-least))
        slow = [candidate for parts in every for candidate in scan.find(parts)]
        if not slow or len(findings) == MOST_FINDINGS:
            both = [p for p in every if p.kind.direction == BOTH and p.kind.name in (RANK, HOST)]
            both.sort(key=lambda parts: (parts.kind.name != RANK, parts.kind.scope != ALL))
            return Diagnosis(tuple(findings), scan.link_limit(), scan.rank_limit(both[:1]))
        best = max(slow, key=lambda candidate: candidate.gain)
        findings.append(_make_finding(matrix.quantity, measured, best))
        quality = cells.quality.copy()
        quality[best.cells] -= best.effect
        cells = cells._replace(quality=quality)


def _find_parts(kind: Part, cells: Cells, matrix: RankMatrix) -> _Parts | None:
    """The parts of one kind; None where it says no more than the kinds before it."""
    is_used = {WITHIN: cells.is_within, ACROSS: ~cells.is_within}
    scopes = [scope for scope, values in is_used.items() if values.any()]
    is_needless = (
        (kind.direction != BOTH and not matrix.quantity.has_direction)
        or (len({*matrix.hosts}) == matrix.ranks and not kind.is_of_hosts)
        or (kind.name == INTERFACE and not matrix.interfaces)
    )
    fewest = 1 if kind.name == LINK else 2
    if is_needless or (len(scopes) < fewest if kind.scope == ALL else kind.scope not in scopes):
        return None
    names: Sequence[object] = matrix.hosts if kind.is_of_hosts else range(matrix.ranks)
    if kind.name == INTERFACE:
        names = [*zip(matrix.hosts, matrix.interfaces, strict=True)]
    ends = matrices.number(names)
    index = np.flatnonzero(is_used.get(kind.scope, cells.is_within | True))
    senders, receivers = ends[cells.senders[index]], ends[cells.receivers[index]]
    if kind.name == LINK:
        if kind.direction == BOTH:
            senders, receivers = np.sort([senders, receivers], axis=0)
        links, labels = np.unique(senders * matrix.ranks + receivers, return_inverse=True)
        return _Parts(kind, ends, index, labels, links)
    labels, others = (receivers, senders) if kind.direction == IN else (senders, receivers)
    if kind.scope == WITHIN and kind.name == HOST:
        others = np.arange(len(index))
    elif kind.direction == BOTH:
        is_other = np.append(np.ones(len(index), bool), senders != receivers)
        index = np.append(index, index)[is_other]
        labels = np.append(senders, receivers)[is_other]
        others = np.append(receivers, senders)[is_other]
    # One that was measured with one other only cannot be told from that one or from their link.
    base = max(matrix.ranks, len(cells.senders)) + 1
    different = np.unique(labels * base + others) // base
    is_enough = np.bincount(different, minlength=matrix.ranks)[labels] > 1
    return _Parts(kind, ends, index[is_enough], labels[is_enough]) if is_enough.any() else None


class _Scan:
    """Compares parts with their peers, in a matrix without what earlier findings explain."""

    def __init__(self, cells: Cells, matrix: RankMatrix, probability: float, least: float) -> None:
        self._cells = cells
        self._hosts = len(set(matrix.hosts))
        self._z = NormalDist().inv_cdf(1 - probability)
        self._least = least
        self._classes = [c for c in (cells.is_within, ~cells.is_within) if c.any()]
        self._above = np.zeros(len(cells.quality))
        """Distance from the level of the peers if at least a quarter of the values are sound."""
        self._links = np.zeros(len(cells.quality))
        """What links are compared by: without the effects of ranks, where these can be told."""
        self._usual: list[tuple[float, float]] = []
        """The level and the scale of each class."""
        for of_class in self._classes:
            part = Cells(*(column[of_class] for column in cells))
            level = float(np.median(part.quality))
            self._usual.append((level, matrices.robust_scale(part.quality - level)))
            self._above[of_class] = part.quality - np.quantile(part.quality, 0.75)
            is_many = len(part.quality) >= _PER_RANK * len({*part.senders, *part.receivers})
            self._links[of_class] = (
                matrices.median_polish(part, matrix.ranks) if is_many else part.quality - level
            )

    def find(self, parts: _Parts) -> Iterator[_Candidate]:
        """The parts of one kind that are slower than the limit."""
        kind, labels = parts.kind, parts.labels
        is_told = not kind.is_of_hosts or self._hosts > _PER_RANK
        compared = self._links if kind.name == LINK and is_told else self._above
        values = compared[parts.values]
        medians = matrices.group_medians(labels, values, int(labels.max()) + 1)
        gains = np.bincount(labels, np.abs(values) - np.abs(values - medians[labels]))
        gains[~(medians < -self._least)] = 0
        for label in np.argsort(-gains, kind="stable")[:_BEST]:
            if gains[label] <= 0:
                return
            if found := self._compare(parts, int(label), medians):
                effect = found.effect
                if kind.name == LINK:
                    effect = max(effect, float(np.median(compared[found.cells])))
                if -effect > found.limit:
                    yield found

    def _compare(self, parts: _Parts, label: int, medians: Array) -> _Candidate | None:
        """A part beside its peers; None where these are too few. `medians` are those of all
        parts."""
        inside, quality = np.unique(parts.values[parts.labels == label]), self._cells.quality
        others = np.delete(medians, label)
        others = others[~np.isnan(others)]
        spread = 0.0  # by which sound parts of a kind differ: their standard deviation
        if len(others) >= _ENOUGH:
            spread = matrices.robust_scale(others, with_tail=parts.kind.name == LINK)
        deviations, variances, peers = [], [], 0
        for of_class, (level, scale) in zip(self._classes, self._usual, strict=True):
            own = inside[of_class[inside]]
            count = int(of_class.sum()) - len(own)
            if not len(own) or not count:
                continue
            if count + len(own) - 2 < matrices.LEAST_FREEDOM:
                return None
            if count <= _MANY:  # of more, all values say the same as those of the peers
                is_peer = of_class.copy()
                is_peer[own] = False
                level = float(np.median(quality[is_peer]))
                own_scatter = quality[own] - np.median(quality[own])
                scale = matrices.robust_scale(np.append(quality[is_peer] - level, own_scatter))
            deviations.append(quality[own] - level)
            error = matrices.t_quantile(self._z, count + len(own) - 2) * scale / self._z
            of_both = matrices.median_variance(len(own)) + matrices.median_variance(count)
            variances.append(len(own) * error**2 * of_both)
            peers += count
        if not deviations:
            return None
        joined = np.concatenate(deviations)
        effect = float(np.median(joined))
        error = sqrt(sum(variances) / len(joined))
        least = self._least * (_ALONE if len(inside) == 1 else 1)
        gain = float((np.abs(joined) - np.abs(joined - effect)).sum())
        limit = max(least, self._z * max(error, spread))
        return _Candidate(parts, label, inside, effect, gain, limit, peers)

    def rank_limit(self, of_ranks: Sequence[_Parts]) -> float | None:
        """The ratio that a rank is named at, with a probability of 95 % or more: the worst of the
        limits of the slowest ranks, and as much more as its error makes needful."""
        limits = []
        for parts in of_ranks:
            values = self._above[parts.values]
            medians = matrices.group_medians(parts.labels, values, int(parts.labels.max()) + 1)
            slowest = np.argsort(medians)[:_BEST]
            compared = [self._compare(parts, int(label), medians) for label in slowest]
            limits += [found.limit for found in compared if found]
        power = 1 + NormalDist().inv_cdf(0.95) / self._z
        return exp(-power * max(limits)) if limits else None

    def link_limit(self) -> float | None:
        """The ratio below which a link between two ranks would be a finding in one direction."""
        limit = _ALONE * self._least
        for of_class in self._classes:
            values = self._links[of_class]
            if len(values) - 2 < matrices.LEAST_FREEDOM:
                return None
            factor = matrices.t_quantile(self._z, len(values) - 2)
            limit = max(limit, factor * matrices.robust_scale(values, with_tail=True))
        return exp(-limit) if self._classes else None


def _make_finding(quantity: Quantity, cells: Cells, found: _Candidate) -> Finding:
    kind, ratio = found.parts.kind, exp(found.effect)
    sign = 1 if quantity.is_better_high else -1
    value = exp(sign * float(np.median(cells.quality[found.cells])))
    return Finding(
        kind.name, kind.direction, kind.scope, *found.parts.ranks(found.label), value,
        value * ratio**-sign, ratio, len(found.cells), found.peers,
    )  # fmt: skip


SUSPICION = 0.2
"""The probability that scatter alone gives a suspect in a sound matrix."""


def find_suspects(matrix: RankMatrix) -> frozenset[int]:
    """The ranks that may be slow in a matrix of few values, or whose host or interface may be: by
    limits less strict than those of find_slow. A quick search does not look for links."""
    found = find_slow(matrix, SUSPICION, LEAST / 2).findings
    return frozenset(rank for each in found if each.kind != LINK for rank in each.ranks)


def choose_rounds(
    suspects: Collection[int], peers: Mapping[str, Mapping[int, int]], most: int, seed: int
) -> list[str]:
    """The rounds in which most suspects meet others, at most so many, the best first.

    `peers` has for each round the rank that each suspect meets in it; one that meets none is
    missing. Of rounds that say as much, `seed` decides.
    """
    worth = {
        name: sum(peer not in suspects for peer in met.values()) for name, met in peers.items()
    }
    names = sorted(name for name, value in worth.items() if value)
    Random(seed).shuffle(names)
    return sorted(names, key=lambda name: -worth[name])[:most]

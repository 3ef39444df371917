"""Finds the slow rank, host, interface or link of a matrix of pairs, or none; and what to measure
after a quick search.

Every part that could be slow (PARTS) predicts which pairs are slow. The part that explains most of
what is measured is compared with the other pairs, which are its peers. It is a finding if it is
slower by a limit that comes from the data: from the scatter of single pairs, from the differences
between parts of its kind, and from the number of parts that are compared. What a finding explains
is taken away before the next one is looked for, so one defect gives one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import exp, log1p, sqrt
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.answers.pairs.matrix import (
    LEAST_FREEDOM,
    Cells,
    Quantity,
    RankMatrix,
    group_medians,
    make_cells,
    median_polish,
    median_variance,
    number,
    robust_scale,
    t_quantile,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    kind: str
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
    quantity: Quantity
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


class _Candidate(NamedTuple):
    part: Part
    cells: NDArray[Any]
    """Indices of the values that use it."""
    effect: float
    """The logarithm of its ratio."""
    gain: float
    """By how much it lowers the sum of the absolute deviations from the level of its peers."""
    peers: int
    """The number of other values."""


class _Groups(NamedTuple):
    """All parts of one kind: which values use which part."""

    part: Part
    values: NDArray[Any]
    """Indices of values; of both directions, a value is there for either end."""
    labels: NDArray[Any]


def find_slow(
    matrix: RankMatrix, false_alarms: float = FALSE_ALARMS, least: float = LEAST
) -> Diagnosis:
    """The slow parts of a matrix of all pairs, or of some of them: those with the largest gain, one
    after the other.

    `false_alarms` is the probability that scatter alone gives a finding in a sound matrix. No part
    is named that is not slower than its peers by the share `least`.
    """
    measured = cells = make_cells(matrix)
    groups = [*filter(None, (_group(part, cells, matrix) for part in PARTS))]
    tests = sum(int(each.labels.max()) + 1 for each in groups)
    findings: list[Finding] = []
    while True:
        scan = _Scan(cells, matrix, false_alarms / max(tests, 1), -log1p(-least))
        slow = [candidate for each in groups for candidate in scan.find(each)]
        if not slow or len(findings) == MOST_FINDINGS:
            return Diagnosis(tuple(_merge(findings)), scan.link_limit())
        best = max(slow, key=lambda candidate: candidate.gain)
        findings.append(_make_finding(matrix, measured, best))
        quality = cells.quality.copy()
        quality[best.cells] -= best.effect
        cells = cells._replace(quality=quality)


def _ends(part: Part, matrix: RankMatrix) -> NDArray[Any]:
    """For each rank the number of its host, its interface, or itself."""
    if part.kind == INTERFACE:
        return number(tuple(zip(matrix.hosts, matrix.interfaces, strict=True)))
    return number(matrix.hosts if part.is_of_hosts else tuple(range(matrix.ranks)))


def _group(part: Part, cells: Cells, matrix: RankMatrix) -> _Groups | None:
    """The parts of one kind, each with the values that use it; None where it says no more than the
    kinds before it."""
    import numpy

    is_used = {WITHIN: cells.is_within, ACROSS: ~cells.is_within}
    scopes = [scope for scope, values in is_used.items() if values.any()]
    is_needless = (
        (part.direction != BOTH and not matrix.quantity.has_direction)
        or (len({*matrix.hosts}) == matrix.ranks and not part.is_of_hosts)
        or (part.kind == INTERFACE and not matrix.interfaces)
    )
    fewest = 1 if part.kind == LINK else 2
    if is_needless or (len(scopes) < fewest if part.scope == ALL else part.scope not in scopes):
        return None
    index = numpy.flatnonzero(is_used.get(part.scope, cells.is_within | True))
    ends = _ends(part, matrix)
    senders, receivers = ends[cells.senders[index]], ends[cells.receivers[index]]
    if part.kind == LINK:
        if part.direction == BOTH:
            senders, receivers = numpy.sort([senders, receivers], axis=0)
        _, labels = numpy.unique(senders * matrix.ranks + receivers, return_inverse=True)
        return _Groups(part, index, labels)
    labels, others = (receivers, senders) if part.direction == IN else (senders, receivers)
    if part.direction == BOTH and part.scope == WITHIN and part.kind == HOST:
        others = numpy.arange(len(index))
    elif part.direction == BOTH:
        is_other = numpy.append(numpy.ones(len(index), bool), senders != receivers)
        index = numpy.append(index, index)[is_other]
        labels = numpy.append(senders, receivers)[is_other]
        others = numpy.append(receivers, senders)[is_other]
    # One that was measured with one other only cannot be told from that one or from their link.
    base = max(matrix.ranks, len(cells.senders)) + 1
    different = numpy.unique(labels * base + others) // base
    is_enough = numpy.bincount(different, minlength=matrix.ranks)[labels] > 1
    return _Groups(part, index[is_enough], labels[is_enough]) if is_enough.any() else None


class _Scan:
    """Compares parts with their peers, in a matrix without what earlier findings explain."""

    def __init__(self, cells: Cells, matrix: RankMatrix, probability: float, least: float) -> None:
        import numpy

        self._cells = cells
        self._hosts = len(set(matrix.hosts))
        self._z = NormalDist().inv_cdf(1 - probability)
        self._least = least
        self._classes = [c for c in (cells.is_within, ~cells.is_within) if c.any()]
        self._above = numpy.zeros(len(cells.quality))
        """Distance from the level of the peers if at least a quarter of the values are sound."""
        self._links = numpy.zeros(len(cells.quality))
        """What links are compared by: without the effects of ranks, where these can be told."""
        self._levels: list[float] = []
        self._scales: list[float] = []
        for of_class in self._classes:
            part = Cells(*(column[of_class] for column in cells))
            self._levels.append(float(numpy.median(part.quality)))
            self._scales.append(robust_scale((part.quality - self._levels[-1]) / part.errors))
            self._above[of_class] = part.quality - numpy.quantile(part.quality, 0.75)
            self._links[of_class] = part.quality - self._levels[-1]
            if len(part.quality) >= _PER_RANK * len(numpy.union1d(part.senders, part.receivers)):
                self._links[of_class] = median_polish(part, matrix.ranks)[2]

    def find(self, groups: _Groups) -> Iterator[_Candidate]:
        """The parts of one kind that are slower than the limit."""
        import numpy

        part, index, labels = groups
        values = self._values(part)[index]
        medians = group_medians(labels, values, int(labels.max()) + 1)
        gains = numpy.bincount(labels, numpy.abs(values) - numpy.abs(values - medians[labels]))
        gains[~(medians < -self._least)] = 0
        errors = self._cells.errors
        alike = group_medians(labels, values / errors[index], len(medians))
        order = numpy.argsort(labels, kind="stable")
        starts = numpy.searchsorted(labels[order], numpy.arange(len(gains) + 1))
        for label in numpy.argsort(-gains, kind="stable")[:_BEST]:
            if gains[label] <= 0:
                return
            others = numpy.delete(alike, label)
            others = others[~numpy.isnan(others)]
            cells = numpy.unique(index[order[starts[label] : starts[label + 1]]])
            spread = 0.0  # by which sound parts of a kind differ: their standard deviation
            if len(others) >= _ENOUGH:
                spread = robust_scale(others, with_tail=part.kind == LINK)
                spread *= float(numpy.median(errors[cells]))
            if candidate := self._compare(part, cells, spread):
                yield candidate

    def _values(self, part: Part) -> NDArray[Any]:
        """What the parts of a kind are compared by."""
        is_told = not part.is_of_hosts or self._hosts > _PER_RANK
        return self._links if part.kind == LINK and is_told else self._above

    def _compare(self, part: Part, inside: NDArray[Any], spread: float) -> _Candidate | None:
        """The part as a candidate if it is slower than its peers by more than the limit."""
        import numpy

        quality, errors = self._cells.quality, self._cells.errors
        deviations, variances, peers = [], [], 0
        for at, of_class in enumerate(self._classes):
            own = inside[of_class[inside]]
            count = int(of_class.sum()) - len(own)
            if not len(own) or not count:
                continue
            if count > _MANY:  # then all values say the same as those of the peers
                level, scale = self._levels[at], self._scales[at]
            else:
                is_peer = of_class.copy()
                is_peer[own] = False
                level = float(numpy.median(quality[is_peer]))
                own_scatter = (quality[own] - numpy.median(quality[own])) / errors[own]
                scatter = (quality[is_peer] - level) / errors[is_peer]
                scale = robust_scale(numpy.append(scatter, own_scatter))
            deviations.append(quality[own] - level)
            freedom = count + len(own) - 2
            if freedom < LEAST_FREEDOM:
                return None
            error = t_quantile(self._z, freedom) * scale / self._z
            of_own, of_peers = map(median_variance, (len(own), count))
            of_own *= float((errors[own] ** 2).mean())
            variances.append(len(own) * error**2 * (of_own + of_peers))
            peers += count
        if not deviations:
            return None
        joined = numpy.concatenate(deviations)
        effect = float(numpy.median(joined))
        error = sqrt(sum(variances) / len(joined))
        least = self._least * (_ALONE if len(inside) == 1 else 1)
        limit = max(least, self._z * max(error, spread))
        slowness = -effect
        if part.kind == LINK:
            slowness = min(slowness, -float(numpy.median(self._values(part)[inside])))
        gain = float((numpy.abs(joined) - numpy.abs(joined - effect)).sum())
        return _Candidate(part, inside, effect, gain, peers) if slowness > limit else None

    def link_limit(self) -> float | None:
        """The ratio below which a link between two ranks would be a finding in one direction."""
        limit = _ALONE * self._least
        for of_class in self._classes:
            values = self._links[of_class] / self._cells.errors[of_class]
            freedom = len(values) - 2
            if freedom < LEAST_FREEDOM:
                return None
            factor = t_quantile(self._z, freedom)
            limit = max(limit, factor * robust_scale(values, with_tail=True))
        return exp(-limit) if self._classes else None


def _make_finding(matrix: RankMatrix, cells: Cells, candidate: _Candidate) -> Finding:
    import numpy

    part, quantity, ends = candidate.part, matrix.quantity, _ends(candidate.part, matrix)
    both = [ends[of[candidate.cells]] for of in (cells.senders, cells.receivers)]
    first, second = (int(each[0]) for each in both)
    if part.kind == LINK and part.direction == BOTH:
        first, second = sorted((first, second))
    elif part.kind != LINK:
        if part.direction == BOTH:
            first = int(numpy.bincount(numpy.concatenate(both)).argmax())
        elif part.direction == IN:
            first = second
        second = -1
    sign = 1 if quantity.is_better_high else -1
    ratio = exp(candidate.effect)
    value = exp(sign * float(numpy.median(cells.quality[candidate.cells])))
    ranks, to_ranks = (tuple(numpy.flatnonzero(ends == n).tolist()) for n in (first, second))
    return Finding(
        part.kind, part.direction, part.scope, ranks, to_ranks, quantity, value,
        value * ratio**-sign, ratio, len(candidate.cells), candidate.peers,
    )  # fmt: skip


def _merge(findings: list[Finding]) -> list[Finding]:
    """The findings, with two about the directions or scopes of one part as one."""
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        part = (finding.kind, finding.ranks, finding.to_ranks)
        earlier = merged.setdefault(part, finding)
        if earlier is not finding:
            merged[part] = earlier._replace(
                direction=earlier.direction if finding.direction == earlier.direction else BOTH,
                scope=earlier.scope if finding.scope == earlier.scope else ALL,
                pairs=earlier.pairs + finding.pairs,
            )
    return [*merged.values()]


SUSPICION = 0.2
"""The probability that scatter alone gives a suspect in a sound matrix."""
_LINK_WORTH = 100
"""What a round is worth in which the ends of a suspected link meet; a suspected rank that meets a
sound one is worth 1."""


class Suspects(NamedTuple):
    """What may be slow."""

    findings: tuple[Finding, ...]
    ranks: frozenset[int]
    """Suspected ranks, and the ends of suspected links."""
    links: frozenset[frozenset[int]]
    """Pairs of ranks that use a suspected link."""


def find_suspects(matrix: RankMatrix) -> Suspects:
    """What may be slow in a matrix of few values: parts that are slower by limits less strict than
    those of find_slow."""
    findings = find_slow(matrix, SUSPICION, LEAST / 2).findings
    ranks = {rank for found in findings for rank in (*found.ranks, *found.to_ranks)}
    links = [found for found in findings if found.kind == LINK]
    pairs = (frozenset(pair) for link in links for pair in product(link.ranks, link.to_ranks))
    return Suspects(findings, frozenset(ranks), frozenset(pairs))


def choose_rounds(
    suspects: Suspects, peers: Mapping[str, Mapping[int, int]], most: int, seed: int
) -> list[str]:
    """The rounds that say most about the suspects, at most so many, the best first.

    `peers` has for each round the rank that each suspect meets in it; one that meets none is
    missing. Of rounds that say as much, `seed` decides.
    """
    worth = {}
    for name, met in peers.items():
        with_sound = sum(peer not in suspects.ranks for peer in met.values())
        links = {frozenset(pair) for pair in met.items()} & suspects.links
        worth[name] = with_sound + _LINK_WORTH * len(links)
    names = sorted(name for name, value in worth.items() if value)
    Random(seed).shuffle(names)
    return sorted(names, key=lambda name: -worth[name])[:most]

"""Finds the slow rank, host, interface or link of a matrix of pairs, or none.

Every part that could be slow (PARTS) predicts which pairs are slow. The part that explains most of
what is measured is compared with the other pairs, which are its peers. It is a finding if it is
slower by a limit that comes from the data: from the scatter of single pairs, from the differences
between parts of its kind, and from the number of parts that are compared. What a finding explains
is taken away before the next one is looked for, so one defect gives one finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log1p, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.rank_matrix import (
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
    """The slow parts of a matrix of all pairs, or of some of them.

    `false_alarms` is the probability that scatter alone gives a finding in a sound matrix. No part
    is named that is not slower than its peers by the share `least`.
    """
    candidates, link_limit = _search(matrix, false_alarms, least)
    cells = make_cells(matrix)
    findings = [_make_finding(matrix, cells, candidate) for candidate in candidates]
    return Diagnosis(tuple(_merge(findings)), link_limit)


def _search(
    matrix: RankMatrix, alpha: float, least: float
) -> tuple[list[_Candidate], float | None]:
    """The slow parts with the largest gain, one after the other; the limit of a single link."""
    cells = make_cells(matrix)
    groups = [found for part in PARTS for found in _group(part, cells, matrix)]
    tests = sum(int(each.labels.max()) + 1 for each in groups)
    found: list[_Candidate] = []
    while True:
        scan = _Scan(cells, matrix, alpha / max(tests, 1), -log1p(-least))
        slow = [candidate for each in groups for candidate in scan.find(each)]
        if not slow or len(found) == MOST_FINDINGS:
            return found, scan.link_limit()
        best = max(slow, key=lambda candidate: candidate.gain)
        found.append(best)
        quality = cells.quality.copy()
        quality[best.cells] -= best.effect
        cells = cells._replace(quality=quality)


def _ends(part: Part, matrix: RankMatrix) -> NDArray[Any]:
    """For each rank the number of its host, its interface, or itself."""
    if part.kind == INTERFACE:
        return number(tuple(zip(matrix.hosts, matrix.interfaces, strict=True)))
    return number(matrix.hosts if part.is_of_hosts else tuple(range(matrix.ranks)))


def _group(part: Part, cells: Cells, matrix: RankMatrix) -> Iterator[_Groups]:
    """The parts of one kind, each with the values that use it; nothing where it says no more than
    the kinds before it."""
    import numpy

    is_one_each = len(set(matrix.hosts)) == matrix.ranks
    scopes = [
        s for s, n in ((WITHIN, cells.is_within.sum()), (ACROSS, (~cells.is_within).sum())) if n
    ]
    if (
        (part.direction != BOTH and not matrix.quantity.has_direction)
        or (is_one_each and not part.is_of_hosts)
        or (part.kind == INTERFACE and not matrix.interfaces)
        or (part.scope not in scopes if part.scope != ALL else not scopes)
    ):
        return
    if part.scope == ALL and part.kind != LINK and len(scopes) < 2:
        return
    is_used = numpy.ones(len(cells.senders), bool)
    if part.scope != ALL:
        is_used = cells.is_within == (part.scope == WITHIN)
    index = numpy.flatnonzero(is_used)
    ends = _ends(part, matrix)
    senders, receivers = ends[cells.senders[index]], ends[cells.receivers[index]]
    if part.kind == LINK:
        if part.direction == BOTH:
            senders, receivers = numpy.sort([senders, receivers], axis=0)
        _, labels = numpy.unique(senders * matrix.ranks + receivers, return_inverse=True)
        yield _Groups(part, index, labels)
        return
    labels = receivers if part.direction == IN else senders
    others = senders if part.direction == IN else receivers
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
    if is_enough.any():
        yield _Groups(part, index[is_enough], labels[is_enough])


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
            spread = self._spread(others[~numpy.isnan(others)], part)
            cells = numpy.unique(index[order[starts[label] : starts[label + 1]]])
            spread *= float(numpy.median(errors[cells]))
            if candidate := self._compare(part, cells, spread):
                yield candidate

    def _values(self, part: Part) -> NDArray[Any]:
        """What the parts of a kind are compared by."""
        is_told = not part.is_of_hosts or self._hosts > _PER_RANK
        return self._links if part.kind == LINK and is_told else self._above

    def _spread(self, medians: NDArray[Any], part: Part) -> float:
        """The standard deviation by which sound parts of a kind differ."""
        if len(medians) < _ENOUGH:
            return 0.0
        return robust_scale(medians, with_tail=part.kind == LINK)

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
            own_error = float((errors[own] ** 2).mean())
            variances.append(
                len(own)
                * error**2
                * (own_error * median_variance(len(own)) + median_variance(count))
            )
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

    part, quantity = candidate.part, matrix.quantity
    ends = _ends(part, matrix)
    senders, receivers = (
        ends[cells.senders[candidate.cells]],
        ends[cells.receivers[candidate.cells]],
    )
    if part.kind == LINK:
        first, second = int(senders[0]), int(receivers[0])
        if part.direction == BOTH:
            first, second = sorted((first, second))
    elif part.direction == BOTH:
        counts = numpy.bincount(numpy.append(senders, receivers))
        first, second = int(counts.argmax()), -1
    else:
        first, second = int((receivers if part.direction == IN else senders)[0]), -1
    sign = 1 if quantity.is_better_high else -1
    ratio = exp(candidate.effect)
    value = exp(sign * float(numpy.median(cells.quality[candidate.cells])))
    return Finding(
        part.kind,
        part.direction,
        part.scope,
        tuple(numpy.flatnonzero(ends == first).tolist()),
        tuple(numpy.flatnonzero(ends == second).tolist()),
        quantity,
        value,
        value * ratio**-sign,
        ratio,
        len(candidate.cells),
        candidate.peers,
    )


def _merge(findings: list[Finding]) -> list[Finding]:
    """The findings, with two about the directions or scopes of one part as one."""
    merged: list[Finding] = []
    for finding in findings:
        for index, earlier in enumerate(merged):
            if (finding.kind, finding.ranks) == (earlier.kind, earlier.ranks) and (
                finding.to_ranks == earlier.to_ranks
            ):
                merged[index] = earlier._replace(
                    direction=earlier.direction if finding.direction == earlier.direction else BOTH,
                    scope=earlier.scope if finding.scope == earlier.scope else ALL,
                    pairs=earlier.pairs + finding.pairs,
                )
                break
        else:
            merged.append(finding)
    return merged

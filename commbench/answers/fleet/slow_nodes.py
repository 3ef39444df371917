"""Finds nodes that are slower than their peers, in a matrix of times: a row for each node, a column
for each case.

With y the log time of a node in a case, and s and MAD of the peers (their robust scale; that of few
nodes is moderated by all cases):

    z = (y - median of the peers) / s          b = median of the z of the node
    r = z - b, at most CLIP scales from 0      x = r + b

b is what all cases of a node have in common. Its variance among the peers, beside that of r, says
how much of it is to be taken away: with k = tau^2 C / (sigma^2 + C tau^2) and C cases,

    L(part) = mean of x over the part - k * mean of x over all cases

(generalized least squares with one common factor). Parts are all cases, each kind of case, sizes
from or below some limits, and the slower half of cases and of kinds.
A node whose interval is wider than usual has a larger s.

Each L is compared with that of the other nodes by Student's t. The model: the L of sound nodes have
tails as those of t with the degrees of TAIL at most, which allows for heavy tails; fewer nodes have
fewer degrees. Probabilities are multiplied by the number of nodes and of parts (Bonferroni). Nodes
that differ most are left out of the peers one by one, and the last of these steps that is
significant counts, so that several slow nodes do not hide each other: the generalized extreme
Studentized deviate test of Rosner, Technometrics 25 (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.stats.student import student_quantile, student_tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_NODES = 4
"""Fewer nodes are too few to judge."""
CLIP = 4.0
"""A single case counts as at most so many scales from what the cases of its node have in common."""
WHOLE, RANGE, ORDERED = "whole", "range", "ordered"
"""Kinds of parts: all cases, cases with something in common, the slower half of cases or kinds."""
TAIL = {WHOLE: 5, RANGE: 35, ORDERED: 11}
"""Degrees of freedom of the tails of sound nodes, at most. What all cases have in common is no mean
of many values, so its tails are the heaviest."""
_WHOLE_SHARE = 0.5
"""The share of the false alarms that all cases together may cause; the other parts share the
rest."""
_COMMON_CLIP, _OWN_CLIP = 2.5, 2.0
"""In a part, b counts as at most so many of its scales, or so many of those of r."""
_PRIOR_NODES = 8
"""The scale of all cases counts as that of so many nodes."""
_LEAST_SCALE = 1e-4
"""Of log times. Times that are all equal have none."""
_MAD = 1.4826
_MOST_LEFT_OUT = 1 / 3
"""The share of nodes that may be left out of the peers."""
_FAR = 4.0
"""Nodes are left out on trial as long as one is so many robust scales from the others."""
_MOST_KINDS = 32
_MOST_LIMITS = 7
"""Sizes from which on, and up to which, a part reaches."""


class Part(NamedTuple):
    """Cases that a node may be slow in."""

    kind: str
    cases: tuple[int, ...]
    """Their columns; of ORDERED parts all."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Of an ORDERED part, the columns of each of those whose slower half counts."""


class Scores(NamedTuple):
    """What a matrix says of its nodes."""

    chances: tuple[float, ...]
    """Of each node, the probability that any node of a sound fleet is as slow; at most 1."""
    parts: tuple[Part, ...]
    """The part in which it is the least likely to be sound."""
    peers: tuple[bool, ...]
    """Whether the others are compared with it."""
    levels: tuple[float, ...]
    """Of each case the log time of the peers."""
    scales: tuple[float, ...]
    """Of each case by how much the log times of peers differ: their robust scale."""
    errors: tuple[float, ...]
    """Of each case the standard error of the level."""
    visible: tuple[float, float]
    """The slowdown, as a ratio, from which on a node would be named: in all cases, and in half."""


def make_parts(kinds: Sequence[str], sizes: Sequence[int]) -> list[Part]:
    """The parts of cases with these kinds (what a case is without its size) and sizes."""
    every = tuple(range(len(kinds)))
    found = {every: Part(WHOLE, every)}
    by_kind: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(index)
    groups = tuple(map(tuple, by_kind.values())) if len(by_kind) <= _MOST_KINDS else ()
    different = sorted(set(sizes))
    step = (len(different) - 1) / min(_MOST_LIMITS, max(1, len(different) - 1))
    limits = {different[round(number * step)] for number in range(1, _MOST_LIMITS + 1)
              if number * step < len(different)}  # fmt: skip
    ranges = [
        tuple(index for index in every if (sizes[index] >= limit) == is_from)
        for limit in sorted(limits)
        for is_from in (True, False)
    ]
    for cases in (*groups, *ranges):
        if cases:
            found.setdefault(cases, Part(RANGE, cases))
    parts = [*found.values()]
    if len(groups) > 3:
        parts.append(Part(ORDERED, every, groups))
    if len(every) > 3:
        parts.append(Part(ORDERED, every, tuple((index,) for index in every)))
    return parts


def find_slow_nodes(
    times: NDArray[Any], errors: NDArray[Any], parts: Sequence[Part], false_alarms: float
) -> Scores:
    """The scores of at least LEAST_NODES nodes.

    `times` are the log times, nodes x cases, nan where there is none; `errors` their standard
    errors, nan where they are not known. `false_alarms` is the probability that any node of a sound
    fleet has a chance of at most `false_alarms`.
    """
    import numpy

    nodes = len(times)
    peers = numpy.ones(nodes, bool)
    while True:  # a second time only where nodes are left out
        values, weight = _part_values(times, errors, parts, peers)
        deviations, freedom = _studentize(values, peers)
        if not (slow := _left_out(values, parts, peers, false_alarms)):
            break
        peers[slow] = False
    chances, found = [], []
    for own in deviations:
        tails = [
            1.0 if numpy.isnan(value) else _tail(float(value), freedom, part, len(parts))
            for value, part in zip(own, parts, strict=True)
        ]
        chances.append(min(1.0, min(tails) * nodes))
        found.append(parts[tails.index(min(tails))])
    levels, scales = _levels(times, peers)
    number = numpy.maximum(1, (~numpy.isnan(times[peers])).sum(axis=0))
    return Scores(
        tuple(chances), tuple(found), tuple(peers.tolist()), tuple(levels.tolist()),
        tuple(scales.tolist()),
        tuple((1.2533 * scales / numpy.sqrt(number)).tolist()),
        _visible(values[peers], scales, parts, false_alarms / nodes, freedom, weight),
    )  # fmt: skip


def _left_out(
    values: NDArray[Any], parts: Sequence[Part], peers: NDArray[Any], false_alarms: float
) -> list[int]:
    """The peers that differ from the others, faster ones too."""
    import numpy

    peers, found, significant = peers.copy(), [], 0
    nodes = int(peers.sum())
    centred = numpy.abs(values - _median(values[peers]))
    far = centred > _FAR * numpy.maximum(_MAD * _median(centred[peers]), 1e-9)
    most = min(int(_MOST_LEFT_OUT * len(peers)) - (len(peers) - nodes), nodes - LEAST_NODES + 1)
    for number in range(1, most + 1):
        deviations, freedom = _studentize(values, peers)
        inside = numpy.where(peers[:, None], numpy.abs(deviations), 0.0)
        largest = numpy.nan_to_num(inside).max(axis=0)
        chances = [
            _tail(float(value), freedom, part, len(parts)) * (nodes - number + 1)
            for value, part in zip(largest, parts, strict=True)
        ]
        at = int(numpy.argmin(chances))
        if chances[at] <= false_alarms:
            significant = number
        elif not (far & peers[:, None]).any():
            break
        found.append(int(inside[:, at].argmax()))
        peers[found[-1]] = False
    return found[:significant]


def _tail(value: float, freedom: int, part: Part, parts: int) -> float:
    """The probability of one sided t, over the share of the false alarms that a part has."""
    return student_tail(value, min(freedom, TAIL[part.kind])) / _share(part, parts)


def _share(part: Part, parts: int) -> float:
    if parts == 1:
        return 1.0
    return _WHOLE_SHARE if part.kind == WHOLE else (1 - _WHOLE_SHARE) / (parts - 1)


def _median(values: NDArray[Any]) -> NDArray[Any]:
    import numpy

    find = numpy.nanmedian if numpy.isnan(values).any() else numpy.median  # much faster
    found: NDArray[Any] = find(values, axis=0)
    return found


def _scale(values: NDArray[Any]) -> NDArray[Any]:
    """The robust scale of each column around its median, moderated by that of all."""
    import numpy

    number = len(values)
    own = _MAD * _median(numpy.abs(values - _median(values)))
    usual = float(numpy.median(own**2))
    found: NDArray[Any] = numpy.sqrt(
        (number * own**2 + _PRIOR_NODES * usual) / (number + _PRIOR_NODES)
    )
    return found


def _levels(times: NDArray[Any], peers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The level and the scale of the peers in each case."""
    import numpy

    return _median(times[peers]), numpy.maximum(_scale(times[peers]), _LEAST_SCALE)


def _part_values(
    times: NDArray[Any], errors: NDArray[Any], parts: Sequence[Part], peers: NDArray[Any]
) -> tuple[NDArray[Any], float]:
    """L of each node and part, nan where a node has no case of a part; and k."""
    import numpy

    levels, scales = _levels(times, peers)
    errors = numpy.nan_to_num(errors)
    excess = numpy.maximum(0.0, errors**2 - numpy.median(errors[peers], axis=0) ** 2)
    z = (times - levels) / numpy.sqrt(scales**2 + excess)
    common = _median(z.T)[:, None]
    own = z - common
    limits = numpy.maximum(_scale(own[peers]), 1e-9)
    own = numpy.clip(own, -CLIP * limits, CLIP * limits)
    cases = times.shape[1]
    variance = float((limits**2).mean()) * cases / max(cases - 1.5, 0.5)
    mean = common[:, 0] + numpy.nanmean(own, axis=1)
    spread = float(_scale(mean[peers, None])[0])
    shared = max(0.0, spread**2 - variance / cases)
    weight = shared * cases / (variance + cases * shared) if shared else 0.0
    limit = max(_COMMON_CLIP * float(_scale(common[peers])[0]), _OWN_CLIP * sqrt(variance))
    x = own + numpy.clip(common, -limit, limit)
    base = weight * numpy.nanmean(x, axis=1)
    return numpy.column_stack(
        [mean if p.kind == WHOLE else _mean_of(x, p) - base for p in parts]
    ), weight


def _mean_of(x: NDArray[Any], part: Part) -> NDArray[Any]:
    """The mean of the cases of a part, or of the slower half of its groups."""
    import warnings

    import numpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is nan
        if part.kind == RANGE:
            found: NDArray[Any] = numpy.nanmean(x[:, list(part.cases)], axis=1)
            return found
        means = numpy.column_stack([numpy.nanmean(x[:, list(g)], axis=1) for g in part.groups])
        ordered = -numpy.sort(-means, axis=1)  # nan comes last
        slower: NDArray[Any] = numpy.nanmean(ordered[:, : len(part.groups) // 2], axis=1)
    return slower


def _studentize(values: NDArray[Any], peers: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """How far each value is from those of the other peers, as a t; and the degrees of freedom."""
    import numpy

    known = peers[:, None] & ~numpy.isnan(values)
    filled = numpy.where(known, values - _median(values[peers]), 0.0)
    centred = values - _median(values[peers])
    number = known.sum(axis=0) - known
    total = filled.sum(axis=0) - filled
    squares = (filled**2).sum(axis=0) - filled**2
    mean = total / numpy.maximum(number, 1)
    variance = (squares - number * mean**2) / numpy.maximum(number - 1, 1)
    deviation = numpy.sqrt(numpy.maximum(variance, 1e-18) * (1 + 1 / numpy.maximum(number, 1)))
    return numpy.where(number > 1, (centred - mean) / deviation, numpy.nan), int(peers.sum()) - 2


def _visible(
    values: NDArray[Any],
    scales: NDArray[Any],
    parts: Sequence[Part],
    chance: float,
    freedom: int,
    weight: float,
) -> tuple[float, float]:
    """The ratios from which on a node would be named that is slower in all cases, and in half."""
    import numpy

    usual, cases = float(numpy.median(scales)), len(scales)
    halves = [n for n, p in enumerate(parts) if p.kind == RANGE and len(p.cases) * 2 >= cases]
    chosen = [0, min(halves, key=lambda n: len(parts[n].cases), default=0)]
    ratios = []
    for at in chosen:
        share = chance * _share(parts[at], len(parts))
        limit = student_quantile(share, min(freedom, TAIL[parts[at].kind]))
        limit *= usual * float(numpy.nanstd(values[:, at], ddof=1))
        gain = 1 - weight * len(parts[at].cases) / cases if at else 1.0
        ratios.append(exp(min(100.0, limit / max(gain, 0.01))))
    return ratios[0], ratios[1]

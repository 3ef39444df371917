"""Finds nodes that are slower than their peers, in a matrix of times: a row for each node, a column
for each case.

With y the log time of a node in a case, and s and MAD of the peers (their robust scale; that of few
nodes is moderated by all cases):

    d = y - median of the peers                 c = median of the d of the node
    r = (d - c) / s, at most CLIP scales from 0
    b = c / median of s                         x = r + b

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
from math import expm1, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

from commbench import stats
from commbench.stats import Array, np

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
_MOST_LOG = 7.0
"""A node that is slower by more is not asked about: 1,100 times."""
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

    chances: Sequence[float]
    """Of each node, the probability that any node of a sound fleet is as slow; at most 1."""
    parts: Sequence[Part]
    """The part in which it is the least likely to be sound."""
    levels: Sequence[float]
    """Of each case the log time of the peers."""
    scales: Sequence[float]
    """Of each case by how much the log times of peers differ: their robust scale."""
    errors: Sequence[float]
    """Of each case the standard error of the level."""
    least: float
    """A node that takes so much longer in all cases, 0.03 for 3 %, has a chance of at most
    `false_alarms` in 95 % of fleets like this one."""


def make_parts(kinds: Sequence[str], sizes: Sequence[int]) -> list[Part]:
    """The parts of cases with these kinds (what a case is without its size) and sizes."""
    every = tuple(range(len(kinds)))
    found = {every: Part(WHOLE, every)}
    by_kind = stats.collect(zip(kinds, every, strict=True))
    groups = tuple(map(tuple, by_kind.values())) if len(by_kind) <= _MOST_KINDS else ()
    ranges = [
        tuple(index for index in every if (sizes[index] >= limit) == is_from)
        for limit in stats.spread_evenly(sorted(set(sizes)), _MOST_LIMITS + 1)[1:]
        for is_from in (True, False)
    ]
    for cases in filter(None, (*groups, *ranges)):
        found.setdefault(cases, Part(RANGE, cases))
    parts = [*found.values()]
    if len(groups) > 3:
        parts.append(Part(ORDERED, every, groups))
    if len(every) > 3:
        parts.append(Part(ORDERED, every, tuple((index,) for index in every)))
    return parts


def find_slow_nodes(
    times: Array, errors: Array, parts: Sequence[Part], false_alarms: float
) -> Scores:
    """The scores of at least LEAST_NODES nodes.

    `times` are the log times, nodes x cases, nan where there is none; `errors` their standard
    errors, nan where they are not known. `false_alarms` is the probability that any node of a sound
    fleet has a chance of at most `false_alarms`.
    """
    peers = np.ones(len(times), bool)
    while True:  # a second time only where nodes are left out
        values = _part_values(times, errors, parts, peers)
        if not (different := _left_out(values, parts, peers, false_alarms)):
            break
        peers[different] = False
    levels = _median(times[peers])
    deviation = np.nan_to_num(times - levels)
    means = np.column_stack([_mean_of(deviation, part) for part in parts])
    is_slower = 2 * means > -deviation.mean(axis=1, keepdims=True)  # not: faster elsewhere
    chances, found = [], []
    for deviations in np.where(is_slower, _studentize(values, peers), 0.0):
        tails = _tails(deviations, parts, peers)
        chances.append(min(1.0, min(tails) * len(times)))
        found.append(parts[tails.index(min(tails))])
    scales = _scale(times[peers])
    number = (~np.isnan(times[peers])).sum(axis=0).clip(1)
    level_errors = stats.MEDIAN_TO_MEAN * scales / number**0.5
    least = _least_slowdown(values[peers, 0], parts, len(times), false_alarms)
    least = expm1(min(least * float(np.median(scales)), _MOST_LOG))
    return Scores(chances, found, levels.tolist(), scales.tolist(), level_errors.tolist(), least)


def _least_slowdown(inside: Array, parts: Sequence[Part], nodes: int, false_alarms: float) -> float:
    """By how much L of all cases must be above that of the peers, `inside`: so far that its t has
    the probability of false alarms, and further by what 95 % of nodes may be below the mean. That
    node is none of its peers."""
    share = _WHOLE_SHARE if len(parts) > 1 else 1.0
    z = NormalDist().inv_cdf(1 - false_alarms * share / nodes)
    if (peers := len(inside) - 1) < LEAST_NODES - 1:
        return inf
    most = stats.student_quantile(z, min(peers - 2, TAIL[WHOLE]))
    others = [np.std(np.delete(inside, at), ddof=1) for at in range(len(inside))]
    deviation = max(*map(float, others), _LEAST_SCALE)
    return deviation * (most * sqrt(1 + 1 / peers) + NormalDist().inv_cdf(0.95))


def _left_out(values: Array, parts: Sequence[Part], peers: Array, false_alarms: float) -> list[int]:
    """The peers that differ from the others, faster ones too."""
    found: list[int] = []
    peers, significant, nodes = peers.copy(), 0, int(peers.sum())
    far = abs(values - _median(values[peers])) > _FAR * _scale(values[peers], prior=0)
    most = min(int(_MOST_LEFT_OUT * len(peers)) - (len(peers) - nodes), nodes - LEAST_NODES + 1)
    for left in range(nodes, nodes - most, -1):
        inside = peers[:, None] * abs(_studentize(values, peers))
        tails = _tails(inside.max(axis=0), parts, peers)
        at = tails.index(min(tails))
        is_significant = tails[at] * left <= false_alarms
        if not (is_significant or (far & peers[:, None]).any()):
            break
        found.append(int(inside[:, at].argmax()))
        peers[found[-1]] = False
        significant = len(found) if is_significant else significant
    return found[:significant]


def _tails(deviations: Array, parts: Sequence[Part], peers: Array) -> list[float]:
    """For each part the probability that t is above a deviation, over the share of the false alarms
    that the part has."""
    freedom = int(peers.sum()) - 2
    own = 1 - _WHOLE_SHARE if len(parts) > 1 else 0.0
    return [
        stats.student_tail(float(value), min(freedom, TAIL[part.kind]))
        / (1 - own if part.kind == WHOLE else own / (len(parts) - 1))
        for value, part in zip(deviations, parts, strict=True)
    ]


def _median(values: Array) -> Array:
    find = np.nanmedian if np.isnan(values).any() else np.median  # much faster
    return np.asarray(find(values, axis=0))


def _scale(values: Array, prior: int = _PRIOR_NODES) -> Array:
    """The robust scale of each column around its median, moderated by that of all columns, which
    counts as that of `prior` nodes."""
    squares = (stats.MAD_TO_SD * _median(abs(values - _median(values)))) ** 2
    moderated = (len(values) * squares + prior * _median(squares)) / (len(values) + prior)
    return np.asarray((moderated**0.5).clip(_LEAST_SCALE))


def _part_values(times: Array, errors: Array, parts: Sequence[Part], peers: Array) -> Array:
    """L of each node and part. A case that a node lacks counts as what its cases have in common."""
    errors = np.nan_to_num(errors)
    excess = (errors**2 - _median(errors[peers]) ** 2).clip(0.0)
    scales = (_scale(times[peers]) ** 2 + excess) ** 0.5
    shift = times - _median(times[peers])
    common = _median(shift.T)[:, None]
    own = np.nan_to_num((shift - common) / scales)
    common = common / _median(scales.T)[:, None]
    limits = CLIP * _scale(own[peers])
    own = own.clip(-limits, limits)
    cases = times.shape[1]
    variance = float((limits**2).mean()) / CLIP**2 * cases / max(cases - 1.5, 0.5)
    mean = common + own.mean(axis=1, keepdims=True)
    shared = max(0.0, float(_scale(mean[peers])[0]) ** 2 - variance / cases)
    limit = max(_COMMON_CLIP * float(_scale(common[peers])[0]), _OWN_CLIP * sqrt(variance))
    x = own + common.clip(-limit, limit)
    base = shared * cases / (variance + cases * shared) * x.mean(axis=1)
    return np.column_stack(
        [mean[:, 0] if part.kind == WHOLE else _mean_of(x, part) - base for part in parts]
    )


def _mean_of(x: Array, part: Part) -> Array:
    """The mean of the cases of a part, or of the slower half of its groups."""
    groups = part.groups or (part.cases,)
    means = np.column_stack([x[:, list(group)].mean(axis=1) for group in groups])
    slower = np.sort(means, axis=1)[:, len(groups) - max(1, len(groups) // 2) :]
    return np.asarray(slower.mean(axis=1))


def _studentize(values: Array, peers: Array) -> Array:
    """How far each value is from those of the other peers, as a t."""
    centred = values - _median(values[peers])
    inside = peers[:, None] * centred
    number = int(peers.sum()) - peers[:, None]
    mean = (inside.sum(axis=0) - inside) / number
    squares = (inside**2).sum(axis=0) - inside**2
    variance = ((squares - number * mean**2) / (number - 1)).clip(_LEAST_SCALE**2)
    return np.asarray((centred - mean) / (variance * (1 + 1 / number)) ** 0.5)

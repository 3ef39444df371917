"""How far the time of a call may lie from the fitted one, with a probability of 95 %.

The errors of log(time) have three parts that are normal and independent: one of each time, one that
all times of a number of ranks share (a launch, a placement), and one that all times of a size share
(cost.fit). The error of the first part follows from what the fit leaves over. How large the
second is beside it, is not known either: each of RATIOS counts by its likelihood (REML). The
variance of a prediction is that of a mixed model (Henderson 1975): of the parameters, of the
factor of its size, and of the errors of a new time on a new number of ranks.

Measured errors correct it: fits that leave out whole numbers of ranks say how many times as large
their errors are (Candidate.error_scale), fits that leave out the largest and the smallest sizes how
much the error grows with each doubling. The interval includes those of all candidates, that is of
every model that the data cannot tell from the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby
from math import exp, hypot, log, log2
from statistics import mean, median, stdev
from typing import NamedTuple

from commbench.analysis.statistics import Z
from commbench.answers.cost import cost_models, fit, machine
from commbench.stats import Array, Estimate, collect, np, student_quantile
from commbench.units import format_count

RATIOS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""The variance that a number of ranks has for itself, over that of one time."""
LARGEST_ERROR = 20.0
"""Of log(time): so that every interval is finite."""
UNTESTED_ERROR = log(2) / Z
"""The standard deviation of log(time) of a fit that nothing tests: the interval reaches from half
to twice the time."""
SMALLEST_VARIANCE = 1e-8
UNKNOWN_WIDTH = 1.0
"""A value whose logarithm has an interval of so much to each side may be 0 as well."""
_WINSORIZED_AT = 3.0
"""Standard deviations above which an error counts as one of so many."""
_NEARLY_FREE = 1e-6
FEWEST_ODD = 3
"""Neighbouring sizes beyond the interval, or times of a number of ranks, that are no chance."""
LEAST_ODD = 0.1
"""Of log(measured/fitted): less is no other algorithm."""


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors of a candidate whose curve was fitted to points."""

    candidate: machine.Candidate
    points: Sequence[machine.Point]
    sizes: Array
    """The doublings of the measured sizes; empty where they have no factors."""
    covariance: Array
    """Of the parameters above 0, of the numbers of ranks and of the sizes."""
    of_new: float
    """The variance of a new time with a new number of ranks around the fit."""
    ranks: tuple[int, ...]
    """The measured numbers of ranks."""
    measured: tuple[int, int]
    """The smallest and the largest measured size."""
    shift: float
    """How far the times of a number of ranks lie on one side of the fit: find_shifts."""
    evidence: float
    """The logarithm of the likelihood, up to a constant that all models of the points share."""

    def variance(self, point: tuple[int, int, float]) -> float:
        """Of log(measured/predicted) at (ranks, ranks per node, size)."""
        curve = self.candidate.curve
        own = np.array(curve.parts(*point))
        shares = own[np.array(curve.parameters) > 0] / max(own.sum(), 1e-300)
        at = log2(max(point[2], 1))
        row = np.zeros(len(self.covariance))
        row[: len(shares)] = shares
        if count := len(self.sizes):
            place = min(max(1, int(np.searchsorted(self.sizes, at))), count - 1)
            low, high = self.sizes[place - 1 : place + 1]
            part = min(1.0, max(0.0, (at - low) / (high - low)))
            row[len(row) - count + place - 1 : len(row) - count + place + 1] = 1 - part, part
        return float(row @ self.covariance @ row) + self.of_new

    def width(self, *powers: float) -> float:
        """The 95 % interval of the logarithm of a product of the parameters' powers, half of it; of
        those that are 0, nothing is known."""
        pairs = zip(powers, self.candidate.curve.parameters, strict=True)
        row = np.array([power for power, value in pairs if value])
        some = slice(len(row))
        deviation = float((row @ self.covariance[some, some] @ row) ** 0.5)
        return Z * self.candidate.error_scale * deviation

    def at(self, point: tuple[int, int, float]) -> float:
        """The standard deviation of log(measured/predicted) at (ranks, ranks per node, size)."""
        beyond = max(
            self.candidate.size_growth * fit.doublings_beyond(point[2], self.measured),
            fit.error_above(point[2], self.measured[1]),
        )
        found = hypot(self.variance(point) ** 0.5 * self.candidate.error_scale, beyond)
        least = UNTESTED_ERROR if self.candidate.cv_error is None else 0.0
        if point[0] not in self.ranks:
            least = max(least, self.shift * (1 + fit.doublings_beyond(point[0], self.ranks)))
        return min(max(found, least), LARGEST_ERROR)

    @cached_property
    def unseen(self) -> dict[int, tuple[float, float]]:
        """Of the parameters that are 0 in the fit, by their place in PARAMETERS: how large each may
        be, so that what it adds is within the error of every time; and the largest number that it
        was multiplied by in the measured times."""
        curve, found = self.candidate.curve, {}
        terms = zip(*(curve.model.terms(*point[:3]) for point in self.points), strict=True)
        for index, (value, own) in enumerate(zip(curve.parameters, terms, strict=True)):
            if not value:
                limits = [
                    point.time_s * Z * self.at(point[:3]) / term
                    for point, term in zip(self.points, own, strict=True)
                    if term
                ]
                found[index] = min(limits, default=0.0), max(own)
        return found

    def unseen_time(self, point: tuple[int, int, int]) -> float:
        """The most that the parameters of 0 may add, in seconds, beyond the measured sizes and
        ranks."""
        terms = self.candidate.curve.model.terms(*point)
        return sum(most * max(0.0, terms[n] - term) for n, (most, term) in self.unseen.items())


def errors_of(candidate: machine.Candidate, points: Sequence[machine.Point]) -> Errors:
    """The errors of a candidate by the points that its curve was fitted to."""
    curve = candidate.curve
    parameters = np.array(curve.parameters)
    terms = fit.model_terms(curve.model, points) * parameters
    shares = terms[:, parameters > 0] / np.maximum(terms.sum(axis=1), 1e-300)[:, None]
    ranks = sorted({point.world_size for point in points})
    sizes = np.array([size for size, _ in curve.size_factors])
    own_rank = np.array([[point.world_size == n for n in ranks] for point in points])
    own_size = np.array([[point.size_bytes == size for size in sizes] for point in points])
    design = np.hstack([shares, own_rank, own_size])
    left = fit.curve_errors(curve, points)
    limit = _WINSORIZED_AT * fit.deviation(left)
    effects = own_size @ np.log([factor for _, factor in curve.size_factors])
    errors = np.clip(left, -limit, limit) + effects
    stiffness = np.linalg.inv(fit.likeness(sizes) + _NEARLY_FREE * np.eye(len(sizes)))
    solve = partial(_solve, design, errors, shares.shape[1], len(ranks), stiffness)
    known = [point.uncertainty for point in points]
    if len(ranks) > 1:
        tried = [solve(known, ratio) for ratio in RATIOS]
    else:
        # Scatter does not show what all times of one number of ranks share: their intervals do.
        scatter = solve([0.0], 0.0)[2]
        tried = [solve(known, fit.split_variances(known, scatter)[0] / scatter)]
    most = max(evidence for evidence, *_ in tried)
    weights = np.exp([evidence - most for evidence, *_ in tried])
    shared = weights / weights.sum()
    covariance = sum(w * found for w, (_, found, *_) in zip(shared, tried, strict=True))
    of_new = sum(w * new for w, (*_, new) in zip(shared, tried, strict=True))
    doublings = np.log2(np.maximum(sizes, 1))
    evidence = most + log(float(weights.mean()))
    shift = max(map(abs, find_shifts(left, points).values()), default=0.0)
    ends = min(point.size_bytes for point in points), max(point.size_bytes for point in points)
    return Errors(
        candidate, points, doublings, covariance, float(of_new), tuple(ranks), ends, shift, evidence
    )


def find_shifts(errors: Array, points: Sequence[machine.Point]) -> dict[int, float]:
    """The mean errors of numbers of ranks that lie on one side of the fit by more than chance
    (95 %, Student's t) and LEAST_ODD; none where all of them lie on the same side."""
    found, groups = {}, (point.world_size for point in points)
    for ranks, own in collect(zip(groups, errors.tolist(), strict=True)).items():
        if len(own) >= FEWEST_ODD:
            chance = student_quantile(Z, len(own) - 1) * stdev(own) / len(own) ** 0.5
            if abs(mean(own)) > max(LEAST_ODD, chance):
                found[ranks] = mean(own)
    return found if found and min(found.values()) < 0 < max(found.values()) else {}


def _solve(
    design: Array, errors: Array, count: int, ranks: int, stiffness: Array,
    known: Sequence[float], ratio: float,
) -> tuple[float, Array, float]:  # fmt: skip
    """Where numbers of ranks have `ratio` times the variance of one time: the restricted
    likelihood, the covariance of the effects, and the variance of a new time with new ranks. The
    first `count` columns of `design` are those of parameters, the next those of numbers of ranks.

    The variance of a time is that of the scatter; but with what its ranks share, at least the usual
    one of the times themselves (`known`), and more where that of one time is larger."""
    penalty = _NEARLY_FREE * np.eye(design.shape[1])
    penalty[count : count + ranks, count : count + ranks] = np.eye(ranks) / max(ratio, _NEARLY_FREE)
    penalty[count + ranks :, count + ranks :] = stiffness
    matrix, right = design.T @ design + penalty, design.T @ errors
    left = float(errors @ errors - right @ np.linalg.solve(matrix, right))
    freedom = max(1, len(errors) - count)
    variances = np.square(np.array(known))
    usual = float(np.median(variances)) / (1 + ratio)
    variance = max(left / freedom, usual, SMALLEST_VARIANCE)
    evidence = (
        np.linalg.slogdet(penalty[count:, count:])[1]
        - np.linalg.slogdet(matrix)[1]
        - freedom * log(variance)
        - left / variance
    ) / 2
    inverse = np.linalg.inv(matrix)
    response = inverse @ design.T
    more = np.maximum(variances - variance * (1 + ratio), 0.0)
    covariance = variance * inverse + (response * more) @ response.T
    return float(evidence), covariance, variance * (1 + ratio)


@lru_cache(maxsize=64)
def candidate_errors(fitted: machine.FittedModel) -> tuple[Errors, ...]:
    """The errors of each candidate."""
    return tuple(errors_of(each, fitted.fitted_points) for each in fitted.candidates)


def odd_sizes(fitted: machine.FittedModel) -> Iterator[tuple[int, int, int, bool]]:
    """Where a number of ranks does not follow the model, which the others do: its neighbouring
    sizes beyond the interval on one side. The ranks, the first and the last such size, and whether
    the measured times are shorter."""
    best, *_ = candidate_errors(fitted)
    for ranks in fitted.world_sizes:
        points = [point for point in fitted.fitted_points if point.world_size == ranks]
        left = zip(points, fit.curve_errors(fitted.best.curve, points), strict=True)
        used = collect((p.size_bytes, e / max(Z * best.at(p[:3]), LEAST_ODD)) for p, e in left)
        beyond = {size: int(max(-1, min(1, median(used[size])))) for size in sorted(used)}
        for side, group in groupby(beyond, beyond.__getitem__):
            sizes = [*group]
            if side and len(sizes) >= FEWEST_ODD:
                yield ranks, sizes[0], sizes[-1], side < 0


HALF = cost_models.Parameter("n-half", "B", "size whose bytes take as long as its latency")


class ParameterEstimate(NamedTuple):
    """A parameter of a fitted model, or its n-half with the most ranks, in its unit."""

    parameter: cost_models.Parameter
    """One of PARAMETERS, or HALF with the number of ranks in its name."""
    value: float | None
    """None where the measurements do not decide between models with other parameters."""
    low: float
    high: float
    """The 95 % interval, with those of all candidates."""


def estimate_parameters(fitted: machine.FittedModel) -> Iterator[ParameterEstimate]:
    """The parameters of which the measured times say something, and n-half."""
    largest, curve = fitted.fitted_points[-1], fitted.best.curve
    of_model = zip(
        cost_models.PARAMETERS, curve.parameters, parameter_intervals(fitted),
        curve.model.terms(*largest[:3]), strict=True,
    )  # fmt: skip
    for parameter, value, (low, high), term in of_model:
        is_unknown = parameter == cost_models.BETA and len(fitted.sizes) == 1
        if not is_unknown and (term or high):
            is_known = fitted.is_decided or low == high
            yield ParameterEstimate(parameter, value if is_known else None, low, high)
    if half := find_figure(fitted, *largest[:2], 1, -1):
        own = HALF._replace(name=f"n-half with {format_count(largest.world_size, 'rank')}")
        yield ParameterEstimate(own, half.value if fitted.is_decided else None, *half.ends)


def parameter_intervals(fitted: machine.FittedModel) -> list[tuple[float, float]]:
    """The 95 % interval of each parameter, with those of all candidates."""
    found: list[list[float]] = [[] for _ in cost_models.PARAMETERS]
    for errors in candidate_errors(fitted):
        for index, value in enumerate(errors.candidate.curve.parameters):
            powers = [float(each == index) for each in range(len(cost_models.PARAMETERS))]
            ends = _ends(value, errors.width(*powers)) if value else (0.0, errors.unseen[index][0])
            found[index] += ends
    return [(min(ends), max(ends)) for ends in found]


def _ends(value: float, width: float) -> tuple[float, float]:
    """The interval of a value from that of its logarithm; from 0 where the error is as large as the
    value, and then not symmetric in the logarithm: the times are sums of the parameters."""
    is_known = width < UNKNOWN_WIDTH
    return value * exp(-width) if is_known else 0.0, value * max(1 + width, exp(min(width, 1)))


def find_figure(
    fitted: machine.FittedModel, world_size: int, ranks_per_node: int, of_latency: int, of_byte: int
) -> Estimate | None:
    """The product of powers of the latency (fixed and alpha) and of the time of a byte, in seconds,
    with the intervals of all candidates: (1, 0) is the latency, (1, -1) n-half. Candidates do not
    count whose latency is 0; None where all do, or where the time of a byte may be 0."""
    found: list[Estimate] = []
    for errors in candidate_errors(fitted):
        curve = errors.candidate.curve._replace(size_factors=())
        fixed, steps, byte = curve.parts(world_size, ranks_per_node, 1)
        if of_byte and (not byte or errors.width(0, 0, 1) >= UNKNOWN_WIDTH):
            return None
        latency = fixed + steps
        if latency or not of_latency:
            share = of_latency / latency if latency else 0.0
            width = errors.width(share * fixed, share * steps, of_byte)
            value = latency**of_latency * byte**of_byte
            found.append(Estimate(value, *_ends(value, width)))
    ends = [end for each in found for end in each.ends]
    return Estimate(found[0].value, min(ends), max(ends)) if found else None

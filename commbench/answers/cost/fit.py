"""Fits one cost model to measured times; and the sizes of one run, quickly.

A fit minimises a sum over the times of a function of log(measured/fitted), which is nearly the
relative residual: Huber's (1964), then Tukey's biweight, which gives no weight to outliers. It is
found by iteratively reweighted least squares. Parameters that are not negative are found exactly,
by trying every set of parameters that are above 0.

A library may be slower or faster than its model at some sizes, with any number of ranks: each size
has a factor, found from what the model leaves over at this size and at its neighbours.

The sizes of one run follow Hockney's model, T = fixed + S beta, in up to three ranges of sizes,
because libraries switch protocols. A range is added only where it lowers the error clearly. That is
quick, and not tested on points that the fit was made without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from math import exp, log2, sqrt
from typing import NamedTuple

from commbench.analysis.statistics import Z
from commbench.answers.cost.cost_models import CostModel
from commbench.answers.cost.machine import Curve, Point, uncertainty
from commbench.stats import MAD_TO_SD, Array, Estimate, np, student_quantile

ROUNDS = 3
"""How often the parameters and the factors of sizes are fitted in turn."""
FEWEST_SIZES = 6
"""Sizes from which on they have factors."""
SMOOTHNESS = 2.0
"""Doublings of the size over which factors are alike: their correlation is exp(-doublings/this)."""
WORST_LOG_ERROR = 3.0
"""Errors above count as this one (a factor of 20), so that no single one decides."""
STEPS = 8
"""Of least squares with the weights of Huber, then with those of Tukey."""
CLOSE = 1e-4
"""The steps end where no parameter changes by more than this part of the largest one."""
HUBER, TUKEY = 1.345, 4.685
"""Residuals over their scale, above which they count less or not at all: 95 % of the efficiency of
least squares for normal errors (Huber, Ronchetti: Robust Statistics, 2009)."""
SMALLEST_SCALE = 0.005
"""Residuals of half a percent are never outliers."""
SHORTEST_S = 1e-12


def fit_curve(model: CostModel, points: Sequence[Point]) -> Curve:
    """The model with the parameters and the factors of sizes that fit these points."""
    times_s = np.array([point.time_s for point in points])
    distinct, at = np.unique(np.array([point.size_bytes for point in points]), return_inverse=True)
    terms = model_terms(model, points)
    logs = np.zeros(len(distinct))
    has_factors = len(distinct) >= FEWEST_SIZES
    for _ in range(ROUNDS if has_factors else 1):
        parameters = fit_parameters(terms, times_s / np.exp(logs[at]))
        if has_factors:
            logs = size_effects(distinct, at, log_errors(times_s, terms @ parameters))
    factors = zip(distinct.tolist(), np.exp(logs).tolist(), strict=True) if has_factors else ()
    return Curve(model, tuple(parameters.tolist()), tuple(factors))


def model_terms(model: CostModel, points: Sequence[Point]) -> Array:
    """(points, parameters): what each parameter is multiplied by. Of one size, terms that grow with
    the size are 0: nothing tells them from the others."""
    found = np.array([model.terms(*point[:3]) for point in points])
    if len({point.size_bytes for point in points}) == 1:
        found[:, 2] = 0.0
    return found


def log_errors(times_s: Array, fitted_s: Array) -> Array:
    """log(measured/fitted), at most WORST_LOG_ERROR in size."""
    found: Array = np.log(np.maximum(times_s, SHORTEST_S) / np.maximum(fitted_s, SHORTEST_S))
    return np.clip(found, -WORST_LOG_ERROR, WORST_LOG_ERROR)


def curve_errors(curve: Curve, points: Sequence[Point]) -> Array:
    """The errors of a curve at points."""
    times_s = np.array([point.time_s for point in points])
    return log_errors(times_s, np.array([curve.time(*point[:3]) for point in points]))


def deviation(errors: Array) -> float:
    """The standard deviation of normal errors, by the median of their absolute values."""
    return MAD_TO_SD * float(np.median(np.abs(errors)))


def doublings_beyond(value: float, measured: Sequence[float]) -> float:
    """Doublings from a value to the range of the measured ones; 0 within it."""
    low, high = max(min(measured), 1), max(*measured, 1)
    return max(0.0, log2(low / max(value, 1)), log2(max(value, 1) / high))


def error_above(size_bytes: float, largest: int) -> float:
    """The standard deviation of log(measured/predicted) for a call above the largest measured size;
    0 within the measured sizes."""
    return BEYOND * sqrt(max(0.0, log2(max(size_bytes, 1) / max(largest, 1))))


def factor_above(size_bytes: float, largest: int) -> float:
    """How many times as long or as short such a call may take as a line says (95 %)."""
    return exp(Z * error_above(size_bytes, largest))


def likeness(sizes: Array) -> Array:
    """(sizes, sizes): the correlation of their factors before anything is measured."""
    doublings = np.log2(np.maximum(sizes, 1))
    return np.asarray(np.exp(-np.abs(doublings[:, None] - doublings) / SMOOTHNESS))


def size_effects(sizes: Array, at: Array, errors: Array) -> Array:
    """The logarithms of the factors of sizes, where `errors` are those of points of size sizes[at]:
    the median error of each size, shrunk towards 0 and towards the neighbours as if factors differ
    as much as times do (Rasmussen, Williams: Gaussian Processes for Machine Learning, 2006)."""
    counts = np.bincount(at)
    medians = [np.median(errors[at == index]) for index in range(len(sizes))]
    prior = likeness(sizes)
    return np.asarray(prior @ np.linalg.solve(prior + np.diag(1 / counts), np.array(medians)))


def fit_parameters(terms: Array, times_s: Array) -> Array:
    """The parameters of `terms`, (points, parameters), that fit the times: at least 0."""
    scaled = terms / times_s[:, None]
    columns = np.sqrt((scaled**2).mean(axis=0))
    columns[columns == 0] = 1.0
    scaled = scaled / columns
    parameters = least_squares(scaled, np.ones(len(scaled)))
    for step in range(2 * STEPS):
        before, is_last = parameters, step >= STEPS
        ratio = np.maximum(scaled @ parameters, 1e-9)  # fitted over measured
        residual = -np.log(ratio)
        freedom = max(1, len(scaled) - scaled.shape[1])
        scale = deviation(residual) * (len(scaled) / freedom) ** 0.5
        gap = 1 - ratio
        # The weight that makes the least squares of the times a step towards that of the logarithms
        turned = np.where(np.abs(gap) < 1e-6, 1.0, residual / np.where(gap == 0, 1, gap)) / ratio
        far = np.abs(residual / max(scale, SMALLEST_SCALE))
        tukey = np.maximum(0.0, 1 - (far / TUKEY) ** 2) ** 2
        weights = tukey if is_last else np.minimum(1.0, HUBER / np.maximum(far, 1e-12))
        parameters = least_squares(scaled, weights * turned)
        if is_last and np.abs(parameters - before).max() < CLOSE * before.max():
            break
    return np.asarray(parameters / columns)


def least_squares(scaled: Array, weights: Array) -> Array:
    """The parameters of `scaled @ p = 1` with p >= 0: all of them, if none is negative then, or the
    best set of fewer."""
    gram, right = (scaled.T * weights) @ scaled, scaled.T @ weights
    known = [index for index in range(len(right)) if gram[index, index] > 0]
    best, best_gain = np.zeros(len(right)), 0.0
    for count in range(len(known), 0, -1):
        for chosen in map(list, combinations(known, count)):
            part = gram[np.ix_(chosen, chosen)]
            found = np.linalg.solve(part + 1e-11 * np.trace(part) * np.eye(count), right[chosen])
            gain = float(found @ right[chosen])
            if found.min() >= 0 and gain > best_gain:
                best, best_gain = np.zeros(len(right)), gain
                best[chosen] = found
        if best_gain and count == len(known):
            break
    return best


def split_variances(uncertainties: Sequence[float], scatter: float) -> tuple[float, Array]:
    """What the intervals of times know of their errors, as variances of log(time): the part that
    all times of a launch share, which their scatter around a fit does not show, and the rest of
    each."""
    variances = np.square(np.array(uncertainties))
    common = max(0.0, float(np.median(variances)) - scatter)
    return common, np.maximum(variances - common, 0.0)


# The sizes of one run

FEWEST_OF_RUN = 3
FEWEST_IN_RANGE = 4
MOST_RANGES = 3
MISSED = 0.2
"""Of log(measured/fitted): a line that is further from a time does not describe it."""
BEYOND = 0.45
"""The standard deviation of log(measured/predicted) above the measured sizes, times the root of the
doublings: of 105 times above those of fits to results/reference with --leave-out sizes=1M-, 2M-,
8M-, 16M- and 64M-, 95 % were within 0.89 times that root."""
WORTH = 0.2
"""A further range of sizes must lower the mean error by this part."""
SMALLEST_ERROR = 1e-4
"""Smaller ones are no reason for a further range."""


class Range(NamedTuple):
    """A range of sizes with parameters of its own."""

    sizes: tuple[int, ...]
    """Those measured, ascending."""
    fixed_s: Estimate
    beta: Estimate
    """In seconds per byte. The intervals are those of least squares, by Student's t, with the
    errors of the times themselves (split_variances)."""
    errors: tuple[float, ...]
    """The absolute errors of log(time)."""
    missed: tuple[int, ...] = ()
    """The sizes whose times lie MISSED from the line, outside of their own intervals."""

    def fits(self, size: int) -> bool:
        """Whether the line fits most of its times, and that of this size."""
        return size not in self.missed and 2 * len(self.missed) <= len(self.sizes)

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest size."""
        return self.sizes[0], self.sizes[-1]

    @property
    def grows(self) -> bool:
        """Whether the time surely grows with the size."""
        return self.beta.ends[0] > 0

    def time_at(self, size: int) -> float:
        """The time of the line in seconds."""
        return self.fixed_s.value + self.beta.value * size


def range_of(ranges: Sequence[Range], size: int) -> Range:
    """The range that a size belongs to."""
    return next((each for each in ranges if size <= each.ends[1]), ranges[-1])


def fit_sizes(times: Mapping[int, Estimate]) -> tuple[Range, ...]:
    """The ranges that describe times by size, ascending; none for fewer than FEWEST_OF_RUN."""
    by_size = sorted(times.items())
    ordered = [Point(1, 1, n, time.value, uncertainty=uncertainty(*time)) for n, time in by_size]
    if len(ordered) < FEWEST_OF_RUN:
        return ()

    @cache
    def errors(low: int, high: int) -> list[float]:
        """Of a line that is fitted quickly, and not robust."""
        times_s, terms = _line_terms(ordered[low:high])
        parameters = least_squares(terms / times_s[:, None], np.ones(len(terms)))
        found: list[float] = np.abs(log_errors(times_s, terms @ parameters)).tolist()
        return found

    def error(ends: Sequence[int]) -> float:
        """The mean absolute error of log(time)."""
        found = [each for low, high in pairwise(ends) for each in errors(low, high)]
        return max(SMALLEST_ERROR, sum(found) / len(found))

    count = len(ordered)
    best: tuple[int, ...] = (0, count)
    for number in range(1, MOST_RANGES):
        cut = [(0, *cuts, count) for cuts in combinations(range(1, count), number)]
        found = [ends for ends in cut if min(b - a for a, b in pairwise(ends)) >= FEWEST_IN_RANGE]
        chosen = min(found, key=error, default=best)
        if error(chosen) < error(best) * (1 - WORTH) ** (len(chosen) - len(best)):
            best = chosen
    return tuple(_fit_range(ordered[low:high]) for low, high in pairwise(best))


def _line_terms(points: Sequence[Point]) -> tuple[Array, Array]:
    """The times; and what the fixed part, and the bytes of the largest size, are multiplied by."""
    times_s = np.array([point.time_s for point in points])
    return times_s, np.array([(1.0, point.size_bytes / points[-1].size_bytes) for point in points])


def _fit_range(points: Sequence[Point]) -> Range:
    """The range of these points."""
    sizes, (times_s, terms) = [point.size_bytes for point in points], _line_terms(points)
    parameters = fit_parameters(terms, times_s)
    errors = np.abs(log_errors(times_s, terms @ parameters))
    freedom = max(1, len(points) - 2)
    scatter = float((errors**2).sum()) / freedom
    common, of_rows = split_variances([point.uncertainty for point in points], scatter)
    response = np.linalg.pinv(terms / times_s[:, None]) ** 2
    of_scatter = response.sum(axis=1) * scatter * student_quantile(Z, freedom) ** 2
    of_rows = response @ np.maximum(of_rows - scatter, 0.0) + common * parameters**2
    half = np.sqrt(of_scatter + Z**2 * of_rows)
    found = np.array([parameters, np.maximum(parameters - half, 0.0), parameters + half])
    fixed_s, beta = (Estimate(*each) for each in (found / [1.0, sizes[-1]]).T.tolist())
    pairs = zip(points, errors.tolist(), strict=True)
    missed = tuple(p.size_bytes for p, error in pairs if error > max(MISSED, Z * p.uncertainty))
    return Range(tuple(sizes), fixed_s, beta, tuple(errors.tolist()), missed)

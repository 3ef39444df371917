"""Chooses the models of an operation by the times that fits were made without.

Models differ in how they grow with the ranks. So each model is fitted again without each number of
ranks, where there are at least three, and the mean absolute error of the times left out decides.
With fewer numbers the mean error of the fit decides, which says little: what the likelihood of the
data does not tell from the best model is its rival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.models.cost_models import CostModel, models_of
from commbench.models.fit import MAD_TO_SD, fit_curve, log_errors
from commbench.models.intervals import Errors, errors_of
from commbench.models.machine import Candidate, Curve, FittedModel, Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

ENOUGH_RANKS = 3
"""Numbers of ranks from which on they are left out."""
FEWEST_TIMES = 5
"""Times from which on ranges of sizes are left out."""
SIZE_FOLDS = 4
LIKELY = 4.0
"""A model is a rival if the logarithm of its likelihood is at most so much below the highest one (a
factor of 55)."""


class Trial(NamedTuple):
    """A model that was fitted to all times, and to those of other numbers of ranks."""

    curve: Curve
    errors: Errors
    error: float
    """The mean absolute error by which models are compared."""
    cv_error: float | None
    """The mean absolute error of the numbers of ranks that were left out."""
    scale: float


def fit_points(
    operation: str, kind: str, points: Sequence[Point], variant: str = ""
) -> FittedModel:
    """The best model of these points, with its rivals. Points that are left out are only kept."""
    import numpy as np

    used = [point for point in points if not point.is_left_out]
    spans_ranks = len({point.world_size for point in used}) > 1
    models = [model for model in models_of(operation) if model.spans_ranks == spans_ranks]
    if len({point.size_bytes for point in used}) == 1 and not spans_ranks:
        models = models[:1]  # of one call, all models are its time
    tried = sorted((_try(model, used) for model in models), key=lambda trial: trial.error)
    best = tried[0]
    least = max(trial.errors.evidence for trial in tried) - LIKELY
    kept = [best, *(trial for trial in tried[1:] if trial.errors.evidence > least)]
    return FittedModel(
        operation,
        kind,
        tuple(_candidate(trial, used) for trial in kept),
        scatter=MAD_TO_SD * float(np.median(np.abs(_errors(best.curve, used)))),
        points=tuple(points),
        variant=variant,
    )


def _try(model: CostModel, points: Sequence[Point]) -> Trial:
    import numpy as np

    curve = fit_curve(model, points)
    errors = errors_of(curve, points)
    found, variances, expected = [], [], []
    for rest, left_out in _without_ranks(points):
        other = fit_curve(model, rest)
        without = errors_of(other, rest)
        missed = _errors(other, left_out)
        found.append(float(np.abs(missed).mean()))
        variances.append(_deviation(missed) ** 2)
        expected.append(np.mean([without.variance(point[:3]) for point in left_out]))
    if not found:
        return Trial(curve, errors, float(np.abs(_errors(curve, points)).mean()), None, 1.0)
    error, scale = float(np.mean(found)), float(np.mean(variances) / np.mean(expected)) ** 0.5
    return Trial(curve, errors, error, error, max(1.0, scale))


def _candidate(trial: Trial, points: Sequence[Point]) -> Candidate:
    """The trial with the errors of the ranges of sizes that are left out of its fit: of those that
    lie between other sizes, and how much they grow beyond the sizes of a fit."""
    import numpy as np

    found, grown = [], []
    for rest, left_out in _without_sizes(points):
        curve = fit_curve(trial.curve.model, rest)
        missed = _errors(curve, left_out)
        beyond = np.array([_doublings(point.size_bytes, rest) for point in left_out])
        if beyond.all():
            grown.append(_deviation(missed / beyond))
        else:
            found.append(float(np.abs(missed).mean()))
    cv_error = trial.cv_error if trial.cv_error is not None or not found else float(np.mean(found))
    growth = float(np.mean(np.square(grown))) ** 0.5 if grown else 0.0
    return Candidate(trial.curve, cv_error, trial.scale, growth)


Fold = tuple[list[Point], list[Point]]
"""The points that a fit is made with, and those that it is made without."""


def _without_ranks(points: Sequence[Point]) -> list[Fold]:
    ranks = sorted({point.world_size for point in points})
    if len(ranks) < ENOUGH_RANKS:
        return []
    return [_fold(points, [p.world_size == n for p in points]) for n in ranks]


def _without_sizes(points: Sequence[Point]) -> list[Fold]:
    import numpy as np

    sizes = sorted({point.size_bytes for point in points})
    if len(points) < FEWEST_TIMES or len(sizes) == 1:
        return []
    ranges = [set(part.tolist()) for part in np.array_split(sizes, min(SIZE_FOLDS, len(sizes)))]
    return [_fold(points, [p.size_bytes in part for p in points]) for part in ranges]


def _fold(points: Sequence[Point], is_left_out: Sequence[bool]) -> Fold:
    pairs = list(zip(points, is_left_out, strict=True))
    return [p for p, out in pairs if not out], [p for p, out in pairs if out]


def _doublings(size: int, points: Sequence[Point]) -> float:
    """From the sizes of the points to one beyond them; 0 within them."""
    import numpy as np

    low, high = (f(max(point.size_bytes, 1) for point in points) for f in (min, max))
    return float(np.log2(max(low / max(size, 1), max(size, 1) / high, 1.0)))


def _errors(curve: Curve, points: Sequence[Point]) -> Floats:
    import numpy as np

    times_s = np.array([point.time_s for point in points])
    return log_errors(times_s, np.array([curve.time(*point[:3]) for point in points]))


def _deviation(errors: Floats) -> float:
    """The standard deviation of normal errors, by the median of their absolute values."""
    import numpy as np

    return float(MAD_TO_SD * np.median(np.abs(errors)))

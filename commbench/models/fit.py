"""Fits the cost models of one operation, and chooses one by cross-validation.

Parameters may differ between ranges of sizes, because libraries switch protocols. The number of
ranges, like the model, is chosen by the error of points that a fit was made without: whole numbers
of ranks, and whole ranges of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commbench.models.cost_models import models_of
from commbench.models.cross_validation import Candidate, choose, cross_validate, try_factors
from commbench.models.fit_data import (
    Data,
    Split,
    log_error,
    predict,
    robust_scale,
    size_factors,
    split,
    with_factors,
)
from commbench.models.machine import FittedModel, Piece, Point, Rival
from commbench.models.robust_fit import fit_many

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

REPLICATES = 200


def fit_points(
    operation: str, kind: str, points: Sequence[Point], variant: str = ""
) -> FittedModel:
    """The best model of these points, with its rivals. Points that are left out are only kept."""
    used = [point for point in points if not point.is_left_out]
    data = Data(used)
    spans_ranks = len(data.distinct_ranks) > 1
    models = [m for m in models_of(operation) if m.spans_ranks == spans_ranks]
    if len(data.distinct_sizes) == 1 and not spans_ranks:
        models = models[:1]  # of one call, all models are its time
    tried = [cross_validate(data, model) for model in models]
    best, rivals = choose(tried, spans_ranks)
    best = try_factors(data, best)
    pieces, factors, errors = _fit_pieces(data, best)
    errors_by_point = {id(p): best.point_errors.get(index) for index, p in enumerate(used)}
    return FittedModel(
        operation,
        kind,
        best.model.name,
        pieces,
        scatter=robust_scale(errors),
        cv_error=best.error if best.point_errors else None,
        drift=_drift(data, best),
        rivals=tuple(_make_rival(data, try_factors(data, each)) for each in rivals),
        points=tuple(p._replace(cv_error=errors_by_point.get(id(p))) for p in points),
        variant=variant,
        size_factors=factors,
    )


def _make_rival(data: Data, candidate: Candidate) -> Rival:
    pieces, factors, _ = _fit_pieces(data, candidate)
    return Rival(candidate.model.name, candidate.error, pieces, factors)


Factors = tuple[tuple[float, float], ...]


def _fit_pieces(data: Data, candidate: Candidate) -> tuple[tuple[Piece, ...], Factors, Floats]:
    """The pieces with their replicates, the factors of sizes, and the log error of each point."""
    import numpy as np

    terms = data.terms(candidate.model)
    parameters = fit_many(terms, data.times_s, data.segment_masks.astype(float))
    every = np.ones(len(data.points), dtype=bool)
    cuts = split(data, terms, parameters, every)
    cut = cuts[min(candidate.pieces, max(cuts))]
    weights = replicate_weights(data)
    pieces = []
    for index, fitted in zip(*cut, strict=True):
        samples = fit_many(terms, data.times_s, weights * data.segment_masks[index])
        high = data.segments[index][1]
        end = None if high is None else float(high)
        pieces.append(Piece(end, _floats(fitted), tuple(map(_floats, samples))))
    predicted_s, factors = _predict(data, terms, cut, every, candidate.has_factors)
    by_size = zip(data.distinct_sizes, np.exp(factors).tolist(), strict=True)
    known = tuple((float(size), factor) for size, factor in by_size)
    errors = log_error(data.times_s, predicted_s)
    return tuple(pieces), known if factors.any() else (), errors


def _predict(
    data: Data, terms: Floats, cut: Split, used: Floats, has_factors: bool
) -> tuple[Floats, Floats]:
    """The times in seconds of all points, and the logarithms of the factors of sizes."""
    predicted_s = predict(data, terms, cut)
    factors = size_factors(data, log_error(data.times_s, predicted_s), used) * has_factors
    return with_factors(data, predicted_s, factors), factors


def replicate_weights(data: Data) -> Floats:
    """Weights for the bootstrap: (REPLICATES, points). Each number of ranks and each size gets a
    random weight, and a point the product of its two, so that errors which whole curves or whole
    sizes share widen the intervals. Owen: The pigeonhole bootstrap, Annals of Applied Statistics
    1(2), 2007, with the exponential weights of Rubin's Bayesian bootstrap (1981)."""
    import numpy as np

    generator = np.random.default_rng(0)
    weights = np.ones((REPLICATES, len(data.points)))
    for values, distinct in ((data.ranks, data.distinct_ranks), (data.sizes, data.distinct_sizes)):
        if len(distinct) > 1:
            drawn = generator.exponential(size=(REPLICATES, len(distinct)))
            weights *= drawn[:, np.searchsorted(np.array(distinct), values)]
    return weights


def _drift(data: Data, candidate: Candidate) -> float:
    """How much the error grows with each doubling of the ranks beyond that of cross-validation: of
    fits to the smaller numbers of ranks, at each larger one. 0 where there are fewer than three."""
    import numpy as np

    terms = data.terms(candidate.model)
    base = robust_scale(np.array([*candidate.point_errors.values(), 0.0]))
    grown = []
    for last in data.distinct_ranks[1:-1]:
        used = data.ranks <= last
        masks = (data.segment_masks & used).astype(float)
        cuts = split(data, terms, fit_many(terms, data.times_s, masks), used)
        cut = cuts[min(candidate.pieces, max(cuts))]
        predicted_s, _ = _predict(data, terms, cut, used, candidate.has_factors)
        errors = log_error(data.times_s, predicted_s)
        for ranks in data.distinct_ranks:
            if ranks > last:
                excess = robust_scale(errors[data.ranks == ranks]) ** 2 - base**2
                grown.append(max(0.0, excess) / np.log2(ranks / last) ** 2)
    return float(np.sqrt(np.mean(grown))) if grown else 0.0


def _floats(values: Floats) -> tuple[float, ...]:
    return tuple(map(float, values))

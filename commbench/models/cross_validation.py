"""How well models predict points that they were not fitted to, and the choice that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.models.cost_models import CostModel
from commbench.models.fit_data import (
    MOST_PIECES,
    Data,
    log_error,
    predict,
    size_factors,
    split,
    with_factors,
)
from commbench.models.robust_fit import fit_many

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

WORTH = 0.1
"""An error that is lower by less than this part is not clearly lower."""
WORTH_OF_PIECE = 1 / 3
"""Where a model will be used for other numbers of ranks, a further piece must lower the error by
this part: of fewer sizes, less can be known of how the time grows with ranks."""


class Candidate(NamedTuple):
    """A model with a number of pieces, and how well it predicts points that no fit has seen."""

    model: CostModel
    pieces: int
    rank_errors: tuple[float, ...]
    """Of the folds that leave out a number of ranks: the mean absolute log error."""
    size_errors: tuple[float, ...]
    """Of the folds that leave out a range of sizes."""
    point_errors: dict[int, float]
    """The log error of each point, by its index, in the first fold that left it out."""
    fit_error: float = 0.0
    """Without folds: the mean absolute log error of the points that it was fitted to."""
    has_factors: bool = False
    """Whether each size has a factor (fit_data.size_factors)."""

    @property
    def error(self) -> float:
        """The mean error: that of leaving out ranks and that of leaving out sizes count the same.
        0 without folds."""
        kinds = [errors for errors in (self.rank_errors, self.size_errors) if errors]
        return sum(sum(errors) / len(errors) for errors in kinds) / max(1, len(kinds))

    @property
    def model_errors(self) -> tuple[float, ...]:
        """The errors by which models are compared: of leaving out ranks, where that was done, since
        models differ in how they grow with ranks."""
        return self.rank_errors or self.size_errors


def cross_validate(data: Data, model: CostModel, has_factors: bool = False) -> list[Candidate]:
    """The model with one piece, two and so on, each with its errors; with `has_factors` also with a
    factor for each size."""
    import numpy as np

    terms = data.terms(model)
    by_ranks, by_sizes = data.folds
    masks = by_ranks + by_sizes
    if not masks:
        parameters = fit_many(terms, data.times_s, np.ones((1, len(data.points))))[0]
        errors_s = log_error(data.times_s, terms @ parameters)
        return [Candidate(model, 1, (), (), {}, float(np.abs(errors_s).mean()))]
    used = [~mask for mask in masks]
    stacked = np.concatenate([data.segment_masks & each for each in used]).astype(float)
    fitted = fit_many(terms, data.times_s, stacked).reshape(len(masks), len(data.segments), -1)
    errors: dict[int, list[float]] = {}
    points: dict[int, dict[int, float]] = {}
    for mask, each, parameters in zip(masks, used, fitted, strict=True):
        cuts = split(data, terms, parameters, each)
        for count in range(1, MOST_PIECES + 1):
            if count not in cuts:
                continue
            predicted = predict(data, terms, cuts[count])
            if has_factors:
                factors = size_factors(data, log_error(data.times_s, predicted), each)
                predicted = with_factors(data, predicted, factors)
            log_errors = log_error(data.times_s, predicted)[mask]
            errors.setdefault(count, []).append(float(np.abs(log_errors).mean()))
            known = points.setdefault(count, {})
            for index, error in zip(np.flatnonzero(mask).tolist(), log_errors, strict=True):
                known.setdefault(index, float(error))
    return [
        Candidate(
            model,
            count,
            tuple(found[: len(by_ranks)]),
            tuple(found[len(by_ranks) :]),
            points[count],
            has_factors=has_factors,
        )
        for count, found in errors.items()
        if len(found) == len(masks)
    ]


def is_clearly_worse(other: Candidate, best: Candidate) -> bool:
    """Whether the folds show that the best candidate predicts better than the other: by WORTH, and
    by two standard errors of the difference."""
    import numpy as np

    if not best.model_errors:
        return other.fit_error > 2 * best.fit_error + WORTH
    differences = np.array(other.model_errors) - np.array(best.model_errors)
    error = float(differences.std(ddof=0) / np.sqrt(len(differences)))
    return float(differences.mean()) > max(2 * error, WORTH * _mean(other.model_errors))


def fewest_pieces(candidates: Sequence[Candidate], spans_ranks: bool) -> Candidate:
    """The candidate of a model with so many pieces that each lowers the error enough."""
    worth = WORTH_OF_PIECE if spans_ranks else WORTH
    chosen = candidates[0]
    for candidate in candidates[1:]:
        if candidate.error < chosen.error * (1 - worth) ** (candidate.pieces - chosen.pieces):
            chosen = candidate
    return chosen


def choose(
    tried: Sequence[Sequence[Candidate]], spans_ranks: bool
) -> tuple[Candidate, list[Candidate]]:
    """The best model with its number of pieces, and the models that cannot be told from it, the
    best first. `tried` has the candidates of each model. A model is judged by its best number of
    pieces."""
    judged = [
        (min(candidates, key=lambda c: c.error), fewest_pieces(candidates, spans_ranks))
        for candidates in tried
    ]
    judged.sort(key=lambda pair: _mean(pair[0].model_errors) or pair[0].fit_error)
    best = judged[0][0]
    rivals = [chosen for other, chosen in judged[1:] if not is_clearly_worse(other, best)]
    return judged[0][1], rivals


def try_factors(data: Data, best: Candidate) -> Candidate:
    """The candidate with a factor for each size, where that lowers the error at numbers of ranks
    that were left out; else the candidate. A factor is shrunk by what is not known of it, so any
    lower error is enough."""
    if not best.rank_errors:
        return best
    found = cross_validate(data, best.model, has_factors=True)
    other = next(each for each in found if each.pieces == best.pieces)
    return other if _mean(other.rank_errors) < _mean(best.rank_errors) else best


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0

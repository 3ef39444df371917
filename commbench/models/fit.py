"""Fits the cost models of one operation, and chooses one by cross-validation.

Parameters may differ between ranges of sizes, because libraries switch protocols. The number of
ranges, like the model, is chosen by the error of points that a fit was made without: whole numbers
of ranks, and whole ranges of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.models.cost_models import LATENCY_UNITS, CostModel, models_of
from commbench.models.machine import FittedModel, Piece, Point, Rival
from commbench.models.robust_fit import MAD_TO_SD, fit_many

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

MOST_PIECES = 3
FEWEST_SIZES = 4
"""Distinct sizes in a piece."""
MOST_BREAKS = 11
"""Sizes at which a break is tried, evenly chosen among those measured."""
SIZE_FOLDS = 4
FEWEST_SIZES_TO_FOLD = 6
WORTH = 0.1
"""An error that is lower by less than this part is not clearly lower."""
WORTH_OF_PIECE = 1 / 3
"""Where a model will be used for other numbers of ranks, a further piece must lower the error by
this part: of fewer sizes, less can be known of how the time grows with ranks."""
REPLICATES = 200
WORST_LOG_ERROR = 3.0
"""Errors above count as this one (a factor of 20), so that no single one decides."""


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


class Data:
    """Points as arrays."""

    def __init__(self, points: Sequence[Point]) -> None:
        import numpy as np

        self.points = points
        self.ranks = np.array([point.world_size for point in points])
        self.sizes = np.array([point.size_bytes for point in points])
        self.times_s = np.array([point.time_s for point in points])

    @cached_property
    def distinct_sizes(self) -> list[int]:
        """Ascending."""
        return sorted(set(self.sizes.tolist()))

    @cached_property
    def distinct_ranks(self) -> list[int]:
        """Ascending."""
        return sorted(set(self.ranks.tolist()))

    def terms(self, model: CostModel) -> Floats:
        """(points, parameters). Of one size, terms that grow with the size are 0: nothing tells
        them from the others."""
        import numpy as np

        found = np.array([model.terms(*point[:3]) for point in self.points])
        if len(self.distinct_sizes) == 1:
            found[:, [p.unit not in LATENCY_UNITS for p in model.parameters]] = 0.0
        return found

    @cached_property
    def segments(self) -> list[tuple[int, int | None]]:
        """Ranges of sizes that may be pieces: the sizes above the first bound up to the second one,
        or to the end."""
        sizes = self.distinct_sizes
        inner = sizes[FEWEST_SIZES - 1 : len(sizes) - FEWEST_SIZES]
        step = max(1, -(-len(inner) // MOST_BREAKS))
        breaks = inner[::step]
        bounds: list[int | None] = [-1, *breaks, None]
        found = [
            (low, high)
            for low, high in combinations(bounds, 2)
            if low is not None and self._count(low, high) >= FEWEST_SIZES
        ]
        return found or [(-1, None)]

    def _count(self, low: int, high: int | None) -> int:
        return sum(low < size and (high is None or size <= high) for size in self.distinct_sizes)

    @cached_property
    def segment_masks(self) -> Floats:
        """(segments, points): which points lie in each segment."""
        import numpy as np

        top = max(self.distinct_sizes)
        return np.array(
            [
                (self.sizes > low) & (self.sizes <= (top if high is None else high))
                for low, high in self.segments
            ]
        )

    @cached_property
    def folds(self) -> tuple[list[Floats], list[Floats]]:
        """Which points each fold leaves out: each number of ranks, where there are at least three;
        each of a few ranges of sizes, where there are many; else each of the points, if these are
        more than models have parameters."""
        import numpy as np

        by_ranks: list[Floats] = []
        by_sizes: list[Floats] = []
        if len(self.distinct_ranks) >= 3:
            by_ranks = [self.ranks == n for n in self.distinct_ranks]
        if len(self.distinct_sizes) >= FEWEST_SIZES_TO_FOLD:
            blocks = np.array_split(np.array(self.distinct_sizes), SIZE_FOLDS)
            by_sizes = [np.isin(self.sizes, block) for block in blocks]
        elif not by_ranks and len(self.points) > FEWEST_SIZES:
            by_sizes = list(np.eye(len(self.points), dtype=bool))
        return by_ranks, by_sizes


Split = tuple[tuple[int, ...], "Floats"]
"""The segments (by index) that are the pieces, and their parameters."""


def split(data: Data, terms: Floats, parameters: Floats, used: Floats) -> dict[int, Split]:
    """For each number of pieces the best way to cut the sizes. `parameters` is (segments,
    parameters), fitted to each segment; `used` says which points count."""
    import numpy as np

    masks = data.segment_masks
    with np.errstate(divide="ignore"):
        errors = np.abs(np.log(np.maximum(parameters @ terms.T, 1e-300) / data.times_s))
    errors = np.minimum(errors, WORST_LOG_ERROR)
    costs = np.where(masks & used, errors, 0.0).sum(axis=1)
    enough = (masks & used).sum(axis=1) > terms.shape[1]
    best: dict[tuple[int, int | None], tuple[float, tuple[int, ...]]] = {(0, -1): (0.0, ())}
    found: dict[int, Split] = {}
    for count in range(1, MOST_PIECES + 1):
        for index, (low, high) in enumerate(data.segments):
            before = best.get((count - 1, low))
            if before is None or not (enough[index] or (low, high) == (-1, None)):
                continue
            cost, chosen = before[0] + costs[index], (*before[1], index)
            if (count, high) not in best or cost < best[count, high][0]:
                best[count, high] = (cost, chosen)
        if (count, None) in best:
            chosen = best[count, None][1]
            found[count] = (chosen, parameters[list(chosen)])
    return found


def predict(data: Data, terms: Floats, cut: Split) -> Floats:
    """The times in seconds of all points."""
    import numpy as np

    chosen, parameters = cut
    ends = [data.segments[index][1] for index in chosen[:-1]]
    at = np.searchsorted(np.array(ends, dtype=float), data.sizes, side="left")
    times_s: Floats = (terms * parameters[at]).sum(axis=1)
    return times_s


def cross_validate(data: Data, model: CostModel) -> list[Candidate]:
    """The model with one piece, two and so on, each with its errors."""
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
            log_errors = log_error(data.times_s, predict(data, terms, cuts[count]))[mask]
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
        )
        for count, found in errors.items()
        if len(found) == len(masks)
    ]


def log_error(times_s: Floats, predicted_s: Floats) -> Floats:
    """log(measured/predicted), at most WORST_LOG_ERROR in size."""
    import numpy as np

    found = np.log(times_s / np.maximum(predicted_s, 1e-300))
    clipped: Floats = np.clip(found, -WORST_LOG_ERROR, WORST_LOG_ERROR)
    return clipped


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


def fit_points(
    operation: str, kind: str, points: Sequence[Point], variant: str = ""
) -> FittedModel:
    """The best model of these points, with its rivals. Points that are left out are only kept."""
    used = [point for point in points if not point.is_left_out]
    data = Data(used)
    spans_ranks = len(data.distinct_ranks) > 1
    models = [m for m in models_of(operation) if m.spans_ranks == spans_ranks]
    tried = [cross_validate(data, model) for model in models]
    best, rivals = choose(tried, spans_ranks)
    pieces, errors = _fit_pieces(data, best)
    errors_by_point = {id(p): best.point_errors.get(index) for index, p in enumerate(used)}
    return FittedModel(
        operation,
        kind,
        best.model.name,
        pieces,
        scatter=robust_scale(errors),
        cv_error=best.error if best.point_errors else None,
        drift=_drift(data, best),
        rivals=tuple(Rival(c.model.name, c.error, _fit_pieces(data, c)[0]) for c in rivals),
        points=tuple(p._replace(cv_error=errors_by_point.get(id(p))) for p in points),
        variant=variant,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def robust_scale(errors: Floats) -> float:
    """1.4826 x the median of the absolute errors."""
    import numpy as np

    return float(MAD_TO_SD * np.median(np.abs(errors)))


def _fit_pieces(data: Data, candidate: Candidate) -> tuple[tuple[Piece, ...], Floats]:
    """The pieces with their replicates, and the log error of each point."""
    import numpy as np

    terms = data.terms(candidate.model)
    parameters = fit_many(terms, data.times_s, data.segment_masks.astype(float))
    cuts = split(data, terms, parameters, np.ones(len(data.points), dtype=bool))
    cut = cuts[min(candidate.pieces, max(cuts))]
    weights = replicate_weights(data)
    pieces = []
    for index, fitted in zip(*cut, strict=True):
        samples = fit_many(terms, data.times_s, weights * data.segment_masks[index])
        high = data.segments[index][1]
        end = None if high is None else float(high)
        pieces.append(Piece(end, _floats(fitted), tuple(map(_floats, samples))))
    return tuple(pieces), log_error(data.times_s, predict(data, terms, cut))


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
    """How much the error grows with each doubling of the ranks: of fits to the smaller numbers of
    ranks, at each larger one. 0 where there are fewer than three."""
    import numpy as np

    terms = data.terms(candidate.model)
    grown = []
    for last in data.distinct_ranks[1:-1]:
        used = data.ranks <= last
        masks = (data.segment_masks & used).astype(float)
        cuts = split(data, terms, fit_many(terms, data.times_s, masks), used)
        errors = log_error(
            data.times_s, predict(data, terms, cuts[min(candidate.pieces, max(cuts))])
        )
        base = robust_scale(errors[used])
        for ranks in data.distinct_ranks:
            if ranks > last:
                excess = robust_scale(errors[data.ranks == ranks]) ** 2 - base**2
                grown.append(max(0.0, excess) / np.log2(ranks / last) ** 2)
    return float(np.sqrt(np.mean(grown))) if grown else 0.0


def _floats(values: Floats) -> tuple[float, ...]:
    return tuple(map(float, values))

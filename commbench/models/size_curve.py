"""How the time of a call grows with its size, by the sizes of one run: quick, without intervals.

The model is Hockney's, T = fixed + S beta, in up to three ranges of sizes. A range is added only
where it lowers the error clearly. `commbench model fit` takes longer, and tests what it chooses on
points that a fit was made without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commbench.models.machine import Piece, Point, piece_at

FEWEST_SIZES = 3
WORTH = 0.2
"""A further range of sizes must lower the mean error by this part."""


class SizeCurve(NamedTuple):
    """The fitted time by size, for one number of ranks. The parameters of a piece are `fixed` in
    seconds and `beta` in seconds per byte."""

    pieces: tuple[Piece, ...]
    sizes: tuple[int, ...]
    """Those measured, ascending."""
    error: float
    """The mean absolute error of log(time)."""

    def at(self, size: float) -> tuple[float, float]:
        """The time at this size in seconds: the part that does not grow with the size within the
        range of sizes, and the part that does."""
        fixed, beta = self.pieces[piece_at(self.pieces, size)].parameters
        return fixed, beta * size

    def range_at(self, size: float) -> tuple[int, int]:
        """The measured sizes of the piece that a size belongs to."""
        index = piece_at(self.pieces, size)
        own = [each for each in self.sizes if piece_at(self.pieces, each) == index]
        return own[0], own[-1]

    @property
    def half_size(self) -> float | None:
        """n-half: the size at which a call takes twice as long as one of no bytes; None where that
        is no measured size."""
        target = 2 * self.pieces[0].parameters[0]
        if not target or sum(self.at(self.sizes[-1])) < target:
            return None
        low, high = 0.0, float(self.sizes[-1])
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(self.at(middle)) < target else (low, middle)
        return high if high > self.sizes[0] else None


def fit_sizes(operation: str, points: Sequence[Point]) -> SizeCurve | None:
    """The curve of points that differ in size only; None for fewer than FEWEST_SIZES sizes."""
    import numpy as np

    from commbench.models.cost_models import find_model
    from commbench.models.fit_data import Data, log_error, predict, split
    from commbench.models.robust_fit import fit_many

    data = Data(points)
    if len(data.distinct_sizes) < FEWEST_SIZES:
        return None
    terms = data.terms(find_model(operation, "alpha-beta"))
    parameters = fit_many(terms, data.times_s, data.segment_masks.astype(float))
    cuts = split(data, terms, parameters, np.ones(len(points), dtype=bool))
    errors = {
        count: float(np.abs(log_error(data.times_s, predict(data, terms, cut))).mean())
        for count, cut in cuts.items()
    }
    best = min(errors)
    for count in sorted(errors):
        if errors[count] < errors[best] * (1 - WORTH) ** (count - best):
            best = count
    chosen, fitted = cuts[best]
    ends = [data.segments[index][1] for index in chosen]
    pieces = tuple(
        Piece(None if end is None else float(end), tuple(map(float, each)))
        for end, each in zip(ends, fitted, strict=True)
    )
    return SizeCurve(pieces, tuple(data.distinct_sizes), errors[best])

"""The points of a fit as arrays, the ways to cut their sizes into pieces, and their folds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

from commbench.models.cost_models import LATENCY_UNITS, CostModel
from commbench.models.machine import MAD_TO_SD, Point

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
WORST_LOG_ERROR = 3.0
"""Errors above count as this one (a factor of 20), so that no single one decides."""
CLIPPED_AT = 3.0
"""Errors of so many scales and more count alike in the factor of a size."""


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


def size_factors(data: Data, errors: Floats, used: Floats) -> Floats:
    """For each distinct size, the logarithm of the factor by which times of that size differ from
    the model, whatever the number of ranks: the mean error of its used points, shrunk towards 0 as
    far as the errors of one size differ among themselves (the best linear predictor of a random
    effect; Robinson, Statistical Science 6(1), 1991). Sizes without used points get the factor
    between those of their neighbours."""
    import numpy as np

    sizes = np.array(data.distinct_sizes, dtype=float)
    none = np.zeros(len(sizes))
    limit = CLIPPED_AT * robust_scale(errors[used])
    clipped = np.clip(errors, -limit, limit)
    groups = [clipped[used & (data.sizes == size)] for size in data.distinct_sizes]
    known = np.array([len(group) > 0 for group in groups])
    counts = np.array([len(group) for group in groups])[known]
    means = np.array([group.mean() for group in groups if len(group)])
    freedom = counts.sum() - len(counts)
    if freedom < 1 or len(counts) < FEWEST_SIZES_TO_FOLD:
        return none
    inner = sum(((group - group.mean()) ** 2).sum() for group in groups if len(group)) / freedom
    outer = max(0.0, float(means.var(ddof=1) - inner * (1 / counts).mean()))
    if not outer:
        return none
    shrunk = means * outer / (outer + inner / counts)
    found: Floats = np.interp(np.log(sizes), np.log(sizes[known]), shrunk)
    return found


def with_factors(data: Data, times_s: Floats, factors: Floats) -> Floats:
    """The times in seconds, each multiplied by the factor of its size."""
    import numpy as np

    at = np.searchsorted(np.array(data.distinct_sizes), data.sizes)
    found: Floats = times_s * np.exp(factors[at])
    return found


def log_error(times_s: Floats, predicted_s: Floats) -> Floats:
    """log(measured/predicted), at most WORST_LOG_ERROR in size."""
    import numpy as np

    found = np.log(times_s / np.maximum(predicted_s, 1e-300))
    clipped: Floats = np.clip(found, -WORST_LOG_ERROR, WORST_LOG_ERROR)
    return clipped


def robust_scale(errors: Floats) -> float:
    """1.4826 x the median of the absolute errors."""
    import numpy as np

    return float(MAD_TO_SD * np.median(np.abs(errors)))

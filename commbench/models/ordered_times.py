"""The times of a fitted model, which never fall as sizes or ranks grow."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.models.cost_models import WITHIN, CostModel, find_model, kind_of
from commbench.models.machine import FittedModel, Rival, factor_at

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Curve(NamedTuple):
    """A model and its parameters, which are rows of a matrix: the fitted ones, then replicates."""

    model: CostModel
    ends: tuple[float | None, ...]
    parameters: tuple[NDArray[Any], ...]
    """One matrix for each piece; `factors` are those of sizes."""
    factors: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, operation: str, found: FittedModel | Rival) -> Curve:
        import numpy as np

        matrices = tuple(np.array([piece.parameters, *piece.samples]) for piece in found.pieces)
        ends = tuple(piece.up_to_bytes for piece in found.pieces)
        return cls(find_model(operation, found.model), ends, matrices, found.size_factors)

    def times(self, world_size: int, per_node: int, size: float) -> NDArray[Any]:
        """The time by each row of parameters: the longest of all sizes up to this one."""
        import numpy as np

        found, begin = [], -1.0
        for end, matrix in zip(self.ends, self.parameters, strict=True):
            if size > begin:
                last = size if end is None else min(size, end)
                for at in (last, *self._peaks(begin, last)):
                    terms = self.model.terms(world_size, per_node, at)
                    found.append(matrix @ terms * factor_at(self.factors, at))
            begin = float("inf") if end is None else end
        longest: NDArray[Any] = np.maximum.reduce(found)
        return longest

    def _peaks(self, low: float, high: float) -> list[float]:
        """The sizes from `low`, where a piece begins, to `high` from which on the factor may fall:
        the time may be the longest there. Between the sizes of factors, log(time) is convex in
        log(size)."""
        falling = [
            size
            for (size, factor), (_, following) in pairwise(self.factors)
            if low < size < high and following < factor
        ]
        return [low, *falling] if low > 0 and self.factors else falling


class Order(NamedTuple):
    """How times are kept from falling as ranks are added, for models that are faster with powers of
    two. If only powers of two were measured, they count: the time of another number is at most that
    of the next power of two. Otherwise every number counts: the time is at least that of one rank
    less, which is no power of two."""

    kind: str
    by_powers: bool

    @classmethod
    def of(cls, fitted: FittedModel) -> Order:
        return cls(fitted.kind, all(n & (n - 1) == 0 for n in fitted.world_sizes))

    def times(self, curve: Curve, world_size: int, per_node: int, size: float) -> NDArray[Any]:
        """The times of a curve in this order."""
        import numpy as np

        per_node = max(per_node, 2 * world_size) if self.kind == WITHIN else per_node
        times = curve.times(world_size, per_node, size)
        other = 1 << (world_size - 1).bit_length() if self.by_powers else world_size - 1
        if other == world_size or other < 2 or kind_of(other, per_node) != self.kind:
            return times
        choose = np.minimum if self.by_powers else np.maximum
        ordered: NDArray[Any] = choose(times, curve.times(other, per_node, size))
        return ordered

"""Predicts the time of a collective on a machine whose models were fitted, with an interval.

The time never falls when the size or the number of ranks grows: what makes a model fall (a piece
that begins below the end of the one before, an algorithm that prefers powers of two) is raised to
the time of the smaller call. The interval has three sources: the bootstrap replicates of the
parameters, the rival models that the data could not tell from the chosen one, and the error of the
model itself. That error grows with the distance from what was measured: see `_error`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, hypot, log, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UnavailableError, UsageError
from commbench.models.cost_models import COST_MODELS
from commbench.models.machine import ACROSS, WITHIN, FittedModel, Machine, Piece
from commbench.spec.operations import OPERATIONS
from commbench.units import LARGEST_SIZE, format_bytes, format_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

LATENCY, BANDWIDTH, PIPELINE = "latency", "bandwidth", "pipelining"
"""Parts of a time: what does not depend on the size, what grows with it in proportion, and the
rest, such as the square root of the pipelined tree."""
MOST_RANKS = 1 << 24
Z = 1.96
"""Standard deviations of a 95 % interval."""
ERROR_PER_DOUBLING = 0.02
"""The least standard deviation of log(time) that a doubling beyond the measured range adds."""
FAR = 3.0
"""Doublings beyond the measured range from which on a prediction is far away."""


class Prediction(NamedTuple):
    """The predicted time of one call. Times in seconds."""

    operation: str
    world_size: int
    ranks_per_node: int
    size_bytes: int
    """S, as in a row of results: the larger of what one rank sends and receives."""
    kind: str
    """WITHIN a host or ACROSS hosts."""
    model: str
    """A key of COST_MODELS."""
    time_s: float
    low_s: float
    high_s: float
    """The 95 % interval."""
    latency_share: float
    bandwidth_share: float
    """Parts of the model's time, 0 to 1; what is left is pipelining."""
    ranks_distance: float
    size_distance: float
    """Doublings beyond the measured numbers of ranks and sizes; 0 within them."""
    is_raised: bool
    """Whether the model alone gives a smaller time than for fewer ranks or a smaller size."""

    @property
    def bound(self) -> str:
        """The part that takes most of the time: LATENCY, BANDWIDTH or PIPELINE."""
        shares = {LATENCY: self.latency_share, BANDWIDTH: self.bandwidth_share}
        shares[PIPELINE] = 1 - sum(shares.values())
        return max(shares, key=shares.__getitem__)

    @property
    def algbw(self) -> float | None:
        """S / t in bytes/s; None for an operation without data."""
        return self.size_bytes / self.time_s if self.size_bytes else None

    def busbw_at(self, seconds: float) -> float | None:
        """The bus bandwidth in bytes/s if the call took `seconds`; None where there is none."""
        factor = OPERATIONS[self.operation].busbw_factor
        if factor is None or not self.size_bytes:
            return None
        return self.size_bytes / seconds * factor(self.world_size)

    @property
    def busbw(self) -> float | None:
        """The bus bandwidth in bytes/s."""
        return self.busbw_at(self.time_s)

    @property
    def distance(self) -> float:
        """Doublings beyond what was measured."""
        return self.ranks_distance + self.size_distance

"""Predicts the time of a collective on a machine whose models were fitted, with an interval.

The time never falls when the size or the number of ranks grows. A model alone may fall. Where a
piece begins below the end of the one before, the time of the smaller size counts. Where an
algorithm prefers powers of two, see ordered_times.Order.

The interval has three sources: the bootstrap replicates of the parameters, the rival models that
the data could not tell from the chosen one, and the error of the model itself or of the times that
it was fitted to, which grows with the distance from what was measured (_error).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, hypot, log, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UnavailableError, UsageError
from commbench.models.cost_models import (
    ACROSS,
    BETA,
    LATENCY_UNITS,
    WITHIN,
    kind_of,
)
from commbench.models.machine import (
    FittedModel,
    Machine,
    Z,
    drift_at,
    factor_at,
    piece_at,
    scatter_at,
    uncertainty_at,
)
from commbench.models.ordered_times import Curve, Order
from commbench.output.paragraphs import list_some
from commbench.spec.operations import OPERATIONS
from commbench.units import LARGEST_SIZE, format_bytes, format_count, format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

LATENCY, BANDWIDTH, PIPELINE = "latency", "bandwidth", "pipeline"
"""Parts of a time: what does not depend on the size, what is proportional to it, and the filling of
a pipeline, which grows with its root."""
SHORTEST_S = 1e-12
LARGEST_ERROR = 20.0
"""Of log(time): so that every interval is finite."""
MOST_RANKS = 1 << 24
MOST_PREDICTIONS = 100_000
POOR_ERROR = log(2) / Z
"""The standard deviation of log(time) from which on a fit is poor: the 95 % interval reaches from
half to twice the time. Algorithms of one operation often differ by less (with 8 ranks,
recursive doubling of all_reduce sends 3 S and a ring 1.75 S), so the fit cannot tell them apart."""
MEAN_TO_SIGMA = 1.2533
"""Standard deviation over mean absolute error, of a normal distribution: sqrt(pi/2)."""
MOST_FROM_ONE_SIZE = 16
"""Where one size was measured, sizes up to so many times as large are taken to cost as much."""
ERROR_PER_DOUBLING = 0.02
"""The least standard deviation of log(time) that each doubling beyond the measured range adds."""


class Prediction(NamedTuple):
    """The predicted time of one call. Times in seconds."""

    operation: str
    world_size: int
    ranks_per_node: int
    size_bytes: int
    """S, as in a row of results: the larger of what one rank sends and receives. 0 for an operation
    without data."""
    kind: str
    """WITHIN a host or ACROSS hosts."""
    model: str
    """The name of the cost model."""
    time_s: float
    low_s: float
    high_s: float
    """The 95 % interval."""
    latency_share: float
    bandwidth_share: float
    """Parts of the time of the model, 0 to 1. What is left is the pipeline."""
    ranks_distance: float
    size_distance: float
    """Doublings beyond the measured numbers of ranks (also of ranks per host) and the measured
    sizes; 0 within them."""
    is_adjusted: bool
    """Whether the model alone gives another time, against the order of sizes or ranks."""

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

    @property
    def busbw(self) -> float | None:
        """The bus bandwidth in bytes/s; None for an operation without data."""
        return self.busbw_at(self.time_s)

    def busbw_at(self, seconds: float) -> float | None:
        """The bus bandwidth in bytes/s if the call took `seconds`."""
        factor = OPERATIONS[self.operation].busbw_factor
        if factor is None or not self.size_bytes:
            return None
        return self.size_bytes / seconds * factor(self.world_size)


def predict(
    machine: Machine,
    operation: str,
    world_sizes: Sequence[int],
    ranks_per_node: int | None,
    sizes: Sequence[int],
    variant: str = "",
) -> list[Prediction]:
    """The predicted calls of an operation, by number of ranks and size.

    `ranks_per_node` of None: the one measured across hosts (default_ranks_per_node). `variant` has
    words that the variant of the models must have, such as `bfloat16`. Raises UsageError for an
    impossible request, UnavailableError where no measurement supports it.
    """
    sizes = sizes if OPERATIONS[operation].has_data else (0,)
    if len(world_sizes) * len(sizes) > MOST_PREDICTIONS:
        raise UsageError(
            f"{len(world_sizes)} numbers of ranks with {len(sizes)} sizes are too many",
            f"at most {MOST_PREDICTIONS:,} predictions are made at once",
        )
    per_node = default_ranks_per_node(machine) if ranks_per_node is None else ranks_per_node
    groups = [_Group.find(machine, operation, n, per_node, variant) for n in world_sizes]
    return [group.predict(size) for group in groups for size in sizes]


def default_ranks_per_node(machine: Machine) -> int:
    """The number of ranks on a host that was measured: the largest across hosts, else within."""
    by_kind = {
        kind: [n for found in machine.fitted if found.kind == kind for n in found.ranks_per_node]
        for kind in (ACROSS, WITHIN)
    }
    return max(by_kind[ACROSS] or by_kind[WITHIN] or [1])


def find_fitted(
    machine: Machine, operation: str, kind: str, variant: str = "", per_node: int | None = None
) -> FittedModel:
    """The model of an operation for a kind of group. UnavailableError where there is none,
    UsageError where several have the words of `variant`. Of models for other numbers of ranks per
    host, the one that was measured with the nearest number to `per_node` counts."""
    own = [found for found in machine.fitted if found.operation == operation]
    if not own:
        names = list(dict.fromkeys(found.operation for found in machine.fitted))
        raise UnavailableError(
            f"{machine.name} has no model of {operation}",
            f"it has {list_some(names, 8) or 'none'}; measure {operation}, and fit again",
        )
    found = [each for each in own if each.kind == kind]
    if not found:
        raise UnavailableError(
            f"{operation} was measured {own[0].kind} only, not {kind}",
            f"{_measured(own[0])}: choose --ranks-per-node to fit",
        )
    words = {word.strip() for word in variant.split(",")} - {""}
    fitting = [each for each in found if words <= set(each.variant.split(", "))]
    if per_node and len(fitting) > 1:
        far = [_distance(per_node, each.ranks_per_node) for each in fitting]
        fitting = [each for each, it in zip(fitting, far, strict=True) if it == min(far)]
    exact = [each for each in fitting if set(each.variant.split(", ")) - {""} == words]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    names = [repr(each.variant) for each in fitting or found if each.variant]
    if not fitting:
        raise UnavailableError(
            f"{operation} {kind} has no model named {variant!r}",
            f"write --variant with one of {list_some(names, 6)}"
            if names
            else "its measured calls do not differ: leave out --variant",
        )
    raise UsageError(
        f"{operation} {kind} has {len(fitting)} models", f"choose with --variant {names[0]}"
    )


def _measured(fitted: FittedModel) -> str:
    low, high = fitted.world_sizes[0], fitted.world_sizes[-1]
    ranks = f"{low} to {high:,} ranks" if low < high else format_count(low, "rank")
    return f"it was measured with {ranks}"


class _Group(NamedTuple):
    """The models of an operation in a group of ranks."""

    fitted: FittedModel
    world_size: int
    ranks_per_node: int
    curve: Curve
    rivals: tuple[Curve, ...]
    order: Order
    host: tuple[Curve, Order] | None
    """Of the ranks of one host of this group, where that was measured too."""

    @classmethod
    def find(
        cls, machine: Machine, operation: str, world_size: int, per_node: int, variant: str
    ) -> _Group:
        for name, value in (("ranks", world_size), ("ranks-per-node", per_node)):
            if not 1 <= value <= MOST_RANKS:
                raise UsageError(f"--{name} {value} is out of range", f"1 to {MOST_RANKS:,}")
        if world_size < 2:
            raise UsageError("one rank needs no communication", "ask for two ranks or more")
        kind = kind_of(world_size, per_node)
        fitted = find_fitted(machine, operation, kind, variant, per_node)
        if not fitted.cost_model.spans_ranks and world_size not in fitted.world_sizes:
            ranks = format_count(fitted.world_sizes[0], "rank")
            raise UnavailableError(
                f"{operation} {kind} was measured with {ranks} only: nothing shows how its time "
                "grows with the ranks",
                "measure other numbers of ranks too, and fit again",
            )
        host = None
        if kind == ACROSS and per_node > 1:
            same = [
                each
                for each in machine.fitted
                if (each.operation, each.kind, each.variant) == (operation, WITHIN, fitted.variant)
            ]
            if same:
                inside = Curve.of(operation, same[0])
                host = inside, Order.of(same[0])
        return cls(
            fitted, world_size, per_node,
            Curve.of(operation, fitted),
            tuple(Curve.of(operation, each) for each in fitted.rivals),
            Order.of(fitted), host,
        )  # fmt: skip

    def predict(self, size: int) -> Prediction:
        if not 0 <= size <= LARGEST_SIZE:
            raise UsageError(f"size {size} is out of range", f"sizes go from 1 to {LARGEST_SIZE}")
        only = self.fitted.largest_bytes
        if self.fitted.smallest_bytes == only and size > MOST_FROM_ONE_SIZE * only:
            raise UnavailableError(
                f"{self.fitted.operation} was measured with {format_bytes(only)} only: nothing "
                "says how its time grows with the size",
                f"ask for --sizes {format_size(only)}, or measure more sizes and fit again",
            )
        times = self._times(self.curve, size)
        middle = max(float(times[0]), SHORTEST_S)
        low, high = self._spread(times, size)
        error = Z * self._error(size)
        alone, latency, bandwidth = self._parts(size)
        return Prediction(
            self.fitted.operation, self.world_size, self.ranks_per_node, size, self.fitted.kind,
            self.fitted.model, middle, middle * exp(-hypot(low, error)),
            middle * exp(hypot(high, error)), latency / alone, bandwidth / alone,
            self._ranks_distance(), self._size_distance(size), abs(alone - middle) > 1e-9 * middle,
        )  # fmt: skip

    def _times(self, curve: Curve, size: float) -> NDArray[Any]:
        """The times by the fitted parameters and by the replicates; with several hosts, never below
        those of the ranks of one host."""
        import numpy as np

        times = self.order.times(curve, self.world_size, self.ranks_per_node, size)
        if self.host is None:
            return times
        inside, order = self.host
        within = order.times(inside, self.ranks_per_node, self.ranks_per_node, size)
        longest: NDArray[Any] = np.maximum(times, np.resize(within, len(times)))
        return longest

    def _spread(self, times: NDArray[Any], size: int) -> tuple[float, float]:
        """How far log(time) lies below and above the prediction in the replicates and in the
        rivals; not below 0."""
        import numpy as np

        others = [float(times[0]), *(float(self._times(rival, size)[0]) for rival in self.rivals)]
        if len(times) > 1:
            others += np.quantile(times[1:], (0.025, 0.975)).tolist()
        logs = [log(max(other, SHORTEST_S)) for other in others]
        return logs[0] - min(logs), max(logs) - logs[0]

    def _error(self, size: int) -> float:
        """The standard deviation of log(time) around the model: that of points left out of a fit,
        at least that of the nearest measured time, and what each doubling beyond the measured range
        adds to it. Doublings add up in proportion, since a model that grows with the wrong power is
        wrong by a constant factor for each. A fit that nothing tests counts as a poor one."""
        fitted = self.fitted
        base = max(scatter_at(fitted, size), uncertainty_at(fitted, self.world_size, size))
        if fitted.cv_error is None:
            base = max(base, POOR_ERROR)
        elif all(point.cv_error is None for point in fitted.points):
            base = max(base, MEAN_TO_SIGMA * fitted.cv_error)
        for_ranks = max(drift_at(fitted, size) * MEAN_TO_SIGMA, base / 2, ERROR_PER_DOUBLING)
        for_sizes = max(base / 4, ERROR_PER_DOUBLING)
        grown = for_ranks * self._ranks_distance() + for_sizes * self._size_distance(size)
        return min(hypot(base, grown), LARGEST_ERROR)

    def _ranks_distance(self) -> float:
        distance = _distance(self.world_size, self.fitted.world_sizes)
        if self.fitted.kind == ACROSS:
            distance += _distance(self.ranks_per_node, self.fitted.ranks_per_node)
        return distance

    def _size_distance(self, size: int) -> float:
        return _distance(size, (self.fitted.smallest_bytes, self.fitted.largest_bytes))

    def _parts(self, size: int) -> tuple[float, float, float]:
        """The time of the model alone, and its parts LATENCY and BANDWIDTH."""
        piece = self.fitted.pieces[piece_at(self.fitted.pieces, size)]
        model = self.fitted.cost_model
        terms = model.terms(self.world_size, self.ranks_per_node, size)
        factor = factor_at(self.fitted.size_factors, size)
        found = [factor * p * t for p, t in zip(piece.parameters, terms, strict=True)]
        parts = list(zip(model.parameters, found, strict=True))
        latency = sum(part for parameter, part in parts if parameter.unit in LATENCY_UNITS)
        bandwidth = sum(part for parameter, part in parts if parameter.unit == BETA.unit)
        return max(sum(found), SHORTEST_S), latency, bandwidth


def _distance(value: float, measured: Sequence[float]) -> float:
    """Doublings from a value to the range of the measured ones; 0 within it."""
    low, high = max(min(measured), 1), max(*measured, 1)
    return max(0.0, log2(low / max(value, 1)), log2(max(value, 1) / high))


def half_size(fitted: FittedModel, world_size: int, ranks_per_node: int) -> float | None:
    """n-half in bytes: the size at which latency and bandwidth take the same time, by the last
    piece; None where one of them is 0."""
    terms = fitted.cost_model.terms(world_size, ranks_per_node, 1)
    parts = {LATENCY: 0.0, BANDWIDTH: 0.0}
    for parameter, value, term in zip(
        fitted.cost_model.parameters, fitted.pieces[-1].parameters, terms, strict=True
    ):
        if parameter.unit in LATENCY_UNITS:
            parts[LATENCY] += value * term
        elif parameter.unit == BETA.unit:
            parts[BANDWIDTH] += value * term
    return parts[LATENCY] / parts[BANDWIDTH] if all(parts.values()) else None


def predict_one(
    machine: Machine, operation: str, world_size: int, ranks_per_node: int, size_bytes: int
) -> Prediction:
    """The prediction of one call; it raises what `predict` raises."""
    return predict(machine, operation, (world_size,), ranks_per_node, (size_bytes,))[0]

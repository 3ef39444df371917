"""Predicts the time of a collective on a machine whose models were fitted, with an interval.

The time never falls when the size or the number of ranks grows. A model alone may fall: at sizes
whose factor is small, and where groups begin to span hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import exp, log, log2
from statistics import median
from typing import NamedTuple

from commbench.analysis import rows, statistics
from commbench.answers.cost.cost_models import ACROSS, WITHIN, kind_of
from commbench.answers.cost.fit import SHORTEST_S, doublings_beyond
from commbench.answers.cost.intervals import LEAST_ODD, candidate_errors
from commbench.answers.cost.machine import Curve, FittedModel, Machine, Point, factor_at
from commbench.answers.cost.observations import PER_HOST, SELECTED
from commbench.errors import UnavailableError, UsageError
from commbench.output.text import list_some
from commbench.plan.groups import ALONE
from commbench.plan.operations import OPERATIONS
from commbench.stats import Estimate, collect, np
from commbench.units import LARGEST_SIZE, format_bytes, format_count, format_size
from commbench.validation import require_within
from commbench.views.formats import Result

LATENCY, BANDWIDTH = "latency", "bandwidth"
"""Parts of a time: what does not depend on the size, and what is proportional to it."""
MOST_RANKS = 1 << 24
MOST_PREDICTIONS = 100_000
MOST_FROM_ONE_SIZE = 16
"""Where one size was measured, sizes up to so many times as large are taken to cost as much."""


ROUNDING = 1e-9


class Request(NamedTuple):
    """What to predict."""

    operations: tuple[str, ...]
    world_sizes: tuple[int, ...]
    ranks_per_node: int | None
    """None: see choose_ranks_per_node."""
    sizes: tuple[int, ...]
    variant: str = ""
    """Words that the variant of the models must have, such as `bfloat16`."""


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
    fitted: FittedModel
    """The models that predict it."""
    time_s: float
    low_s: float
    high_s: float
    """The 95 % interval."""
    latency_share: float
    """The part of the time of the model that is latency, 0 to 1."""
    ranks_distance: float
    size_distance: float
    """Doublings beyond the measured numbers of ranks (also of ranks per host) and the measured
    sizes; 0 within them."""

    @property
    def model(self) -> str:
        """The name of the cost model, or of those that the measurements cannot tell apart."""
        return self.fitted.model

    @property
    def time(self) -> Estimate:
        """In seconds, with its interval."""
        return Estimate(self.time_s, self.low_s, self.high_s)

    @property
    def bound(self) -> str:
        """The part that takes most of the time: LATENCY or BANDWIDTH."""
        return LATENCY if self.latency_share >= 0.5 else BANDWIDTH

    @property
    def algbw(self) -> float | None:
        """S / t in bytes/s; None for an operation without data."""
        return self.size_bytes / self.time_s if self.size_bytes else None

    @property
    def bandwidth(self) -> Estimate | None:
        """The bus bandwidth in bytes/s, with its interval; None for an operation without data."""
        factor = OPERATIONS[self.operation].busbw_factor
        if not factor or not self.size_bytes:
            return None
        return self.time.map(lambda seconds: self.size_bytes / seconds * factor(self.world_size))

    @property
    def busbw(self) -> float | None:
        """The bus bandwidth in bytes/s; None for an operation without data."""
        return self.bandwidth and self.bandwidth.value


def predict(machine: Machine, request: Request) -> list[Prediction]:
    """The predicted calls, by operation, number of ranks and size. Raises UsageError for an
    impossible request, UnavailableError where no measurement supports it."""
    world_sizes, made = request.world_sizes, []
    per_node = choose_ranks_per_node(machine, world_sizes, request.ranks_per_node)
    for name in request.operations:
        sizes = request.sizes if OPERATIONS[name].has_data else (0,)
        if len(world_sizes) * len(sizes) > MOST_PREDICTIONS:
            why = f"{len(world_sizes)} numbers of ranks with {len(sizes)} sizes are too many"
            raise UsageError(why, f"at most {MOST_PREDICTIONS:,} predictions are made at once")
        for n in world_sizes:  # fewer ranks than a host has are all on one
            on_host = min(per_node, n)
            models = _find_models(machine, name, n, on_host, request.variant)
            made += [_predict_call(*models, n, on_host, size) for size in sizes]
    return made


def choose_ranks_per_node(machine: Machine, world_sizes: Sequence[int], asked: int | None) -> int:
    """The number asked for; without one the largest that was measured across hosts, or all ranks on
    one host where only one was measured."""
    if asked is not None:
        return asked
    across = [n for each in machine.fitted if each.kind == ACROSS for n in each.ranks_per_node]
    within = [n for each in machine.fitted for n in each.ranks_per_node]
    return max(across or [*within, *world_sizes, 1])


def find_fitted(
    machine: Machine, operation: str, kind: str, variant: str = "", per_node: int | None = None
) -> FittedModel:
    """The model of an operation for a kind of group. UnavailableError where there is none,
    UsageError where several have the words of `variant`. Of models for other numbers of ranks per
    host, the one that was measured with the nearest number to `per_node` counts."""
    own = [found for found in machine.fitted if found.operation == operation]
    if not own:
        names = list(dict.fromkeys(found.operation for found in machine.fitted))
        hint = f"it has {list_some(names, 8) or 'none'}; measure {operation}, and fit again"
        raise UnavailableError(f"{machine.name} has no model of {operation}", hint)
    found = [each for each in own if each.kind == kind]
    if not found:
        ranks, on_host = own[0].fitted_points[-1][:2]
        hint = f"predict what was measured: --ranks {ranks} --ranks-per-node {on_host}"
        raise UnavailableError(f"{operation} was measured {own[0].kind} only, not {kind}", hint)
    words = {word.strip() for word in variant.split(",")} - {""}
    fitting = [each for each in found if words <= set(each.variant.split(", "))]
    if per_node and fitting:
        nearest = min(doublings_beyond(per_node, each.ranks_per_node) for each in fitting)
        fitting = [e for e in fitting if doublings_beyond(per_node, e.ranks_per_node) == nearest]
    exact = [each for each in fitting if set(each.variant.split(", ")) - {""} == words]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    names = [repr(each.variant) for each in fitting or found if each.variant]
    hint = f"write --variant with one of {list_some(names, 6)}" if names else "leave out --variant"
    if not fitting:
        raise UnavailableError(f"{operation} {kind} has no model named {variant!r}", hint)
    raise UsageError(f"{operation} {kind} has {len(fitting)} models", hint)


def models_of_row(machine: Machine, row: rows.ResultRow, own: Sequence[object]) -> Machine:
    """The machine with those models only whose variant describes the row, which has these values
    of dimensions; the whole machine where none does."""
    known = {*map(str, own), row.case.concurrency or ALONE, ""}
    known.add(f"{SELECTED} {' '.join(row.nccl_selection[:2]).lower()}")
    fitting = [
        each
        for each in machine.fitted
        if all(word in known or word.endswith(PER_HOST) for word in each.variant.split(", "))
    ]
    return replace(machine, fitted=tuple(fitting)) if fitting else machine


def _longest(curve: Curve, world_size: int, per_node: int, size: float) -> float:
    """The longest time of all sizes up to this one. Between the sizes of factors, log(time) is
    convex in log(size)."""
    smaller = [each for each, _ in curve.size_factors if each < size]
    return max(curve.time(world_size, per_node, each) for each in (*smaller, size))


def _find_models(
    machine: Machine, operation: str, world_size: int, per_node: int, variant: str
) -> tuple[FittedModel, FittedModel | None]:
    """The model of an operation in a group of ranks; and, across hosts, that of the ranks of one of
    these hosts, where that was measured too."""
    require_within("--ranks", world_size, 1, MOST_RANKS)
    require_within("--ranks-per-node", per_node, 1, MOST_RANKS)
    if world_size < 2:
        raise UsageError("one rank needs no communication", "ask for two ranks or more")
    kind = kind_of(world_size, per_node)
    fitted = find_fitted(machine, operation, kind, variant, per_node)
    if not fitted.best.curve.model.spans_ranks and world_size not in fitted.world_sizes:
        ranks = format_count(fitted.world_sizes[0], "rank")
        why = f"{operation} {kind} was measured with {ranks} only: nothing shows other ranks"
        hint = f"ask for --ranks {fitted.world_sizes[0]}, or fit runs with three numbers of ranks"
        raise UnavailableError(why, hint)
    same = (operation, WITHIN, fitted.variant)
    inside = (m for m in machine.fitted if (m.operation, m.kind, m.variant) == same)
    return fitted, next(inside, None) if kind == ACROSS and per_node > 1 else None


def _predict_call(
    fitted: FittedModel, host: FittedModel | None, world_size: int, per_node: int, size: int
) -> Prediction:
    """The prediction of one call; with several hosts, never below that of the ranks of one host."""
    require_within("size", size, 0, LARGEST_SIZE)
    sizes = fitted.sizes
    if len(sizes) == 1 and size > MOST_FROM_ONE_SIZE * sizes[0]:
        only = f"{fitted.operation} was measured with {format_bytes(sizes[0])} only"
        hint = f"ask for --sizes {format_size(sizes[0])}, or measure more sizes and fit again"
        raise UnavailableError(f"{only}: nothing shows other sizes", hint)
    at = (world_size, per_node, size)
    time, low, high = _interval_at(fitted, host, at)
    # No call takes less time than a smaller one.
    known = _measured_intervals(fitted, host, *at[:2])
    larger = [e[1] for e in known if e[0] >= size]
    low = min(low, *larger) if larger else max(low, known[-1][1])
    if size < sizes[0]:
        high = min(max(high, known[0][2]), known[1][2])
    else:
        high = max([high, *(e[2] for e in known[1:] if e[0] < size)])
    parts = fitted.best.curve.parts(*at)
    distance = doublings_beyond(world_size, fitted.world_sizes)
    if fitted.kind == ACROSS:
        distance += doublings_beyond(per_node, fitted.ranks_per_node)
    return Prediction(
        fitted.operation, *at, fitted.kind, fitted,
        time, low, high, sum(parts[:2]) / max(sum(parts), SHORTEST_S),
        distance, doublings_beyond(size, sizes),
    )  # fmt: skip


def _interval_at(
    fitted: FittedModel, host: FittedModel | None, at: tuple[int, int, int]
) -> tuple[float, float, float]:
    """The time of a call with the interval of all candidates, not ordered by the size. More ranks
    than were measured may follow the model, or the largest number that was."""
    least = _longest(host.best.curve, at[1], at[1], at[2]) if host else SHORTEST_S
    doublings, uncertainties, residuals = _measured(fitted, at[0], at[1])
    place = log2(max(at[2], 1))
    measured = float(np.interp(place, doublings, uncertainties))
    largest = fitted.fitted_points[-1][:2]
    followed = [at[:2], *[largest] * (at[0] > largest[0])]
    times, lows, highs = [], [], []
    for errors in candidate_errors(fitted):
        curves = (_curve_of_ranks(fitted, errors.candidate.curve, *ranks) for ranks in followed)
        own = [max(_longest(curve, *at), least, SHORTEST_S) for curve in curves]
        factor = exp(statistics.Z * max(measured, errors.at(at)))
        times.append(own[0])
        lows.append(min(own) / factor)
        highs.append(max(own) * factor + errors.unseen_time(at))
    shown = times[0] * exp(np.interp(place, doublings, residuals))
    return times[0], min(*lows, shown * (1 - ROUNDING)), max(*highs, shown * (1 + ROUNDING))


@lru_cache(maxsize=1024)
def _measured_intervals(
    fitted: FittedModel, host: FittedModel | None, world_size: int, per_node: int
) -> list[tuple[int, float, float]]:
    """The measured sizes, after a size of 0, each with the interval there."""
    sizes = [0, *sorted({point.size_bytes for point in fitted.fitted_points} - {0})]
    return [(s, *_interval_at(fitted, host, (world_size, per_node, s))[1:]) for s in sizes]


@lru_cache(maxsize=1024)
def _measured(
    fitted: FittedModel, world_size: int, per_node: int
) -> tuple[list[float], list[float], list[float]]:
    """The doublings of the sizes that were measured with the nearest number of ranks; of each the
    least uncertainty, and log(measured/predicted), which is 0 for other ranks than these."""
    points = fitted.fitted_points
    away = [doublings_beyond(world_size, (point.world_size,)) for point in points]
    near = [point for point, found in zip(points, away, strict=True) if found == min(away)]
    by_size = collect((point.size_bytes, point) for point in sorted(near, key=lambda p: p[2]))
    own = (world_size, per_node)
    curve = _curve_of_ranks(fitted, fitted.best.curve, *own)
    residuals = [
        median([_residual(_longest(curve, *p[:3]), p) for p in same if p[:2] == own] or [0.0])
        for same in by_size.values()
    ]
    least = [min(point.uncertainty for point in same) for same in by_size.values()]
    return [log2(max(size, 1)) for size in by_size], least, residuals


@lru_cache(maxsize=1024)
def _curve_of_ranks(fitted: FittedModel, curve: Curve, world_size: int, per_node: int) -> Curve:
    """The curve with the factors that measured times of these ranks have, if one differs from it by
    more than LEAST_ODD; else, and for other ranks, the curve itself. The residual of a size is the
    median of three neighbouring ones, since one odd time is chance."""
    points = [each for each in fitted.fitted_points if each[:2] == (world_size, per_node)]
    by_size = collect((p.size_bytes, _residual(curve.time(*p[:3]), p)) for p in points)
    found = [median(by_size[size]) for size in sorted(by_size)]
    starts = [max(0, min(at - 1, len(found) - 3)) for at in range(len(found))]
    medians = [median(found[start : start + 3]) for start in starts]
    if max(map(abs, medians), default=0.0) <= LEAST_ODD:
        return curve
    every = sorted({*by_size, *(size for size, _ in curve.size_factors)} - {0})
    places = [log2(max(size, 1)) for size in sorted(by_size)]
    factors = (
        (size, factor_at(curve.size_factors, size) * exp(np.interp(log2(size), places, medians)))
        for size in every
    )
    return curve._replace(size_factors=tuple(factors))


def _residual(time_s: float, point: Point) -> float:
    return log(point.time_s / max(time_s, SHORTEST_S))


@dataclass(frozen=True, repr=False)
class Projection(Result, view="answers.cost.predict_document", rows="rows"):
    """The predictions of a request, made when they are used: `predictions` and whatever shows them
    raise UnavailableError where no measurement supports one."""

    machine: Machine
    request: Request

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """By operation, number of ranks and size."""
        return tuple(predict(self.machine, self.request))

    @cached_property
    def by_model(self) -> tuple[tuple[FittedModel, list[Prediction]], ...]:
        """Each model, with what it predicts."""
        return tuple(collect((each.fitted, each) for each in self.predictions).items())


def project(machine: Machine, request: Request) -> Projection:
    """The projection of a request. No operation in it stands for all of the machine. UsageError for
    ranks that do not fill hosts."""
    per_node = choose_ranks_per_node(machine, request.world_sizes, request.ranks_per_node)
    for ranks in request.world_sizes:
        if 0 < per_node < ranks <= MOST_RANKS and ranks % per_node:
            why = f"{ranks} ranks do not fill hosts of {format_count(per_node, 'rank')}"
            raise UsageError(why, f"ask for --ranks {ranks - ranks % per_node + per_node}")
    names = request.operations or tuple(dict.fromkeys(each.operation for each in machine.fitted))
    return Projection(machine, request._replace(operations=names, ranks_per_node=per_node))

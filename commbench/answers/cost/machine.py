"""A machine: the cost models that were fitted to its measurements, and its file. Times are in
seconds.

History of VERSION:
    1   2026-11-22   first version
    2   2026-11-23   models without pieces, pipelines and replicates
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.figures import interpolate
from commbench.analysis.statistics import Z
from commbench.answers.cost.cost_models import GROUP_KINDS, PARAMETERS, CostModel, Terms, find_model
from commbench.errors import RecordsError
from commbench.output.text import short_repr
from commbench.plan.operations import OPERATIONS
from commbench.results.files import read_whole, write_new
from commbench.units import LARGEST_SIZE
from commbench.validation import brief, build
from commbench.views.formats import Result, as_json

VERSION = 2
FORMAT = "commbench machine"
MOST_BYTES = 1 << 28
CROWD = "too_few_cores"
"""The fact that ranks of CPUs shared cores."""
WARNING = "Warning: "
"""The beginning of a note that warns."""
LARGEST_NUMBER = 1e7
"""Of parameters, times in seconds and errors."""
MOST_CHANNELS = 1 << 10


class Point(NamedTuple):
    """A measured time that a model was compared with."""

    world_size: int
    ranks_per_node: int
    size_bytes: int
    time_s: float
    is_left_out: bool = False
    """Whether the model was fitted without it, as the user requested."""
    channels: int = 0
    """NCCL's channels, where it logged what it selected."""
    uncertainty: float = 0.0
    """Standard deviation of log(time), by the interval that was measured or predicted with the
    time; 0 where none is known."""


def uncertainty(time: float, low: float | None, high: float | None) -> float:
    """The standard deviation of log(time) by the wider side of a 95 % interval; 0 without one."""
    return max(log(time / low), log(high / time), 0.0) / Z if low and high else 0.0


class Curve(NamedTuple):
    """A cost model with its parameters."""

    model: CostModel
    parameters: tuple[float, ...]
    """Of cost_models.PARAMETERS, in their units."""
    size_factors: tuple[tuple[float, float], ...] = ()
    """Sizes in bytes, ascending, each with what the time of the model is multiplied by there,
    whatever the number of ranks; between two sizes see factor_at. Empty for few sizes."""

    def parts(self, world_size: int, ranks_per_node: int, size_bytes: float) -> Terms:
        """The time in seconds that each parameter takes."""
        factor = factor_at(self.size_factors, size_bytes)
        terms = self.model.terms(world_size, ranks_per_node, size_bytes)
        fixed, steps, wire = (factor * p * t for p, t in zip(self.parameters, terms, strict=True))
        return fixed, steps, wire

    def time(self, world_size: int, ranks_per_node: int, size_bytes: float) -> float:
        """The time in seconds by the formula and the factor of the size."""
        return sum(self.parts(world_size, ranks_per_node, size_bytes))


class Candidate(NamedTuple):
    """A model that may describe the measurements, and its errors where times were left out of the
    fit. Errors are of log(measured/predicted), which is nearly the relative error."""

    curve: Curve
    cv_error: float | None
    """The mean absolute error of times left out; None where there are too few times."""
    error_scale: float = 1.0
    """How many times as large the errors of numbers of ranks that were left out are as the errors
    that the rest of the times makes expect (cost.intervals); at least 1."""
    size_growth: float = 0.0
    """How much the error grows with each doubling of the size beyond the measured ones."""


@short_repr("title", "model")
class FittedModel(NamedTuple):
    """The models of one operation, for one kind of group."""

    operation: str
    kind: str
    """WITHIN or ACROSS (cost.cost_models)."""
    candidates: tuple[Candidate, ...]
    """The models that the data cannot tell apart, the best first."""
    scatter: float
    """Of the points around the best: 1.4826 x the median absolute deviation."""
    points: tuple[Point, ...]
    """What was measured, in ascending order of ranks and size."""
    variant: str = ""
    """What the calls have besides operation and size, such as `bfloat16, pipelined`."""

    @property
    def best(self) -> Candidate:
        """The candidate that predictions use; the others only widen the intervals."""
        return self.candidates[0]

    @property
    def rivals(self) -> tuple[Candidate, ...]:
        """The other candidates."""
        return self.candidates[1:]

    @property
    def is_decided(self) -> bool:
        """Whether the measurements decide between models that grow differently with the ranks."""
        return not self.rivals or len(self.world_sizes) > 2

    @property
    def model(self) -> str:
        """The name of the model; of all candidates where the measurements do not decide."""
        chosen = self.candidates[:1] if self.is_decided else self.candidates
        return " or ".join(each.curve.model.name for each in chosen)

    @property
    def title(self) -> str:
        """What it is a model of: `all_reduce across hosts (bfloat16)`."""
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.operation} {self.kind}{variant}"

    @property
    def fitted_points(self) -> tuple[Point, ...]:
        """The points that the model was fitted to."""
        return tuple(point for point in self.points if not point.is_left_out)

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The numbers of ranks that it was fitted to, ascending."""
        return tuple(sorted({point.world_size for point in self.fitted_points}))

    @property
    def ranks_per_node(self) -> tuple[int, ...]:
        """The numbers of ranks on a host that it was fitted to, ascending."""
        return tuple(sorted({point.ranks_per_node for point in self.fitted_points}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that it was fitted to, ascending."""
        return tuple(sorted({point.size_bytes for point in self.fitted_points}))


@dataclass(frozen=True, repr=False)
class Machine(Result, view="answers.cost.fit_document", rows="fitted parameters"):
    """The fitted models of one machine."""

    name: str
    source: tuple[str, ...]
    """The runs and files that it was fitted to."""
    device: str
    """Such as `NVIDIA H100`; empty where the sources do not say it."""
    backend: str
    facts: dict[str, str]
    """What else is known of it: versions, hosts."""
    fitted: tuple[FittedModel, ...]
    notes: tuple[str, ...] = ()
    """What could not be fitted, and which measurements were not used."""


def factor_at(size_factors: Sequence[tuple[float, float]], size_bytes: float) -> float:
    """What the time of a model is multiplied by at a size. Between two sizes, the logarithm of the
    factor is linear in that of the size; outside of all, the factor is that of the nearest."""
    if not size_factors:
        return 1.0
    low, high = size_factors[0][0], size_factors[-1][0]
    return interpolate(size_factors, min(max(size_bytes, low), high)) or 1.0


def write_machine(machine: Machine, path: Path) -> None:
    """Write a new machine file; RecordsError where it exists or cannot be written."""
    found = {"format": FORMAT, "version": VERSION, **as_json(machine)}
    write_new(path, json.dumps(found, indent=1) + "\n")


def read_machine(path: str | Path) -> Machine:
    """The machine in a file. RecordsError says what is wrong with it."""
    hint = "give a file that `commbench model fit RUN... -o FILE` wrote"
    if Path(path).is_dir() or not Path(path).suffix:
        hint = f"fit the run first: `commbench model fit {path} -o {Path(path).name}.json`"
    try:
        found = json.loads(read_whole(Path(path), MOST_BYTES, hint))
    except (ValueError, RecursionError):
        raise RecordsError(f"{path} is not a machine file: it is not JSON", hint) from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise RecordsError(f"{path} is not a machine file", hint)
    version = found.pop("version", None)
    if type(version) is not int:
        raise RecordsError(f"{path} is damaged: version is {brief(version)}", hint)
    if version != VERSION:
        raise RecordsError(
            f"{path} has version {version} of the machine file; this commbench reads {VERSION}",
            "update commbench" if version > VERSION else "fit the machine again",
        )
    try:
        _require_limits("", found)
        return build(Machine, found, fitted=_make_fitted)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = str(error.args[0]) if error.args else type(error).__name__
        raise RecordsError(f"{path} is damaged: {why[:200]}", hint) from None


_LARGEST = {
    "world_size": LARGEST_SIZE, "ranks_per_node": LARGEST_SIZE, "size_bytes": LARGEST_SIZE,
    "size_factors": LARGEST_SIZE, "channels": MOST_CHANNELS,
}  # fmt: skip
_ABOVE_0 = ("world_size", "ranks_per_node", "time_s", "size_factors")


def _require_limits(name: str, value: Any) -> None:
    """Raise ValueError for a number of the file, at any depth, that is too small or too large."""
    if isinstance(value, dict):
        for inner, each in value.items():
            _require_limits(inner, each)
    elif isinstance(value, list):
        for each in value:
            _require_limits(name, each)
    elif isinstance(value, int | float):
        is_enough = value > 0 if name in _ABOVE_0 else value >= 0
        if not is_enough or value > _LARGEST.get(name, LARGEST_NUMBER):
            raise ValueError(f"{name} is {brief(value)}")


def _make_fitted(found: dict[str, Any]) -> FittedModel:
    operation, kind = found["operation"], found["kind"]
    if operation not in OPERATIONS or kind not in GROUP_KINDS:
        raise ValueError(f"no model is of {brief(operation)} {brief(kind)}")
    candidate = partial(build, Candidate, curve=partial(_make_curve, operation))
    fitted = build(FittedModel, found, candidates=candidate, points=partial(build, Point))
    if not fitted.candidates or not fitted.fitted_points:
        raise ValueError("a model without points or parameters")
    return fitted


def _make_curve(operation: str, found: dict[str, Any]) -> Curve:
    factors = [*map(tuple, found["size_factors"])]
    model = find_model(operation, found["model"])
    curve = build(Curve, {**found, "model": model, "size_factors": factors})
    if len(curve.parameters) != len(PARAMETERS):
        raise ValueError(f"a model does not have {len(PARAMETERS)} parameters")
    if any(larger <= size for size, larger in pairwise([size for size, _ in factors])):
        raise ValueError("the size factors are not in ascending order")
    return curve

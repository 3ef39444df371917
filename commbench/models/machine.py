"""A machine: the cost models that were fitted to its measurements, and the file of them.

History of VERSION:
    1   2026-11-22   first version
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from math import ceil, log, log2
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from commbench.errors import RecordsError
from commbench.models.cost_models import GROUP_KINDS, CostModel, find_model
from commbench.results.files import why_unreadable, write_new
from commbench.spec.operations import OPERATIONS
from commbench.units import LARGEST_SIZE
from commbench.validation import brief

VERSION = 1
FORMAT = "commbench machine"
MOST_BYTES = 1 << 28
LARGEST_NUMBER = 1e7
"""Of parameters, times in seconds and errors."""
DIGITS = 7
"""Significant digits of numbers in the file."""
MOST_CHANNELS = 1 << 10
NEAREST = 12
"""Points nearest in size whose errors count in scatter_at."""
DRIFT_LIMITS = (0.5, 4.0)
Z = 1.96
"""Standard deviations of a 95 % interval."""
MAD_TO_SD = 1.4826
"""The standard deviation of normal errors over the median of their absolute values."""


class Piece(NamedTuple):
    """The parameters for a range of sizes; a new one begins where the protocol switches."""

    up_to_bytes: float | None
    """The largest size of the range; None for the last piece."""
    parameters: tuple[float, ...]
    """In the order of the model's parameters, in their units."""
    samples: tuple[tuple[float, ...], ...] = ()
    """Replicates of the bootstrap: the parameters of as many fits to resampled data. The n-th
    replicate of each piece is of the same resampled data."""


class Point(NamedTuple):
    """A measured time that a model was compared with."""

    world_size: int
    ranks_per_node: int
    size_bytes: int
    time_s: float
    is_left_out: bool = False
    """Whether the model was fitted without it, as the user requested."""
    cv_error: float | None = None
    """log(measured/predicted), where a fit without this point's number of ranks, or without its
    range of sizes, predicts it; None where that was not tried."""
    channels: int = 0
    """NCCL's channels, where it logged what it selected."""
    uncertainty: float = 0.0
    """Standard deviation of log(time), by the interval that was measured or predicted with the
    time; 0 where none is known."""


class Rival(NamedTuple):
    """A model that the data cannot tell from the chosen one."""

    model: str
    cv_error: float
    pieces: tuple[Piece, ...]
    size_factors: tuple[tuple[float, float], ...] = ()


class FittedModel(NamedTuple):
    """The model of one operation, for one kind of group. Errors are of log(measured/predicted),
    which is nearly the relative error."""

    operation: str
    kind: str
    """WITHIN or ACROSS (models.cost_models)."""
    model: str
    """The name of the cost model."""
    pieces: tuple[Piece, ...]
    """In ascending order of size; at least one."""
    scatter: float
    """Of the points around the fit: 1.4826 x the median absolute deviation."""
    cv_error: float | None
    """The mean absolute error of points that a fit was made without, by cross-validation; None
    where there are too few points."""
    drift: float
    """How much the error grows with each doubling of the ranks above the measured ones. Measured by
    fits to the smaller numbers of ranks; 0 where there are fewer than three."""
    rivals: tuple[Rival, ...]
    """Models that the data cannot tell from the chosen one, the best first."""
    points: tuple[Point, ...]
    """What was measured, in ascending order of ranks and size."""
    variant: str = ""
    """What the calls have besides operation and size, such as `bfloat16, pipelined`."""
    size_factors: tuple[tuple[float, float], ...] = ()
    """Sizes in bytes, ascending, each with what the time of the model is multiplied by there,
    whatever the number of ranks; between two sizes see factor_at. Empty where such factors do not
    help to predict numbers of ranks that were left out."""

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
    def smallest_bytes(self) -> int:
        """The smallest size that it was fitted to."""
        return min(point.size_bytes for point in self.fitted_points)

    @property
    def largest_bytes(self) -> int:
        """The largest size that it was fitted to."""
        return max(point.size_bytes for point in self.fitted_points)

    @property
    def cost_model(self) -> CostModel:
        """The model's entry in the table."""
        return find_model(self.operation, self.model)


class Machine(NamedTuple):
    """The fitted models of one machine."""

    version: int
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


def piece_at(pieces: tuple[Piece, ...], size_bytes: float) -> int:
    """The index of the piece that a size belongs to."""
    for index, piece in enumerate(pieces):
        if piece.up_to_bytes is None or size_bytes <= piece.up_to_bytes:
            return index
    return len(pieces) - 1


def time_of(fitted: FittedModel, world_size: int, ranks_per_node: int, size_bytes: float) -> float:
    """The fitted time in seconds: the formula alone, without interval or limits."""
    piece = fitted.pieces[piece_at(fitted.pieces, size_bytes)]
    terms = fitted.cost_model.terms(world_size, ranks_per_node, size_bytes)
    time_s = sum(p * t for p, t in zip(piece.parameters, terms, strict=True))
    return time_s * factor_at(fitted.size_factors, size_bytes)


def factor_at(size_factors: Sequence[tuple[float, float]], size_bytes: float) -> float:
    """What the time of a model is multiplied by at a size. Between two sizes, the logarithm of the
    factor is linear in that of the size; outside of all, the factor is that of the nearest."""
    if not size_factors:
        return 1.0
    sizes = [size for size, _ in size_factors]
    above = bisect_left(sizes, size_bytes)
    if above in (0, len(sizes)):
        return size_factors[min(above, len(sizes) - 1)][1]
    (low, first), (high, last) = size_factors[above - 1 : above + 1]
    part = log(size_bytes / low) / log(high / low)
    return float(first * (last / first) ** part)


def scatter_at(fitted: FittedModel, size_bytes: float) -> float:
    """How far a measured time lies from the model at about this size: the part of 0.68 (one
    standard deviation of a normal distribution) of the errors of the NEAREST points that fits were
    made without; where there are none, the scatter."""
    errors = sorted(
        (abs(log2(max(point.size_bytes, 1) / max(size_bytes, 1))), abs(point.cv_error))
        for point in fitted.fitted_points
        if point.cv_error is not None
    )
    nearest = sorted(error for _, error in errors[:NEAREST])
    if not nearest:
        return fitted.scatter
    return max(fitted.scatter, nearest[ceil(0.68 * len(nearest)) - 1])


def uncertainty_at(fitted: FittedModel, world_size: int, size_bytes: float) -> float:
    """The uncertainty of the time that was measured nearest to these ranks and this size; of
    several times the smallest."""

    def distance(point: Point) -> float:
        ranks = abs(log2(point.world_size / world_size))
        return ranks + abs(log2(max(point.size_bytes, 1) / max(size_bytes, 1)))

    return min((distance(point), point.uncertainty) for point in fitted.fitted_points)[1]


def drift_at(fitted: FittedModel, size_bytes: float) -> float:
    """How much the error grows with each doubling of the ranks at about this size: the drift, more
    or less of it where the scatter is larger or smaller than at most sizes."""
    known = [point.cv_error for point in fitted.fitted_points if point.cv_error is not None]
    usual = MAD_TO_SD * median(map(abs, known)) if known else 0.0
    if not usual:
        return fitted.drift
    low, high = DRIFT_LIMITS
    return fitted.drift * min(high, max(low, scatter_at(fitted, size_bytes) / usual))


def write_machine(machine: Machine, path: Path) -> None:
    """Write a new machine file; RecordsError where it exists or cannot be written."""
    write_new(path, json.dumps({"format": FORMAT, **_to_json(machine)}, indent=1) + "\n")


def read_machine(path: str | Path) -> Machine:
    """The machine in a file. RecordsError says what is wrong with it."""
    path = Path(path)
    hint = "give a file that `commbench model fit RUN... -o FILE` wrote"
    why = why_unreadable(path, MOST_BYTES)
    if why:
        raise RecordsError(f"cannot read {path}: {why}", hint)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}", hint) from None
    except (ValueError, RecursionError):
        raise RecordsError(f"{path} is not a machine file: it is not JSON", hint) from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise RecordsError(f"{path} is not a machine file", hint)
    version = found.get("version")
    if type(version) is not int:
        raise RecordsError(f"{path} is damaged: version is {brief(version)}", hint)
    if version > VERSION:
        raise RecordsError(
            f"{path} has version {version} of the machine file; this commbench reads {VERSION}",
            "update commbench, or fit the machine again",
        )
    try:
        return _make_machine(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = str(error.args[0]) if error.args else type(error).__name__
        raise RecordsError(f"{path} is damaged: {why[:200]}", hint) from None


def _to_json(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _to_json(each) for name, each in value._asdict().items()}
    if isinstance(value, tuple):
        return [_to_json(each) for each in value]
    if isinstance(value, float):
        return value if value.is_integer() else float(f"{value:.{DIGITS}g}")
    return value


def _make_machine(found: dict[str, Any]) -> Machine:
    values = dict(found)
    values["fitted"] = tuple(_make_fitted(each) for each in found["fitted"])
    for name in ("source", "notes"):
        values[name] = tuple(_text(name, each) for each in found[name])
    for name in ("name", "device", "backend"):
        _text(name, found[name])
    if not isinstance(found["facts"], dict):
        raise ValueError("facts is no object")
    values["facts"] = {key: _text(key, text) for key, text in found["facts"].items()}
    return Machine(**values)


def _make_fitted(found: dict[str, Any]) -> FittedModel:
    values = dict(found)
    for name in ("operation", "kind", "model", "variant"):
        _text(name, found[name])
    if found["operation"] not in OPERATIONS:
        raise ValueError(f"operation is {found['operation'][:40]}")
    if found["kind"] not in GROUP_KINDS:
        raise ValueError(f"kind is {found['kind'][:40]}")
    model = find_model(found["operation"], found["model"])
    values["pieces"] = _make_pieces(found["pieces"], len(model.parameters))
    for name in ("scatter", "drift"):
        _number(name, found[name])
    if found["cv_error"] is not None:
        _number("cv_error", found["cv_error"])
    values["rivals"] = tuple(_make_rival(found["operation"], each) for each in found["rivals"])
    values["size_factors"] = _make_factors(found.get("size_factors", []))
    values["points"] = tuple(_make_point(each) for each in found["points"])
    if all(point.is_left_out for point in values["points"]):
        raise ValueError("a model without points")
    return FittedModel(**values)


def _make_rival(operation: str, found: dict[str, Any]) -> Rival:
    model = find_model(operation, _text("model", found["model"]))
    pieces = _make_pieces(found["pieces"], len(model.parameters))
    factors = _make_factors(found.get("size_factors", []))
    return Rival(model.name, _number("cv_error", found["cv_error"]), pieces, factors)


def _make_factors(found: list[Any]) -> tuple[tuple[float, float], ...]:
    factors = tuple((_number("a size", s, LARGEST_SIZE), _number("a factor", f)) for s, f in found)
    sizes = [size for size, _ in factors]
    if sizes != sorted(set(sizes)) or not all(size and factor for size, factor in factors):
        raise ValueError("the size factors are not in ascending order and above 0")
    return factors


def _make_point(found: dict[str, Any]) -> Point:
    point = Point(**found)
    for name, value in zip(point._fields[:3], point[:3], strict=True):
        if type(value) is not int or not (name != "size_bytes") <= value <= LARGEST_SIZE:
            raise ValueError(f"{name} is {brief(value)}")
    if type(point.channels) is not int or not 0 <= point.channels <= MOST_CHANNELS:
        raise ValueError(f"channels is {brief(point.channels)}")
    if not _number("time_s", point.time_s) or type(point.is_left_out) is not bool:
        raise ValueError("a point has no time")
    if point.cv_error is not None:
        _number("cv_error", abs(point.cv_error))
    _number("uncertainty", point.uncertainty)
    return point


def _make_pieces(found: list[Any], count: int) -> tuple[Piece, ...]:
    pieces = tuple(_make_piece(each, count) for each in found)
    ends = [piece.up_to_bytes for piece in pieces[:-1] if piece.up_to_bytes is not None]
    if len(ends) != len(pieces) - 1 or pieces[-1].up_to_bytes is not None:
        raise ValueError("the pieces do not cover all sizes")
    if ends != sorted(set(ends)):
        raise ValueError("the pieces are not in ascending order")
    if len({len(piece.samples) for piece in pieces}) > 1:
        raise ValueError("the pieces have different numbers of samples")
    return pieces


def _make_piece(found: dict[str, Any], count: int) -> Piece:
    end = found["up_to_bytes"]
    if end is not None:
        _number("up_to_bytes", end, LARGEST_SIZE)
    sets = [found["parameters"], *found["samples"]]
    made = [tuple(_number("a parameter", value) for value in each) for each in sets]
    if any(len(each) != count for each in made):
        raise ValueError(f"a piece does not have {count} parameters")
    return Piece(end, made[0], tuple(made[1:]))


def _number(name: str, value: Any, most: float = LARGEST_NUMBER) -> float:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"{name} is {brief(value)}")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value

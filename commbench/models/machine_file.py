"""The file of a machine.

History of VERSION:
    1   2026-11-22   first version
    2   2026-11-23   models without pieces, pipelines and replicates
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commbench.errors import RecordsError
from commbench.models.cost_models import GROUP_KINDS, PARAMETERS, CostModel, find_model
from commbench.models.machine import Candidate, Curve, FittedModel, Machine, Point
from commbench.results.files import why_unreadable, write_new
from commbench.spec.operations import OPERATIONS
from commbench.units import LARGEST_SIZE
from commbench.validation import brief

VERSION = 2
FORMAT = "commbench machine"
MOST_BYTES = 1 << 28
LARGEST_NUMBER = 1e7
"""Of parameters, times in seconds and errors."""
DIGITS = 7
"""Significant digits of numbers in the file."""
MOST_CHANNELS = 1 << 10


def write_machine(machine: Machine, path: Path) -> None:
    """Write a new machine file; RecordsError where it exists or cannot be written."""
    found = {"format": FORMAT, "version": VERSION, **_to_json(machine)}
    write_new(path, json.dumps(found, indent=1) + "\n")


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
    version = found.pop("version", None)
    if type(version) is not int:
        raise RecordsError(f"{path} is damaged: version is {brief(version)}", hint)
    if version != VERSION:
        raise RecordsError(
            f"{path} has version {version} of the machine file; this commbench reads {VERSION}",
            "update commbench" if version > VERSION else "fit the machine again",
        )
    try:
        return _make_machine(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = str(error.args[0]) if error.args else type(error).__name__
        raise RecordsError(f"{path} is damaged: {why[:200]}", hint) from None


def _to_json(value: Any) -> Any:
    if isinstance(value, CostModel):
        return value.name
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
    for name in ("operation", "kind", "variant"):
        _text(name, found[name])
    if found["operation"] not in OPERATIONS:
        raise ValueError(f"operation is {found['operation'][:40]}")
    if found["kind"] not in GROUP_KINDS:
        raise ValueError(f"kind is {found['kind'][:40]}")
    candidates = (_make_candidate(found["operation"], each) for each in found["candidates"])
    values["candidates"] = tuple(candidates)
    _number("scatter", found["scatter"])
    values["points"] = tuple(_make_point(each) for each in found["points"])
    if not values["candidates"] or all(point.is_left_out for point in values["points"]):
        raise ValueError("a model without points or parameters")
    return FittedModel(**values)


def _make_candidate(operation: str, found: dict[str, Any]) -> Candidate:
    for name in ("error_scale", "size_growth"):
        _number(name, found[name])
    if found["cv_error"] is not None:
        _number("cv_error", found["cv_error"])
    return Candidate(**{**found, "curve": _make_curve(operation, found["curve"])})


def _make_curve(operation: str, found: dict[str, Any]) -> Curve:
    model = find_model(operation, _text("model", found["model"]))
    parameters = tuple(_number("a parameter", value) for value in found["parameters"])
    if len(parameters) != len(PARAMETERS):
        raise ValueError(f"a model does not have {len(PARAMETERS)} parameters")
    factors = tuple(
        (_number("a size", size, LARGEST_SIZE), _number("a factor", factor))
        for size, factor in found["size_factors"]
    )
    sizes = [size for size, _ in factors]
    if sizes != sorted(set(sizes)) or not all(size and factor for size, factor in factors):
        raise ValueError("the size factors are not in ascending order and above 0")
    return Curve(model, parameters, factors)


def _make_point(found: dict[str, Any]) -> Point:
    point = Point(**found)
    for name, value in zip(point._fields[:3], point[:3], strict=True):
        if type(value) is not int or not (name != "size_bytes") <= value <= LARGEST_SIZE:
            raise ValueError(f"{name} is {brief(value)}")
    if type(point.channels) is not int or not 0 <= point.channels <= MOST_CHANNELS:
        raise ValueError(f"channels is {brief(point.channels)}")
    if not _number("time_s", point.time_s) or type(point.is_left_out) is not bool:
        raise ValueError("a point has no time")
    _number("uncertainty", point.uncertainty)
    return point


def _number(name: str, value: Any, most: float = LARGEST_NUMBER) -> float:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"{name} is {brief(value)}")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value

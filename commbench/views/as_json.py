"""Results as JSON: the fields of named tuples and data classes, with their own names.

Numbers are in SI units, and names say which: `median_s`, `size_bytes`. An Estimate is an object
with `value`, `low` and `high`. Numbers have seven digits; null stands for what is not known.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from commbench.units import format_bytes, format_share, format_time, seven_digits

_EXACT = 1 << 53
"""Integers below it are exact as floats."""


def as_json(value: Any) -> Any:
    """The value as objects, lists, texts and numbers.

    A class whose fields are not what a reader needs has a method `as_json`, which returns what is
    converted instead. Fields that begin with an underscore are left out.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _EXACT:
            return int(value)
        return seven_digits(value) if isfinite(value) else None
    if own := getattr(value, "as_json", None):
        return as_json(own())
    if isinstance(value, Mapping):
        return {str(name): as_json(found) for name, found in value.items()}
    if (names := field_names(value)) is not None:
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Iterable):
        return [*map(as_json, value)]
    return str(value)


def field_names(value: Any) -> list[str] | None:
    """The fields of a named tuple or data class that are not private; None for anything else."""
    names = getattr(value, "_fields", None)
    if names is None and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    return None if names is None else [name for name in names if not name.startswith("_")]


def fields_of(value: Any, *more: str, without: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a value, some left out, and some properties: for a method `as_json`."""
    names = [*(field_names(value) or ()), *more]
    return {name: getattr(value, name) for name in names if name not in {*without}}


def json_text(schema: int | None, result: Any) -> str:
    """A result as a JSON object that begins with the number of its schema."""
    return json.dumps({"schema": schema, **as_json(result)}, indent=1, allow_nan=False) + "\n"


def _seconds(value: float) -> str:
    return f"{value * 1e9:.3g} ns" if value < 1e-6 else format_time(value)


UNITS: dict[str, Callable[[Any], str]] = {
    "_bytes": format_bytes, "_s": _seconds, "_share": format_share, "_hz": "{} Hz".format,
    "_mhz": "{} MHz".format, "_w": "{:.0f} W".format, "_c": "{:.0f} °C".format,
}  # fmt: skip


def facts(found: Any) -> Iterator[tuple[str, str]]:
    """The known facts of a mapping, named tuple or data class: `cache` and `32 MiB` for
    `cache_bytes`. Those of a mapping within keep their own names."""
    named = found if isinstance(found, Mapping) else fields_of(found)
    for name, value in named.items():
        if isinstance(value, Mapping):
            yield from ((str(inner), _text(content)) for inner, content in value.items())
        elif value not in (None, "", (), []):
            unit = next((end for end in UNITS if name.endswith(end)), "")
            shown = name if unit == "_share" else name.removesuffix(unit)
            yield shown.replace("_", " "), UNITS.get(unit, _text)(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        inner = " " if any(isinstance(each, float) for each in value) else ", "
        return inner.join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)

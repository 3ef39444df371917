"""Facts of a result as names and texts; the end of a name is its unit, as in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from commbench.units import format_bytes, format_share, format_time
from commbench.views.as_json import fields_of


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

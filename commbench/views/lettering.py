"""The text of pictures, its sizes in points and its widths in inches; round numbers for the ticks
of axes; and looks as properties of matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

from commbench.output.table import clip
from commbench.views.pictures import MISSING, Look

TITLE, TEXT, SMALL = 11.0, 9.0, 8.0
LONGEST, LONGEST_NAME = 600, 48
FONT = "DejaVu Sans"
"""Matplotlib brings it."""
HATCHED: dict[str, Any] = {
    "facecolor": "#f4f4f4", "hatch": "////", "edgecolor": "#a8a8a8", "linewidth": 0.0,
}  # fmt: skip


def plain(text: str, longest: int = LONGEST) -> str:
    """Text from a file for matplotlib: shortened, with `$` escaped, which begins a formula, and
    each character that the font lacks as its code, such as `\\u6e2c`."""
    shown = clip(text, longest)
    if not shown.isascii():
        shown = "".join(c if _has_glyph()(ord(c)) else ascii(c)[1:-1] for c in shown)
    return shown.replace("$", r"\$")


@cache
def _has_glyph() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family=FONT))).get_char_index


def widest(texts: Iterable[str], points: float = TEXT, weight: str = "normal") -> float:
    """The width of the widest line of text, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=points, weight=weight)
    sizes = (
        text_to_path.get_text_width_height_descent(text.replace(r"\$", "$"), font, ismath=False)
        for text in texts
    )
    return max((float(size[0]) / 72 for size in sizes), default=0.0)


def wrap(text: str, points: float, width: float, weight: str = "normal") -> list[str]:
    """The text in lines that are at most so many inches wide."""
    lines = [text]
    for columns in range(150, 10, -6):
        lines = textwrap.wrap(text, columns) or [""]
        if widest(lines, points, weight) <= width:
            break
    return lines


def line_properties(look: Look) -> dict[str, Any]:
    """The properties of a line of matplotlib."""
    is_line = look.dashes is not None
    return {
        "color": look.colour, "marker": look.marker, "linewidth": look.width,
        "linestyle": (0, look.dashes) if look.dashes else "-" if is_line else "",
        "markersize": look.size * (1.33 if look.marker == "*" else 1),
        "markerfacecolor": "white" if look.is_hollow else look.colour,
        "markeredgecolor": "white" if is_line else look.colour,
        "markeredgewidth": 1.4 if look.marker == "x" else 0.5 if is_line else 0.9,
    }  # fmt: skip


def area_properties(look: Look) -> dict[str, Any]:
    """The properties of a patch of matplotlib."""
    if look == MISSING:
        return HATCHED
    if look.fill:
        return {"facecolor": look.colour, "alpha": look.fill, "linewidth": 0}
    return {
        "facecolor": "none", "edgecolor": look.colour, "linewidth": look.width,
        "linestyle": (0, look.dashes) if look.dashes else "-",
    }  # fmt: skip


_MULTIPLES: tuple[tuple[float, ...], ...] = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,),
)  # fmt: skip
"""The ticks within a power of ten, from many to few."""


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range above 0, about evenly spread on a logarithmic axis."""
    if high / low < 4:
        return linear_ticks(low, high, most)
    powers = [10.0**e for e in range(floor(log10(low)), ceil(log10(high)) + 1)]
    found = [
        [m * power for power in powers for m in multiples if low <= m * power <= high]
        for multiples in _MULTIPLES
    ]
    fewest = found[-1]
    return next(
        (ticks for ticks in found if len(ticks) <= most), fewest[:: ceil(len(fewest) / most) or 1]
    )


def linear_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range, with a step of 1, 2 or 5 times a power of ten."""
    span = high - low
    power = 10.0 ** floor(log10(span / most))
    step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= most)
    numbers = range(ceil(low / step * (1 - 1e-9)), floor(high / step + 1e-9) + 1)
    return [round(n * step, 12) for n in numbers]


def every_nth(places: Sequence[float], widths: Sequence[float]) -> range:
    """The indices of every n-th label, with the least n that keeps them apart; places and widths in
    the same unit, places in ascending order."""
    for step in range(1, len(places)):
        chosen = range(0, len(places), step)
        if all(
            places[b] - places[a] > (widths[a] + widths[b]) / 2 + 0.1 for a, b in pairwise(chosen)
        ):
            return chosen
    return range(min(1, len(places)))

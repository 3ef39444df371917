"""The text of pictures: its sizes in points, its width in inches, and what the font can show."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from functools import cache
from typing import Any

from commbench.output.table import clip

TITLE, TEXT, SMALL = 11.0, 9.0, 8.0
LONGEST, LONGEST_NAME = 600, 48
FONT = "DejaVu Sans"
"""Matplotlib brings it."""


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


def text_width(text: str, points: float, weight: str = "normal") -> float:
    """The width of a line of text, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=points, weight=weight)
    shown = text.replace(r"\$", "$")
    return float(text_to_path.get_text_width_height_descent(shown, font, ismath=False)[0]) / 72


def widest(texts: Iterable[str], points: float = TEXT) -> float:
    """The width of the widest text, in inches."""
    return max((text_width(text, points) for text in texts), default=0.0)


def wrap(text: str, points: float, width: float, weight: str = "normal") -> list[str]:
    """The text in lines that are at most so many inches wide."""
    lines = [text]
    for columns in range(150, 10, -6):
        lines = textwrap.wrap(text, columns) or [""]
        if max(text_width(line, points, weight) for line in lines) <= width:
            break
    return lines

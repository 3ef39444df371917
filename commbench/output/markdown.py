"""Markdown as GitHub reads it, with text from files that cannot become anything but text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from commbench.output.table import clean

_ENTITIES = str.maketrans(
    {character: f"&#{ord(character)};" for character in "&<>|`*[]\\~$"}
    | {"@": "@&#8203;", "#": "#&#8203;"}  # a zero-width blank: nobody is called, nothing is linked
)

_LINK = re.compile(r"(?i)(://|www\.)")
"""GitHub makes links of bare addresses."""
_LOOSE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Within a word an underscore is one; elsewhere it may begin emphasis."""


def escape(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    unlinked = _LINK.sub(
        lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", clean(text).translate(_ENTITIES)
    )
    return _LOOSE_UNDERSCORE.sub("&#95;", unlinked)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: str = "") -> list[str]:
    """Lines of a table. Columns are right-aligned, but for those whose heading is in `left`."""
    marks = [":--" if heading in left.split(",") else "--:" for heading in headings]
    return [
        _line([escape(heading.replace("\n", " ")) for heading in headings]),
        _line(marks),
        *(_line([escape(cell) for cell in row]) for row in rows),
    ]


def details(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that are folded away under a summary."""
    return [f"<details><summary>{escape(summary)}</summary>", "", *lines, "", "</details>"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

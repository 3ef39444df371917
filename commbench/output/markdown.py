"""Markdown in GitHub's dialect, in which text from files has no special meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence

from commbench.output.table import clean

_ESCAPES = {character: f"&#{ord(character)};" for character in "&<>|`*[]\\~$"}
# With a zero-width space after them, GitHub mentions nobody and links nothing.
_ENTITIES = str.maketrans(_ESCAPES | {"@": "@&#8203;", "#": "#&#8203;"})
_LINK = re.compile(r"(?i)(://|www\.)")
"""GitHub turns bare addresses into links."""
_LOOSE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""An underscore that is not within a word may begin emphasis."""


def escape(text: str) -> str:
    """Text on one line, escaped so that Markdown shows it literally."""
    unlinked = _LINK.sub(
        lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", clean(text).translate(_ENTITIES)
    )
    return _LOOSE_UNDERSCORE.sub("&#95;", unlinked)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: str = "",
    is_escaped: bool = False,
) -> list[str]:
    """Lines of a table; columns whose heading is in `left` (comma-separated) are left-aligned.
    `is_escaped`: the cells are Markdown already."""
    marks = [":--" if heading in left.split(",") else "--:" for heading in headings]
    return [
        _line([escape(heading.replace("\n", " ")) for heading in headings]),
        _line(marks),
        *(_line(row if is_escaped else [*map(escape, row)]) for row in rows),
    ]


def details(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that are hidden under a summary until the reader opens it."""
    return [f"<details><summary>{escape(summary)}</summary>", "", *lines, "", "</details>"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

"""Text that fits the terminal, lists in a sentence, and exact figures."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commbench.output.table import WIDTH as WIDTH
from commbench.output.table import clean

WIDEST = 120
"""Columns of a paragraph, at most. Longer lines are hard to read."""
_UNIT = re.compile(
    r"(?:(?<=\d)|(?<=[±=…])|(?<=\b[Sntk])(?= =)) "
    r"(?=\d|= |… |(?:GB/s|bytes|[KMG]iB|[mu]s|[sB%])(?!\w))"
)
"""A blank at which no line ends: before a unit, in an interval, and in `S = 8`."""
_VALUE = re.compile(r"(--[a-z][a-z-]*) (?=\d)")
"""A blank between an option and its number, such as `--budget 2`: no line ends there either."""


def line_width() -> int:
    """Columns of a line of text: those of the terminal (or of the variable COLUMNS), from WIDTH to
    WIDEST; WIDTH where there is no terminal."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), WIDEST)


def fill(text: str, first: str = "", rest: str = "", **options: Any) -> str:
    """The text in lines of at most line_width() columns, safe to print; the first line begins with
    `first`, the others with `rest`. A number stays on the line of its unit and of its option.
    Options are those of textwrap.fill."""
    import textwrap

    if "://" in text:  # an address stays whole
        options = {"break_on_hyphens": False, "break_long_words": False} | options
    # A no-break space is not printable, so it must come after clean; textwrap keeps it.
    kept = _VALUE.sub("\\1\u00a0", _UNIT.sub("\u00a0", clean(text)))
    filled = textwrap.fill(
        kept, line_width(), initial_indent=first, subsequent_indent=rest, **options
    )
    return filled.replace("\u00a0", " ")


def list_some(names: Sequence[str], most: int) -> str:
    """At most so many names, and how many more there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def join_words(words: Sequence[str], last: str = "and") -> str:
    """The words in a sentence: `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def read_sections(path: Path) -> dict[str, str]:
    """The sections of a file of texts, each below a line `[name]`, by their names."""
    _, *parts = re.split(r"^\[(.+)\]\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def wrapped(text: str, margin: int = 0) -> str:
    """The text in lines of at most line_width() columns, after a margin."""
    return fill(text, " " * margin, " " * margin, break_on_hyphens=False)


def exact(number: float) -> str:
    """A number rounded to an integer, with commas between thousands: `1,073,741,824`."""
    return f"{number:,.0f}"


def seconds(duration: float, digits: int = 5) -> str:
    """A duration with five digits, or as many: `4.2 ms`, `208.77 us`."""
    for limit, unit, factor in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if duration < limit:
            return f"{duration * factor:.{digits}g} {unit}"
    return f"{duration:.{digits}g} s"

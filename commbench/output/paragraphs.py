"""Labelled paragraphs of at most 100 columns, and figures with enough digits to check by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from commbench.output.table import clean
from commbench.units import GB

WIDTH = 100
MARGIN = 10
_UNIT = re.compile(r"(\d|[±=]) (?=\d|(?:GB/s|bytes|[KMG]iB|[mu]s|[sB%])(?!\w))")


class Paragraph(NamedTuple):
    """Paragraphs about one thing, with a short label at their left."""

    label: str
    texts: Sequence[str]


def paragraphs(parts: Sequence[Paragraph]) -> str:
    """The parts as text, labels in a column of their own."""
    texts = (
        wrapped(text, part.label if index == 0 else "", MARGIN)
        for part in parts
        for index, text in enumerate(part.texts)
    )
    return "\n".join(texts)


def wrapped(text: str, label: str = "", margin: int = 0) -> str:
    """The text in lines of at most WIDTH, after a margin that begins with the label."""
    from textwrap import fill

    first, rest = label.ljust(margin), " " * margin
    # A number and its unit stay together: fill breaks no line at a no-break space.
    kept = _UNIT.sub("\\1\u00a0", clean(text))
    filled = fill(kept, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return filled.replace("\u00a0", " ")


def exact(number: float) -> str:
    """A number in full, thousands apart: `1,073,741,824`; rounded to a whole one."""
    return f"{number:,.0f}"


def gbps(bytes_per_second: float) -> str:
    """A bandwidth in GB/s with five digits, so that products can be checked by hand."""
    return f"{bytes_per_second / GB:.5g}"


def seconds(duration: float) -> str:
    """A duration with five digits: `4.2 ms`, `208.77 us`."""
    for limit, unit, factor in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if duration < limit:
            return f"{duration * factor:.5g} {unit}"
    return f"{duration:.5g} s"

"""Plots: bus bandwidth and time against size, one line per kind of case and run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from commbench.output.table import clean

if TYPE_CHECKING:
    pass


LONGEST_TITLE = 140


LONGEST_TAG = 80


# Okabe and Ito's colours, which stay apart for colour-blind eyes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def plain(text: str, longest: int = LONGEST_TITLE) -> str:
    """Text from a file as matplotlib shows it: not too long, and nothing in it is a formula."""
    shown = clean(text)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return shown.replace("$", r"\$")


def tag(name: str, longest: int = LONGEST_TAG) -> str:
    """A name in a legend: matplotlib hides those that begin with an underscore."""
    shown = plain(name, longest)
    return f" {shown}" if shown.startswith("_") else shown


@contextmanager
def quiet_about_glyphs() -> Iterator[None]:
    """Without a warning for each character of a name that the font lacks: it is drawn as a box."""
    with catch_warnings():
        filterwarnings("ignore", message="Glyph .* missing from")
        yield

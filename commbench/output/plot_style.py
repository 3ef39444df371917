"""Colours, markers and text of plots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from commbench.output.table import clean
from commbench.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_TITLE = 140
LONGEST_TAG = 80

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def plain(text: str, longest: int = LONGEST_TITLE) -> str:
    """Text from a file for matplotlib: shortened, and with `$` escaped, which begins a formula."""
    shown = clean(text)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return shown.replace("$", r"\$")


def tag(name: str, longest: int = LONGEST_TAG) -> str:
    """A name for a legend; a blank precedes an underscore, for which matplotlib would hide it."""
    shown = plain(name, longest)
    return f" {shown}" if shown.startswith("_") else shown


def format_size_axis(axes: Axes) -> None:
    """Ticks and label of a horizontal axis of sizes."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda size, _: format_bytes(round(size)))
    axes.tick_params(axis="x", rotation=30)
    axes.set_xlabel("size: the larger of what one rank sends and receives")


@contextmanager
def quiet_about_glyphs() -> Iterator[None]:
    """Suppress matplotlib's warning about each character that the font lacks."""
    with catch_warnings():
        filterwarnings("ignore", message="Glyph .* missing from")
        yield

"""The look of every picture: size, colours, markers, axes, legends, text, and files.

A picture is a matplotlib Figure that belongs to no window and to no global state. Lengths are in
inches. `styled` sets matplotlib's settings while a picture is made, whatever the user's own are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import catch_warnings, filterwarnings

from commbench.errors import UsageError
from commbench.output.table import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure with its text."""

    name: str
    """For the name of a file, without its ending: `busbw`."""
    title: str
    """What is drawn, in a few words."""
    description: str
    """What can be seen, with its main values, for those who do not see it."""
    figure: Figure


ENDINGS = (".png", ".svg", ".pdf")
"""The endings of files that a picture can be written to."""
OTHER_ENDINGS = (".gif", ".jpg", ".jpeg", ".webp", ".bmp", ".eps", ".tif", ".tiff", ".html")
"""Endings that say that a file is meant, of a format that is not written."""
WIDTH = 8.0
DOTS_PER_INCH = 200
"""A PNG is 1600 pixels wide, and sharp where it is shown 800 pixels wide."""
LEFT, RIGHT, EDGE = 0.72, 0.22, 0.12
"""Margins of the axes, and of text."""
MARGIN = LEFT - EDGE
"""How far text begins to the left of the axes."""
TITLE, TEXT, SMALL = 11.0, 9.0, 8.0
"""Sizes of text in points."""
INK, GREY = "#222222", "#6e6e6e"

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8700F0", "#693C1E",
    "#4B4B5A", "#9678FF",
)  # fmt: skip
"""The first six are those of Okabe and Ito (Color Universal Design, 2008). The others were chosen
to differ most from them and from each other for normal and for colour-blind eyes, by the
simulation of Machado, Oliveira and Fernandes (IEEE TVCG 15, 2009)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
FIXED = "fixed"
"""The gid of a matplotlib artist that keeps its colours where a report is shown on a dark page."""
MOST_BANDS = 4
"""With more curves in one panel, none has a band."""
LONGEST_TITLE, LONGEST_TAG = 140, 48


class Style(NamedTuple):
    """How a curve is drawn."""

    colour: str
    marker: str
    dashes: Any = "-"

    @property
    def line(self) -> dict[str, Any]:
        """The properties of a line of matplotlib."""
        return {
            "color": self.colour, "marker": self.marker, "linestyle": self.dashes,
            "linewidth": 1.5, "markersize": 6 if self.marker == "*" else 4.5,
            "markeredgecolor": "white", "markeredgewidth": 0.5,
        }  # fmt: skip


def nth_style(number: int, colour: str | None = None) -> Style:
    """The style of the n-th run or variant, in its own colour or in the colour given.

    No two of the first 30 are alike in colour and marker, nor of those with one colour.
    """
    turn = number // len(COLOURS)
    marker = MARKERS[(number + 3 * turn) % len(MARKERS)]
    return Style(
        colour or COLOURS[number % len(COLOURS)],
        marker,
        DASHES[(number if colour else turn) % len(DASHES)],
    )


def plain(text: str, longest: int = LONGEST_TITLE) -> str:
    """Text from a file for matplotlib: shortened, with `$` escaped, which begins a formula, and
    each character that the font lacks as its code, such as `\\u6e2c`."""
    shown = clean(text)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return _drawable(shown).replace("$", r"\$")


def tag(name: str, longest: int = LONGEST_TAG) -> str:
    """A name for a legend; a blank precedes an underscore, for which matplotlib would hide it."""
    shown = plain(name, longest)
    return f" {shown}" if shown.startswith("_") else shown


def _drawable(text: str) -> str:
    if text.isascii():
        return text
    has_glyph = _font_has()
    return "".join(c if has_glyph(ord(c)) else ascii(c)[1:-1] for c in text)


@cache
def _font_has() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family="DejaVu Sans"))).get_char_index


def text_width(text: str, points: float, weight: str = "normal") -> float:
    """The width of a line of text, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=points, weight=weight)
    shown = text.replace(r"\$", "$")
    return float(text_to_path.get_text_width_height_descent(shown, font, ismath=False)[0]) / 72


def wrap(text: str, points: float, width: float, weight: str = "normal") -> list[str]:
    """The text in lines that are at most so many inches wide."""
    lines = [text]
    for columns in range(150, 10, -6):
        lines = textwrap.wrap(text, columns) or [""]
        if max(text_width(line, points, weight) for line in lines) <= width:
            break
    return lines


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's own settings, with ours, as long as a picture is made."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "font.size": TEXT, "axes.labelsize": TEXT, "xtick.labelsize": TEXT,
            "ytick.labelsize": TEXT, "legend.fontsize": TEXT, "axes.edgecolor": GREY,
            "axes.labelcolor": INK, "text.color": INK, "xtick.color": GREY, "ytick.color": GREY,
            "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.spines.top": False,
            "axes.spines.right": False, "axes.axisbelow": True, "grid.color": GREY,
            "grid.alpha": 0.25,
            "grid.linewidth": 0.7, "axes.linewidth": 0.7, "xtick.major.width": 0.7,
            "ytick.major.width": 0.7, "xtick.minor.width": 0.5, "ytick.minor.width": 0.5,
            "hatch.linewidth": 0.6,
        })  # fmt: skip
        yield


class Head(NamedTuple):
    """What is above the panels: title, subtitles, and legends, each a list of entries."""

    title: str
    subtitles: Sequence[str] = ()
    legends: Sequence[Sequence[tuple[str, dict[str, Any]]]] = ()
    """Each entry is a text, and the properties of its line or patch (with `facecolor`)."""


class Grid(NamedTuple):
    """The panels of a figure."""

    rows: int
    columns: int
    heights: Sequence[float]
    """Of each row."""
    gap: float = 0.44
    """Between rows, with room for the heading of a panel."""
    bottom: float = 0.55
    left: float = LEFT
    right: float = RIGHT


def make_figure(head: Head, grid: Grid, **share: Any) -> tuple[Figure, list[Axes]]:
    """A figure with its head and empty panels, row by row; `share` says which axes are common."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    inner = WIDTH - 2 * EDGE
    titles = wrap(head.title, TITLE, inner, "bold")
    subtitles = [line for text in head.subtitles for line in wrap(text, SMALL, inner)]
    rows = [_legend_columns(entries, inner) for entries in head.legends]
    legend_heights = [0.19 * ceil(len(e) / c) for e, c in zip(head.legends, rows, strict=True)]
    above = 0.14 + 0.2 * len(titles) + 0.16 * len(subtitles) + sum(legend_heights) + 0.3
    panels = sum(grid.heights) + grid.gap * (len(grid.heights) - 1)
    height = above + panels + grid.bottom
    figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    top = height - 0.1
    for lines, points, weight, colour, step in (
        (titles, TITLE, "bold", INK, 0.2), (subtitles, SMALL, "normal", GREY, 0.16)
    ):  # fmt: skip
        for line in lines:
            figure.text(EDGE / WIDTH, top / height, line, size=points, weight=weight,
                        color=colour, va="top", ha="left")  # fmt: skip
            top -= step
    top -= 0.04
    for entries, columns, tall in zip(head.legends, rows, legend_heights, strict=True):
        _draw_legend(figure, entries, columns, (EDGE / WIDTH, top / height))
        top -= tall
    axes = figure.subplots(
        grid.rows, grid.columns, squeeze=False, **share,
        gridspec_kw={
            "left": grid.left / WIDTH, "right": 1 - grid.right / WIDTH,
            "bottom": grid.bottom / height,
            "top": 1 - above / height, "height_ratios": list(grid.heights),
            "hspace": grid.gap * len(grid.heights) / sum(grid.heights),
            "wspace": 0.14,
        },
    )  # fmt: skip
    return figure, list(axes.flat)


_HANDLE, _SPACE = 0.41, 0.22


def _legend_columns(entries: Sequence[tuple[str, Any]], width: float) -> int:
    widest = max((text_width(text, TEXT) for text, _ in entries), default=1.0)
    return max(1, min(len(entries), floor(width / (widest + _HANDLE + _SPACE))))


def _draw_legend(
    figure: Figure, entries: Sequence[tuple[str, dict[str, Any]]], columns: int, at: Any
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    # Matplotlib fills columns first: order the entries so that they read row by row.
    rows = ceil(len(entries) / columns)
    entries = [entries[i] for c in range(columns) for i in range(c, len(entries), columns)]
    em = TEXT / 72
    legend = figure.legend(
        [
            Patch(**look) if "facecolor" in look else Line2D([], [], **look) for _, look in entries
        ],
        [text for text, _ in entries],
        loc="upper left", bbox_to_anchor=at, ncols=columns, frameon=False, borderpad=0,
        borderaxespad=0, handlelength=2.6, handletextpad=0.5, labelspacing=0.38,
        columnspacing=_SPACE / em * 0.6,
    )  # fmt: skip
    legend.set_gid(f"legend-{rows}")


def require_ending(path: Path) -> None:
    """Raise UsageError for a file whose ending is of no known format."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{path} has no ending that says how to draw it",
            f"end the name with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}",
        )


def render(figure: Figure, ending: str) -> bytes:
    """The content of a file with this ending: `.png`, `.svg` or `.pdf`."""
    content = BytesIO()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending.lower())
    with styled(), quiet_about_glyphs():
        figure.savefig(content, format=ending[1:].lower(), dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()


@contextmanager
def quiet_about_glyphs() -> Iterator[None]:
    """Suppress matplotlib's warning about each character that the font lacks."""
    with catch_warnings():
        filterwarnings("ignore", message="Glyph .* missing from")
        yield

"""What a picture shows, as data; and its text, ticks and looks for matplotlib. `draw.py` draws it.

Values are in seconds, bytes, bytes/s, or ratios. Texts are plain; whoever draws them escapes them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from commbench.output.text import clip
from commbench.stats import Estimate
from commbench.units import GB, format_about, format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8700F0", "#693C1E",
    "#4B4B5A", "#9678FF",
)  # fmt: skip
"""The first six are those of Okabe and Ito (Color Universal Design, 2008). The others were chosen
to differ most from them and from each other for normal and for colour-blind eyes, by the
simulation of Machado, Oliveira and Fernandes (IEEE TVCG 15, 2009)."""
INK, GREY, LIMIT = "#222222", "#6e6e6e", "#a40e26"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.6), (1.2, 1.2), (6, 1.5, 1.2, 1.5))
MOST_BANDS = 4
"""With more curves in one panel, intervals are vertical lines."""
BAND, EDGE = 0.25, 0.6
"""The opacity of a band, which shows an interval, and of its edge."""


class Look(NamedTuple):
    """How a line, its markers, or an area are drawn."""

    colour: str
    marker: str = ""
    dashes: tuple[float, ...] | None = ()
    """Lengths of dashes and gaps in line widths; empty for a solid line, None for no line."""
    width: float = 1.5
    fill: float | None = None
    """The opacity of an area; 0 for a frame; None for what is no area."""
    is_hollow: bool = False
    size: float = 4.5
    """Of a marker, in points."""


def nth_look(number: int, colour: str | None = None) -> Look:
    """The look of the n-th run or variant, in its own colour or in the colour given. No two of the
    first 30 are alike in colour and marker, nor of those with one colour; dashes differ, too."""
    turn = number // len(COLOURS)
    return Look(
        colour or COLOURS[number % len(COLOURS)],
        MARKERS[(number + 3 * turn) % len(MARKERS)],
        DASHES[number % len(DASHES)],
    )


Key: TypeAlias = tuple[str, Look]
"""An entry of a legend."""
MISSING = Look("#a8a8a8", fill=0.5)
"""Of cells that were not measured: hatching."""


def size_label(size: float) -> str:
    """A size, rounded where the exact one is long."""
    exact = format_bytes(int(size))
    return exact if len(exact) <= len("1023 KiB") else format_about(size)


def time_label(seconds: float) -> str:
    """A round time: `20 us`, `1.5 ms`."""
    for limit, unit, factor in ((1e-6, "ns", 1e9), (1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if 0 < seconds < limit * 0.9999:
            return f"{number_label(seconds * factor)} {unit}"
    return f"{number_label(seconds)} s" if seconds else "0"


def bandwidth_label(bytes_per_second: float) -> str:
    """A round bandwidth in GB/s."""
    return number_label(bytes_per_second / GB)


def number_label(value: float) -> str:
    """A number, without an exponent if it is 0.0001 or more: `1e-6`, `0.0001`, `1500`."""
    if 0 < value < 0.9999e-4:
        return f"{value:.3g}".replace("e-0", "e-")
    return f"{value:.6g}" if value < 1e6 else f"{value:,.0f}"


class Axis(NamedTuple):
    """An axis. The horizontal one of curves has ticks at the places of points. Panels with the same
    vertical axis have the same limits."""

    text: Callable[[float], str]
    """The label of a tick."""
    name: str = ""
    is_log: bool = True
    unit: float = 0.0
    """Of ticks at round numbers; 0: at the places of points."""
    reach: float = 3.0
    """By which factor a logarithmic one reaches at most beyond the values: wider intervals are cut
    off, because they would press all curves into lines."""


TIMES, LINEAR_TIMES = Axis(time_label), Axis(time_label, is_log=False)
BANDWIDTHS = Axis(bandwidth_label, is_log=False)
LOG_BANDWIDTHS, RATIOS = Axis(bandwidth_label), Axis(number_label)
SIZES = Axis(size_label, "size: the most that a rank sends or receives")
RANKS = Axis("{:,.0f}".format, "number of ranks")


class Series(NamedTuple):
    """A curve, whose points at the places `hollow` do not count."""

    name: str
    look: Look
    points: Sequence[tuple[float, Estimate | None]]
    """By ascending place; None where there is no valid value, which is a gap with a cross."""
    has_band: bool = True
    hollow: Collection[float] = ()

    @property
    def known(self) -> list[tuple[float, Estimate]]:
        """The points that have a value."""
        return [(place, value) for place, value in self.points if value]

    @property
    def places(self) -> list[float]:
        """Where its points are."""
        return [place for place, _ in self.points]


class Mark(NamedTuple):
    """A line across a panel at `low`, or the range from `low` to `high`."""

    look: Look
    low: float
    high: float | None = None
    name: str = ""
    """In the legend."""
    text: str = ""
    """Written at the line."""
    is_upright: bool = False


class Curves(NamedTuple):
    """A panel with curves."""

    heading: str
    series: Sequence[Series]
    scale: Axis = TIMES
    across: Axis = SIZES
    marks: Sequence[Mark] = ()
    inches: float = 2.6
    """Its height."""

    @property
    def may_have_bands(self) -> bool:
        """Whether bands can be told apart: they are few, and each has a colour of its own."""
        colours = {each.name: each.look.colour for each in self.series if each.has_band}
        return len(colours) <= MOST_BANDS and len(set(colours.values())) == len(colours)


class Cell(NamedTuple):
    """A cell of a heat map."""

    shade: float | None
    """From 0 to 1; None for one that stays blank."""
    text: str = ""
    is_bold: bool = False


class Frame(NamedTuple):
    """A frame around cells."""

    name: str
    """In the legend."""
    look: Look
    top: int
    left: int
    rows: int = 1
    columns: int = 1


class ColourBar(NamedTuple):
    """What the colours from 0 to `most` mean."""

    text: str
    most: float
    is_exceeded: bool
    """Whether values are above the scale, which have its last colour."""


class HeatMap(NamedTuple):
    """A panel with cells."""

    heading: str
    rows: Mapping[float, str]
    """Labels, by the place of their middle: 0.5 is that of the first row."""
    columns: Mapping[float, str]
    cells: Mapping[tuple[int, int], Cell]
    """By row and column. A cell that is not there has hatching."""
    extent: tuple[int, int]
    """The numbers of rows and columns."""
    frames: Sequence[Frame] = ()
    lines: Sequence[tuple[int, float]] = ()
    """Separators: the row and column before which they are, and their widths in points."""
    colours: str = "YlGnBu"
    bars: Sequence[ColourBar] = ()
    missing: str = "not measured"
    """What hatching means."""
    down: str = ""
    """What its rows are, beside their labels."""
    across: str = ""
    """What its columns are."""
    is_of_pairs: bool = False
    """Whether rows and columns are the same things, so that columns have their labels above."""

    @property
    def has_missing(self) -> bool:
        """Whether a cell is not there."""
        return len(self.cells) < self.extent[0] * self.extent[1]


class Bar(NamedTuple):
    """A bar, or on a logarithmic axis a point, with its interval."""

    time: Estimate
    key: Key
    """In the legend, unless its text is empty."""
    more_s: float = 0.0
    """A second part of the bar, and its entry."""
    more_key: Key = ("", Look(GREY))


class BarRow(NamedTuple):
    """A name with its bars."""

    name: str
    bars: Sequence[Bar]


class Bars(NamedTuple):
    """A panel with rows of bars, from top to bottom."""

    heading: str
    rows: Sequence[BarRow]
    scale: Axis = LINEAR_TIMES


Panel: TypeAlias = Curves | HeatMap | Bars


class Picture(NamedTuple):
    """Panels of one kind, with their text."""

    name: str
    """For the name of a file, without its ending: `busbw`."""
    title: str
    """What is drawn, in a few words."""
    description: str
    """What can be seen, with its main values, for those who do not see it."""
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    """Lines below the title."""
    columns: int = 1


def columns_for(panels: int) -> int:
    """In how many columns a picture has so many panels of one kind."""
    return 2 if panels in (2, 4) else min(panels, 3)


class Layout(NamedTuple):
    """How the panels of a picture are drawn, and what else it says."""

    draw: Callable[[Axes, Any], None]
    """Draws a panel."""
    heights: Sequence[float]
    """Of each row, in inches."""
    keys: Sequence[Key]
    """The legend."""
    notes: Sequence[str] = ()
    columns: int = 1


TITLE, TEXT, SMALL = 12.0, 10.0, 9.0
LONGEST, LONGEST_NAME = 600, 48
FONT = "DejaVu Sans"  # matplotlib brings it
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
        lines = textwrap.wrap(text, columns, break_on_hyphens=False) or [""]
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
    fewest = found[-1][:: ceil(len(found[-1]) / most) or 1]
    return next((ticks for ticks in found if len(ticks) <= most), fewest)


def linear_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range, with a step of 1, 2 or 5 times a power of ten."""
    span = high - low
    power = 10.0 ** floor(log10(span / most))
    step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= most)
    numbers = range(ceil(low / step * (1 - 1e-9)), floor(high / step + 1e-9) + 1)
    return [round(n * step, 12) for n in numbers]


def every_nth(places: Sequence[float], widths: Sequence[float]) -> list[int]:
    """The first, every n-th and the last label by index: as many as are apart, evenly if that costs
    one at most. Places, in ascending order, and widths have the same unit."""
    last = len(places) - 1

    def fits(a: int, b: int) -> bool:
        return places[b] - places[a] > (widths[a] + widths[b]) / 2 + 0.1

    steps = (range(step, last, step) for step in range(1, last + 1))
    found = ([0, *(n for n in step if fits(n, last)), last] for step in steps)
    apart = [chosen for chosen in found if all(fits(a, b) for a, b in pairwise(chosen))]
    return max(apart, key=lambda n: len(n) - 1.5 * (n[-1] - n[-2] != n[1]), default=[0][: last + 1])

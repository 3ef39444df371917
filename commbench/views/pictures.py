"""What a picture shows, as data. `draw.py` draws every picture.

Values are in seconds, bytes, bytes/s, or ratios. Texts are plain; whoever draws them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from commbench.stats.estimate import Estimate
from commbench.views import ticks

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
"""With more curves in one panel, none has a band."""
BAND = 0.18
"""The opacity of a band, which shows an interval."""


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
    """The look of the n-th run or variant, in its own colour or in the colour given.

    No two of the first 30 are alike in colour and marker, nor of those with one colour.
    """
    turn = number // len(COLOURS)
    return Look(
        colour or COLOURS[number % len(COLOURS)],
        MARKERS[(number + 3 * turn) % len(MARKERS)],
        DASHES[(number if colour else turn) % len(DASHES)],
    )


Key: TypeAlias = tuple[str, Look]
"""An entry of a legend."""


class Axis(NamedTuple):
    """An axis. The horizontal one of curves is logarithmic, with ticks at the places of points."""

    text: Callable[[float], str]
    """The label of a tick."""
    name: str = ""
    is_log: bool = True


TIMES, LINEAR_TIMES = Axis(ticks.time_label), Axis(ticks.time_label, is_log=False)
BANDWIDTHS = Axis(ticks.bandwidth_label, is_log=False)
LOG_BANDWIDTHS, RATIOS = Axis(ticks.bandwidth_label), Axis(ticks.number_label)
SIZES = Axis(ticks.size_label, "size: the larger of what one rank sends and receives")
RANKS = Axis(ticks.count_label, "number of ranks")


class Series(NamedTuple):
    """A curve."""

    name: str
    look: Look
    points: Sequence[tuple[float, Estimate | None]]
    """By ascending place; None where there is no valid value, which is a gap with a cross."""
    has_band: bool = True

    @property
    def known(self) -> list[tuple[float, Estimate]]:
        """The points that have a value."""
        return [(place, value) for place, value in self.points if value]


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
    """By row and column. A cell within `extent` that is not there has hatching."""
    extent: tuple[int, int]
    """The numbers of rows and columns, without those of medians beyond them."""
    frames: Sequence[Frame] = ()
    lines: Sequence[tuple[int, float]] = ()
    """Separators: the row and column before which they are, and their widths in points."""
    colours: str = "YlGnBu"
    bars: Sequence[ColourBar] = ()
    missing: str = "not measured"
    """What hatching means."""
    is_square: bool = False

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of rows and columns with those beyond `extent`."""
        rows, columns = zip(*self.cells, strict=True)
        return max(self.extent[0], 1 + max(rows)), max(self.extent[1], 1 + max(columns))

    @property
    def has_missing(self) -> bool:
        """Whether a cell is not there."""
        rows, columns = self.extent
        return sum(row < rows and column < columns for row, column in self.cells) < rows * columns


class Bar(NamedTuple):
    """A bar, or on a logarithmic axis a point, with its interval."""

    time: Estimate
    text: str
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
    has_bands: bool | None = None
    """Whether intervals are drawn as bands; None: where they can be told apart."""

"""Draws pictures with matplotlib, and writes them to files.

A figure belongs to no window and to no global state. Lengths are in inches. Matplotlib's own
settings are used, with ours, whatever the user's are. Its constrained layout leaves the axes what
room their labels need.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.errors import UsageError
from commbench.results.files import is_file, is_folder, make_folder, unused_path, write_new
from commbench.stats import np
from commbench.units import format_count
from commbench.views import draw_curves, formats
from commbench.views import pictures as plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
"""The endings of files that a picture can be written to."""
OWN_PICTURE = re.compile(rb"\x89PNG\r\n\x1a\n.{0,99}tEXtSoftware\0commbench", re.DOTALL)
"""How the PNG files of commbench begin."""
_OTHER_ENDING = re.compile(r"\.[a-z]{2,5}")
"""An ending that says that a file is meant, of a format that is not written."""
DOTS_PER_INCH = 200
"""A PNG is 1440 pixels wide, and sharp where it is shown 720 pixels wide."""
WIDTH, NARROW, EDGE = 7.2, 5.0, 0.12
"""Of a picture, of one for a screen of 400 pixels, and of its margin beside text."""
ROW, BOTTOM = 0.58, 0.28
"""Above each row of panels for their headings and ticks, and below the last one."""
_HANDLE_AND_SPACE, _LEGEND_ROW = 0.68, 0.21
"""Of an entry of a legend: the width of its line and the space beside it, and its height."""


@dataclass(frozen=True, repr=False)
class Drawn:
    """Pictures, which a notebook shows, and the files that were written, over which it iterates."""

    pictures: Sequence[plot.Picture]
    paths: tuple[Path, ...] = ()
    """Empty where nothing was written."""

    def __iter__(self) -> Iterator[Path]:
        return iter(self.paths)

    def __repr__(self) -> str:
        files = ", ".join(map(str, self.paths))
        return f"<{format_count(len(self.pictures), 'picture')}{': ' * bool(files)}{files}>"

    def _repr_html_(self) -> str:
        svgs = (b64encode(render(picture, ".svg")).decode() for picture in self.pictures)
        return "".join(f'<img src="data:image/svg+xml;base64,{svg}">' for svg in svgs)


def require_ending(path: Path, others: Iterable[str] = ()) -> None:
    """Raise UsageError for a file whose ending is of no known format; `others` are the endings that
    the command writes without a picture."""
    if path.suffix.lower() not in ENDINGS:
        *names, last = (*others, *ENDINGS)
        ends = f"ends in {path.suffix}, which does not say" if path.suffix else ""
        raise UsageError(
            f"{path} {ends or 'has no ending that says'} how to {'write' if others else 'draw'} it",
            f"end the name with {', '.join(names)} or {last}: {path.with_suffix(ENDINGS[0]).name}",
        )


def is_drawn(output: Path | None, format: str | None) -> bool:
    """Whether a command that writes a text or a picture draws this file; UsageError where its
    ending is of neither, and no format is given, or contradicts the format."""
    formats.choose_format(format, output, endings=formats.ENDINGS | dict.fromkeys(ENDINGS, ""))
    return output is not None and output.suffix.lower() in ENDINGS


def names_file(output: Path, others: Iterable[str] = ()) -> bool:
    """Whether a path means a file, and not a folder; UsageError for one of an unknown format."""
    if is_folder(output):
        return False
    if _OTHER_ENDING.fullmatch(output.suffix.lower()):
        require_ending(output, others)
    return output.suffix.lower() in ENDINGS


def write_pictures(pictures: Sequence[plot.Picture], output: Path, is_again: bool = False) -> Drawn:
    """Draw one picture into a new file that ends in .png, .svg or .pdf, or each into a new PNG file
    of a folder, where it may be already; their paths. `is_again`: commbench drew into that folder
    what it now replaces."""
    replaced, is_one, paths = OWN_PICTURE if is_again else None, names_file(output), []
    if is_one and len(pictures) != 1:
        why = f"{output} can hold one picture, and here are {len(pictures)}"
        raise UsageError(why, "--output DIR draws a picture of each")
    folder = output.parent if is_one else make_folder(output)
    for picture in pictures:
        path = output if is_one else folder / f"{picture.name}.png"
        content = render(picture, path.suffix)
        if is_one or not _holds(path, content):
            path = path if is_one else unused_path(folder, picture.name, ".png", replaced)
            write_new(path, content, replaced)
        paths.append(path)
    return Drawn(pictures, tuple(paths))


def _holds(path: Path, content: bytes) -> bool:
    try:
        return is_file(path) and path.read_bytes() == content
    except OSError:
        return False


def render(picture: plot.Picture, ending: str, width: float = WIDTH) -> bytes:
    """The content of a file with this ending: `.png`, `.svg` or `.pdf`."""
    content, ending = BytesIO(), ending.lower()
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    metadata = undated.get(ending, {"Software": "commbench"})
    with styled():
        draw(picture, width).savefig(
            content, format=ending[1:], dpi=DOTS_PER_INCH, metadata=metadata
        )
    return content.getvalue()


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's own settings, with ours, as long as a picture is made."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        inked = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
        greys = ("axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
        matplotlib.rcParams.update(dict.fromkeys(inked, plot.INK) | dict.fromkeys(greys, plot.GREY))
        matplotlib.rcParams.update({
            "font.size": plot.TEXT, "grid.alpha": 0.25, "grid.linewidth": 0.7,
            "axes.linewidth": 0.7,
            "xtick.major.width": 0.7, "ytick.major.width": 0.7,
            "hatch.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
            "axes.axisbelow": True,
        })  # fmt: skip
        yield


def draw(picture: plot.Picture, width: float = WIDTH) -> Figure:
    """The picture as a figure of this width, within `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = LAYOUTS[type(picture.panels[0])](picture, width)
    inner = width - 2 * EDGE
    notes = [
        line
        for note in (*picture.notes, ". ".join(layout.notes))
        for line in plot.wrap(plot.plain(note.replace("`", "")), plot.SMALL, inner)
    ]
    title = plot.wrap(plot.plain(picture.title), plot.TITLE, inner, "bold")
    texts = (title, plot.TITLE, "bold", plot.INK), (notes, plot.SMALL, "normal", plot.GREY)
    heights = [len(lines) * points / 72 * 1.4 for lines, points, _, _ in texts]
    keys = [(plot.plain(text, plot.LONGEST_NAME), look) for text, look in layout.keys]
    wide = plot.widest(text for text, _ in keys) + _HANDLE_AND_SPACE
    columns = max(1, min(len(keys), int(inner / wide)))
    above = 0.16 + sum(heights) + _LEGEND_ROW * ceil(len(keys) / columns)
    rows = ceil(len(picture.panels) / layout.columns)
    room = inner / layout.columns - 0.8  # beside the ticks of a panel
    headings = [plot.wrap(plot.plain(panel.heading), plot.TEXT, room) for panel in picture.panels]
    row = ROW + plot.TEXT / 60 * (max(map(len, headings)) - 1)
    height = above + sum(layout.heights) + row * rows + BOTTOM
    engine = ConstrainedLayoutEngine(
        rect=(0, 0, 1, 1 - above / height), h_pad=0.1, w_pad=EDGE, wspace=0, hspace=0
    )  # fmt: skip
    figure = Figure((width, height), DOTS_PER_INCH, facecolor="white", layout=engine)
    FigureCanvasAgg(figure)
    top = height - 0.1
    for (lines, points, weight, colour), step in zip(texts, heights, strict=True):
        figure.text(EDGE / width, top / height, "\n".join(lines), size=points, weight=weight,
                    color=colour, va="top", in_layout=False)  # fmt: skip
        top -= step
    if keys:
        _draw_legend(figure, keys, columns, (EDGE / width, (top - 0.04) / height))
    axes = figure.subplots(
        rows, layout.columns, squeeze=False, gridspec_kw={"height_ratios": layout.heights}
    )
    for own, panel, heading in zip_longest(axes.flat, picture.panels, headings):
        own.set_visible(panel is not None)
        if panel is not None:
            layout.draw(own, panel)
            own.set_title("\n".join(heading), loc="left", size=plot.TEXT, pad=7)
    return figure


def _draw_legend(
    figure: Figure, keys: Sequence[plot.Key], columns: int, at: tuple[float, float]
) -> None:
    """A legend that reads row by row, although matplotlib fills columns first."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ordered = [keys[i] for c in range(columns) for i in range(c, len(keys), columns)]
    lines = [Line2D([], [], **plot.line_properties(look)) for _, look in ordered]
    handles: list[Any] = [
        line if look.fill is None
        else (Patch(**plot.area_properties(look)), line) if look.fill and look.dashes
        else Patch(**plot.area_properties(look))
        for line, (_, look) in zip(lines, ordered, strict=True)
    ]  # fmt: skip
    # A blank precedes an underscore, for which matplotlib would hide the entry.
    texts = [f" {text}" if text.startswith("_") else text for text, _ in ordered]
    legend = figure.legend(
        handles, texts, loc="upper left", bbox_to_anchor=at, ncols=columns, frameon=False,
        borderpad=0, borderaxespad=0, handlelength=2.6, handletextpad=0.5, labelspacing=0.38,
        columnspacing=1.05,
    )  # fmt: skip
    legend.set_in_layout(False)


DARK, LIGHT = "#212121", "#fefefe"
"""Text on cells, and frames: the same on a dark page, unlike INK and white."""
LONGEST_LABEL = 34
MOST_BESIDE = 8
"""Up to so many rows, two panels of pairs are side by side."""
TALLEST = 0.5
"""Of the cells of pairs; they are square where there are many."""
DARK_FROM = 0.65
"""From this shade on, the number on a cell is light: both contrast alike there, in all the
colours."""
_BESIDE = 1.5
"""Inches that are not for the cells of panels side by side."""


def lay_out_cells(picture: plot.Picture, width: float) -> plot.Layout:
    """How a picture with heat maps, which all have as many rows and columns, is drawn."""
    panels: Sequence[plot.HeatMap] = picture.panels  # type: ignore[assignment]
    first = panels[0]
    rows, number = first.extent
    room = width - _BESIDE
    columns = max(1, min(2 if len(panels) == 4 else 3, int(room / (0.52 * number + 0.15))))
    columns = min(columns, len(panels))
    wide, tall, names = room / columns / number, 0.3, 0.0
    if first.is_of_pairs:
        columns = min(len(panels), 2 if number <= MOST_BESIDE and width > NARROW else 1)
        wide = (room / columns - 0.7) / number
        tall = min(TALLEST, wide)
    else:
        tall = max(tall, (plot.widest([first.down], plot.SMALL) + 0.1) / rows)
        labels = (plot.plain(t, LONGEST_LABEL) for p in panels for t in p.columns.values())
        names = plot.widest(labels, plot.SMALL)

    def draw(axes: Axes, panel: plot.HeatMap) -> None:
        place = [panel is each for each in panels].index(True)
        _draw_cells(axes, panel, wide)
        _set_labels(axes, panel, wide, tall, is_turned=names > wide - 0.06)
        is_last = place + columns >= len(panels)
        axes.tick_params(
            labelleft=place % columns == 0, labelbottom=is_last and not panel.is_of_pairs
        )
        axes.set_ylabel(panel.down if place % columns == 0 else "", size=plot.SMALL)
        axes.set_xlabel(panel.across if is_last or panel.is_of_pairs else "", size=plot.SMALL)
        _add_colour_bars(axes, panel)

    frames: dict[str, plot.Key] = {f.name: (f.name, f.look) for p in panels for f in p.frames}
    missing: list[plot.Key] = [(first.missing, plot.MISSING)] * any(p.has_missing for p in panels)
    heights = [tall * rows] * ceil(len(panels) / columns)
    heights[-1] += 0.75 * names * (names > wide - 0.06)
    return plot.Layout(draw, heights, [*frames.values(), *missing], columns=columns)


def _draw_cells(axes: Axes, panel: plot.HeatMap, wide: float) -> None:
    """The cells, their texts, the separators and the frames."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    rows, columns = panel.extent
    colours = colormaps[panel.colours]
    longest = max(len(cell.text) for cell in panel.cells.values())
    points = min(plot.SMALL, wide * 72 * 0.8 / (0.62 * max(1, longest)))
    image = np.zeros((rows, columns, 4))
    axes.add_patch(Rectangle((0, 0), columns, rows, zorder=0.5, **plot.HATCHED))
    for (row, column), cell in panel.cells.items():
        image[row, column] = 1.0 if cell.shade is None else colours(cell.shade)
        if cell.text:
            axes.text(
                column + 0.5, row + 0.5, cell.text, ha="center", va="center_baseline", size=points,
                color=LIGHT if (cell.shade or 0.0) >= DARK_FROM else DARK,
                weight="bold" if cell.is_bold else "normal",
            )  # fmt: skip
    axes.imshow(image, extent=(0, columns, rows, 0), interpolation="nearest", zorder=1,
                aspect="auto")  # fmt: skip
    thin = [] if panel.is_of_pairs else [(at, 0.8) for at in range(max(rows, columns) + 1)]
    for lines, colour in ((thin, LIGHT), (panel.lines, DARK)):
        for at, width in lines:
            axes.hlines(at, 0, columns, colour, linewidth=width)
            axes.vlines(at, 0, rows, colour, linewidth=width)
    for frame in panel.frames:
        down, inward = (0.0, 0.0) if panel.is_of_pairs else (0.05, min(0.05, 0.015 / wide))
        look = frame.look
        if look.colour == plot.INK:
            is_dark = (panel.cells[frame.top, frame.left].shade or 0.0) >= DARK_FROM
            look = look._replace(colour=LIGHT if is_dark else DARK)
        axes.add_patch(Rectangle(
            (frame.left + inward, frame.top + down), frame.columns - 2 * inward,
            frame.rows - 2 * down, zorder=4, clip_on=False, **plot.area_properties(look),
        ))  # fmt: skip


def _thin(labels: Mapping[float, str], apart: float) -> dict[float, str]:
    """Every n-th of the labels, and the last, which are at least so many cells apart."""
    if len(labels) < 2:
        return dict(labels)
    *others, last = labels.items()
    every = max(1, ceil(apart * len(others) / (last[0] - others[0][0])))
    kept = [(at, text) for at, text in others[::every] if last[0] - at >= apart]
    return {at: plot.plain(text, LONGEST_LABEL) for at, text in (*kept, last)}


def _set_labels(axes: Axes, panel: plot.HeatMap, wide: float, tall: float, is_turned: bool) -> None:
    """The labels, as many as have room."""
    rows, columns = panel.extent
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    apart = (plot.widest(panel.columns.values(), plot.SMALL) + 0.06) / wide
    across = _thin(panel.columns, apart * panel.is_of_pairs)
    down = _thin(panel.rows, 0.15 / tall)
    axes.set_xticks(list(across), across.values())
    axes.set_yticks(list(down), down.values())
    axes.tick_params(length=0, pad=3, labelsize=plot.SMALL)
    if panel.is_of_pairs:
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
    if is_turned:
        for label in axes.get_xticklabels():
            label.set(rotation=45, horizontalalignment="right", rotation_mode="anchor")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _add_colour_bars(axes: Axes, panel: plot.HeatMap) -> None:
    """What colours mean, to the right of a panel."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure: Any = axes.figure
    for bar in panel.bars:
        scale = ScalarMappable(Normalize(0, bar.most), colormaps[panel.colours])
        extend = "max" if bar.is_exceeded else "neither"
        drawn = figure.colorbar(scale, ax=axes, shrink=0.9, aspect=25, pad=0.02, extend=extend)
        drawn.set_label(bar.text, size=plot.SMALL)
        drawn.ax.tick_params(labelsize=plot.SMALL, length=2)


LAYOUTS: dict[type, Callable[[plot.Picture, float], plot.Layout]] = {
    plot.Curves: draw_curves.lay_out,
    plot.HeatMap: lay_out_cells,
    plot.Bars: draw_curves.lay_out_bars,
}

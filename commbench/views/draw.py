"""Draws pictures with matplotlib, and writes them to files.

A figure belongs to no window and to no global state. Lengths are in inches. Matplotlib's own
settings are used, with ours, whatever the user's are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import zip_longest
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.errors import UsageError
from commbench.results.files import is_folder, unused_path, write_new
from commbench.views import draw_bars, draw_curves, draw_heat_map
from commbench.views.layout import EDGE, WIDTH, Layout, area_properties, line_properties
from commbench.views.lettering import LONGEST_NAME, SMALL, TEXT, TITLE, plain, widest, wrap
from commbench.views.pictures import GREY, INK, Bars, Curves, HeatMap, Key, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
"""The endings of files that a picture can be written to."""
OTHER_ENDINGS = (".gif", ".jpg", ".jpeg", ".webp", ".bmp", ".eps", ".tif", ".tiff", ".html")
"""Endings that say that a file is meant, of a format that is not written."""
DOTS_PER_INCH = 200
"""A PNG is 1600 pixels wide, and sharp where it is shown 800 pixels wide."""
LAYOUTS: dict[type, Any] = {
    Curves: draw_curves.lay_out, HeatMap: draw_heat_map.lay_out, Bars: draw_bars.lay_out,
}  # fmt: skip
_HANDLE, _SPACE = 0.41, 0.22
"""Of an entry of a legend: the width of its line, and the space beside it."""


def require_ending(path: Path) -> None:
    """Raise UsageError for a file whose ending is of no known format."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{path} has no ending that says how to draw it",
            f"end the name with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}",
        )


def names_file(output: Path) -> bool:
    """Whether a path means a file, and not a folder; UsageError for one of an unknown format."""
    if is_folder(output):
        return False
    if output.suffix.lower() in OTHER_ENDINGS:
        require_ending(output)
    return output.suffix.lower() in ENDINGS


def write_pictures(pictures: Sequence[Picture], output: Path) -> list[Path]:
    """Draw one picture into a new file that ends in .png, .svg or .pdf, or each into a new PNG file
    of a folder; their paths."""
    if not names_file(output):
        paths = [(each, unused_path(output, each.name, ".png")) for each in pictures]
    elif len(pictures) == 1:
        paths = [(pictures[0], output)]
    else:
        raise UsageError(
            f"{output} can hold one picture, and here are {len(pictures)}",
            "--output DIR draws a picture of each",
        )
    for picture, path in paths:
        write_new(path, render(picture, path.suffix))
    return [path for _, path in paths]


def render(picture: Picture, ending: str) -> bytes:
    """The content of a file with this ending: `.png`, `.svg` or `.pdf`."""
    content, ending = BytesIO(), ending.lower()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending)
    with styled():
        draw(picture).savefig(content, format=ending[1:], dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's own settings, with ours, as long as a picture is made."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "font.size": TEXT, "text.color": INK, "axes.labelcolor": INK, "xtick.labelcolor": INK,
            "ytick.labelcolor": INK, "axes.edgecolor": GREY, "xtick.color": GREY,
            "ytick.color": GREY, "grid.color": GREY, "grid.alpha": 0.25, "grid.linewidth": 0.7,
            "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
            "hatch.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
            "axes.axisbelow": True,
        })  # fmt: skip
        yield


def draw(picture: Picture) -> Figure:
    """The picture as a figure, within `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layout: Layout = LAYOUTS[type(picture.panels[0])](picture)
    inner = WIDTH - 2 * EDGE
    notes = [
        line for note in (*picture.notes, *layout.notes) for line in wrap(plain(note), SMALL, inner)
    ]
    texts = (
        (wrap(plain(picture.title), TITLE, inner, "bold"), TITLE, "bold", INK),
        (notes, SMALL, "normal", GREY),
    )
    legends = [
        (keys, max(1, min(len(keys), int(inner / (widest(text for text, _ in keys) + 0.63)))))
        for named in layout.legends
        if (keys := [(plain(text, LONGEST_NAME), look) for text, look in named])
    ]
    heights = [len(lines) * points / 72 * 1.4 for lines, points, _, _ in texts]
    tall = [0.19 * ceil(len(keys) / columns) for keys, columns in legends]
    above = 0.16 + sum(heights) + sum(tall) + 0.3
    rows = ceil(len(picture.panels) / layout.columns)
    panels = sum(layout.heights) + layout.gap * (rows - 1)
    height = above + panels + layout.bottom
    figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    top = height - 0.1
    for (lines, points, weight, colour), step in zip(texts, heights, strict=True):
        figure.text(EDGE / WIDTH, top / height, "\n".join(lines), size=points, weight=weight,
                    color=colour, va="top")  # fmt: skip
        top -= step
    top -= 0.04
    for (keys, columns), step in zip(legends, tall, strict=True):
        _draw_legend(figure, keys, columns, (EDGE / WIDTH, top / height))
        top -= step
    axes = figure.subplots(
        rows, layout.columns, squeeze=False,
        gridspec_kw={
            "left": layout.left / WIDTH, "right": 1 - layout.right / WIDTH,
            "bottom": layout.bottom / height, "top": 1 - above / height,
            "height_ratios": layout.heights, "wspace": layout.space,
            "hspace": layout.gap * rows / sum(layout.heights),
        },
    )  # fmt: skip
    heading = EDGE - layout.left if layout.columns == 1 else 0.0
    for own, panel in zip_longest(axes.flat, picture.panels):
        own.set_visible(panel is not None)
        if panel is not None:
            layout.draw(own, panel)
            own.annotate(
                plain(panel.heading), (0, 1), xycoords="axes fraction",
                xytext=(heading * 72, 7), textcoords="offset points",
            )  # fmt: skip
    return figure


def _draw_legend(
    figure: Figure, keys: Sequence[Key], columns: int, at: tuple[float, float]
) -> None:
    """A legend that reads row by row, although matplotlib fills columns first."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ordered = [keys[i] for c in range(columns) for i in range(c, len(keys), columns)]
    handles: list[Any] = [
        Line2D([], [], **line_properties(look)) if look.fill is None
        else Patch(**area_properties(look))
        for _, look in ordered
    ]  # fmt: skip
    # A blank precedes an underscore, for which matplotlib would hide the entry.
    texts = [text for text, _ in ordered]
    figure.legend(
        handles, [f" {text}" if text.startswith("_") else text for text in texts],
        loc="upper left", bbox_to_anchor=at, ncols=columns, frameon=False, borderpad=0,
        borderaxespad=0, handlelength=2.6, handletextpad=0.5, labelspacing=0.38,
        columnspacing=1.05,
    )  # fmt: skip

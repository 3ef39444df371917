"""Draws pictures with matplotlib, and writes them to files.

A figure belongs to no window and to no global state. Lengths are in inches. Matplotlib's own
settings are used, with ours, whatever the user's are. Its constrained layout leaves the axes what
room their labels need.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import zip_longest
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.errors import UsageError
from commbench.results.files import is_folder, make_folder, unused_path, write_new
from commbench.units import format_count
from commbench.views import draw_curves, draw_rows
from commbench.views.lettering import (
    LONGEST_NAME,
    SMALL,
    TEXT,
    TITLE,
    area_properties,
    line_properties,
    plain,
    widest,
    wrap,
)
from commbench.views.pictures import GREY, INK, Bars, Curves, HeatMap, Key, Layout, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
"""The endings of files that a picture can be written to."""
_OTHER_ENDING = re.compile(r"\.[a-z]{2,5}")
"""An ending that says that a file is meant, of a format that is not written."""
DOTS_PER_INCH = 200
"""A PNG is 1600 pixels wide, and sharp where it is shown 800 pixels wide."""
WIDTH, EDGE = 8.0, 0.12
"""Of a picture, and of its margin beside text."""
ROW, BOTTOM = 0.55, 0.25
"""Above each row of panels for their headings and ticks, and below the last one."""
LAYOUTS: dict[type, Callable[[Picture], Layout]] = {
    Curves: draw_curves.lay_out, HeatMap: draw_rows.lay_out_cells, Bars: draw_rows.lay_out_bars,
}  # fmt: skip
_HANDLE_AND_SPACE, _LEGEND_ROW = 0.63, 0.19
"""Of an entry of a legend: the width of its line and the space beside it, and its height."""


class Drawn(list[Path]):
    """The files into which pictures were written, if any. A notebook shows the pictures."""

    def __init__(self, pictures: Sequence[Picture], files: Iterable[Path] = ()) -> None:
        super().__init__(files)
        self.pictures = pictures

    def __repr__(self) -> str:
        return super().__repr__() if self else f"<{format_count(len(self.pictures), 'picture')}>"

    def _repr_html_(self) -> str:
        svgs = (b64encode(render(picture, ".svg")).decode() for picture in self.pictures)
        return "".join(f'<img src="data:image/svg+xml;base64,{svg}">' for svg in svgs)


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
    if _OTHER_ENDING.fullmatch(output.suffix.lower()):
        require_ending(output)
    return output.suffix.lower() in ENDINGS


def write_pictures(pictures: Sequence[Picture], output: Path) -> Drawn:
    """Draw one picture into a new file that ends in .png, .svg or .pdf, or each into a new PNG file
    of a folder; their paths."""
    if not names_file(output):
        paths = [(each, unused_path(make_folder(output), each.name, ".png")) for each in pictures]
    elif len(pictures) == 1:
        paths = [(pictures[0], output)]
    else:
        raise UsageError(
            f"{output} can hold one picture, and here are {len(pictures)}",
            "--output DIR draws a picture of each",
        )
    for picture, path in paths:
        write_new(path, render(picture, path.suffix))
    return Drawn(pictures, (path for _, path in paths))


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
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = LAYOUTS[type(picture.panels[0])](picture)
    inner = WIDTH - 2 * EDGE
    notes = [
        line for note in (*picture.notes, *layout.notes) for line in wrap(plain(note), SMALL, inner)
    ]
    texts = (
        (wrap(plain(picture.title), TITLE, inner, "bold"), TITLE, "bold", INK),
        (notes, SMALL, "normal", GREY),
    )
    heights = [len(lines) * points / 72 * 1.4 for lines, points, _, _ in texts]
    keys = [(plain(text, LONGEST_NAME), look) for text, look in layout.keys]
    wide = widest(text for text, _ in keys) + _HANDLE_AND_SPACE
    columns = max(1, min(len(keys), int(inner / wide)))
    above = 0.16 + sum(heights) + _LEGEND_ROW * ceil(len(keys) / columns)
    rows = ceil(len(picture.panels) / layout.columns)
    height = above + sum(layout.heights) + ROW * rows + BOTTOM
    engine = ConstrainedLayoutEngine(
        rect=(0, 0, 1, 1 - above / height), h_pad=0.1, w_pad=EDGE, wspace=0, hspace=0
    )  # fmt: skip
    figure = Figure((WIDTH, height), DOTS_PER_INCH, facecolor="white", layout=engine)
    FigureCanvasAgg(figure)
    top = height - 0.1
    for (lines, points, weight, colour), step in zip(texts, heights, strict=True):
        figure.text(EDGE / WIDTH, top / height, "\n".join(lines), size=points, weight=weight,
                    color=colour, va="top", in_layout=False)  # fmt: skip
        top -= step
    if keys:
        _draw_legend(figure, keys, columns, (EDGE / WIDTH, (top - 0.04) / height))
    axes = figure.subplots(
        rows, layout.columns, squeeze=False, gridspec_kw={"height_ratios": layout.heights}
    )
    for own, panel in zip_longest(axes.flat, picture.panels):
        own.set_visible(panel is not None)
        if panel is not None:
            layout.draw(own, panel)
            own.set_title(plain(panel.heading), loc="left", size=TEXT, pad=7)
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
    texts = [f" {text}" if text.startswith("_") else text for text, _ in ordered]
    legend = figure.legend(
        handles, texts, loc="upper left", bbox_to_anchor=at, ncols=columns, frameon=False,
        borderpad=0, borderaxespad=0, handlelength=2.6, handletextpad=0.5, labelspacing=0.38,
        columnspacing=1.05,
    )  # fmt: skip
    legend.set_in_layout(False)

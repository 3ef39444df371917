"""Draws panels with cells of colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from commbench.views.layout import HATCHED, MISSING, RIGHT, WIDTH, Layout, area_properties
from commbench.views.lettering import SMALL, plain, widest
from commbench.views.pictures import INK, HeatMap, Key, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DARK, LIGHT = "#212121", "#fefefe"
"""Text on cells, and frames: the same on a dark page, unlike INK and white."""
LONGEST_LABEL = 34
_SQUARE, _PANEL = 0.6, 5.3
"""The longest side of a square cell, and of a panel of them."""


def lay_out(picture: Picture) -> Layout:
    """How a picture with heat maps, which all have as many rows and columns, is drawn."""
    panels: Sequence[HeatMap] = picture.panels  # type: ignore[assignment]
    first = panels[0]
    rows, number = first.sides
    left = 0.3 + widest((plain(t, LONGEST_LABEL) for p in panels for t in p.rows.values()), SMALL)
    room = WIDTH - left - RIGHT
    columns = max(1, min(3, len(panels), int(room / (0.52 * number + 0.15))))
    wide = tall = min(_SQUARE, _PANEL / number)
    if not first.is_square:
        wide = min(1.1, (room / columns - 0.15 * (columns > 1)) / number)
        tall = min(0.34, max(0.24, wide))
    names = widest((plain(t, LONGEST_LABEL) for p in panels for t in p.columns.values()), SMALL)
    is_turned = not first.is_square and names > wide - 0.06

    def draw(axes: Axes, panel: HeatMap) -> None:
        place = [panel is each for each in panels].index(True)
        _draw_cells(axes, panel, wide)
        _set_axes(axes, panel, wide, tall, is_turned)
        is_last = place + columns >= len(panels)
        axes.tick_params(
            labelleft=place % columns == 0, labelbottom=is_last and not panel.is_square
        )
        _add_colour_bars(axes, panel)

    frames: dict[str, Key] = {f.name: (f.name, f.look) for p in panels for f in p.frames}
    missing: list[Key] = [(first.missing, MISSING)] * any(p.has_missing for p in panels)
    return Layout(
        draw, [tall * rows] * ceil(len(panels) / columns), [[*frames.values(), *missing]],
        columns=columns, gap=0.34, space=0.15 / (wide * number), left=left,
        bottom=0.3 + (0.75 * names if is_turned else 0.05),
        right=WIDTH - left - (wide * number + 0.15) * columns + 0.15,
    )  # fmt: skip


def _draw_cells(axes: Axes, panel: HeatMap, wide: float) -> None:
    """The cells, their texts, the separators and the frames."""
    import numpy
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    rows, columns = panel.sides
    colours = colormaps[panel.colours]
    longest = max(len(cell.text) for cell in panel.cells.values())
    points = min(SMALL, wide * 72 * 0.8 / (0.62 * max(1, longest)))
    image = numpy.zeros((rows, columns, 4))
    axes.add_patch(Rectangle((0, 0), panel.extent[1], panel.extent[0], zorder=0.5, **HATCHED))
    for (row, column), cell in panel.cells.items():
        image[row, column] = 1.0 if cell.shade is None else colours(cell.shade)
        if cell.text:
            red, green, blue, _ = image[row, column]
            is_light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5
            axes.text(
                column + 0.5, row + 0.5, cell.text, ha="center", va="center_baseline", size=points,
                color=DARK if is_light else LIGHT, weight="bold" if cell.is_bold else "normal",
            )  # fmt: skip
    axes.imshow(image, extent=(0, columns, rows, 0), interpolation="nearest", aspect="auto",
                zorder=1)  # fmt: skip
    if not panel.is_square:
        axes.hlines(range(rows + 1), 0, columns, LIGHT, linewidth=0.8)
        axes.vlines(range(columns + 1), 0, rows, LIGHT, linewidth=0.8)
    for at, width in panel.lines:
        axes.hlines(at, 0, panel.extent[1], DARK, linewidth=width)
        axes.vlines(at, 0, panel.extent[0], DARK, linewidth=width)
    for frame in panel.frames:
        inset = 0.05 if frame.rows == frame.columns == 1 and not panel.is_square else 0.0
        look = frame.look._replace(colour=DARK if frame.look.colour == INK else frame.look.colour)
        axes.add_patch(Rectangle(
            (frame.left + inset, frame.top + inset), frame.columns - 2 * inset,
            frame.rows - 2 * inset, zorder=4, clip_on=False, **area_properties(look),
        ))  # fmt: skip


def _thin(labels: Mapping[float, str], apart: float) -> dict[float, str]:
    """Every n-th of the labels, and the last, which are at least so many cells apart."""
    *others, last = labels.items()
    spacing = (last[0] - others[0][0]) / len(others) if others else 1.0
    every = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n * spacing >= apart)
    kept = [(at, text) for at, text in others[::every] if last[0] - at >= apart]
    return {at: plain(text, LONGEST_LABEL) for at, text in (*kept, last)}


def _set_axes(axes: Axes, panel: HeatMap, wide: float, tall: float, is_turned: bool) -> None:
    """The labels, as many as have room."""
    rows, columns = panel.sides
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    across, down = (
        _thin(panel.columns, 0.4 / wide * panel.is_square),
        _thin(panel.rows, 0.15 / tall),
    )
    axes.set_xticks(list(across), across.values())
    axes.set_yticks(list(down), down.values())
    axes.tick_params(length=0, pad=3, labelsize=SMALL)
    if panel.is_square:
        axes.xaxis.tick_top()
    if is_turned:
        for label in axes.get_xticklabels():
            label.set(rotation=45, horizontalalignment="right", rotation_mode="anchor")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _add_colour_bars(axes: Axes, panel: HeatMap) -> None:
    """What colours mean, to the right of a panel."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure: Any = axes.figure
    tall = 0.85 if len(panel.bars) == 1 else 0.36
    for number, bar in enumerate(panel.bars):
        own = axes.inset_axes((1.05, 0.97 - tall - 0.5 * number, 0.03, tall))
        figure.colorbar(
            ScalarMappable(Normalize(0, bar.most), colormaps[panel.colours]), cax=own,
            extend="max" if bar.is_exceeded else "neither",
        )  # fmt: skip
        own.set_title(bar.text, size=SMALL, pad=5, loc="left")
        own.tick_params(labelsize=SMALL, length=2)

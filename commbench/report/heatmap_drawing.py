"""Draws a square of values as a heat map, with medians of rows and columns beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.rank_matrix import Pair
from commbench.output import plot_style
from commbench.output.plot_style import INK, SMALL, TEXT, WIDTH, Grid, Head, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_VALUES = 32
"""Up to so many rows have values in their cells."""
COLOURS = {True: "Blues", False: "Purples"}
"""By whether a high value is good: dark is high."""
SLOW = "#B2182B"
_ALIKE = 2.0
"""Values within hosts and across hosts have one scale if their medians differ by less."""
_PANEL, _LARGEST_CELL = 5.3, 0.6
"""The longest side of the matrix, and of a cell, in inches."""
_LATENCY_LIMIT = 4.0
"""A latency of so many medians has the darkest colour, and so have all above it."""
_MISSING: dict[str, Any] = {
    "facecolor": "#f4f4f4", "hatch": "////", "edgecolor": "#a8a8a8", "linewidth": 0.0,
}  # fmt: skip


class Sheet(NamedTuple):
    """What one picture shows: a square of values, with names and separators."""

    title: str
    notes: tuple[str, ...]
    unit: str
    is_better_high: bool
    values: dict[Pair, float]
    """By row and column, in the unit of the picture."""
    medians: tuple[dict[int, float], dict[int, float]]
    """Of rows and of columns."""
    rows: int
    names: tuple[str, ...]
    """Of each row and column: a rank, or a block of hosts."""
    hosts: tuple[str, ...]
    """Of each row the host; consecutive equal ones are framed. Empty for blocks."""
    racks: tuple[int, ...]
    """Of each row the number of its rack."""
    findings: tuple[tuple[set[int], set[int]], ...]
    """For each part of a slow part its rows and its columns."""
    has_diagonal: bool

    def is_within(self, pair: Pair) -> bool:
        """Whether a cell is of pairs of one host."""
        row, column = pair
        return self.hosts[row] == self.hosts[column] if self.hosts else row == column


def draw_sheet(sheet: Sheet) -> Figure:
    """The picture of a square of values."""
    from matplotlib import colormaps

    missing = sheet.rows * (sheet.rows - (not sheet.has_diagonal)) - len(sheet.values)
    legend: list[tuple[str, dict[str, Any]]] = []
    if sheet.findings:
        legend.append(("slow", {"facecolor": "none", "edgecolor": SLOW, "linewidth": 1.5}))
    if missing:
        legend.append(("not measured", _MISSING))
    head = Head(sheet.title, sheet.notes, [legend] if legend else [])
    scales = _make_scales(sheet)
    with plot_style.styled():
        names, room = _labels(sheet)
        cell = min(_LARGEST_CELL, _PANEL / _side(sheet.rows))
        side = cell * _side(sheet.rows)
        left = room + 0.45
        grid = Grid(1, 1, [side], left=left, right=WIDTH - left - side, bottom=0.2)
        figure, (axes,) = plot_style.make_figure(head, grid)
        colours = colormaps[COLOURS[sheet.is_better_high]]
        _fill_cells(axes, sheet, colours, scales, cell)
        _separate(axes, sheet)
        _mark(axes, sheet)
        _set_axes(axes, sheet, names)
        _add_scales(figure, axes, sheet, colours, scales)
    return figure


def _make_scales(sheet: Sheet) -> dict[bool, Any]:
    """The scale of cells within hosts (True) and across hosts: one for both if these are alike."""
    from matplotlib.colors import Normalize

    kinds: dict[bool, list[float]] = {}
    for pair, value in sheet.values.items():
        kinds.setdefault(sheet.is_within(pair), []).append(value)
    middles = [median(values) for values in kinds.values()]
    if len(kinds) < 2 or max(middles) < _ALIKE * min(middles):
        every = [value for values in kinds.values() for value in values]
        kinds = dict.fromkeys(kinds, every)
    scales = {}
    for kind, values in kinds.items():
        most = inf if sheet.is_better_high else _LATENCY_LIMIT * median(values)
        scales[kind] = Normalize(0, min(max(values), most))
    return scales


def _gap(rows: int) -> float:
    """Between the matrix and the strips of medians, in cells."""
    return max(0.35, 0.012 * rows)


def _strip(rows: int) -> float:
    """The width of a strip of medians, in cells."""
    return max(1.0, 0.035 * rows)


def _side(rows: int) -> float:
    """The length of a side with its strip, in cells."""
    return rows + _gap(rows) + _strip(rows)


def _labels(sheet: Sheet) -> tuple[dict[float, str], float]:
    """The names beside the rows, at the middles of what they name, and their width in inches."""
    cell = min(_LARGEST_CELL, _PANEL / _side(sheet.rows))
    every = _every(0.15 / cell)
    found = {row + 0.5: plain(sheet.names[row], 18) for row in range(0, sheet.rows, every)}
    spans = _spans(sheet.hosts)
    if len(spans) > 1:
        if len(spans) == sheet.rows and every == 1:
            found = {
                row + 0.5: f"{plain(host, 18)}  {name}"
                for row, (host, name) in enumerate(zip(sheet.hosts, sheet.names, strict=True))
            }
        elif min(end - start for start, end in spans) * cell >= 0.15:
            found = {(start + end) / 2: plain(sheet.hosts[start], 18) for start, end in spans}
    found[sheet.rows + _gap(sheet.rows) + _strip(sheet.rows) / 2] = "median"
    return found, max(plot_style.text_width(name, SMALL) for name in found.values())


def _spans(hosts: Sequence[str]) -> list[tuple[int, int]]:
    """The first row of each run of equal hosts, and the row after its last."""
    starts = [row for row, host in enumerate(hosts) if row == 0 or host != hosts[row - 1]]
    return list(pairwise([*starts, len(hosts)])) if starts else []


def _fill_cells(
    axes: Axes, sheet: Sheet, colours: Any, scales: dict[bool, Any], cell: float
) -> None:
    """The cells, and beside them the medians of rows and below them those of columns."""
    import numpy
    from matplotlib.patches import Rectangle

    rows, at, wide = sheet.rows, sheet.rows + _gap(sheet.rows), _strip(sheet.rows)
    image = numpy.zeros((rows, rows, 4))
    strips = numpy.zeros((2, rows, 4))
    shown: list[tuple[float, float, float, Any]] = []
    medians_of = min(scales, default=False)  # of cells across hosts, if there are any
    for pair, value in sheet.values.items():
        row, column = pair
        image[pair] = colour = colours(scales[sheet.is_within(pair)](value))
        shown.append((column + 0.5, row + 0.5, value, colour))
    if not sheet.has_diagonal:
        image[range(rows), range(rows)] = 1.0
    for strip, found in enumerate(sheet.medians):
        for row, middle in found.items():
            strips[strip, row] = colour = colours(scales[medians_of](middle))
            x, y = (at + wide / 2, row + 0.5) if strip == 0 else (row + 0.5, at + wide / 2)
            shown.append((x, y, middle, colour))
    boxes = ((0, rows, 0, rows), (at, at + wide, 0, rows), (0, rows, at, at + wide))
    images = (image, strips[0][:, None], strips[1][None])
    for (x0, x1, y0, y1), pixels in zip(boxes, images, strict=True):
        axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, zorder=0.5,
                                 gid=plot_style.FIXED, **_MISSING))  # fmt: skip
        axes.imshow(pixels, extent=(x0, x1, y1, y0), interpolation="nearest", aspect="auto",
                    zorder=1, gid=plot_style.FIXED)  # fmt: skip
    if rows > MOST_VALUES:
        return
    texts = format_values([value for _, _, value, _ in shown], rows)
    points = min(TEXT, cell * 72 * 0.8 / (0.62 * max(map(len, texts), default=1)))
    for (x, y, _, colour), text in zip(shown, texts, strict=True):
        axes.text(x, y, text, size=points, ha="center", va="center_baseline", gid=plot_style.FIXED,
                  color="white" if sum(colour[:3]) < 1.6 else INK, zorder=3)  # fmt: skip


def format_values(values: Sequence[float], rows: int) -> list[str]:
    """The values with equally many decimals, in few characters."""
    middle = median(values) if values else 1.0
    decimals = 0 if middle >= 40 else 1 if middle >= 4 else 2
    if rows > MOST_VALUES // 2:
        decimals = max(0, decimals - 1)
    return [f"{value:.{decimals}f}" for value in values]


def _separate(axes: Axes, sheet: Sheet) -> None:
    """Lines between hosts with several ranks, and stronger ones between racks."""
    hosts = [start for start, _ in _spans(sheet.hosts)]
    if 2 * len(hosts) > sheet.rows:
        hosts = []
    racks = [row for row in range(1, sheet.rows) if sheet.racks[row] != sheet.racks[row - 1]]
    for found, width in ((hosts, 0.8), (racks, 1.8)):
        for row in found:
            if row:
                for x, y in (((0, sheet.rows), (row, row)), ((row, row), (0, sheet.rows))):
                    axes.plot(x, y, color=INK, linewidth=width, zorder=2, label="_separator",
                              gid=plot_style.FIXED, solid_capstyle="butt")  # fmt: skip


def _mark(axes: Axes, sheet: Sheet) -> None:
    """Frames around what is slow."""
    from matplotlib.patches import Rectangle

    for rows, columns in sheet.findings:
        for top, bottom in _runs(rows, sheet.rows):
            for left, right in _runs(columns, sheet.rows):
                axes.add_patch(Rectangle(
                    (left, top), right - left, bottom - top, facecolor="none", edgecolor=SLOW,
                    linewidth=1.5, zorder=4, gid=plot_style.FIXED, clip_on=False,
                ))  # fmt: skip


def _runs(chosen: set[int], rows: int) -> list[tuple[int, int]]:
    """Runs of consecutive rows, each with the row after its last; all rows where none is chosen."""
    if not chosen:
        return [(0, rows)]
    ordered = sorted(chosen)
    breaks = [i for i in range(1, len(ordered)) if ordered[i] != ordered[i - 1] + 1]
    bounds = pairwise([0, *breaks, len(ordered)])
    return [(ordered[start], ordered[end - 1] + 1) for start, end in bounds]


def _set_axes(axes: Axes, sheet: Sheet, names: dict[float, str]) -> None:
    side = _side(sheet.rows)
    cell = min(_LARGEST_CELL, _PANEL / side)
    axes.set_xlim(0, side)
    axes.set_ylim(side, 0)
    axes.set_yticks(list(names), list(names.values()))
    columns: dict[float, str] = {}
    if sheet.hosts:
        widest = max(plot_style.text_width(name, SMALL) for name in sheet.names) + 0.06
        columns = {c + 0.5: sheet.names[c] for c in range(0, sheet.rows, _every(widest / cell))}
    strip = max(names)
    if not columns or (strip - max(columns)) * cell > 0.42:
        columns[strip] = "median"
    axes.set_xticks(list(columns), list(columns.values()))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=3, labelsize=SMALL)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _every(cells: float) -> int:
    """Every n-th row has a name if a name takes so many cells."""
    return next(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n >= cells)


def _add_scales(
    figure: Figure, axes: Axes, sheet: Sheet, colours: Any, scales: dict[bool, Any]
) -> None:
    """The scales of colours, to the right of the matrix."""
    from matplotlib.cm import ScalarMappable

    height, box = figure.get_figheight(), axes.get_position()
    different = {id(scale): (kind, scale) for kind, scale in scales.items()}
    same = len({scale.vmax for scale in scales.values()}) == 1
    tall = min(2.2, box.height * height * (0.9 if same else 0.36))
    for number, (kind, scale) in enumerate(sorted(different.values(), key=lambda one: one[0])):
        if number and same:
            break
        top = box.y1 - (0.1 + number * (tall + 0.55)) / height
        at = (box.x1 + 0.22 / WIDTH, top - tall / height, 0.14 / WIDTH, tall / height)
        bar = figure.add_axes(at)
        kind_values = [
            v for pair, v in sheet.values.items() if same or sheet.is_within(pair) == kind
        ]
        extend = "max" if max(kind_values) > scale.vmax else "neither"
        figure.colorbar(ScalarMappable(scale, colours), cax=bar, extend=extend)
        where = "" if same else "within hosts\n" if kind else "across hosts\n"
        bar.set_title(f"{where}{sheet.unit}", size=SMALL, color=INK, pad=5, loc="left")
        bar.tick_params(labelsize=SMALL, length=2)
        bar.set_gid(plot_style.FIXED)

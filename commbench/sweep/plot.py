"""Pictures of a sweep: curves where few settings differ in one value, and heat maps.

A heat map has one cell for a setting, or for a setting and a size: the time over that of the
fastest setting of the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.compare.plot import Line, as_file_name, draw_lines
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import FIXED, GREY, INK, Grid, Head, Picture, plain
from commbench.results.files import unused_path, write_new
from commbench.stats.estimate import Estimate
from commbench.sweep.ranking import SweepPoint, rank_settings
from commbench.sweep.sentences import kind_sentences, sentences_by_kind
from commbench.sweep.settings import UNSET, Setting, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from commbench.sweep.result import SweepResult

MOST_CURVES = 6
MOST_MAPS = 9
MOST_SENTENCES = 4
MOST_ROWS, MOST_COLUMNS = 24, 18
LEAST_RANGE = 1.25
"""The colours of a heat map reach at least to this ratio, so that noise looks like noise."""
DARK, LIGHT = "#222222", "#ffffff"
"""Text on cells."""
BEST: dict[str, Any] = {"edgecolor": DARK, "linewidth": 1.8, "linestyle": "-"}
TIED: dict[str, Any] = {"edgecolor": DARK, "linewidth": 1.1, "linestyle": (0, (2, 1.5))}
UNDECIDED: dict[str, Any] = {"edgecolor": DARK, "linewidth": 0.9, "linestyle": (0, (0.8, 2))}


class Cell(NamedTuple):
    """One cell of a heat map."""

    ratio: float
    """Time over that of the fastest setting of the same size; NaN where there is no time."""
    is_best: bool = False
    is_tied: bool = False
    is_undecided: bool = False


EMPTY = Cell(nan)


class Map(NamedTuple):
    """One heat map."""

    heading: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    """By row, then by column."""


def sweep_figures(result: SweepResult) -> list[Picture]:
    """The pictures of a sweep, of each kind of case in turn.

    Curves against size, of times and of ratios to the first setting, for at most six settings. Heat
    maps where two variables or options are swept, one for each size; and where settings are too
    many for curves, one with a row for each setting and a column for each size. None for two
    settings at one size.
    """
    kinds: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        kinds.setdefault(point.case.operation if point.case.step else point.kind, []).append(point)
    pictures = []
    sentences = sentences_by_kind(result)
    for kind, points in kinds.items():
        ordered = sorted(
            (point for point in points if point.is_compared), key=lambda point: point.size_bytes
        )
        if ordered:
            texts = kind_sentences(result) if points[0].case.step else sentences[kind]
            pictures += _kind_pictures(result, kind, ordered, texts[:MOST_SENTENCES])
    return pictures


def _label(point: SweepPoint) -> str:
    """What a point is called among others of its kind: its size; of a step also its variant."""
    if point.size_bytes:
        return plot_axes.size_label(point.size_bytes)
    return plain(point.kind.removeprefix(point.case.operation).strip(), 34) or "no size"


def draw(result: SweepResult, folder: Path, ending: str = ".png") -> list[Path]:
    """Draw the pictures of a sweep into new files of a folder; their paths."""
    paths = []
    for picture in sweep_figures(result):
        paths.append(unused_path(folder, picture.name, ending))
        write_new(paths[-1], plot_style.render(picture.figure, ending))
    return paths


def _kind_pictures(
    result: SweepResult, kind: str, points: Sequence[SweepPoint], texts: Sequence[str]
) -> list[Picture]:
    axes = [(name, values) for name, values in make_axes(result.sweep.settings) if len(values) > 1]
    timed = {each.setting for point in points for each in point.by_time}
    settings = [setting for setting in result.sweep.settings if setting in timed]
    sized = [point for point in points if point.size_bytes]
    name = f"sweep-{as_file_name(kind)}"
    found = []
    if len(settings) <= MOST_CURVES and len(sized) > 1:
        lines = _lines(result, settings, sized)
        if len(lines) > 1:
            title = f"{plain(kind)} under {len(lines)} settings"
            figure = draw_lines(title, texts, lines, result.sweep.tolerance)
            found.append(Picture(name, title, " ".join(texts), figure))
    fits = len(axes) == 2 and len(axes[0][1]) <= MOST_ROWS and len(axes[1][1]) <= MOST_COLUMNS
    if fits:
        found.append(_value_maps(f"{name}-map", kind, points, axes, texts))
    elif not found and (len(points) > 1 or len(settings) > 2):
        found.append(_setting_map(f"{name}-map", kind, points, settings, result, texts))
    return found


def _lines(
    result: SweepResult, settings: Sequence[Setting], points: Sequence[SweepPoint]
) -> list[Line]:
    """Times and ratios of each setting; those that lack the first setting's times have no ratio."""
    lines: list[Line] = []
    for number, setting in enumerate(settings):
        same = [(p, each) for p in points for each in p.by_time if each.setting == setting]
        is_first = not lines
        lines.append(
            Line(
                result.names[setting],
                plot_style.nth_style(number),
                tuple(point.size_bytes for point, _ in same),
                tuple(_known(each.time) for _, each in same),
                () if is_first else tuple(_known(each.ratio) for _, each in same),
            )
        )
    return lines


def _known(values: Estimate | None) -> tuple[float, float, float]:
    middle, low, high = (nan if value is None else value for value in values or (None,) * 3)
    return middle, low, high


def _cells(point: SweepPoint) -> dict[Setting, Cell]:
    best = point.best.time.value
    return {
        each.setting: Cell(
            (each.time.value) / best, each is point.best, each.is_tied, each.is_undecided
        )
        for each in point.by_time
    }


def _value_maps(
    name: str, kind: str, points: Sequence[SweepPoint],
    axes: Sequence[tuple[str, Sequence[str]]], texts: Sequence[str],
) -> Picture:  # fmt: skip
    """A heat map for each size, or for some sizes: rows are values of one variable or option,
    columns those of the other."""
    (row_name, row_values), (column_name, column_values) = axes
    chosen = _spread(points, MOST_MAPS)
    maps = []
    for point in chosen:
        cells = {}
        for setting, cell in _cells(point).items():
            values = dict(setting.values)
            cells[values[row_name], values[column_name]] = cell
        maps.append(
            Map(
                _label(point),
                tuple(map(_value, row_values)),
                tuple(map(_value, column_values)),
                tuple(
                    tuple(cells.get((row, column), EMPTY) for column in column_values)
                    for row in row_values
                ),
            )
        )
    where = f"Rows: {plain(row_name)}. Columns: {plain(column_name)}."
    notes = [*texts, f"{where} Number: {_reading(points)}."]
    if len(chosen) < len(points):
        what = "sizes" if points[0].size_bytes else "cases"
        notes.append(f"{len(chosen)} of {len(points)} {what} are shown.")
    title = f"{plain(kind)}: {plain(row_name)} and {plain(column_name)}"
    return _map_picture(name, title, notes, maps, " ".join(texts))


READING = "time over the shortest time of the same {}"


def _reading(points: Sequence[SweepPoint]) -> str:
    """What the number in a cell is."""
    return READING.format("size" if points[0].size_bytes else "case")


def _value(value: str) -> str:
    return "unset" if value == UNSET else plain(value, 24)


def _setting_map(
    name: str, kind: str, points: Sequence[SweepPoint], settings: Sequence[Setting],
    result: SweepResult, texts: Sequence[str],
) -> Picture:  # fmt: skip
    """One heat map with a row for each setting, or for the best ones, and a column for each size,
    or for some sizes."""
    chosen = _spread(points, MOST_COLUMNS)
    notes = [*texts]
    kept = list(settings)
    if len(settings) > MOST_ROWS:
        best = {rank.setting for rank in rank_settings(points)[:MOST_ROWS]}
        kept = [setting for setting in settings if setting in best]
        notes.append(f"The best {len(kept)} of {len(settings)} settings are shown.")
    if len(chosen) < len(points):
        what = "sizes" if points[0].size_bytes else "cases"
        notes.append(f"{len(chosen)} of {len(points)} {what} are shown.")
    by_size = [_cells(point) for point in chosen]
    one = Map(
        _reading(points).capitalize(),
        tuple(plain(result.names[setting], 34) for setting in kept),
        tuple(map(_label, chosen)),
        tuple(tuple(cells.get(setting, EMPTY) for cells in by_size) for setting in kept),
    )
    title = f"{plain(kind)} under {len(settings)} settings"
    return _map_picture(name, title, notes, [one], " ".join(texts))


def _spread(points: Sequence[SweepPoint], most: int) -> list[SweepPoint]:
    """At most so many points, evenly spread, with the first and the last."""
    if len(points) <= most:
        return list(points)
    step = ceil((len(points) - 1) / (most - 1))
    chosen = list(points[::step])
    return chosen if chosen[-1] is points[-1] else [*chosen[: most - 1], points[-1]]


def _map_picture(
    name: str, title: str, notes: Sequence[str], maps: Sequence[Map], text: str
) -> Picture:
    with plot_style.styled():
        small = plot_style.SMALL
        left = max(plot_style.text_width(row, small) for each in maps for row in each.rows) + 0.3
        room = plot_style.WIDTH - left - plot_style.RIGHT
        number = len(maps[0].columns)
        columns = max(1, min(3, len(maps), int(room / (0.52 * number + 0.15))))
        cell = min(1.1, (room / columns - 0.15 * (columns > 1)) / number)
        tall = min(0.34, max(0.24, cell))
        rows = ceil(len(maps) / columns)
        widest = max(plot_style.text_width(c, small) for each in maps for c in each.columns)
        below = 0.3 if widest < cell - 0.06 else 0.25 + 0.75 * widest
        every = [each for one in maps for line in one.cells for each in line]
        legend = [("shortest time", {"facecolor": "none", **BEST, "edgecolor": INK})]
        if any(each.is_tied and not each.is_best for each in every):
            legend.append(("tied with it", {"facecolor": "none", **TIED, "edgecolor": INK}))
        if any(each.is_undecided for each in every):
            legend.append(("undecided", {"facecolor": "none", **UNDECIDED, "edgecolor": INK}))
        if any(isnan(each.ratio) for each in every):
            legend.append(("no time", {"facecolor": "white", "edgecolor": GREY, "hatch": "////"}))
        head = Head(title, [plain(note, 600) for note in notes], [legend])
        grid = Grid(
            rows, columns, [tall * len(maps[0].rows)] * rows,
            gap=0.34, bottom=below + 0.05, left=left,
            right=plot_style.WIDTH - left - (cell * number + 0.15) * columns + 0.15,
        )  # fmt: skip
        figure, axes = plot_style.make_figure(head, grid)
        highest = max([LEAST_RANGE, *(each.ratio for each in every if not isnan(each.ratio))])
        for place, each in enumerate(axes):
            if place >= len(maps):
                each.set_visible(False)
                continue
            _paint_map(each, maps[place], highest, cell)
            each.tick_params(
                labelleft=place % columns == 0, labelbottom=place + columns >= len(maps)
            )
            if widest >= cell - 0.06:
                each.tick_params(axis="x", rotation=45)
                for label in each.get_xticklabels():
                    label.set(horizontalalignment="right", rotation_mode="anchor")
            plot_axes.set_heading(each, maps[place].heading)
    return Picture(name, title, text, figure)


def _paint_map(axes: Axes, one: Map, highest: float, width: float) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    colours, norm = colormaps["YlGnBu"], LogNorm(1, highest)
    size = min(plot_style.SMALL, width * 72 / 3.2)
    marked = []
    for row, line in enumerate(one.cells):
        for column, cell in enumerate(line):
            at = (column, row)
            if isnan(cell.ratio):
                axes.add_patch(Rectangle(at, 1, 1, facecolor="white", edgecolor=GREY, linewidth=0,
                                         hatch="////", gid="empty"))  # fmt: skip
                continue
            colour = colours(0.06 + 0.84 * float(norm(cell.ratio)))
            axes.add_patch(
                Rectangle(at, 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8, gid=FIXED)
            )
            light = 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2] > 0.5
            text = f"{cell.ratio:.2f}" if cell.ratio < 9.995 else f"{cell.ratio:.3g}"
            axes.text(
                column + 0.5, row + 0.5, text, ha="center", va="center", size=size,
                color=DARK if light else LIGHT, weight="bold" if cell.is_best else "normal",
                gid=FIXED,
            )  # fmt: skip
            if cell.is_best or cell.is_tied or cell.is_undecided:
                look = BEST if cell.is_best else TIED if cell.is_tied else UNDECIDED
                marked.append((at, look))
    for (column, row), look in marked:
        axes.add_patch(
            Rectangle((column + 0.05, row + 0.07), 0.9, 0.86, facecolor="none", zorder=3,
                      gid=FIXED, **look)
        )  # fmt: skip
    axes.set_xlim(0, len(one.columns))
    axes.set_ylim(len(one.rows), 0)
    axes.set_xticks([c + 0.5 for c in range(len(one.columns))], one.columns)
    axes.set_yticks([r + 0.5 for r in range(len(one.rows))], one.rows)
    axes.tick_params(length=0, labelsize=plot_style.SMALL)
    for spine in axes.spines.values():
        spine.set_visible(False)

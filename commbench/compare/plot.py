"""Pictures of comparisons, one per kind of case: times above, ratios below, against size."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.compare.comparison import ComparedRow, Comparison, distinct_names
from commbench.compare.pooling import PooledRatio
from commbench.compare.sentences import pooled_sentences
from commbench.errors import UnavailableError, UsageError
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import GREY, INK, Grid, Head, Picture, Style, plain
from commbench.results.files import write_new
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import NOT_COMPARED
from commbench.units import format_bytes, format_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = "#8a8a8a"
MOST_SENTENCES = 4


class Line(NamedTuple):
    """One run in a picture: its times, and their ratios to the first run; NaN where unknown."""

    name: str
    style: Style
    sizes: tuple[int, ...]
    times: tuple[tuple[float, float, float], ...]
    """Seconds: median and the ends of its 95 % interval."""
    ratios: tuple[tuple[float, float, float], ...] = ()
    """Empty for the first run."""


def comparison_figures(comparisons: Sequence[Comparison], limit: float = 1.0) -> dict[str, Picture]:
    """A picture for each kind of case that both sides timed at two sizes or more, by the title of
    the kind. The comparisons have the same run A. `limit` is a ratio to mark, if it is above 1."""
    return {kind: _picture(comparisons, kind, limit) for kind in _drawable(comparisons)}


def draw_one(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw the only kind of case that has a curve into `path`, which must not exist and ends in
    .png, .svg or .pdf."""
    plot_style.require_ending(path)
    kinds = _drawable(comparisons)
    if len(kinds) > 1:
        raise UsageError(
            f"{path} can hold one kind of case, and here are {len(kinds)}",
            "--output DIR draws a picture of each",
        )
    _require_any(kinds)
    _write(_picture(comparisons, kinds[0]), path)


def draw_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Draw every kind of case that has a curve into a PNG file of its own; their paths."""
    pictures = list(comparison_figures(comparisons).values())
    _require_any(pictures)
    paths = [folder / f"{picture.name}.png" for picture in pictures]
    for picture, path in zip(pictures, paths, strict=True):
        _write(picture, path)
    return paths


def _write(picture: Picture, path: Path) -> None:
    write_new(path, plot_style.render(picture.figure, path.suffix))


def _require_any(found: Sequence[object]) -> None:
    if not found:
        raise UnavailableError(
            "no plot: a curve needs at least two sizes that both sides have timed",
            "measure both with the same --sizes",
        )


def as_file_name(kind: str) -> str:
    """A kind as part of a file's name, of letters, digits and dashes, and not too long for one."""
    return re.sub(r"[^A-Za-z0-9]+", "-", kind).strip("-")[:100]


def _drawable(comparisons: Sequence[Comparison]) -> list[str]:
    """The kinds that were timed on both sides at two sizes or more."""
    sizes: dict[str, int] = {}
    for found in comparisons:
        for kind, number in Counter(row.kind for row in _timed(found)).items():
            sizes[kind] = max(sizes.get(kind, 0), number)
    return [kind for kind, number in sizes.items() if number > 1]


def _timed(found: Comparison) -> list[ComparedRow]:
    return [row for row in found.rows if row.verdict != NOT_COMPARED]


def _lines(comparisons: Sequence[Comparison], kind: str) -> list[Line]:
    names = distinct_names([comparisons[0].a, *(found.b for found in comparisons)])
    rows = [[row for row in _timed(found) if row.kind == kind] for found in comparisons]
    of_a = {row.a.size_bytes: row.a.time for same in rows for row in same}
    sizes = tuple(sorted(of_a))
    times = tuple(_known(of_a[size]) for size in sizes)
    lines = [Line(names[0], plot_style.nth_style(0), sizes, times)]
    for number, (name, same) in enumerate(zip(names[1:], rows, strict=True), start=1):
        if not same:
            continue
        lines.append(
            Line(
                name,
                plot_style.nth_style(number),
                tuple(row.a.size_bytes for row in same),
                tuple(_known(row.b.time) for row in same),
                tuple(_known(row.ratio) for row in same),
            )
        )
    return lines


def _known(found: Estimate | None) -> tuple[float, float, float]:
    middle, low, high = (nan if value is None else value for value in found or (None,) * 3)
    return middle, low, high


def _picture(comparisons: Sequence[Comparison], kind: str, limit: float = 1.0) -> Picture:
    lines = _lines(comparisons, kind)
    first, others = lines[0], lines[1:]
    what = others[0].name if len(others) == 1 else f"{len(others)} runs"
    title = f"{plain(what, 40)} compared with {plain(first.name, 40)}: {plain(kind)}"
    texts = pooled_sentences(comparisons[0], kind) if len(others) == 1 else []
    found = comparisons[0].pooled if len(others) == 1 else ()
    pooled = [each for each in found if each.kind == kind]
    tolerance = comparisons[0].tolerance
    figure = draw_lines(title, texts[:MOST_SENTENCES], lines, tolerance, pooled, limit)
    description = " ".join(texts) or _describe(first, others, tolerance)
    if limit > 1:
        description += f" A line marks the limit of the check: {limit:g} times as long."
    return Picture(f"compare-{as_file_name(kind)}", title, description, figure)


def draw_lines(
    title: str, notes: Sequence[str], lines: Sequence[Line], tolerance: float,
    pooled: Sequence[PooledRatio] = (), limit: float = 1.0,
) -> Figure:  # fmt: skip
    """A figure of times, and of their ratios to those of the first line. `pooled` are ratios over
    ranges of sizes, where there is only one other line. A ratio `limit` above 1 is marked."""
    has_bands = len(lines) <= plot_style.MOST_BANDS
    has_intervals = any(low == low for line in lines for _, low, _ in line.times)
    note = "Median time of a call" + ("; band: 95 % interval" * (has_bands and has_intervals))
    name = plain(lines[0].name, 40)
    with plot_style.styled():
        legend = [(plot_style.tag(line.name), line.style.line) for line in lines]
        below = []
        if tolerance:
            below.append((f"no difference: within {tolerance * 100:g} %", NO_DIFFERENCE))
        if limit > 1:
            below.append((f"limit: {limit:g} times as long", LIMIT))
        if pooled:
            below.append(("several sizes taken together; dashed: their 95 % interval", POOLED))
        head = Head(
            title, [*map(plain_sentence, notes), note], [legend, *([below] if below else [])]
        )
        figure, (times, ratios) = plot_style.make_figure(head, Grid(2, 1, (2.8, 2.2)))
        for line in lines:
            _paint(times, line, line.times, has_bands)
        for line in lines[1:]:
            _paint(ratios, line, line.ratios, has_bands)
        for each in pooled:
            _paint_pooled(ratios, each)
        _set_times(times, [value for line in lines for each in line.times for value in each])
        shown = max(tolerance, limit - 1)
        low, high = _ratio_limits([line.ratios for line in lines[1:]], shown, has_bands)
        _set_ratios(ratios, low, high, tolerance)
        if limit > 1:
            ratios.axhline(limit, gid="limit", zorder=1.8, **LIMIT)
        text = f"Time over that of {name}; above 1: slower, below 1: faster"
        plot_axes.set_heading(ratios, text, plot_style.MARGIN)
        sizes = sorted({size for line in lines for size in line.sizes})
        width = plot_style.WIDTH - plot_style.LEFT - plot_style.RIGHT
        for axes in (times, ratios):
            plot_axes.set_size_axis(axes, sizes, width, has_labels=axes is ratios)
        plot_axes.name_size_axis(figure)
    return figure


NO_DIFFERENCE: dict[str, Any] = {"facecolor": BAND, "alpha": 0.3}
LIMIT: dict[str, Any] = {"color": "#a40e26", "linewidth": 1.2, "linestyle": (0, (5, 2))}
POOLED: dict[str, Any] = {"color": INK, "linewidth": 1.6, "solid_capstyle": "butt"}


def plain_sentence(text: str) -> str:
    """A sentence for a subtitle."""
    return plain(text, 400)


def _paint(
    axes: Axes, line: Line, values: Sequence[tuple[float, float, float]], has_band: bool
) -> None:
    middles, lows, highs = zip(*values, strict=True)
    if has_band:
        axes.fill_between(line.sizes, lows, highs, color=line.style.colour, alpha=0.18, linewidth=0)
    axes.plot(line.sizes, middles, label=plot_style.tag(line.name), **line.style.line)


def _paint_pooled(axes: Axes, pooled: PooledRatio) -> None:
    """The ratio of several sizes, and the ends of its interval."""
    sizes = (pooled.low_bytes, pooled.high_bytes)
    if pooled.rows < 2:
        return
    axes.plot(sizes, (pooled.ratio.value,) * 2, gid="pooled", zorder=1.9, **POOLED)
    for end in pooled.ratio[1:]:
        if end is not None:
            axes.plot(sizes, (end, end), color=INK, linewidth=0.7, linestyle=(0, (4, 2)),
                      gid="pooled", zorder=1.9)  # fmt: skip


def _set_times(axes: Axes, values: Sequence[float]) -> None:
    known = [value for value in values if value > 0]
    plot_axes.set_log_times(axes, min(known) / 1.25, max(known) * 1.25)
    plot_axes.set_heading(axes, "Time of a call", plot_style.MARGIN)


def _ratio_limits(
    ratios: Sequence[Sequence[tuple[float, float, float]]], tolerance: float, has_bands: bool
) -> tuple[float, float]:
    known = [
        value
        for line in ratios
        for each in line
        for value in (each if has_bands else each[:1])
        if 0 < value < inf
    ]
    low, high = min([1 / (1 + tolerance), *known]), max([1 + tolerance, *known])
    pad = max(1.02, (high / low) ** 0.08)
    return low / pad, high * pad


def _set_ratios(axes: Axes, low: float, high: float, tolerance: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    ticks = plot_axes.log_ticks(low, high)
    if not any(abs(tick - 1) < 1e-9 for tick in ticks):
        apart = (high / low) ** 0.06
        ticks = sorted([*(t for t in ticks if not 1 / apart < t < apart), 1.0])
    plot_axes.set_ticks(axes, ticks, [plot_axes.number(round(tick, 6)) for tick in ticks])
    if tolerance:
        axes.axhspan(
            1 / (1 + tolerance), 1 + tolerance, gid="no-difference", linewidth=0, zorder=0.8,
            **NO_DIFFERENCE,
        )  # fmt: skip
    axes.axhline(1, color=GREY, linewidth=1, zorder=0.9)


def _describe(first: Line, others: Sequence[Line], tolerance: float) -> str:
    """The least and the largest ratio of each run, in a sentence."""
    parts = []
    for line in others:
        found = [
            (ratio[0], size) for size, ratio in zip(line.sizes, line.ratios, strict=True)
            if ratio[0] == ratio[0]
        ]  # fmt: skip
        (low, at_low), (high, at_high) = min(found), max(found)
        parts.append(
            f"{line.name} takes {format_ratio(low)} times as long as {first.name} at "
            f"{format_bytes(at_low)}, the least, and {format_ratio(high)} times at "
            f"{format_bytes(at_high)}, the most."
        )
    if tolerance:
        parts.append(f"Ratios within {tolerance * 100:g} % of 1 count as no difference.")
    return " ".join(parts)

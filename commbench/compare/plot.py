"""Plots of comparisons, one per kind of case: times above, ratios below, against size."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from itertools import cycle
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.compare.comparison import ComparedRow, Comparison
from commbench.compare.ratio import NOT_COMPARED, MedianCI, row_times
from commbench.compare.summary import distinct_names
from commbench.errors import UnavailableError, UsageError
from commbench.output import plot_style
from commbench.results.files import write_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = dict[int, MedianCI]
"""A median and its interval for each size."""
GREY = "#888888"


def draw_one(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw the only kind of case that has a curve into `path`, which must not exist."""
    kinds = _drawable(comparisons)
    if len(kinds) > 1:
        raise UsageError(
            f"{path} can hold one kind of case, and here are {len(kinds)}",
            "--output DIR draws a picture of each",
        )
    _draw(comparisons, kinds[0], path)


def draw_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Draw every kind of case that has a curve into a file of its own; their paths."""
    paths = []
    for kind in _drawable(comparisons):
        paths.append(folder / f"compare-{_as_file_name(kind)}.png")
        _draw(comparisons, kind, paths[-1])
    return paths


def _as_file_name(kind: str) -> str:
    """A kind as part of a file's name, of letters, digits and dashes, and not too long for one."""
    return re.sub(r"[^A-Za-z0-9]+", "-", kind).strip("-")[:100]


def _drawable(comparisons: Sequence[Comparison]) -> list[str]:
    """The kinds that were timed on both sides at two sizes or more."""
    sizes: dict[str, int] = {}
    for found in comparisons:
        for kind, number in Counter(row.kind for row in _timed(found)).items():
            sizes[kind] = max(sizes.get(kind, 0), number)
    drawable = [kind for kind, number in sizes.items() if number > 1]
    if not drawable:
        raise UnavailableError(
            "no plot: a curve needs at least two sizes that both sides have timed",
            "measure both with the same --sizes",
        )
    return drawable


def _timed(found: Comparison) -> list[ComparedRow]:
    return [row for row in found.rows if row.verdict != NOT_COMPARED]


def _draw(comparisons: Sequence[Comparison], kind: str, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7.2), dpi=120)
    canvas = FigureCanvasAgg(figure)
    times, ratios = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.11, top=0.94, hspace=0.06)
    first, *others = distinct_names([comparisons[0].a, *(found.b for found in comparisons)])
    rows = [[row for row in _timed(found) if row.kind == kind] for found in comparisons]
    curve_of_a = {row.a.size_bytes: row_times(row.a) for same in rows for row in same}
    name_of_a = plot_style.tag(f"A: {first}", 40)
    _paint(times, curve_of_a, name_of_a, plot_style.COLOURS[0], plot_style.MARKERS[0])
    styles = zip(cycle(plot_style.COLOURS[1:]), cycle(plot_style.MARKERS[1:]), strict=False)
    drawn = [curve for curve in zip(others, comparisons, rows, strict=True) if curve[2]]
    for (name, found, same), (colour, marker) in zip(drawn, styles, strict=False):
        b = plot_style.tag(f"B: {name}", 40)
        _paint(times, {r.a.size_bytes: row_times(r.b) for r in same}, b, colour, marker)
        curve = {r.a.size_bytes: MedianCI(r.ratio, r.ratio_ci_low, r.ratio_ci_high) for r in same}
        _paint(ratios, curve, b, colour, marker)
        _mark_crossovers(ratios, found, kind, colour)
    times.set_title(plot_style.plain(kind), fontsize=10)
    _format_axes(times, ratios, comparisons[0].tolerance)
    picture = BytesIO()
    with plot_style.quiet_about_glyphs():
        canvas.print_png(picture)
    write_new(path, picture.getvalue())


def _paint(axes: Axes, curve: Curve, name: str, colour: str, marker: str) -> None:
    sizes = sorted(curve)
    medians, lows, highs = (
        [nan if value is None else value for value in values]
        for values in zip(*(curve[size] for size in sizes), strict=True)
    )
    axes.fill_between(sizes, lows, highs, color=colour, alpha=0.22, linewidth=0)
    axes.plot(sizes, medians, color=colour, marker=marker, markersize=4, label=name)


def _mark_crossovers(axes: Axes, found: Comparison, kind: str, colour: str) -> None:
    for crossover in found.crossovers:
        if crossover.kind == kind:
            axes.axvspan(
                crossover.below_bytes, crossover.above_bytes, color=colour, alpha=0.12, hatch="//",
                linewidth=0, label="crossover within",
            )  # fmt: skip


def _format_axes(times: Axes, ratios: Axes, tolerance: float) -> None:
    from matplotlib.ticker import FuncFormatter

    times.set_xscale("log", base=2)
    times.set_yscale("log")
    times.set_ylabel("time of a call (us)")
    times.legend(title="band: 95 % interval", fontsize=8, title_fontsize=8)
    ratios.set_yscale("log")
    ratios.axhspan(1 / (1 + tolerance), 1 + tolerance, color=GREY, alpha=0.25, linewidth=0,
                   label=f"the same: within {tolerance * 100:g} %")  # fmt: skip
    ratios.axhline(1, color=GREY, linewidth=1)
    ratios.set_ylabel("time over that of A\nabove 1: slower")
    _limit(ratios, tolerance)
    low, high = times.get_xlim()
    plot_style.format_size_axis(ratios)
    ratios.set_xlim(low, high)
    times.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    handles, labels = ratios.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    ratios.legend(once.values(), once.keys(), fontsize=8)
    for axes in (times, ratios):
        axes.grid(which="major", alpha=0.4)


def _limit(axes: Axes, tolerance: float) -> None:
    """Ticks of a ratio as plain numbers, and room for the tolerance."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axes.get_ylim()
    low, high = min(low, (1 - tolerance) * 0.98), max(high, (1 + tolerance) * 1.02)
    axes.set_ylim(low, high)
    wide = high / low > 4
    ticks = LogLocator(base=10, subs=(1, 2, 5)) if wide else _ticks(low, high)
    axes.yaxis.set_major_locator(ticks)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _ticks(low: float, high: float) -> Any:
    """Round steps, for a range in which powers of ten are too far apart."""
    from matplotlib.ticker import FixedLocator

    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if (high - low) / s <= 10)
    first = int(low / step) + 1
    return FixedLocator([number * step for number in range(first, int(high / step) + 1)])

"""Pictures of a machine: what is predicted against size and ranks, and what a fit leaves over.

Predictions: a band is the 95 % interval. A dot is a measured time. A hollow marker lies beyond the
measured numbers of ranks or sizes.

Residuals: measured over fitted time. A colour is a number of ranks; a hollow marker is a time that
the model was fitted without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UnavailableError
from commbench.models.fit_text import ratio
from commbench.models.machine import FittedModel, Machine, Point
from commbench.models.predict import Prediction, bus_bandwidth, find_fitted
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import GREY, Grid, Head, Picture, Style, nth_style, plain
from commbench.results.files import write_new
from commbench.units import GB, format_bytes, format_count, format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from commbench.models.projection import Projection

MOST_CURVES = 8
MOST_SIZES = 4
"""Curves of a panel against the number of ranks."""
WIDEST_TIMES, WIDEST_BUSBW = 10.0, 2.0
"""An axis reaches at most by these factors beyond the predicted and measured values: intervals that
are wider are cut off, because they would press all curves into lines."""
DOT: dict[str, Any] = {"color": GREY, "marker": ".", "linestyle": "", "markersize": 5}
SIZE, RANKS = "size_bytes", "world_size"
"""Fields that a curve is drawn against."""
MOST_MODELS = 12
SMALLEST_RATIO = 1.05
"""The vertical axis of residuals reaches at least from 1/1.05 to 1.05."""


class Curve(NamedTuple):
    """Predictions that a line joins, and the measured points on it."""

    name: str
    style: Style
    points: tuple[Prediction, ...]
    measured: tuple[Point, ...]


class Panel(NamedTuple):
    """Curves, in seconds or in GB/s of bus bandwidth."""

    curves: tuple[Curve, ...]
    across: str
    is_time: bool

    def value(self, each: Prediction | Point, operation: str, time_s: float) -> float:
        """What is drawn for a call that takes so long; 0 where it has no bandwidth."""
        if self.is_time:
            return time_s
        return (bus_bandwidth(operation, each.world_size, each.size_bytes, time_s) or 0.0) / GB

    def rows(self, curve: Curve) -> list[tuple[float, float, float]]:
        """The predicted value of each point, and the lower and the upper end of its interval."""
        found = []
        for p in curve.points:
            ends = sorted(self.value(p, p.operation, seconds) for seconds in (p.low_s, p.high_s))
            found.append((self.value(p, p.operation, p.time_s), ends[0], ends[1]))
        return found

    def dots(self, curve: Curve) -> list[tuple[float, float]]:
        """The measured points, in the units of the axes."""
        name = curve.points[0].operation
        return [
            (getattr(point, self.across), self.value(point, name, point.time_s))
            for point in curve.measured
        ]

    def limits(self) -> tuple[float, float, bool]:
        """The ends of the vertical axis, which show every value, and every interval as far as the
        values stay readable; and whether an interval reaches beyond them."""
        rows = [row for curve in self.curves for row in self.rows(curve)]
        shown = [row[0] for row in rows] + [y for curve in self.curves for _, y in self.dots(curve)]
        lowest, highest = min(low for _, low, _ in rows), max(high for _, _, high in rows)
        low, high = min(shown) / WIDEST_TIMES, max(shown) * WIDEST_TIMES
        if self.is_time:
            ends = max(low, min(lowest, *shown) / 1.25), min(high, max(highest, *shown) * 1.25)
            return *ends, lowest < low or highest > high
        most = max(shown) * WIDEST_BUSBW
        return 0.0, min(most, 1.05 * max(highest, *shown)), highest > most


def draw(make: Callable[[], Picture], output: Path) -> Path:
    """Draw into a new file that ends in .png, .svg or .pdf."""
    plot_style.require_ending(output)
    write_new(output, plot_style.render(make().figure, output.suffix))
    return output


def predicted_picture(projection: Projection) -> Picture:
    """The panels that have something to show: UnavailableError where none has."""
    by_size, by_ranks = _curves(projection, SIZE), _curves(projection, RANKS)
    panels = [Panel(by_size, SIZE, True), Panel(by_size, SIZE, False)] * bool(by_size)
    panels += [Panel(by_ranks, RANKS, True)] * bool(by_ranks)
    if not panels:
        raise UnavailableError(
            "there is nothing to draw: one size and one number of ranks",
            "ask for several: --sizes 1K-1G --ranks 8-512",
        )
    names = dict.fromkeys(p.operation for p in projection.predictions)
    title = f"Predicted for {plain(projection.machine.name, 60)}: {', '.join(names)}"
    notes = [plain(note, 600) for note in projection.notes[:3]]
    notes += ["Band: 95 % interval. Grey dot: measured. Hollow: beyond the measured range."]
    if any(panel.limits()[2] for panel in panels):
        notes[-1] += " A band that reaches the edge of a panel goes on beyond it."
    legends = [[(c.name, c.style.line) for c in curves] for curves in (by_size, by_ranks) if curves]
    with plot_style.styled():
        grid = Grid(len(panels), 1, [2.6] * len(panels), gap=0.7)
        figure, all_axes = plot_style.make_figure(Head(title, notes, legends), grid)
        for axes, panel in zip(all_axes, panels, strict=True):
            _draw_panel(axes, panel)
    return Picture("predicted", title, describe(projection), figure)


def describe(projection: Projection) -> str:
    """What the picture shows, for those who do not see it."""
    first, last = projection.predictions[0], projection.predictions[-1]
    return " ".join(
        f"{p.operation} of {format_bytes(p.size_bytes)} on {format_count(p.world_size, 'rank')} "
        f"takes {format_time(p.time_s)}."
        for p in dict.fromkeys((first, last))
    )


def _curves(projection: Projection, across: str) -> tuple[Curve, ...]:
    """The curves against a field; none where it has one value."""
    fixed = RANKS if across == SIZE else SIZE
    found: dict[Any, list[Prediction]] = {}
    for each in projection.predictions:
        found.setdefault((each.operation, getattr(each, fixed)), []).append(each)
    groups = [points for points in found.values() if len({getattr(p, across) for p in points}) > 1]
    chosen = list(_spread(groups, MOST_CURVES if across == SIZE else MOST_SIZES))
    several = len({points[0].operation for points in chosen}) > 1
    curves = []
    for number, points in enumerate(chosen, 0 if across == SIZE else MOST_CURVES):
        first = points[0]
        ranks = format_count(first.world_size, "rank")
        name = ranks if across == SIZE else format_bytes(first.size_bytes)
        name = f"{first.operation}, {name}" if several else name
        measured = tuple(_measured(projection, points, across, fixed))
        curves.append(Curve(name, nth_style(number), tuple(points), measured))
    return tuple(curves)


def _spread(groups: Sequence[list[Prediction]], most: int) -> Iterator[list[Prediction]]:
    """At most so many groups, evenly chosen from those of each operation; at least two of each."""
    names = list(dict.fromkeys(points[0].operation for points in groups))
    each = max(2, most // max(1, len(names)))
    for name in names[: max(1, most // 2)]:
        own = [points for points in groups if points[0].operation == name]
        picked = {round(i * (len(own) - 1) / (each - 1)) for i in range(each)}
        yield from (points for index, points in enumerate(own) if index in picked)


def _measured(
    projection: Projection, points: Sequence[Prediction], across: str, fixed: str
) -> Iterator[Point]:
    """The measured points between the ends of a curve."""
    first, last = points[0], points[-1]
    for kind in dict.fromkeys(p.kind for p in points):
        fitted = find_fitted(
            projection.machine, first.operation, kind, projection.request.variant,
            first.ranks_per_node,
        )  # fmt: skip
        for point in fitted.points:
            is_between = getattr(first, across) <= getattr(point, across) <= getattr(last, across)
            if getattr(point, fixed) == getattr(first, fixed) and is_between:
                yield point


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for curve in panel.curves:
        at = [getattr(p, panel.across) for p in curve.points]
        middle, low, high = zip(*panel.rows(curve), strict=True)
        if not any(middle):
            continue
        colour = curve.style.colour
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(at, middle, **curve.style.line)
        beyond = [n for n, p in enumerate(curve.points) if p.ranks_distance or p.size_distance]
        axes.plot(
            [at[n] for n in beyond], [middle[n] for n in beyond], marker=curve.style.marker,
            linestyle="", markersize=4.5, markerfacecolor="white", markeredgecolor=colour,
            gid="beyond",
        )  # fmt: skip
        if dots := panel.dots(curve):
            axes.plot(*zip(*dots, strict=True), **DOT, gid="measured")
    bottom, top, _ = panel.limits()
    if panel.is_time:
        plot_axes.set_log_times(axes, bottom, top)
    elif top:
        ticks = plot_axes.linear_ticks(0.0, top, 6)
        axes.set_ylim(0.0, top)
        plot_axes.set_ticks(axes, ticks, [plot_axes.number(tick) for tick in ticks])
    every = {getattr(p, panel.across) for curve in panel.curves for p in curve.points}
    label = None if panel.across == SIZE else "{:,}".format
    plot_axes.set_size_axis(axes, every, plot_style.WIDTH - 1.0, label=label)
    what = "Time of a call" if panel.is_time else "Bus bandwidth, GB/s"
    over = "size" if panel.across == SIZE else "number of ranks"
    plot_axes.set_heading(axes, f"{what}, against the {over}", plot_style.MARGIN)


def residual_picture(machine: Machine) -> Picture:
    """A panel for each model."""
    shown = machine.fitted[:MOST_MODELS]
    ranks = sorted({point.world_size for fitted in shown for point in fitted.points})
    legend = [
        (format_count(n, "rank"), {**nth_style(number).line, "linestyle": ""})
        for number, n in enumerate(ranks)
    ]
    title = f"Measured over fitted time: {plain(machine.name, 60)}"
    notes = ["Hollow: the model was fitted without it."]
    if len(machine.fitted) > len(shown):
        notes.append(f"The first {len(shown)} of {len(machine.fitted)} models.")
    with plot_style.styled():
        grid = Grid(len(shown), 1, [2.2] * len(shown), gap=0.75, bottom=0.6)
        figure, panels = plot_style.make_figure(Head(title, notes, [legend]), grid)
        for axes, fitted in zip(panels, shown, strict=True):
            _draw_residuals(axes, fitted, ranks)
    described = " ".join(_heading(fitted) + "." for fitted in shown)
    return Picture("residuals", title, described, figure)


def _heading(fitted: FittedModel) -> str:
    variant = f" ({plain(fitted.variant, 40)})" if fitted.variant else ""
    return f"{fitted.operation} {fitted.kind}{variant}, {fitted.model}"


def _draw_residuals(axes: Axes, fitted: FittedModel, ranks: list[int]) -> None:
    sizes = sorted({point.size_bytes for point in fitted.points})
    by_size = len(sizes) > 1
    ratios = [ratio(fitted, point) for point in fitted.points]
    for number, n in enumerate(ranks):
        look = nth_style(number)
        for is_left_out in (False, True):
            chosen = [
                (point.size_bytes if by_size else point.world_size, each)
                for point, each in zip(fitted.points, ratios, strict=True)
                if point.world_size == n and point.is_left_out == is_left_out
            ]
            if chosen:
                axes.plot(
                    *zip(*chosen, strict=True), marker=look.marker, linestyle="", markersize=4.5,
                    markeredgecolor=look.colour, markeredgewidth=0.9,
                    markerfacecolor="white" if is_left_out else look.colour,
                )  # fmt: skip
    high = exp(1.15 * max(abs(log(each)) for each in (SMALLEST_RATIO, *ratios)))
    axes.set_yscale("log")
    axes.set_ylim(1 / high, high)
    axes.axhline(1, color=GREY, linewidth=0.8)
    ticks = plot_axes.log_ticks(1 / high, high)
    plot_axes.set_ticks(axes, ticks, [plot_axes.number(tick) for tick in ticks])
    if by_size:
        plot_axes.set_size_axis(axes, sizes, plot_style.WIDTH - 1.0)
    else:
        own = {point.world_size for point in fitted.points}
        plot_axes.set_size_axis(axes, own, plot_style.WIDTH - 1.0, label="{:,}".format)
    across = "size" if by_size else "number of ranks"
    plot_axes.set_heading(axes, f"{_heading(fitted)}, against the {across}", plot_style.MARGIN)

"""The picture of a projection: time and bus bandwidth against size, and time against ranks.

A band is the 95 % interval. A dot is a measured time. A hollow marker lies beyond the measured
numbers of ranks or sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UnavailableError
from commbench.models.machine import FittedModel
from commbench.models.predict import Prediction, find_fitted
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


class Curve(NamedTuple):
    """Predictions that a line joins."""

    name: str
    style: Style
    points: tuple[Prediction, ...]


def draw(projection: Projection, output: Path) -> Path:
    """Draw into a new file that ends in .png, .svg or .pdf; UnavailableError for one point."""
    plot_style.require_ending(output)
    picture = make_picture(projection)
    write_new(output, plot_style.render(picture.figure, output.suffix))
    return output


def make_picture(projection: Projection) -> Picture:
    """The panels that have something to show: UnavailableError where none has."""
    by_size = _curves(projection, lambda p: (p.operation, p.world_size), "size_bytes")
    by_ranks = _curves(projection, lambda p: (p.operation, p.size_bytes), "world_size")
    if not by_size and not by_ranks:
        raise UnavailableError(
            "there is nothing to draw: one size and one number of ranks",
            "ask for several: --sizes 1K-1G --ranks 8-512",
        )
    kinds = [(by_size, "time", "size_bytes"), (by_size, "busbw", "size_bytes")] * bool(by_size)
    kinds += [(by_ranks, "time", "world_size")] * bool(by_ranks)
    names = dict.fromkeys(p.operation for p in projection.predictions)
    title = f"Predicted for {plain(projection.machine.name, 60)}: {', '.join(names)}"
    notes = [*map(plain_note, projection.notes[:3]), "Band: 95 % interval. Grey dot: measured. "
             "Hollow: beyond the measured range."]  # fmt: skip
    if any(_limits(projection, *kind).is_cut for kind in kinds):
        notes[-1] += " A band that reaches the edge of a panel goes on beyond it."
    legends = [[(c.name, c.style.line) for c in curves] for curves in (by_size, by_ranks) if curves]
    with plot_style.styled():
        grid = Grid(len(kinds), 1, [2.6] * len(kinds), gap=0.7)
        figure, panels = plot_style.make_figure(Head(title, notes, legends), grid)
        for axes, kind in zip(panels, kinds, strict=True):
            _draw_panel(axes, projection, *kind)
    return Picture("predicted", title, describe(projection), figure)


def plain_note(text: str) -> str:
    """A note as a subtitle of a picture."""
    return plain(text, 600)


def describe(projection: Projection) -> str:
    """What the picture shows, for those who do not see it."""
    first, last = projection.predictions[0], projection.predictions[-1]
    return " ".join(
        f"{p.operation} of {format_bytes(p.size_bytes)} on {format_count(p.world_size, 'rank')} "
        f"takes {format_time(p.time_s)}."
        for p in dict.fromkeys((first, last))
    )


def _curves(projection: Projection, key: Any, across: str) -> list[Curve]:
    """The curves against `across`; none where it has one value."""
    found: dict[Any, list[Prediction]] = {}
    for each in projection.predictions:
        found.setdefault(key(each), []).append(each)
    groups = [points for points in found.values() if len({getattr(p, across) for p in points}) > 1]
    most = MOST_CURVES if across == "size_bytes" else MOST_SIZES
    chosen = list(_spread(groups, most))
    several = len({points[0].operation for points in chosen}) > 1
    return [
        Curve(_name(points[0], across, several), nth_style(number), tuple(points))
        for number, points in enumerate(chosen, 0 if across == "size_bytes" else MOST_CURVES)
    ]


def _spread(groups: Sequence[list[Prediction]], most: int) -> Iterator[list[Prediction]]:
    """At most so many groups, evenly chosen from those of each operation; at least two of each."""
    names = list(dict.fromkeys(points[0].operation for points in groups))
    each = max(2, most // max(1, len(names)))
    for name in names[: max(1, most // 2)]:
        own = [points for points in groups if points[0].operation == name]
        picked = {round(i * (len(own) - 1) / (each - 1)) for i in range(each)}
        yield from (points for index, points in enumerate(own) if index in picked)


def _name(first: Prediction, across: str, with_operation: bool) -> str:
    other = (
        format_count(first.world_size, "rank")
        if across == "size_bytes"
        else format_bytes(first.size_bytes)
    )
    return f"{first.operation}, {other}" if with_operation else other


def _draw_panel(
    axes: Axes, projection: Projection, curves: Sequence[Curve], quantity: str, across: str
) -> None:
    for curve in curves:
        points = [p for p in curve.points if quantity == "time" or p.busbw]
        if not points:
            continue
        at = [getattr(p, across) for p in points]
        columns = [_values(p, quantity) for p in points]
        middle, low, high = zip(*columns, strict=True)
        colour = curve.style.colour
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(at, middle, **curve.style.line)
        beyond = [n for n, p in enumerate(points) if p.ranks_distance or p.size_distance]
        axes.plot(
            [at[n] for n in beyond], [middle[n] for n in beyond], marker=curve.style.marker,
            linestyle="", markersize=4.5, markerfacecolor="white", markeredgecolor=colour,
            gid="beyond",
        )  # fmt: skip
        measured = list(_measured(projection, curve, quantity, across))
        if measured:
            axes.plot(*zip(*measured, strict=True), **DOT, gid="measured")
    limits = _limits(projection, curves, quantity, across)
    if quantity == "time":
        plot_axes.set_log_times(axes, limits.low, limits.high)
    elif limits.high:
        ticks = plot_axes.linear_ticks(0.0, limits.high, 6)
        axes.set_ylim(0.0, limits.high)
        plot_axes.set_ticks(axes, ticks, [plot_axes.number(tick) for tick in ticks])
    every = {getattr(p, across) for curve in curves for p in curve.points}
    label = None if across == "size_bytes" else "{:,}".format
    plot_axes.set_size_axis(axes, every, plot_style.WIDTH - 1.0, label=label)
    what = "Time of a call" if quantity == "time" else "Bus bandwidth, GB/s"
    over = "size" if across == "size_bytes" else "number of ranks"
    plot_axes.set_heading(axes, f"{what}, against the {over}", plot_style.MARGIN)


class Limits(NamedTuple):
    """The ends of a vertical axis, in seconds or GB/s."""

    low: float
    high: float
    is_cut: bool
    """Whether an interval reaches beyond them."""


def _limits(projection: Projection, curves: Sequence[Curve], quantity: str, across: str) -> Limits:
    """The ends that show every predicted and measured value, and every interval as far as the
    values stay readable: up to WIDEST_TIMES or WIDEST_BUSBW beyond them."""
    found = [
        _values(p, quantity)
        for curve in curves
        for p in curve.points
        if quantity == "time" or p.busbw
    ]
    shown = [middle for middle, _, _ in found] + [
        value for curve in curves for _, value in _measured(projection, curve, quantity, across)
    ]
    if not found:
        return Limits(0.0, 0.0, False)
    lowest, highest = min(low for _, low, _ in found), max(high for _, _, high in found)
    if quantity == "time":
        low, high = min(shown) / WIDEST_TIMES, max(shown) * WIDEST_TIMES
        is_cut = lowest < low or highest > high
        return Limits(
            max(low, min(lowest, *shown) / 1.25), min(high, max(highest, *shown) * 1.25), is_cut
        )
    most = max(shown) * WIDEST_BUSBW
    return Limits(0.0, min(most, 1.05 * max(highest, *shown)), highest > most)


def _values(p: Prediction, quantity: str) -> tuple[float, float, float]:
    if quantity == "time":
        return p.time_s, p.low_s, p.high_s
    found = [p.busbw_at(seconds) for seconds in (p.time_s, p.high_s, p.low_s)]
    middle, low, high = ((value or 0.0) / GB for value in found)
    return middle, low, high


def _measured(
    projection: Projection, curve: Curve, quantity: str, across: str
) -> Iterator[tuple[float, float]]:
    """The measured points on a curve, in the units of its axes."""
    first = curve.points[0]
    ends = [getattr(p, across) for p in (curve.points[0], curve.points[-1])]
    fixed = "world_size" if across == "size_bytes" else "size_bytes"
    for kind in dict.fromkeys(p.kind for p in curve.points):
        fitted: FittedModel = find_fitted(
            projection.machine, first.operation, kind, projection.request.variant,
            first.ranks_per_node,
        )  # fmt: skip
        for point in fitted.points:
            value = getattr(point, across)
            if getattr(point, fixed) != getattr(first, fixed) or not ends[0] <= value <= ends[1]:
                continue
            bandwidth = first._replace(
                world_size=point.world_size, size_bytes=point.size_bytes
            ).busbw_at(point.time_s)
            yield value, point.time_s if quantity == "time" else (bandwidth or 0.0) / GB

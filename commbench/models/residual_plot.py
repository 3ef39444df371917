"""The picture of what a fit leaves over: measured over fitted time, against size or ranks.

A colour is a number of ranks; a hollow marker is a time that the model was fitted without. A dashed
line is where the parameters change.
"""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.models.fit_text import ratio
from commbench.models.machine import FittedModel, Machine
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import GREY, Grid, Head, Picture, nth_style, plain
from commbench.results.files import write_new
from commbench.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 12
SMALLEST_RATIO = 1.05
"""The vertical axis reaches at least from 1/1.05 to 1.05."""


def draw(machine: Machine, output: Path) -> Path:
    """Draw into a new file that ends in .png, .svg or .pdf."""
    plot_style.require_ending(output)
    picture = make_picture(machine)
    write_new(output, plot_style.render(picture.figure, output.suffix))
    return output


def make_picture(machine: Machine) -> Picture:
    """A panel for each model."""
    shown = machine.fitted[:MOST_PANELS]
    ranks = sorted({point.world_size for fitted in shown for point in fitted.points})
    legend = [
        (format_count(n, "rank"), {**nth_style(number).line, "linestyle": ""})
        for number, n in enumerate(ranks)
    ]
    title = f"Measured over fitted time: {plain(machine.name, 60)}"
    notes = ["Hollow: the model was fitted without it. Dashed line: its parameters change there."]
    if len(machine.fitted) > len(shown):
        notes.append(f"The first {len(shown)} of {len(machine.fitted)} models.")
    with plot_style.styled():
        grid = Grid(len(shown), 1, [2.2] * len(shown), gap=0.75, bottom=0.6)
        figure, panels = plot_style.make_figure(Head(title, notes, [legend]), grid)
        for axes, fitted in zip(panels, shown, strict=True):
            _draw_panel(axes, fitted, ranks)
    described = " ".join(_heading(fitted) + "." for fitted in shown)
    return Picture("residuals", title, described, figure)


def _heading(fitted: FittedModel) -> str:
    variant = f" ({plain(fitted.variant, 40)})" if fitted.variant else ""
    return f"{fitted.operation} {fitted.kind}{variant}, {fitted.model}"


def _draw_panel(axes: Axes, fitted: FittedModel, ranks: list[int]) -> None:
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
        for piece in fitted.pieces[:-1]:
            axes.axvline((piece.up_to_bytes or 0) * 2**0.5, color=GREY, linestyle="--")
        plot_axes.set_size_axis(axes, sizes, plot_style.WIDTH - 1.0)
    else:
        own = {point.world_size for point in fitted.points}
        plot_axes.set_size_axis(axes, own, plot_style.WIDTH - 1.0, label="{:,}".format)
    across = "size" if by_size else "number of ranks"
    plot_axes.set_heading(axes, f"{_heading(fitted)}, against the {across}", plot_style.MARGIN)

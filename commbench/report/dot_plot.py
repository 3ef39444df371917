"""The picture of runs of a single size: one line for each kind of call, with its time."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import INK, Grid, Head, Picture, plain
from commbench.report.curves import (
    Curve,
    Curves,
    describe_time,
    make_subtitles,
    statistic,
    time_text,
)
from commbench.results.schema import Run
from commbench.units import format_bytes

MOST_ROWS = 40


def dot_figure(runs: Sequence[Run], curves: Curves) -> Picture:
    """The times of curves that have one point each, from top to bottom, with their 95 % intervals.

    Colour is the operation, as in other pictures.
    """
    order = {name: number for number, name in enumerate(curves.operations)}
    every = sorted(curves.curves, key=lambda curve: order[curve.operation])
    shown = every[:MOST_ROWS]
    sizes = sorted({curve.timed[0].size for curve in shown if curve.has_size})
    at = f" at {format_bytes(sizes[0])}" if len(sizes) == 1 else ""
    operations = curves.operations
    what = operations[0] if len(operations) == 1 else f"{len(operations)} operations"
    title = f"Time of {what}{at}"
    has_intervals = any(curve.timed[0].low == curve.timed[0].low for curve in shown)
    text = "; ".join([*statistic(runs), *(["line: 95 % interval"] if has_intervals else [])])
    notes = [*make_subtitles(runs, curves.common), text[:1].upper() + text[1:]]
    if len(every) > len(shown):
        notes.append(f"{len(every) - len(shown)} more are not drawn")
    names = [_name(curve, shown, len(sizes) > 1) for curve in shown]
    with plot_style.styled():
        left = max(plot_style.text_width(name, plot_style.TEXT) for name in names) + 0.35
        grid = Grid(1, 1, [0.27 * len(shown) + 0.1], left=left, right=0.9, bottom=0.4)
        figure, (axes,) = plot_style.make_figure(Head(title, notes), grid)
        values = []
        for row, curve in enumerate(shown):
            point, look = curve.timed[0], curves.style(curve).line | {"markersize": 7}
            if point.low == point.low:
                axes.plot([point.low, point.high], [row, row], color=look["color"], linewidth=2.5,
                          alpha=0.5, solid_capstyle="butt", gid="interval")  # fmt: skip
            axes.plot([point.time], [row], label=plot_style.tag(names[row]), **look)
            axes.annotate(
                time_text(point), (1, row), xycoords=axes.get_yaxis_transform(),
                xytext=(6, 0), textcoords="offset points", va="center_baseline", color=INK,
            )  # fmt: skip
            values += [v for v in (point.low, point.time, point.high) if v > 0]
        low, high = min(values) / 1.15, max(values) * 1.15
        ticks = plot_axes.log_ticks(low, high, 6)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_xticks(ticks, [plot_axes.time_label(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(shown)), names)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(True, axis="x")
        plot_axes.set_heading(axes, "Time of a call")
    return Picture("time", title, describe_time(shown), figure)


def _name(curve: Curve, among: Sequence[Curve], has_size: bool) -> str:
    """What tells a row from the others."""
    words = [curve.operation, curve.variant] if len({c.operation for c in among}) > 1 else []
    words = words or [curve.variant]
    if len({each.run for each in among}) > 1:
        words.append(curve.run)
    if has_size and curve.has_size:
        words.append(format_bytes(curve.timed[0].size))
    return plain(" ".join(filter(None, words)) or curve.operation, 44)

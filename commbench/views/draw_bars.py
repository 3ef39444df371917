"""Draws rows of bars, or of points on a logarithmic axis, with their times beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commbench.views.layout import Layout, line_properties
from commbench.views.lettering import LONGEST_NAME, SMALL, plain, widest
from commbench.views.pictures import INK, Bar, Bars, Key, Picture
from commbench.views.ticks import linear_ticks, log_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TALL = 0.34
"""Of a bar, over the distance of two rows."""


def lay_out(picture: Picture) -> Layout:
    """How a picture with rows of bars is drawn."""
    panels: Sequence[Bars] = picture.panels  # type: ignore[assignment]
    rows = [row for panel in panels for row in panel.rows]
    bars = [bar for row in rows for bar in row.bars]
    left = widest(plain(row.name, LONGEST_NAME) for row in rows) + 0.35
    right = widest((bar.text for bar in bars), SMALL) + 0.2
    each = 0.36 if any(len(row.bars) > 1 for row in rows) else 0.27
    return Layout(
        _draw, [each * len(panel.rows) + 0.1 for panel in panels], [_legend(bars)],
        left=left, right=right,
    )  # fmt: skip


def _legend(bars: Sequence[Bar]) -> list[Key]:
    keys = [bar.key for bar in bars] + [bar.more_key for bar in bars if bar.more_s]
    return [(name, look) for name, look in dict.fromkeys(keys) if name]


def _draw(axes: Axes, panel: Bars) -> None:
    ends: list[float] = []
    for place, row in enumerate(panel.rows):
        for number, bar in enumerate(row.bars):
            at = place + (number - (len(row.bars) - 1) / 2) * _TALL
            _draw_bar(axes, bar, at, is_point=panel.scale.is_log)
            ends += [bar.time.value + bar.more_s, *bar.time.ends]
            axes.annotate(
                bar.text, (1, at), xycoords=axes.get_yaxis_transform(), xytext=(6, 0),
                textcoords="offset points", va="center_baseline", size=SMALL,
            )  # fmt: skip
    low, high = 0.0, max(ends) * 1.03
    if panel.scale.is_log:
        low, high = min(end for end in ends if end > 0) / 1.15, max(ends) * 1.15
        axes.set_xscale("log")
    ticks = log_ticks(low, high, 6) if panel.scale.is_log else linear_ticks(low, high, 6)
    axes.set_xticks(ticks, [panel.scale.text(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)
    axes.set_yticks(range(len(panel.rows)), [plain(row.name, LONGEST_NAME) for row in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")


def _draw_bar(axes: Axes, bar: Bar, at: float, is_point: bool) -> None:
    colour, interval = bar.key[1].colour, {"color": INK, "linewidth": 1.2, "label": "_interval"}
    if is_point:
        axes.plot([bar.time.value], [at], **line_properties(bar.key[1]), zorder=3)
        interval |= {"color": colour, "linewidth": 2.5, "alpha": 0.5}
    else:
        axes.barh(at, bar.time.value, _TALL * 0.9, color=colour)
        axes.barh(at, bar.more_s, _TALL * 0.9, left=bar.time.value, color=bar.more_key[1].colour)
    if bar.time.has_interval:
        axes.plot(bar.time.ends, [at, at], **interval)  # type: ignore[arg-type]

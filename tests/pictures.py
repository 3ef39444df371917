"""What every picture has to fulfil: nothing is drawn over something else, or outside."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from commbench.views.draw import draw, styled
from commbench.views.pictures import Curves, Picture

SLACK = 1.0
"""Pixels by which the boxes of two texts may overlap: boxes are larger than the letters."""


def require_readable(picture: Picture) -> Figure:
    """Fail unless all text is within the figure, no text covers another, legends cover no panel,
    and no two curves of a panel look alike. The picture as it is drawn."""
    with styled():
        figure = draw(picture)
        figure.draw_without_rendering()
    canvas: Any = figure.canvas
    renderer = canvas.get_renderer()
    boxes = [(text, text.get_window_extent(renderer)) for text in texts(figure)]
    whole = figure.bbox
    outside = [
        text.get_text()
        for text, box in boxes
        if box.x0 < -SLACK or box.y0 < -SLACK or box.x1 > whole.x1 + SLACK
        or box.y1 > whole.y1 + SLACK
    ]  # fmt: skip
    assert outside == [], outside
    upright = [(text, box) for text, box in boxes if not text.get_rotation()]
    covered = [
        (first.get_text(), second.get_text())
        for (first, a), (second, b) in combinations(upright, 2)
        if overlap(a, b)
    ]
    assert covered == [], covered
    panels = [axes.get_window_extent(renderer) for axes in panels_of(figure)]
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert not any(overlap(box, panel) for panel in panels)
    for panel in picture.panels:
        if isinstance(panel, Curves):
            looks = Counter({each.name: each.look for each in panel.series}.values())
            assert [look for look, number in looks.items() if number > 1] == []
    assert picture.description.endswith(".")
    return figure


def overlap(a: Bbox, b: Bbox) -> bool:
    return min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK


def panels_of(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def texts(figure: Figure) -> list[Text]:
    """All text that can be seen: titles, legends, names of axes, labels, and text in panels."""
    found = [*figure.texts, *legend_texts(figure)]
    for axes in panels_of(figure):
        found += [*axes.texts, _heading(axes), axes.xaxis.label, *tick_labels(axes)]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def _heading(axes: Any) -> Text:
    found: Text = axes._left_title  # matplotlib has no public name for it
    return found


def legend_texts(figure: Figure) -> list[Text]:
    return [text for legend in figure.legends for text in legend.get_texts()]


def said(figure: Figure) -> str:
    """The title and the notes, as one line."""
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def tick_labels(axes: Axes) -> list[Text]:
    """The labels of ticks that can be seen; each tick must be within the limits."""
    found = []
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        low, high = sorted(limits)
        for tick in axis.get_major_ticks():
            if low <= tick.get_loc() <= high:
                found += [each for each in (tick.label1, tick.label2) if each.get_visible()]
    return found

"""How panels are placed in a picture, and looks as properties of matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.views.pictures import Key, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 8.0
"""Of a picture, in inches."""
LEFT, RIGHT, EDGE = 0.72, 0.22, 0.12
"""Margins of the axes, and of text."""
HATCHED: dict[str, Any] = {
    "facecolor": "#f4f4f4", "hatch": "////", "edgecolor": "#a8a8a8", "linewidth": 0.0,
}  # fmt: skip


class Layout(NamedTuple):
    """Where the panels of a picture are, and what else it says."""

    draw: Callable[[Axes, Any], None]
    """Draws a panel."""
    heights: Sequence[float]
    """Of each row."""
    legends: Sequence[Sequence[Key]]
    notes: Sequence[str] = ()
    columns: int = 1
    gap: float = 0.6
    """Between rows."""
    space: float = 0.14
    """Between columns, in widths of a panel."""
    bottom: float = 0.4
    left: float = LEFT
    right: float = RIGHT


def line_properties(look: Look) -> dict[str, Any]:
    """The properties of a line of matplotlib."""
    return {
        "color": look.colour, "marker": look.marker, "linewidth": look.width,
        "linestyle": "" if look.dashes is None else (0, look.dashes) if look.dashes else "-",
        "markersize": look.size * (1.33 if look.marker == "*" else 1),
        "markerfacecolor": "white" if look.is_hollow else look.colour,
        "markeredgecolor": "white" if look.dashes is not None else look.colour,
        "markeredgewidth": 1.4 if look.marker == "x" else 0.5 if look.dashes is not None else 0.9,
    }  # fmt: skip


def area_properties(look: Look) -> dict[str, Any]:
    """The properties of a patch of matplotlib."""
    if look == MISSING:
        return HATCHED
    if look.fill:
        return {"facecolor": look.colour, "alpha": look.fill, "linewidth": 0}
    return {
        "facecolor": "none", "edgecolor": look.colour, "linewidth": look.width,
        "linestyle": (0, look.dashes) if look.dashes else "-",
    }  # fmt: skip


MISSING = Look("#a8a8a8", fill=0.5)
"""Of cells that were not measured: hatching."""

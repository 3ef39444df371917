"""The picture of what a fit leaves over: measured over fitted time, against size or ranks.

A colour is a number of ranks; a hollow marker is a time that the model was fitted without. A dashed
line is where the parameters change.
"""

from __future__ import annotations

from commbench.models.fit_text import ratio
from commbench.models.machine import FittedModel, Machine
from commbench.stats.estimate import Estimate
from commbench.units import format_count
from commbench.views import pictures
from commbench.views.pictures import RANKS, RATIOS, SIZES, Curves, Look, Mark, Picture, Series

MOST_PANELS = 12


def residual_picture(machine: Machine) -> Picture:
    """A panel for each model."""
    shown = machine.fitted[:MOST_PANELS]
    ranks = sorted({point.world_size for fitted in shown for point in fitted.points})
    looks = {n: pictures.nth_look(number)._replace(dashes=None) for number, n in enumerate(ranks)}
    notes = ["Hollow: the model was fitted without it. Dashed line: its parameters change there."]
    if len(machine.fitted) > len(shown):
        notes.append(f"The first {len(shown)} of {len(machine.fitted)} models.")
    return Picture(
        "residuals",
        f"Measured over fitted time: {machine.name}",
        " ".join(_heading(fitted) + "." for fitted in shown),
        [_panel(fitted, looks) for fitted in shown],
        notes,
    )


def _heading(fitted: FittedModel) -> str:
    variant = f" ({fitted.variant})" if fitted.variant else ""
    return f"{fitted.operation} {fitted.kind}{variant}, {fitted.model}"


def _panel(fitted: FittedModel, looks: dict[int, Look]) -> Curves:
    by_size = len({point.size_bytes for point in fitted.points}) > 1
    series = [
        Series(
            format_count(n, "rank"),
            look._replace(is_hollow=is_left_out),
            [
                (point.size_bytes if by_size else n, Estimate(ratio(fitted, point)))
                for point in fitted.points
                if point.world_size == n and point.is_left_out == is_left_out
            ],
        )
        for n, look in looks.items()
        for is_left_out in (False, True)
    ]
    series = [each for each in series if each.points]
    changes = [piece.up_to_bytes or 0 for piece in fitted.pieces[:-1]] if by_size else []
    marks = [Mark(Look(pictures.GREY, width=0.8), 1.0)]
    marks += [
        Mark(Look(pictures.GREY, dashes=(4, 2)), at * 2**0.5, is_upright=True) for at in changes
    ]
    # Each panel has an axis of its own: models are fitted to different sizes.
    name = f"{'size' if by_size else 'number of ranks'}: {fitted.operation} {fitted.kind}"
    across = (SIZES if by_size else RANKS)._replace(name=name)
    return Curves(_heading(fitted), series, RATIOS, across, marks, inches=2.2)

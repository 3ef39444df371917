"""Pictures of a machine: what is predicted against size and ranks, and what a fit leaves over.

Predictions: a band is the 95 % interval. A dot is a measured time. A hollow marker lies beyond the
measured numbers of ranks or sizes.

Residuals: measured over fitted time. A colour is a number of ranks; a hollow marker is a time that
the model was fitted without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from commbench.errors import UnavailableError
from commbench.models.fit_text import ratio
from commbench.models.machine import FittedModel, Machine
from commbench.models.predict import Prediction, bus_bandwidth, find_fitted
from commbench.stats.estimate import Estimate, known
from commbench.units import format_bytes, format_count, format_time
from commbench.views import pictures
from commbench.views.pictures import (
    RANKS,
    RATIOS,
    SIZES,
    TIMES,
    Axis,
    Curves,
    Look,
    Mark,
    Picture,
    Series,
)

if TYPE_CHECKING:
    from commbench.models.projection import Projection

MOST_CURVES = 8
MOST_SIZES = 4
"""Curves of a panel against the number of ranks."""
MOST_PANELS = 12
NOTE = "Hollow: beyond the measured range."
DOT = Look(pictures.GREY, ".", None, size=5)
FIELDS = {SIZES: "size_bytes", RANKS: "world_size"}
"""What an axis shows of a prediction."""
Drawn = list[tuple[pictures.Key, list[Prediction]]]
"""Predictions that a line joins, each with its name and look."""


def predicted_picture(projection: Projection) -> Picture:
    """The panels that have something to show: UnavailableError where none has."""
    by_size = _choose(projection, SIZES, RANKS, 0, MOST_CURVES)
    by_ranks = _choose(projection, RANKS, SIZES, MOST_CURVES, MOST_SIZES)
    if not by_size and not by_ranks:
        raise UnavailableError(
            "there is nothing to draw: one size and one number of ranks",
            "ask for several: --sizes 1K-1G --ranks 8-512",
        )
    kinds = (
        (by_size, TIMES, SIZES),
        (by_size, pictures.BANDWIDTHS, SIZES),
        (by_ranks, TIMES, RANKS),
    )
    panels = [_panel(projection, *kind) for kind in kinds]
    names = dict.fromkeys(p.operation for p in projection.predictions)
    return Picture(
        "predicted",
        f"Predicted for {projection.machine.name}: {', '.join(names)}",
        _describe(projection),
        [panel for panel in panels if panel.series],
        [*projection.notes[:3], NOTE],
        has_bands=True,
    )


def _describe(projection: Projection) -> str:
    """What the picture shows, for those who do not see it."""
    first, last = projection.predictions[0], projection.predictions[-1]
    return " ".join(
        f"{p.operation} of {format_bytes(p.size_bytes)} on {format_count(p.world_size, 'rank')} "
        f"takes {format_time(p.time_s)}."
        for p in dict.fromkeys((first, last))
    )


def _choose(projection: Projection, across: Axis, other: Axis, first_look: int, most: int) -> Drawn:
    """The curves against `across`, at most about so many, evenly chosen from those of each
    operation, at least two of each; none where there is one place."""
    found: dict[Any, list[Prediction]] = {}
    for each in projection.predictions:
        found.setdefault((each.operation, getattr(each, FIELDS[other])), []).append(each)
    groups = [g for g in found.values() if len({getattr(p, FIELDS[across]) for p in g}) > 1]
    operations = list(dict.fromkeys(group[0].operation for group in groups))[: most // 2]
    each_has = max(2, most // max(1, len(operations)))
    chosen = []
    for operation in operations:
        own = [group for group in groups if group[0].operation == operation]
        picked = {round(n * (len(own) - 1) / (each_has - 1)) for n in range(each_has)}
        chosen += [group for number, group in enumerate(own) if number in picked]
    prefix = "{0.operation}, " if len(operations) > 1 else ""
    names = [prefix.format(group[0]) + _name(group[0], other) for group in chosen]
    looks = [pictures.nth_look(first_look + number) for number in range(len(chosen))]
    return list(zip(zip(names, looks, strict=True), chosen, strict=True))


def _name(first: Prediction, other: Axis) -> str:
    ranks, size = format_count(first.world_size, "rank"), format_bytes(first.size_bytes)
    return ranks if other == RANKS else size


def _panel(projection: Projection, drawn: Drawn, scale: Axis, across: Axis) -> Curves:
    def points(found: Iterable[Prediction]) -> list[tuple[int, Estimate]]:
        shown = [(getattr(p, FIELDS[across]), _value(p, scale)) for p in found]
        return [(place, value) for place, value in shown if value]

    series = []
    for (name, look), group in drawn:
        hollow = look._replace(dashes=None, is_hollow=True)
        beyond = [p for p in group if p.ranks_distance or p.size_distance]
        measured = _measured(projection, group, across)
        series += [
            Series(name, look, points(group)),
            Series(name, hollow, points(beyond), has_band=False),
            Series("measured", DOT, points(measured), has_band=False),
        ]
    heading = "Time of a call" if scale == TIMES else "Bus bandwidth, GB/s"
    over = "size" if across == SIZES else "number of ranks"
    shown = [each for each in series if each.points]
    return Curves(f"{heading}, against the {over}", shown, scale, across)


def _value(p: Prediction, scale: Axis) -> Estimate | None:
    """What an axis shows of a prediction."""
    if scale == TIMES:
        return known(p.time_s, p.low_s, p.high_s)
    times = (p.time_s, p.high_s, p.low_s)
    return known(*(bus_bandwidth(p.operation, p.world_size, p.size_bytes, t) for t in times))


def _measured(
    projection: Projection, group: list[Prediction], across: Axis
) -> Iterator[Prediction]:
    """The measured times on a curve, as predictions without an interval."""
    first, field = group[0], FIELDS[across]
    fixed = FIELDS[RANKS if across == SIZES else SIZES]
    for kind in dict.fromkeys(p.kind for p in group):
        fitted = find_fitted(
            projection.machine, first.operation, kind, projection.request.variant,
            first.ranks_per_node,
        )  # fmt: skip
        for point in fitted.points:
            is_within = getattr(first, field) <= getattr(point, field) <= getattr(group[-1], field)
            if is_within and getattr(point, fixed) == getattr(first, fixed):
                yield first._replace(
                    world_size=point.world_size, size_bytes=point.size_bytes,
                    time_s=point.time_s, low_s=point.time_s, high_s=point.time_s,
                )  # fmt: skip


def residual_picture(machine: Machine) -> Picture:
    """A panel for each model."""
    shown = machine.fitted[:MOST_PANELS]
    ranks = sorted({point.world_size for fitted in shown for point in fitted.points})
    looks = {n: pictures.nth_look(number)._replace(dashes=None) for number, n in enumerate(ranks)}
    notes = ["Hollow: the model was fitted without it."]
    if len(machine.fitted) > len(shown):
        notes.append(f"The first {len(shown)} of {len(machine.fitted)} models.")
    return Picture(
        "residuals",
        f"Measured over fitted time: {machine.name}",
        " ".join(_heading(fitted) + "." for fitted in shown),
        [_residuals(fitted, looks) for fitted in shown],
        notes,
    )


def _heading(fitted: FittedModel) -> str:
    variant = f" ({fitted.variant})" if fitted.variant else ""
    return f"{fitted.operation} {fitted.kind}{variant}, {fitted.model}"


def _residuals(fitted: FittedModel, looks: dict[int, Look]) -> Curves:
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
    marks = [Mark(Look(pictures.GREY, width=0.8), 1.0)]
    # Each panel has an axis of its own: models are fitted to different sizes.
    name = f"{'size' if by_size else 'number of ranks'}: {fitted.operation} {fitted.kind}"
    across = (SIZES if by_size else RANKS)._replace(name=name)
    return Curves(_heading(fitted), series, RATIOS, across, marks, inches=2.2)

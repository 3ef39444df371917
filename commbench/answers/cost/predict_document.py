"""What a document of predictions says: a table, what supports them, and a picture of them against
size and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from commbench import units
from commbench.analysis.csv_file import make_csv
from commbench.answers.cost import cost_models, intervals, other_formats
from commbench.answers.cost.fit_document import crowd_text, fit_warnings, model_facts, name_models
from commbench.answers.cost.machine import CROWD, WARNING, FittedModel, Machine
from commbench.answers.cost.predict import Prediction, Projection
from commbench.output.text import list_some
from commbench.stats import Estimate, collect, spread_evenly
from commbench.units import GB, MICRO, format_about, format_bytes, format_count, format_share
from commbench.views import cells, pictures
from commbench.views.cells import Column
from commbench.views.document import Document, Facts, Items, Pictures, Section, Table
from commbench.views.formats import HTML, JSON, MARKDOWN, TEXT, View
from commbench.views.pictures import RANKS, SIZES, TIMES, Axis, Curves, Look, Picture, Series

MOST_CURVES, MOST_OPERATIONS = 4, 6
"""Of a panel, and of a picture."""
FAR = 3.0
"""Doublings beyond the measured range from which on a warning is given."""
FAR_WARNING = "some are 8 or more times beyond what was measured: the algorithm may be another one."
DOT = Look(pictures.GREY, ".", None, size=5)
FIELDS = {SIZES: "size_bytes", RANKS: "world_size"}
"""What an axis shows of a prediction."""


def _is_known(found: Prediction) -> bool:
    return not found.time.is_wider(10)


COLUMNS = (
    Column("ranks", attrgetter("world_size"), cells.NUMBER),
    Column("size", lambda p: p.size_bytes or None, cells.BYTES),
    Column("time", attrgetter("time"), cells.TIME),
    Column("95 % interval", attrgetter("time"), cells.TIME_INTERVAL, 7),
    Column("busbw\nGB/s", lambda p: p.bandwidth if _is_known(p) else None, cells.BANDWIDTH, 6),
    Column(
        "most of it",
        lambda p: f"{p.bound} {format_share(max(p.latency_share, 1 - p.latency_share))}"
        if _is_known(p) else "cannot say",
        cells.TEXT, 3,
    ),
)  # fmt: skip


def document(projection: Projection) -> Document:
    """The predictions, what warns of them, and the models that they rest on."""
    per_node = projection.request.ranks_per_node or 1
    is_one = max(projection.request.world_sizes) <= per_node
    where = "all ranks on one host" if is_one else f"{format_count(per_node, 'rank')} on a host"
    drawn = Pictures(lambda: [predicted_picture(projection)])
    return Document(
        f"Predicted times by the cost models of {list_some(projection.machine.source, 4)}",
        [where],
        [_answer(projection.machine, fitted, own) for fitted, own in projection.by_model],
        [
            Items(warnings(projection), "Warnings"),
            *([drawn] if any(_panels(projection)) else []),
            Table("", COLUMNS, projection.predictions, attrgetter("operation"), "operation"),
            *(
                Section(f"{m.title}: {m.model}", [Facts([*_facts(m, own)])])
                for m, own in projection.by_model
            ),
        ],
    )


def sentence(found: Prediction) -> str:
    """A prediction in words, with its interval."""
    size = f" of {format_bytes(found.size_bytes)}" if found.size_bytes else ""
    ranks = format_count(found.world_size, "rank")
    if found.time.is_unknown:
        interval = cells.time_interval_text(found.time)
        return f"{found.operation}{size} on {ranks} cannot be predicted: it may take {interval}."
    time = cells.time_with_interval_text(found.time)
    return f"{found.operation}{size} on {ranks} is predicted to take {time}."


def _answer(machine: Machine, fitted: FittedModel, found: Sequence[Prediction]) -> str:
    """The prediction of the largest measured size, or else of the largest; and how far that is
    outside of what was measured."""
    named = ([each for each in found if not each.size_distance] or found)[-1]
    ranks, size = fitted.world_sizes[-1], max(fitted.sizes[-1], 1)
    over = {"ranks": named.world_size / ranks, "size": named.size_bytes / size}
    far = [f"{units.format_times(n)} the measured {what}" for what, n in over.items() if n > 1]
    outside = f" That is {' and '.join(far)}: not tested there." if far else ""
    if named.ranks_distance and all(each.kind == cost_models.WITHIN for each in machine.fitted):
        outside += (
            f" It is for one host that has all {named.world_size} ranks. A network between hosts "
            "takes longer, and was not measured."
        )
    return sentence(named) + outside


def _facts(fitted: FittedModel, found: Sequence[Prediction]) -> Iterator[tuple[str, str]]:
    """What supports the predictions of a model, and how far away from it they are."""
    yield from model_facts(fitted)
    ranks, sizes = (sorted({getattr(p, FIELDS[axis]) for p in found}) for axis in (RANKS, SIZES))
    yield from _beyond(ranks, fitted.world_sizes, str, "ranks")
    yield from _beyond(sizes, fitted.sizes, format_bytes, "size")
    per_node = found[0].ranks_per_node
    if fitted.kind == cost_models.ACROSS and per_node not in fitted.ranks_per_node:
        measured = list_some([*map(str, fitted.ranks_per_node)], 4)
        yield "ranks on a host", f"{per_node}; measured: {measured}"
    if half := intervals.find_figure(fitted, ranks[-1], per_node, 1, -1):
        yield f"n-half with {ranks[-1]} ranks", format_about(half.value)


def _beyond(
    asked: Sequence[int], measured: Sequence[int], show: Callable[[int], str], what: str
) -> Iterator[tuple[str, str]]:
    """How far the least and the most that was asked for is from what was measured."""
    low, high = measured[0], measured[-1]
    if asked[0] < low:
        part = f"1/{low / max(asked[0], 1):,.6g} of that"
        yield f"smallest {what}", f"{show(asked[0])}; measured from {show(low)} ({part})"
    if asked[-1] > high:
        far = f"{units.format_times(asked[-1] / max(high, 1))} that"
        yield f"largest {what}", f"{show(asked[-1])}; measured up to {show(high)} ({far})"


def warnings(*projections: Projection) -> list[str]:
    """What warns of predictions, once each, with the models that it is about."""
    found: list[tuple[str, str]] = []
    for projection in projections:
        notes = projection.machine.notes
        found += [(each.removeprefix(WARNING), "") for each in notes if each.startswith(WARNING)]
        found += [(text, "") for text in crowd_text(projection.machine.facts.get(CROWD))]
        for fitted, own in projection.by_model:
            found += [(text, fitted.title) for text in fit_warnings(fitted, projection.machine)]
            if max(max(each.ranks_distance, each.size_distance) for each in own) >= FAR:
                found.append((FAR_WARNING, fitted.title))
    return name_models(found)


def warnings_beside(projection: Projection, format_: str) -> list[str]:
    """The warnings that the text of a format does not have. For NCCL's tuner they are about the
    model of each choice."""
    if format_ in (TEXT, MARKDOWN, HTML, JSON):  # their text has the warnings
        return []
    if format_ != other_formats.NCCL_TUNER:
        return warnings(projection)
    choices = other_formats.find_choices(projection)
    return warnings(*(choice.projection for several in choices for choice in several))


def notes(projection: Projection) -> list[str]:
    """The warnings and the facts, in lines."""
    found = [f"{WARNING}{text}" for text in warnings(projection)]
    for fitted, own in projection.by_model:
        facts = [("model", fitted.model), *_facts(fitted, own)]
        found += [f"{fitted.title}: {name}: {text}" for name, text in facts]
    return found


def flat(each: Prediction) -> dict[str, Any]:
    """The columns of a prediction in CSV and JSON; None where an operation has no bandwidth."""
    algbw, busbw = each.algbw, each.busbw
    return {
        "operation": each.operation, "world_size": each.world_size,
        "ranks_per_node": each.ranks_per_node, "size_bytes": each.size_bytes,
        "time_us": _round(each.time_s / MICRO), "time_low_us": _round(each.low_s / MICRO),
        "time_high_us": _round(each.high_s / MICRO),
        "algbw_GBps": algbw and _round(algbw / GB), "busbw_GBps": busbw and _round(busbw / GB),
        "bound": each.bound, "latency_share": round(each.latency_share, 4),
        "bandwidth_share": round(1 - each.latency_share, 4), "group": each.kind,
        "model": each.model,
        "doublings_of_ranks": round(each.ranks_distance, 3),
        "doublings_of_size": round(each.size_distance, 3),
    }  # fmt: skip


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def _csv(projection: Projection) -> str:
    """A line for each prediction. `commbench model fit` reads such a file."""
    rows = [flat(each) for each in projection.predictions]
    return make_csv([tuple(rows[0]), *(tuple(row.values()) for row in rows)]) if rows else ""


def _data(projection: Projection) -> dict[str, Any]:
    return {
        "machine": projection.machine.name,
        "source": projection.machine.source,
        "notes": notes(projection),
        "rows": [flat(each) for each in projection.predictions],
    }


def predicted_picture(projection: Projection) -> Picture:
    """Predictions against size and ranks: a band is the 95 % interval, a dot a measured time, a
    hollow marker lies beyond the measured numbers of ranks or sizes."""
    panels = [*_panels(projection)]
    names = dict.fromkeys(p.operation for p in projection.predictions)
    first, last = projection.predictions[0], projection.predictions[-1]
    is_beyond = any(series.look.is_hollow for panel in panels for series in panel.series)
    number = min(len(names), MOST_OPERATIONS)
    left_out = [f"The first {number} of {len(names)} operations"] * (number < len(names))
    return Picture(
        "predicted",
        f"Predicted for {projection.machine.name}: {', '.join(names)}",
        " ".join(dict.fromkeys(map(sentence, (first, last)))),
        panels,
        [*warnings(projection), *["Hollow: beyond the measured range"] * is_beyond, *left_out],
        columns=pictures.columns_for(number),
    )


def _panels(projection: Projection) -> Iterator[Curves]:
    """Up to three panels for each operation: against the size, and the number of ranks."""
    operations = collect((p.operation, p) for p in projection.predictions)
    kinds = (
        ("Time of a call, against the size", "time", SIZES, RANKS, TIMES),
        ("Bus bandwidth, GB/s, against the size", "bandwidth", SIZES, RANKS, pictures.BANDWIDTHS),
        ("Time of a call, against the number of ranks", "time", RANKS, SIZES, TIMES),
    )
    for heading, name, across, other, scale in kinds:
        for operation, own in [*operations.items()][:MOST_OPERATIONS]:
            panel = Curves(heading, [*_series(own, across, other, name)], scale, across)
            if len(operations) > 1:
                short = f"{operation}, {'GB/s' if name == 'bandwidth' else name}"
                panel = panel._replace(heading=short, inches=1.6)
            if panel.series:
                yield panel


def _series(own: Sequence[Prediction], across: Axis, other: Axis, shown: str) -> Iterator[Series]:
    """The curves of an operation against `across`, at most MOST_CURVES, evenly chosen; none where
    there is one place."""

    def points(found: Iterable[Prediction]) -> list[tuple[float, Estimate | None]]:
        places = [(getattr(p, FIELDS[across]), getattr(p, shown)) for p in found]
        return [(place, value) for place, value in places if value]

    groups = [
        group for group in collect((getattr(p, FIELDS[other]), p) for p in own).values()
        if len({getattr(p, FIELDS[across]) for p in group}) > 1
    ]  # fmt: skip
    for number, group in enumerate(spread_evenly(groups, MOST_CURVES)):
        ranks, size = format_count(group[0].world_size, "rank"), format_bytes(group[0].size_bytes)
        name = ranks if other == RANKS else size
        look = pictures.nth_look(number + (MOST_CURVES if other == SIZES else 0))
        beyond = [p for p in group if p.ranks_distance or p.size_distance]
        hollow = look._replace(dashes=None, is_hollow=True)
        # Between numbers of ranks the algorithm may change: no line says what is there.
        line = look if across == SIZES else look._replace(dashes=None)
        several = (
            Series(name, line, points(group)),
            Series(name, hollow, points(beyond), has_band=False),
            Series("measured", DOT, points(_measured(group, across)), has_band=False),
        )
        yield from (each for each in several if each.points)


def _measured(group: Sequence[Prediction], across: Axis) -> Iterator[Prediction]:
    """The measured times on a curve, as predictions without an interval."""
    first, field = group[0], FIELDS[across]
    fixed = FIELDS[RANKS if across == SIZES else SIZES]
    low, high = getattr(first, field), getattr(group[-1], field)
    for fitted in dict.fromkeys(p.fitted for p in group):
        for point in fitted.points:
            is_within = low <= getattr(point, field) <= high
            if is_within and getattr(point, fixed) == getattr(first, fixed):
                yield first._replace(
                    world_size=point.world_size, size_bytes=point.size_bytes,
                    time_s=point.time_s, low_s=point.time_s, high_s=point.time_s,
                )  # fmt: skip


VIEW = View(document, schema=3, data=_data, more={"csv": _csv, **other_formats.FORMATS})

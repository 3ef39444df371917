"""Predictions of several calls on one machine, and what a person must know to use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.csv_file import make_csv
from commbench.errors import UsageError
from commbench.models import other_tables
from commbench.models.cost_models import ACROSS
from commbench.models.fit_text import (
    WARNING,
    describe_points,
    describe_rivals,
    warnings,
    without_them,
)
from commbench.models.machine import FittedModel, Machine
from commbench.models.predict import (
    MOST_RANKS,
    Prediction,
    Request,
    default_ranks_per_node,
    find_fitted,
    predict,
)
from commbench.models.tuner import find_choices, tuner_text
from commbench.output.paragraphs import list_some, wrapped
from commbench.output.table import TableColumn, fitting_table
from commbench.units import (
    GB,
    MICRO,
    format_about,
    format_bytes,
    format_count,
    format_known_GBps,
    format_known_time,
    format_share,
)
from commbench.validation import choose

SCHEMA = 2
"""Version of the JSON; adjusted when a field changes its meaning or goes."""
FAR = 3.0
"""Doublings beyond the measured range from which on a note warns."""


@dataclass(frozen=True)
class Projection:
    """The predictions of a request, made when they are used: `predictions` and whatever shows them
    raise UnavailableError where no measurement supports one."""

    machine: Machine
    request: Request

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """By operation, number of ranks and size."""
        request = self.request
        return tuple(
            prediction
            for name in request.operations
            for prediction in predict(self.machine, name, *request[1:])
        )

    def text(self, format: str = "table") -> str:
        """The predictions in a format of FORMATS; UnavailableError where it has no place for one of
        the operations."""
        choose("format", format, FORMATS)
        return FORMATS[format].write(self)

    def plot(self, output: str | Path) -> Path:
        """Draw time and bus bandwidth into a new file that ends in .png, .svg or .pdf."""
        from commbench.models.plots import predicted_picture
        from commbench.views.draw import require_ending, write_pictures

        require_ending(Path(output))
        return write_pictures([predicted_picture(self)], Path(output))[0]

    @property
    def notes(self) -> list[str]:
        """What supports the predictions, how far away they are, and what makes them uncertain."""
        return [note for _, note in self.notes_by_model()]

    def warnings(self, format: str = "csv") -> list[str]:
        """The notes that warn, for a format whose text does not have them: each with the models
        that it is about."""
        choose("format", format, FORMATS)
        return FORMATS[format].warn(self)

    def notes_by_model(self) -> Iterator[tuple[str, str]]:
        """The name of a model and a note about it; no name for a note about the machine."""
        for note in self.machine.notes:
            if note.startswith(WARNING):
                yield "", note
        for _, group in groupby(self.predictions, key=lambda each: (each.operation, each.kind)):
            found = list(group)
            fitted = find_fitted(
                self.machine, found[0].operation, found[0].kind, self.request.variant,
                found[0].ranks_per_node,
            )  # fmt: skip
            for note in self._notes(fitted, found):
                yield fitted.title, note

    def _notes(self, fitted: FittedModel, found: Sequence[Prediction]) -> Iterator[str]:
        error = fitted.best.cv_error
        yield (
            f"{fitted.title}: {fitted.model}, fitted to {describe_points(fitted.fitted_points)}."
            + (f" Measured times differ {without_them(error)}." if error is not None else "")
        )
        yield from warnings(fitted)
        yield from describe_rivals(fitted)
        yield from _describe_distance(fitted, found)
        adjusted = [p for p in found if p.is_adjusted]
        if adjusted:
            first = adjusted[0]
            yield (
                f"With {format_count(first.world_size, 'rank')} and "
                f"{format_bytes(first.size_bytes)} the model alone breaks the order of sizes or "
                f"ranks: its time is adjusted ({len(adjusted)} of {len(found)} rows)."
            )
        if size := fitted.best.curve.half_size(found[-1].world_size, found[0].ranks_per_node):
            ranks = format_count(found[-1].world_size, "rank")
            about = format_about(size)
            yield f"n-half with {ranks}: at {about} latency takes as long as the bytes."


def project(machine: Machine, request: Request) -> Projection:
    """The projection of a request. No operation in it stands for all of the machine. UsageError for
    ranks that do not fill hosts."""
    asked = request.ranks_per_node
    per_node = default_ranks_per_node(machine) if asked is None else asked
    for ranks in request.world_sizes:
        if 0 < per_node < ranks <= MOST_RANKS and ranks % per_node:
            full = ranks - ranks % per_node
            raise UsageError(
                f"{ranks} ranks do not fill hosts of {format_count(per_node, 'rank')}",
                f"ask for {full} or {full + per_node} ranks, or for another --ranks-per-node",
            )
    names = request.operations or tuple(dict.fromkeys(each.operation for each in machine.fitted))
    return Projection(machine, request._replace(operations=names, ranks_per_node=per_node))


def _describe_distance(fitted: FittedModel, found: Sequence[Prediction]) -> Iterator[str]:
    per_node, known = found[0].ranks_per_node, fitted.ranks_per_node
    if fitted.kind == ACROSS and per_node not in known:
        listed = list_some([str(n) for n in known], 4)
        ranks = format_count(per_node, "rank")
        yield f"No group with {ranks} on a host was measured, only with {listed}."
    ranks_asked = [each.world_size for each in found]
    sizes_asked = [each.size_bytes for each in found]
    yield from _beyond(ranks_asked, fitted.world_sizes, lambda n: format_count(n, "rank"))
    yield from _beyond(sizes_asked, (fitted.smallest_bytes, fitted.largest_bytes), format_bytes)
    if max(max(each.ranks_distance, each.size_distance) for each in found) >= FAR:
        yield (
            f"{WARNING}so far from the measurements the library may use another algorithm, and "
            "other jobs may share the network."
        )


def _beyond(
    asked: Sequence[int], measured: Sequence[int], show: Callable[[int], str]
) -> Iterator[str]:
    """How far the least and the most that was asked for is from what was measured."""
    low, high = measured[0], measured[-1]
    for value in dict.fromkeys((min(asked), max(asked))):
        if value > high:
            text = f"{_digits(value / high)} times the most that was measured ({show(high)})"
        elif value < low:
            text = f"1/{_digits(low / value)} of the least that was measured ({show(low)})"
        else:
            continue
        yield f"{show(value)}: {text}."


def _digits(times: float) -> str:
    return f"{times:.3g}" if times < 1000 else f"{times:.0f}"


def _time(each: Prediction) -> str:
    return format_known_time(each.time_s, each.low_s, each.high_s)[0]


def _interval(each: Prediction) -> str:
    return format_known_time(each.time_s, each.low_s, each.high_s)[1]


def _busbw(each: Prediction) -> str:
    low, high = each.busbw_at(each.high_s), each.busbw_at(each.low_s)
    return format_known_GBps(each.busbw, low, high)


def _bound(each: Prediction) -> str:
    return f"{each.bound} {format_share(max(each.latency_share, each.bandwidth_share))}"


_COLUMNS = (
    TableColumn("size", lambda p: format_bytes(p.size_bytes) if p.size_bytes else "", 9),
    TableColumn("time", _time, 8),
    TableColumn("95 % interval", _interval, 7),
    TableColumn("busbw\nGB/s", _busbw, 6, is_decimal=True),
    TableColumn("most of it", _bound, 3, is_left=True),
)
_RANKS = TableColumn("ranks", lambda p: f"{p.world_size:,}", 9)


def projection_text(projection: Projection) -> str:
    """A table for each operation, and the notes."""
    blocks = []
    several = len(projection.request.world_sizes) > 1
    columns = (_RANKS, *_COLUMNS) if several else _COLUMNS
    for operation, group in groupby(projection.predictions, key=lambda each: each.operation):
        found = list(group)
        head = f"{operation} on {projection.machine.name}"
        head += f", {format_count(found[0].ranks_per_node, 'rank')} on a host"
        if not several:
            head = head.replace(" on ", f", {format_count(found[0].world_size, 'rank')}, on ", 1)
        blocks.append("\n".join((wrapped(f"Predicted: {head}"), *fitting_table(columns, found))))
    notes = [wrapped(note) for note in projection.notes]
    return "\n\n".join((*blocks, "\n".join(notes))) + "\n"


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
        "bandwidth_share": round(each.bandwidth_share, 4), "group": each.kind, "model": each.model,
        "doublings_of_ranks": round(each.ranks_distance, 3),
        "doublings_of_size": round(each.size_distance, 3),
    }  # fmt: skip


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def projection_csv(projection: Projection) -> str:
    """A line for each prediction. `commbench model fit` reads such a file."""
    rows = [flat(each) for each in projection.predictions]
    return make_csv([tuple(rows[0]), *(tuple(row.values()) for row in rows)]) if rows else ""


def projection_json(projection: Projection) -> str:
    """Everything about the predictions; null stands for what an operation does not have."""
    document = {
        "schema": SCHEMA,
        "machine": projection.machine.name,
        "source": projection.machine.source,
        "notes": projection.notes,
        "rows": [flat(each) for each in projection.predictions],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def projection_autoparallel(projection: Projection) -> str:
    """The table of AutoParallel's simulator; its sizes are those of input tensors."""
    request = projection.request
    found: list[Prediction] = []
    for name in request.operations:
        for n in request.world_sizes:
            sizes = other_tables.sizes_by_input(name, request.sizes, n)
            asked = request._replace(world_sizes=(n,), sizes=sizes)
            found += predict(projection.machine, name, *asked[1:])
    return other_tables.autoparallel_table(found)


def list_warnings(*projections: Projection) -> list[str]:
    """The warnings about projections, once each, with the models that they are about."""
    models: dict[str, dict[str, None]] = {}
    for projection in projections:
        for model, note in projection.notes_by_model():
            if note.startswith(WARNING):
                models.setdefault(note.removeprefix(WARNING), {})[model] = None
    listed = {text: list_some(list(filter(None, names)), 4) for text, names in models.items()}
    return [f"{names}: {text}" if names else text for text, names in listed.items()]


def _tuner_warnings(projection: Projection) -> list[str]:
    """The warnings about the model of each choice of NCCL."""
    machine, request = projection.machine, projection.request
    return list_warnings(
        *(
            Projection(machine._replace(fitted=(choice.fitted,)),
                       request._replace(operations=(name,), world_sizes=(ranks,), variant=""))
            for name in request.operations
            for ranks in request.world_sizes
            for choice in find_choices(machine, name, ranks, request)
        )
    )  # fmt: skip


class Format(NamedTuple):
    """A form of a projection."""

    write: Callable[[Projection], str]
    what: str
    warn: Callable[[Projection], list[str]] = list_warnings
    """The warnings that its text does not have."""


def _has_notes(_: Projection) -> list[str]:
    return []


FORMATS: dict[str, Format] = {
    "table": Format(projection_text, "a table for people", _has_notes),
    "csv": Format(projection_csv, "a line for each prediction"),
    "json": Format(projection_json, "the same, with notes", _has_notes),
    "autoparallel": Format(projection_autoparallel, "AutoParallel's colls*.table"),
    "inductor": Format(
        lambda projection: other_tables.inductor_trace(projection.predictions),
        "a trace for torch.compile's profile-guided estimation",
    ),
    "nccl-tuner": Format(
        lambda projection: tuner_text(projection.machine, projection.request),
        "a file for NCCL's example tuner plugin",
        _tuner_warnings,
    ),
}

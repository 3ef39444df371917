"""What a document of a machine says: the model of each operation, its parameters, and how well it
fits; a picture shows what the fits leave over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log
from operator import attrgetter
from statistics import median_low
from typing import Any

from commbench.analysis.statistics import Z
from commbench.answers.cost import fit, intervals, selection
from commbench.answers.cost.cost_models import BETA
from commbench.answers.cost.machine import CROWD, WARNING, FittedModel, Machine, Point
from commbench.output.text import join_words, list_some, span
from commbench.plan.operations import OPERATIONS
from commbench.stats import Estimate, collect
from commbench.units import (
    format_about,
    format_bytes,
    format_count,
    format_GBps,
    format_rough,
    format_rough_percent,
)
from commbench.views import cells, pictures
from commbench.views.cells import NUMBER, TEXT, Column
from commbench.views.document import Block, Document, Facts, Items, Pictures, Section, Table
from commbench.views.formats import View, as_json
from commbench.views.pictures import RANKS, RATIOS, SIZES, Curves, Look, Mark, Picture, Series

MOST_NUMBERS = 8
"""Numbers of ranks that are listed."""
SMALLEST_PERCENT = 0.1
MEAN_TO_SD = 1.2533
"""Standard deviation over mean absolute error, of a normal distribution: sqrt(pi/2)."""
MOST_PANELS = 12
MOST_SENTENCES = 8
UNKNOWN = 10
"""A bandwidth whose interval ends at so many times its beginning is not known."""


def document(machine: Machine) -> Document:
    """A section for each model, and what the measurements cannot say."""
    sources = list_some([*dict.fromkeys(machine.source)], MOST_NUMBERS)
    known = [*filter(None, (machine.backend, machine.device))]
    warnings = name_models((w, m.title) for m in machine.fitted for w in fit_warnings(m, machine))
    answer = [*map(_sentence, machine.fitted[:MOST_SENTENCES])]
    answer += crowd_text(machine.facts.get(CROWD))
    blocks: list[Block] = [
        Items([*map(WARNING.__add__, warnings), *machine.notes], "Notes"),
        Pictures(lambda: [residual_picture(machine)]),
        *map(_section, machine.fitted),
    ]
    return Document(f"Cost models fitted to {sources}", [", ".join(known)], answer, blocks)


def crowd_text(crowd: str | None) -> list[str]:
    """What it means that ranks shared cores, where they did (hardware.find_crowd)."""
    said = f"In the runs {crowd}: their times show the processor more than the network."
    return [said] if crowd else []


def _sentence(fitted: FittedModel) -> str:
    """Latency and bandwidth with the most ranks, and how well the model predicts."""
    ranks, per_node, size, time_s, *_ = fitted.fitted_points[-1]
    said, factor = [], OPERATIONS[fitted.operation].busbw_factor
    if latency := intervals.find_figure(fitted, ranks, per_node, 1, 0):
        said.append(f"latency {cells.time_with_interval_text(latency)}")
    speed = intervals.find_figure(fitted, ranks, per_node, 0, -1)
    if factor and len(fitted.sizes) > 1:
        value = "not known"
        reached = size / time_s
        if speed and speed.ends[1] < UNKNOWN * speed.ends[0] and speed.value < 2 * reached:
            value = cells.bandwidth_with_interval_text(speed.scaled(factor(ranks)))
        if speed and speed.ends[0] > reached:
            value = f"{format_GBps(factor(ranks) * reached)} GB/s at {format_bytes(size)}, "
            value += "the largest fitted size; not known beyond"
        said.append(f"bus bandwidth {value}")
    error, missed = fitted.best.cv_error, left_out_errors(fitted)[0]
    tested = "not tested" if error is None else f"off by {percent(error)} on average"
    if missed > (error or 0.0):
        tested = f"off by {percent(missed)} (median) for the times left out by request"
    tested += ", always too high or always too low for one number of ranks" * bool(_shifts(fitted))
    said.append(f"predictions {tested}")
    return f"{fitted.title}, {format_count(ranks, 'rank')}: {', '.join(said)}."


def _section(fitted: FittedModel) -> Section:
    table = Table("", COLUMNS, [*intervals.estimate_parameters(fitted)])
    return Section(f"{fitted.title}: {fitted.model}", [Facts([*model_facts(fitted)]), table])


def model_facts(fitted: FittedModel) -> Iterator[tuple[str, str]]:
    """The formula of a model, what it was fitted to, how far measured times are from it, and what
    they do not tell."""
    curve = fitted.best.curve
    yield "formula", curve.model.formula
    yield "fitted to", describe_points(fitted.fitted_points)
    corrected = ", corrected by size" if curve.size_factors else ""
    yield "scatter around it", f"{percent(fitted.scatter)} (standard deviation{corrected})"
    if fitted.best.cv_error is not None:
        yield "error of times left out", f"{percent(fitted.best.cv_error)} on average"
    if factors := [factor for _, factor in curve.size_factors]:
        yield "correction by size", f"times {min(factors):.2f} … {max(factors):.2f}"
    if rivals := [each.curve.model.name for each in fitted.rivals]:
        yield "models that fit as well", list_some(rivals, 8)
    if left_out := [point for point in fitted.points if point.is_left_out]:
        yield "left out by request", describe_points(left_out)
        middle, most = map(percent, left_out_errors(fitted))
        yield "off by", f"{middle} (median), at most {most}"


def left_out_errors(fitted: FittedModel) -> tuple[float, float]:
    """The median and the largest absolute log error of times left out by request; 0 for none."""
    left_out = [point for point in fitted.points if point.is_left_out]
    errors = [*map(abs, fit.curve_errors(fitted.best.curve, left_out).tolist())] or [0.0]
    return median_low(errors), max(errors)


def describe_points(points: Sequence[Point]) -> str:
    """How many there are, and of which ranks and sizes."""
    ranks, per_node, sizes = (sorted({int(point[at]) for point in points}) for at in range(3))
    listed = ", ".join(map(str, ranks))
    if len(ranks) > MOST_NUMBERS:
        listed = f"{len(ranks)} numbers from {ranks[0]} to {ranks[-1]}"
    words = [format_count(len(points), "time"), f"ranks {listed}"]
    if ranks[-1] > per_node[-1]:
        words.append(f"on a host {list_some([*map(str, per_node)], MOST_NUMBERS)}")
    if sizes[-1]:
        words.append(span(format_bytes, sizes))
    return "; ".join(words)


def fit_warning(fitted: FittedModel, machine: Machine) -> str:
    """That a fit is poor (UNTESTED_ERROR) or not tested, why, and what to measure; empty for a good
    fit."""
    error, crowd = fitted.best.cv_error, machine.facts.get(CROWD)
    missed, _ = left_out_errors(fitted)
    if MEAN_TO_SD * missed >= intervals.UNTESTED_ERROR:
        why = f"the times left out by request are {percent(missed)} (median) from the model"
        what = "Measure what you predict"
    elif error is None:
        why = "too few times to test the model"
        what = (
            f"Measure {selection.FEWEST_TIMES} sizes or {selection.ENOUGH_RANKS} numbers of ranks"
        )
    elif max(MEAN_TO_SD * error, fitted.scatter) < intervals.UNTESTED_ERROR:
        return ""
    elif crowd:
        why, what = f"the fit is poor, because {crowd}", "Measure at most one rank per core"
    elif fitted.scatter > intervals.UNTESTED_ERROR / 2:
        why = "the fit is poor, because the measured times scatter"
        what = "Measure again with a larger --budget"
    else:
        why = "the fit is poor: without some sizes or ranks it is another one"
        what = "Measure more of them, or fit without those that you do not need (--leave-out)"
    return f"{why}. Predicted times may be wrong by a factor of 2 or more. {what}."


def fit_warnings(fitted: FittedModel, machine: Machine) -> Iterator[str]:
    """The warning of its fit, which may be empty, and those of ranks that are no part of it. Errors
    that go with the ranks are the cause of a poor fit."""
    shifts = _shifts(fitted)
    if not shifts or fitted.best.cv_error is None:
        yield fit_warning(fitted, machine)
    if shifts:
        said = join_words([
            f"{format_rough(exp(error))} times as long with {format_count(ranks, 'rank')}"
            for ranks, error in shifts.items()
        ])  # fmt: skip
        yield (
            f"measured times are {said} as this model says: it does not show how the time grows "
            "with the ranks, and intervals for other ranks are wider for that."
        )
        return
    nvls = "" if machine.backend == "gloo" else ", such as NVLS"
    for ranks, low, high, is_faster in intervals.odd_sizes(fitted):
        yield (
            f"{ranks} ranks are {'faster' if is_faster else 'slower'} than this model from "
            f"{format_bytes(low)} to {format_bytes(high)}: perhaps by another algorithm{nvls}. "
            "Predictions for these ranks follow their own times."
        )


def _shifts(fitted: FittedModel) -> dict[int, float]:
    """The numbers of ranks whose times lie on one side of the model."""
    points = fitted.fitted_points
    return intervals.find_shifts(fit.curve_errors(fitted.best.curve, points), points)


def name_models(found: Iterable[tuple[str, str]]) -> list[str]:
    """Each text once, with the models that it is about; `found` has texts and titles of models,
    both of which may be empty."""
    models = collect(pair for pair in dict.fromkeys(found) if pair[0])
    named = {text: list_some([*filter(None, titles)], 12) for text, titles in models.items()}
    return [f"{names}: {text}" if names else text for text, names in named.items()]


def ratio(fitted: FittedModel, point: Point) -> float:
    """The measured time over the fitted one."""
    return point.time_s / max(fitted.best.curve.time(*point[:3]), fit.SHORTEST_S)


def percent(log_error: float) -> str:
    """A log error in percent of the time, or as a factor where it is large."""
    if log_error >= log(2):
        return f"a factor of {format_rough(exp(min(log_error, log(20))))}"
    return format_rough_percent(max(exp(log_error) - 1, SMALLEST_PERCENT / 100))


def _texts(found: intervals.ParameterEstimate) -> tuple[str, str]:
    """Value and interval, with the digits that the interval supports; empty where not known."""
    low, high = found.low, found.high
    if found.value == 0:
        return "0", _texts(found._replace(value=None))[1]
    own = Estimate(high if found.value is None else found.value, low, high)
    if found.parameter.unit == intervals.HALF.unit:
        text, interval = format_about(own.value), f"{format_about(low)} … {format_about(high)}"
    elif found.parameter == BETA:
        text, interval = (f"{each} ps" for each in cells.number_texts(own, 1e-12))
    else:
        text, interval = cells.time_text(own) if own.value else "0", cells.time_interval_text(own)
    return "" if found.value is None else text, interval if low < high else ""


COLUMNS = (
    Column("parameter", lambda found: found.parameter.name, TEXT),
    Column("value", lambda found: _texts(found)[0], NUMBER),
    Column("95 % interval", lambda found: _texts(found)[1], NUMBER),
    Column("what it is", attrgetter("parameter.meaning"), TEXT, 1, is_wrapped=True),
)


def machine_data(machine: Machine) -> dict[str, Any]:
    """The machine as in its file, and the intervals of the parameters."""
    found: dict[str, Any] = as_json(machine)
    keys = ("name", "unit", "value", "low", "high")
    for model, fitted in zip(found["fitted"], machine.fitted, strict=True):
        model["parameters"] = [
            dict(zip(keys, (*parameter[:2], *values), strict=True))
            for parameter, *values in intervals.estimate_parameters(fitted)
        ]
    return found


def residual_picture(machine: Machine) -> Picture:
    """Measured over fitted time, a panel for each model. A colour is a number of ranks; a hollow
    marker is a time that the model was fitted without."""
    shown = machine.fitted[:MOST_PANELS]
    ranks = sorted({point.world_size for fitted in shown for point in fitted.points})
    looks = {n: pictures.nth_look(number)._replace(dashes=None) for number, n in enumerate(ranks)}
    is_left_out = any(point.is_left_out for fitted in shown for point in fitted.points)
    notes = ["Above 1: the call took longer than the model says"]
    notes += ["Hollow: the model was fitted without it"] * is_left_out
    if len(machine.fitted) > len(shown):
        notes.append(f"The first {len(shown)} of {len(machine.fitted)} models")
    return Picture(
        "residuals",
        f"Measured over fitted time: {machine.name}",
        " ".join(f"{fitted.title}, {fitted.model}." for fitted in shown),
        [_residuals(fitted, looks) for fitted in shown],
        notes,
    )


def _residual(fitted: FittedModel, point: Point) -> Estimate:
    """The measured time over the fitted one, with the 95 % interval of the measured one."""
    value = ratio(fitted, point)
    factor = exp(Z * point.uncertainty)
    return Estimate(value, value / factor, value * factor) if factor > 1 else Estimate(value)


def _residuals(fitted: FittedModel, looks: dict[int, Look]) -> Curves:
    by_size = len({point.size_bytes for point in fitted.points}) > 1
    pairs: Iterator[tuple[tuple[int, bool], tuple[float, Estimate | None]]] = (
        ((point.world_size, point.is_left_out),
         (point.size_bytes if by_size else point.world_size, _residual(fitted, point)))
        for point in fitted.points
    )  # fmt: skip
    series = [
        Series(format_count(n, "rank"), looks[n]._replace(is_hollow=is_left_out), points)
        for (n, is_left_out), points in sorted(collect(pairs).items())
    ]
    marks = [Mark(Look(pictures.GREY, width=0.8), 1.0)]
    across = SIZES if by_size else RANKS
    return Curves(f"{fitted.title}, {fitted.model}", series, RATIOS, across, marks, inches=2.2)


VIEW = View(document, schema=2, data=machine_data)

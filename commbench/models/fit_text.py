"""What was fitted, as text: the model of each operation, its parameters, and how well it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log
from typing import NamedTuple

from commbench.models.cost_models import BETA, PARAMETERS
from commbench.models.fit import SHORTEST_S
from commbench.models.intervals import UNTESTED_ERROR, half_interval, parameter_intervals
from commbench.models.leave_out import ENOUGH_RANKS, FEWEST_TIMES
from commbench.models.machine import FittedModel, Machine, Point
from commbench.output.paragraphs import list_some, wrapped
from commbench.output.table import TableColumn, fitting_table
from commbench.units import format_about, format_bytes, format_count, known_decimals

_SHOWN = (("us", 1e6), ("us/step", 1e6), ("ps/B", 1e12))
"""For each parameter the unit in which it is shown, and what its value is multiplied by."""
GBPS_OF_PS = 1e3
"""A byte in one picosecond is so many GB/s."""
MOST_NUMBERS = 8
"""Numbers of ranks that are listed."""
SMALLEST_PERCENT = 0.1
MEAN_TO_SD = 1.2533
"""Standard deviation over mean absolute error, of a normal distribution: sqrt(pi/2)."""


class Line(NamedTuple):
    """A line of the table of parameters."""

    parameter: str
    value: str
    interval: str
    meaning: str = ""


_COLUMNS = (
    TableColumn("parameter", lambda line: line.parameter, 9, is_left=True),
    TableColumn("value", lambda line: line.value, 8),
    TableColumn("95 % interval", lambda line: line.interval, 7),
    TableColumn("which is", lambda line: line.meaning, 3, is_left=True),
)


def machine_text(machine: Machine) -> str:
    """The models of a machine, a part for each, and what the measurements cannot say."""
    names = list(dict.fromkeys(machine.source))
    head = f"Machine {machine.name}: {list_some(names, 4)}"
    if len(names) < len(machine.source):
        head += f", {len(machine.source)} files"
    known = [machine.backend, machine.device]
    if any(known):
        head += f" ({', '.join(filter(None, known))})"
    parts = [wrapped(head)]
    parts += ["\n".join(_fitted_lines(fitted)) for fitted in machine.fitted]
    if machine.notes:
        parts.append("\n".join(["Notes:", *(wrapped(note, margin=2) for note in machine.notes)]))
    return "\n\n".join(parts) + "\n"


def _fitted_lines(fitted: FittedModel) -> Iterator[str]:
    yield wrapped(f"{fitted.title}: {fitted.model}")
    yield wrapped(fitted.best.curve.model.formula, margin=2)
    yield wrapped(f"Fitted to {describe_points(fitted.fitted_points)}.", margin=2)
    for sentence in (
        *_describe_error(fitted),
        *warnings(fitted),
        *_describe_factors(fitted),
        *describe_rivals(fitted),
        *_describe_left_out(fitted),
    ):
        yield wrapped(sentence, margin=2)
    yield ""
    yield from fitting_table(_COLUMNS, list(_parameter_lines(fitted)))


def describe_points(points: Sequence[Point]) -> str:
    """How many there are, and of which ranks and sizes."""
    ranks = sorted({point.world_size for point in points})
    per_node = sorted({point.ranks_per_node for point in points})
    sizes = sorted({point.size_bytes for point in points})
    listed = ", ".join(f"{n:,}" for n in ranks) + " ranks"
    if len(ranks) > MOST_NUMBERS:
        listed = f"{len(ranks)} numbers of ranks from {ranks[0]:,} to {ranks[-1]:,}"
    words = f"{format_count(len(points), 'measured time')}: {listed}"
    if ranks[-1] > per_node[-1]:
        words += f", {list_some([str(n) for n in per_node], 4)} on a host"
    if sizes[-1]:
        span = dict.fromkeys((format_bytes(sizes[0]), format_bytes(sizes[-1])))
        words += f", {' to '.join(span)}"
    return words


def _describe_error(fitted: FittedModel) -> Iterator[str]:
    about = "" if fitted.scatter < SMALLEST_PERCENT / 100 else "about "
    text = f"Measured times differ from the fit by {about}{percent(fitted.scatter)}"
    if fitted.best.cv_error is not None:
        yield f"{text}, and {without_them(fitted.best.cv_error)}."
    elif about:
        yield f"{text}."


def without_them(cv_error: float) -> str:
    """The error of times that were left out."""
    return f"by {percent(cv_error)} on average from fits that were made without them"


WARNING = "Warning: "
"""The beginning of a note that warns."""


def warnings(fitted: FittedModel) -> Iterator[str]:
    """That a fit is poor (UNTESTED_ERROR) or not tested, why, and what to measure; nothing for a
    good fit."""
    result = "Predicted times may be wrong by a factor of 2 or more."
    error = fitted.best.cv_error
    if error is None:
        times = format_count(len(fitted.fitted_points), "time")
        sizes = f"at least {FEWEST_TIMES} sizes, or " if fitted.largest_bytes else ""
        yield (
            f"{WARNING}{times} cannot show whether the model is right. {result} Measure {sizes}at "
            f"least {ENOUGH_RANKS} numbers of ranks."
        )
    elif max(MEAN_TO_SD * error, fitted.scatter) < UNTESTED_ERROR:
        return
    elif fitted.scatter > UNTESTED_ERROR / 2:
        yield (
            f"{WARNING}the fit is poor. {result} The measured times scatter: they do not grow "
            "evenly with size and ranks, as when other programs run at the same time. Measure "
            "again while nothing else runs, with a larger --budget."
        )
    else:
        yield (
            f"{WARNING}the fit is poor. {result} It changes much when some of the sizes or ranks "
            "are left out. Measure more of them, as far as you will ask for predictions, or leave "
            "out those that you do not need (--leave-out)."
        )


def _describe_factors(fitted: FittedModel) -> Iterator[str]:
    factors = [factor for _, factor in fitted.best.curve.size_factors]
    if factors:
        low, high = min(factors), max(factors)
        yield f"Sizes have factors of their own, the same for all ranks: {low:.2f} to {high:.2f}."


def describe_rivals(fitted: FittedModel) -> Iterator[str]:
    """What the measurements do not decide."""
    names = [each.curve.model.name for each in fitted.rivals]
    if not names:
        return
    best = fitted.best.curve.model.name
    if fitted.is_decided:
        yield f"The data cannot tell {best} from: {list_some(names, 8)}."
    else:
        yield (
            f"{len(fitted.world_sizes)} numbers of ranks cannot tell {best} from "
            f"{list_some(names, 8)}: intervals include all of them."
        )


def _describe_left_out(fitted: FittedModel) -> Iterator[str]:
    left_out = [point for point in fitted.points if point.is_left_out]
    if left_out:
        errors = sorted(abs(log(ratio(fitted, point))) for point in left_out)
        middle = errors[(len(errors) - 1) // 2]
        yield (
            f"The fit leaves out {describe_points(left_out)}. They differ from it by "
            f"{percent(middle)} (median), at most by {percent(errors[-1])}."
        )


def ratio(fitted: FittedModel, point: Point) -> float:
    """The measured time over the fitted one."""
    return point.time_s / max(fitted.best.curve.time(*point[:3]), SHORTEST_S)


def _parameter_lines(fitted: FittedModel) -> Iterator[Line]:
    largest = fitted.fitted_points[-1]
    curve = fitted.best.curve
    terms = curve.model.terms(*largest[:3])
    ends = parameter_intervals(fitted)
    rows = zip(PARAMETERS, curve.parameters, ends, terms, _SHOWN, strict=True)
    for parameter, value, (low, high), term, (unit, factor) in rows:
        is_unknown = parameter == BETA and fitted.smallest_bytes == fitted.largest_bytes
        if is_unknown or not (term or high):
            continue
        meaning = ""
        if parameter == BETA and value:
            meaning = f"{_digits(GBPS_OF_PS / (value * factor))} GB/s"
        cells = _with_interval(value * factor, low * factor, high * factor, unit)
        if fitted.is_decided or low == high:
            yield Line(parameter.name, *cells, meaning)
        else:
            yield Line(parameter.name, "", f"{cells[1]} {unit}")
    half = curve.half_size(*largest[:2])
    if half is not None:
        low, high = half_interval(fitted, *largest[:2])
        value_text = format_about(half) if fitted.is_decided else ""
        interval = f"{format_about(low)} … {format_about(high)}" if low < high else ""
        ranks = format_count(largest.world_size, "rank")
        yield Line("n-half", value_text, interval, f"with {ranks}")


def _with_interval(value: float, low: float, high: float, unit: str) -> tuple[str, str]:
    if not high:
        return "0", ""
    if high <= low:
        return f"{_digits(value)} {unit}", ""
    decimals = max(0, known_decimals(value or high, low, high))
    return f"{value:.{decimals}f} {unit}", f"{low:.{decimals}f} … {high:.{decimals}f}"


def _digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def percent(log_error: float) -> str:
    """A log error in percent of the time, or as a factor where it is large."""
    if log_error >= log(2):
        return "a factor of " + (f"{exp(log_error):.2g}" if log_error < log(20) else "20 or more")
    part = 100 * (exp(log_error) - 1)
    return f"{part:.2g} %" if part >= SMALLEST_PERCENT else f"less than {SMALLEST_PERCENT} %"

"""What was fitted, as text: the model of each operation, its parameters, and how well it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log
from typing import NamedTuple

from commbench.models.cost_models import ALPHA, BETA, FIXED, LATENCY_UNITS, ROOT, Parameter
from commbench.models.fit_data import FEWEST_SIZES_TO_FOLD
from commbench.models.machine import FittedModel, Machine, Piece, Point, time_of
from commbench.models.predict import MEAN_TO_SIGMA, POOR_ERROR, SHORTEST_S, half_size
from commbench.output.paragraphs import list_some, wrapped
from commbench.output.table import TableColumn, fitting_table
from commbench.units import format_about, format_bytes, format_count, known_decimals

_SHOWN: dict[Parameter, tuple[str, float]] = {
    FIXED: ("us", 1e6),
    ALPHA: ("us/step", 1e6),
    BETA: ("ps/B", 1e12),
    ROOT: ("us/sqrt(MiB)", 1e6 * 1024),
}
"""For each parameter the unit in which it is shown, and what its value is multiplied by."""
GBPS_OF_PS = 1e3
"""A byte in one picosecond is so many GB/s."""
LEVEL = 0.95
MOST_NUMBERS = 8
"""Numbers of ranks that are listed."""
SMALLEST_PERCENT = 0.1
CLOSE = 1e-4
"""Ends of an interval that differ by this part are the same: the fit ends before it is exact."""


class Line(NamedTuple):
    """A line of the table of parameters."""

    sizes: str
    parameter: str
    value: str
    interval: str
    meaning: str = ""


_COLUMNS = (
    TableColumn("sizes", lambda line: line.sizes, 5),
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
    yield wrapped(fitted.cost_model.formula, margin=2)
    yield wrapped(f"Fitted to {_describe_points(fitted.fitted_points)}.", margin=2)
    for sentence in (
        *_describe_error(fitted),
        *warnings(fitted),
        *_describe_factors(fitted),
        *_describe_rivals(fitted),
        *_describe_left_out(fitted),
    ):
        yield wrapped(sentence, margin=2)
    yield ""
    yield from fitting_table(_COLUMNS, list(_parameter_lines(fitted)))


def _describe_points(points: Sequence[Point]) -> str:
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
    if fitted.cv_error is None:
        if about:
            yield f"{text}."
        return
    text += f", and from fits that were made without them by {percent(fitted.cv_error)} on average."
    if fitted.drift:
        text += f" The error grows by {percent(fitted.drift)} with each doubling of the ranks."
    yield text


WARNING = "Warning: "
"""The beginning of a note that warns."""


def warnings(fitted: FittedModel) -> Iterator[str]:
    """That a fit is poor (POOR_ERROR) or not tested, why, and what to measure; nothing for a good
    fit."""
    result = "Predicted times may be wrong by a factor of 2 or more."
    if fitted.cv_error is None:
        times = format_count(len(fitted.fitted_points), "time")
        sizes = f"at least {FEWEST_SIZES_TO_FOLD} sizes, or " if fitted.largest_bytes else ""
        yield (
            f"{WARNING}{times} cannot show whether the model is right. {result} Measure {sizes}at "
            "least 3 numbers of ranks."
        )
    elif max(MEAN_TO_SIGMA * fitted.cv_error, fitted.scatter) < POOR_ERROR:
        return
    elif fitted.scatter > POOR_ERROR / 2:
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
    factors = [factor for _, factor in fitted.size_factors]
    if factors:
        low, high = min(factors), max(factors)
        yield f"Sizes have factors of their own, the same for all ranks: {low:.2f} to {high:.2f}."


def _describe_rivals(fitted: FittedModel) -> Iterator[str]:
    if not fitted.rivals:
        return
    if fitted.cv_error is None:
        names = list_some([rival.model for rival in fitted.rivals], 8)
        yield f"Not tested against: {names}."
        return
    names = list_some([f"{r.model} ({percent(r.cv_error)})" for r in fitted.rivals], 8)
    yield f"The data cannot tell it from: {names}."


def _describe_left_out(fitted: FittedModel) -> Iterator[str]:
    left_out = [point for point in fitted.points if point.is_left_out]
    if left_out:
        errors = sorted(abs(log(ratio(fitted, point))) for point in left_out)
        middle = errors[(len(errors) - 1) // 2]
        yield (
            f"The fit leaves out {_describe_points(left_out)}. They differ from it by "
            f"{percent(middle)} (median), at most by {percent(errors[-1])}."
        )


def ratio(fitted: FittedModel, point: Point) -> float:
    """The measured time over the fitted one."""
    fitted_s = time_of(fitted, point.world_size, point.ranks_per_node, point.size_bytes)
    return point.time_s / max(fitted_s, SHORTEST_S)


def _parameter_lines(fitted: FittedModel) -> Iterator[Line]:
    largest = fitted.fitted_points[-1]
    one_size = fitted.smallest_bytes == fitted.largest_bytes
    low = 0.0
    for index, piece in enumerate(fitted.pieces):
        sizes = _describe_sizes(low, piece.up_to_bytes)
        for number, parameter in enumerate(fitted.cost_model.parameters):
            if one_size and parameter.unit not in LATENCY_UNITS:
                continue
            yield _parameter_line(sizes, parameter, piece, number)
            sizes = ""
        half = half_line(fitted, index, largest)
        if half:
            yield half
        low = piece.up_to_bytes or low


def _describe_sizes(low: float, high: float | None) -> str:
    if high is None:
        return f"above {format_about(low)}" if low else "all"
    return f"to {format_about(high)}"


def _parameter_line(sizes: str, parameter: Parameter, piece: Piece, number: int) -> Line:
    unit, factor = _SHOWN[parameter]
    value = piece.parameters[number] * factor
    low, high = interval([sample[number] * factor for sample in piece.samples], value)
    meaning = ""
    if parameter == BETA and value:
        meaning = f"{_digits(GBPS_OF_PS / value)} GB/s"
    return Line(sizes, parameter.name, *_with_interval(value, low, high, unit), meaning)


def half_line(fitted: FittedModel, index: int, largest: Point) -> Line | None:
    """n-half of a piece for the most ranks that were measured; None where latency or bandwidth
    takes no time."""

    def half(parameters: tuple[float, ...]) -> float | None:
        alone = fitted._replace(pieces=(Piece(None, parameters),))
        return half_size(alone, largest.world_size, largest.ranks_per_node)

    piece = fitted.pieces[index]
    value = half(piece.parameters)
    if value is None:
        return None
    found = [size for sample in piece.samples if (size := half(sample)) is not None]
    low, high = interval(found, value)
    text = f"{format_about(low)} … {format_about(high)}" if high - low > CLOSE * high else ""
    ranks = format_count(largest.world_size, "rank")
    return Line("", "n-half", format_about(value), text, f"with {ranks}")


def interval(samples: Sequence[float], value: float) -> tuple[float, float]:
    """The middle LEVEL of the samples, widened to contain the value."""
    if not samples:
        return value, value
    ordered = sorted(samples)
    cut = round((1 - LEVEL) / 2 * (len(ordered) - 1))
    return min(value, ordered[cut]), max(value, ordered[-1 - cut])


def _with_interval(value: float, low: float, high: float, unit: str) -> tuple[str, str]:
    if not high:
        return "0", ""
    if high - low <= CLOSE * high:
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

"""UNITS: how a quantity is written in a cell of a table, and the columns that are made of them.

A quantity is a number in SI units, or an Estimate: then its interval decides the digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import starmap
from math import floor, inf, log10
from typing import Any, NamedTuple

from commbench import stats, units
from commbench.output.text import span
from commbench.stats import Estimate


class Unit(NamedTuple):
    """How a quantity is written."""

    write: Callable[..., str]
    """The text of a quantity."""
    is_left: bool = False
    """Whether cells are aligned on the left."""
    is_decimal: bool = False
    """Whether the numbers of a column are aligned at their decimal point."""


class Column(NamedTuple):
    """A column of a table whose rows are things of one kind."""

    heading: str
    """`\\n` makes two lines of it; a hyphen before it is that of a divided word."""
    of: Callable[[Any], Any]
    """The quantity of a row; None or an empty text for an empty cell."""
    unit: Unit
    importance: int = 9
    """Where a table is too wide, its columns of the lowest importance are left out, or wrapped."""
    is_wrapped: bool = False
    """Whether its cells take several lines, instead of being left out."""
    is_detail: bool = False
    """Whether a terminal shows it only where everything is asked for."""

    def cell(self, row: Any) -> str:
        """The text of a row's cell."""
        found = self.of(row)
        return "" if found is None or found == "" else self.unit.write(found)


def _estimate(found: Any) -> Estimate:
    return found if isinstance(found, Estimate) else Estimate(found)


def time_text(found: Any) -> str:
    """A time in seconds, with the digits that its interval supports: `280 us`."""
    return units.format_known_time(*_estimate(found))[0]


def time_interval_text(found: Any) -> str:
    """The interval of a time, `230 … 340 us`; empty where it is not known."""
    return units.format_known_time(*_estimate(found))[1]


def time_with_interval_text(found: Any) -> str:
    """A time and its interval in a sentence: `280 (230 … 340) us`."""
    return with_interval(time_text(found), time_interval_text(found))


def number_texts(found: Any, scale: float = 1.0) -> tuple[str, str]:
    """A number and its interval in a unit of this scale, with the digits that the interval
    supports: `2.9`, `2.3 … 3.4`; where the interval is not known, the number with three digits, or
    all before its point."""
    own = _estimate(found).map(lambda number: number / scale)
    if not own.has_interval:
        text = f"{own.value:#.3g}"
        return f"{own.value:.0f}" if "e+" in text else text.rstrip("."), ""
    decimals = units.known_decimals(own.value, *own.ends)
    ends = (_number(end, decimals) for end in own.ends)
    return units.format_decimals(own.value, decimals), " … ".join(ends)


def bandwidth_text(found: Any) -> str:
    """A bandwidth (bytes/s) in GB/s, with the digits that its interval supports; empty for None."""
    if found is None or not _estimate(found).has_interval:
        return units.format_GBps(found and _estimate(found).value)
    return number_texts(found, units.GB)[0]


def bandwidth_interval_text(found: Any) -> str:
    """The interval of a bandwidth in GB/s, `2.30 … 3.40`; empty where it is not known."""
    return "" if found is None else number_texts(found, units.GB)[1]


def bandwidth_with_interval_text(found: Any) -> str:
    """A bandwidth and its interval in a sentence: `2.9 (2.3 … 3.4) GB/s`."""
    return f"{bandwidth_text(found)}{in_brackets(bandwidth_interval_text(found))} GB/s"


TOO_NOISY = "too noisy"
TOO_NOISY_TO_COMPARE = f"{TOO_NOISY} to compare"
"""Instead of a ratio whose interval spans more than stats.MOST_SPREAD, and 1."""


def ratio_text(found: Any) -> str:
    """A ratio with the decimals of ratio_decimals; empty for None. Where the interval says
    nothing, TOO_NOISY, or only on which side of 1 it is: `over 2.1`."""
    if found is None:
        return ""
    if (own := _estimate(found)).is_unknown:
        low, high = own.ends
        return f"over {low:.3g}" if low > 1 else f"under {high:.3g}" if high < 1 else TOO_NOISY
    return _ratio_number(own.value, _ratio_decimals(own))


def ratios_text(found: Iterable[Any]) -> str:
    """From the smallest ratio to the largest, with as many decimals: `0.37 to 0.55`."""
    own = [*map(_estimate, found)]
    decimals = min(map(_ratio_decimals, own))
    return span(lambda value: _ratio_number(value, decimals), [each.value for each in own])


def ratio_interval_text(found: Any) -> str:
    """The interval of a ratio, `0.98 … 1.04`, with the digits of ratio_text; empty where there is
    none, or it says nothing."""
    if not isinstance(found, Estimate) or not found.has_interval or found.is_unknown:
        return ""
    decimals = _ratio_decimals(found)  # no end reads as 1, for that is what it is compared with
    own = ((end, max(decimals, 2 * (round(end, 1) == 1))) for end in found.ends)
    return " … ".join(starmap(_ratio_number, own))


def is_too_noisy(found: Any) -> bool:
    """Whether a ratio says nothing; then a sentence leaves it out."""
    return ratio_text(found) == TOO_NOISY


def in_brackets(interval: str) -> str:
    """The interval in a sentence, ` (0.98 … 1.04)`; empty where there is none."""
    return f" ({interval})" if interval else ""


def with_interval(text: str, interval: str) -> str:
    """A value and its interval in a sentence, with their unit once, at the end: `280 (230 … 340)
    us`; where the interval has two units, `280 us (0.8 ms … 9.7 s)`."""
    number, space, unit = text.partition(" ")
    low, _, high = interval.partition(" … ")
    if not (space and high.endswith(space + unit)) or " " in low:
        return text + in_brackets(interval)
    return f"{number} ({interval.removesuffix(space + unit)}) {unit}"


UNSURE, WIDE = "too noisy to rely on", 3.0
"""What a sentence says of a value whose interval spans more than this factor."""


def ratio_with_interval_text(found: Any) -> str:
    """A ratio and its interval before `times` in a sentence: `1.50 (1.47 … 1.53)`."""
    return "an unknown number of" if is_too_noisy(found) else _ratio_cell(found)


def takes_text(found: Any, what: str, other: str) -> str:
    """A ratio of times before a verdict: `a takes 1.50 (1.47 … 1.53) times as long as b: `; empty
    where it is too noisy."""
    text = f"{what} takes {ratio_with_interval_text(found)} times as long as {other}: "
    return "" if is_too_noisy(found) else text


def times_text(found: Any, how: str) -> str:
    """A ratio and its interval in a sentence: `1.50 (1.47 … 1.53) times as long`, or `too noisy to
    compare`."""
    noisy = TOO_NOISY_TO_COMPARE
    return noisy if is_too_noisy(found) else f"{ratio_with_interval_text(found)} times {how}"


def _ratio_cell(found: Any) -> str:
    return ratio_text(found) + in_brackets(ratio_interval_text(found))


def share_with_interval_text(found: Any, unit: str = " %") -> str:
    """A fraction in percent with its interval: `52 (48 … 55) %`; with decimals where the
    interval is narrower than a percent point, or next to 0, until its ends differ."""
    value, low, high = _estimate(found)
    if low is None or high is None:
        return units.format_share(value).replace(" %", unit)
    decimals = 1 - floor(log10(100 * high)) if 0 < high < 1e-3 else int(0 < high - low < 0.01)
    while decimals < 3 and low < high and round(100 * low, decimals) == round(100 * high, decimals):
        decimals += 1
    ends = (round(100 * number, decimals) + 0.0 for number in (value, low, high))
    shown = [f"{number:.{decimals}f}" for number in ends]
    return f"{shown[0]} ({shown[1]} … {shown[2]}){unit}"


def _ratio_decimals(found: Any) -> int:
    """Decimals of a ratio, and of the ends of its interval, from 1 to 10: one where the interval
    spans a factor of 2 or more, and 1 or more; three where it is narrower than 0.02; else two."""
    _, low, high = _estimate(found)
    if low is None or high is None:
        return 2
    return 1 if high >= max(2 * low, low + 1) else 3 if high - low < 0.02 else 2


def _ratio_number(number: float, decimals: int) -> str:
    """A ratio, or an end of its interval, with so many decimals from 1 to 10, one fewer from 10 on,
    and as many as two digits need below 0.1."""
    if 0 < number < 0.1:
        return _number(number, max(decimals, 1 - floor(log10(number))))
    return _number(number, decimals - (number >= 10))


def _number(number: float, decimals: int) -> str:
    """A number with so many decimals, at most one from 10 on, none from 100 on, and at least two
    below 1; with its first digit where it would read as 0."""
    if number == inf or number < 10.0**-decimals / 2:
        return f"{number:.1g}"
    few = max(decimals, 1 + (number < 1)) if number < 10 else min(decimals, int(number < 100))
    return units.format_decimals(number, few)


TEXT = Unit(str, is_left=True)
NUMBER = Unit(str)
BYTES = Unit(units.format_bytes)
TIME = Unit(time_text)
TIME_INTERVAL = Unit(time_interval_text)
TIME_WITH_INTERVAL = Unit(time_with_interval_text)
BANDWIDTH = Unit(bandwidth_text, is_decimal=True)
BANDWIDTH_INTERVAL = Unit(bandwidth_interval_text)
RATIO = Unit(ratio_text)
RATIO_INTERVAL = Unit(ratio_interval_text)
RATIO_WITH_INTERVAL = Unit(_ratio_cell)


LEAST_FACTOR = Unit(
    lambda more: (
        TOO_NOISY
        if (1 + more) ** 2 > stats.MOST_SPREAD
        else f"{_ratio_number(1 + more, 1 + (more < 1))} times"
    )
)
"""From which factor on a difference shows, given what it is more than 1; half an interval."""
SIZE = Column("size", lambda row: row.case.size_bytes if row.case.dtype else None, BYTES)
"""Of the case of a row; empty for an operation without data."""
SHARE = Unit(units.format_percent)
SHARE_WITH_INTERVAL = Unit(lambda found: share_with_interval_text(found, unit=""))
"""For a column whose heading has the unit."""
P_VALUE = Unit("{:.2g}".format)

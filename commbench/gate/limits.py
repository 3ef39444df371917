"""LIMITS: what a rule can demand of a row, and how the outcome is decided.

A row fails if its whole 95 % interval lies beyond the limit. It passes if the whole interval lies
within the limit. It is undecided if the limit lies inside the interval. Where no interval is known,
the median (or the mean that another tool printed) decides.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import units
from commbench.compare.comparison import ComparedRow
from commbench.output.paragraphs import seconds
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import judge


class Limit(NamedTuple):
    """One kind of demand."""

    name: str
    parse: Callable[[str], float]
    words: Callable[[float], str]
    """The demand in a few words."""
    show: Callable[[float, float], str]
    """A value of the quantity, in the unit and with the digits that suit another value."""
    sentence: str
    """What a row does whose value is put in: `takes {}`."""
    heading: str
    """The quantity, as the heading of a column."""
    estimate: Callable[[Any], Estimate | None]
    """The quantity of a row of results, or of a ComparedRow; None where it was not measured."""
    is_least: bool = False
    """The limit is the least value allowed, not the largest."""
    needs_baseline: bool = False
    """It limits rows of a comparison with a baseline."""
    measured: str = "{}"
    """A value that is put in, as it is called where no heading says what it is."""

    def is_beyond(self, limit: float, value: float) -> bool:
        """Whether a value breaks the limit."""
        return value < limit if self.is_least else value > limit

    def decide(self, limit: float, found: Estimate) -> str:
        """The outcome of a row."""
        return judge(found, limit, self.is_least)

    def excess(self, limit: float, found: Estimate) -> float:
        """How far a value is beyond the limit, as a factor: 1 at the limit, below 1 within it."""
        above, below = (limit, found.value) if self.is_least else (found.value, limit)
        return above / below if below else inf


def _slowdown(row: ComparedRow) -> Estimate | None:
    return row.ratio


LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        Limit(
            name="max_slowdown",
            parse=lambda text: 1 + units.parse_percentage(text),
            words=lambda limit: f"at most {(limit - 1) * 100:g} % slower than the baseline",
            show=lambda ratio, _: units.format_ratio(ratio),
            sentence="takes {} times as long as in the baseline",
            heading="ratio",
            estimate=_slowdown,
            needs_baseline=True,
            measured="{} times the baseline",
        ),
        Limit(
            name="min_busbw",
            parse=units.parse_bandwidth,
            words=lambda limit: f"bus bandwidth at least {units.format_GBps(limit)} GB/s",
            show=lambda busbw, like: (
                f"{units.format_GBps(busbw, units.choose_decimals([like]))} GB/s"
            ),
            sentence="has a bus bandwidth of {}",
            heading="bus bandwidth",
            estimate=attrgetter("busbw"),
            is_least=True,
        ),
        Limit(
            name="max_time",
            parse=units.parse_time,
            words=lambda limit: f"time at most {seconds(limit)}",
            show=units.format_time,
            sentence="takes {}",
            heading="time",
            estimate=attrgetter("time"),
        ),
    )
}
DEFAULT_SLOWDOWN = "10%"

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
from commbench.output.paragraphs import seconds
from commbench.stats.estimate import Estimate
from commbench.views.cells import (
    BANDWIDTH,
    BANDWIDTH_INTERVAL,
    RATIO,
    RATIO_INTERVAL,
    TIME,
    TIME_INTERVAL,
    Unit,
)


class Limit(NamedTuple):
    """One kind of demand."""

    name: str
    parse: Callable[[str], float]
    words: Callable[[float], str]
    """The demand in a few words."""
    unit: Unit
    """How the quantity is written."""
    interval: Unit
    """How its interval is written."""
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

    def excess(self, limit: float, found: Estimate) -> float:
        """How far a value is beyond the limit, as a factor: 1 at the limit, below 1 within it."""
        above, below = (limit, found.value) if self.is_least else (found.value, limit)
        return above / below if below else inf


LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        Limit(
            name="max_slowdown",
            parse=lambda text: 1 + units.parse_percentage(text),
            words=lambda limit: f"at most {(limit - 1) * 100:g} % slower than the baseline",
            unit=RATIO,
            interval=RATIO_INTERVAL,
            sentence="takes {} times as long as in the baseline",
            heading="ratio",
            estimate=attrgetter("ratio"),
            needs_baseline=True,
        ),
        Limit(
            name="min_busbw",
            parse=units.parse_bandwidth,
            words=lambda limit: f"bus bandwidth at least {units.format_GBps(limit)} GB/s",
            unit=BANDWIDTH,
            interval=BANDWIDTH_INTERVAL,
            sentence="has a bus bandwidth of {} GB/s",
            heading="busbw\nGB/s",
            estimate=attrgetter("busbw"),
            is_least=True,
        ),
        Limit(
            name="max_time",
            parse=units.parse_time,
            words=lambda limit: f"time at most {seconds(limit)}",
            unit=TIME,
            interval=TIME_INTERVAL,
            sentence="takes {}",
            heading="time",
            estimate=attrgetter("time"),
        ),
    )
}
DEFAULT_SLOWDOWN = "10%"

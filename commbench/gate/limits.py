"""LIMITS: what a rule can demand of a row, and how its outcome is decided.

A limit is broken only if the whole 95 % interval lies beyond it, and kept only if the whole
interval lies within; otherwise the row is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any, NamedTuple

from commbench.compare.ratio import SIGNIFICANCE
from commbench.units import (
    GB,
    MICRO,
    format_GBps,
    format_ratio,
    format_time,
    parse_bandwidth,
    parse_percentage,
    parse_time,
)

PASS, FAIL, UNDECIDED, SKIPPED = "pass", "fail", "undecided", "skipped"
OUTCOMES = (FAIL, UNDECIDED, PASS, SKIPPED)


class Estimate(NamedTuple):
    """A quantity with its 95 % interval; None where there is none."""

    value: float
    low: float | None
    high: float | None
    by_chance: bool = False
    """Whether a rank test says that it may be chance."""


class Limit(NamedTuple):
    """One kind of demand."""

    name: str
    parse: Callable[[str], float]
    words: Callable[[float], str]
    """What is demanded, in a few words."""
    show: Callable[[float, float], str]
    """A value of its quantity, in the unit and with the digits that suit another one."""
    measured: Callable[[Any], Estimate]
    """The quantity of one row of a frame."""
    is_least: bool = False
    """Values below are bad, not values above."""
    needs_baseline: bool = False
    """It is a demand on rows of a comparison with a baseline."""

    def outcome(self, limit: float, found: Estimate) -> tuple[str, str]:
        """What comes of a row, and why where the interval does not say it."""
        if found.low is None or found.high is None:
            return UNDECIDED, "no interval"
        worst, best = (found.low, found.high) if self.is_least else (found.high, found.low)
        within = (worst >= limit) if self.is_least else (worst <= limit)
        beyond = (best < limit) if self.is_least else (best > limit)
        if beyond and found.by_chance:
            return UNDECIDED, "may be chance"
        if beyond:
            return FAIL, ""
        return (PASS, "") if within else (UNDECIDED, "")


def _slowdown(row: Any) -> Estimate:
    return Estimate(
        row.ratio, _known(row.ratio_ci_low), _known(row.ratio_ci_high), row.p_value >= SIGNIFICANCE
    )


def _busbw(row: Any) -> Estimate:
    low, high = _known(row.busbw_ci_low_GBps, GB), _known(row.busbw_ci_high_GBps, GB)
    return Estimate(row.busbw_GBps * GB, low, high)


def _time(row: Any) -> Estimate:
    low, high = _known(row.time_ci_low_us, MICRO), _known(row.time_ci_high_us, MICRO)
    return Estimate(row.time_us * MICRO, low, high)


def _known(value: float, unit: float = 1.0) -> float | None:
    return None if isnan(value) else value * unit


def _busbw_words(limit: float) -> str:
    return f"bus bandwidth at least {format_GBps(limit)} GB/s"


LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        Limit(
            name="max_slowdown",
            parse=lambda text: 1 + parse_percentage(text),
            words=lambda limit: f"at most {(limit - 1) * 100:g} % slower than the baseline",
            show=lambda ratio, _: f"x{format_ratio(ratio)}",
            measured=_slowdown,
            needs_baseline=True,
        ),
        Limit(
            name="min_busbw",
            parse=parse_bandwidth,
            words=_busbw_words,
            show=lambda busbw, _: f"{format_GBps(busbw)} GB/s",
            measured=_busbw,
            is_least=True,
        ),
        Limit(
            name="max_time",
            parse=parse_time,
            words=lambda limit: f"time at most {format_time(limit)}",
            show=format_time,
            measured=_time,
        ),
    )
}
DEFAULT_SLOWDOWN = "10%"

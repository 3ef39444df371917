"""LIMITS: what a rule can demand of a row, and how the outcome is decided.

A row fails only if its whole 95 % interval lies beyond the limit, and passes only if the whole
interval lies within; otherwise it is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from commbench import units
from commbench.compare.comparison import ComparedRow
from commbench.compare.ratio import SIGNIFICANCE
from commbench.units import GB, MICRO

PASS, FAIL, UNDECIDED, SKIPPED = "pass", "fail", "undecided", "skipped"
OUTCOMES = (FAIL, UNDECIDED, PASS, SKIPPED)


class Estimate(NamedTuple):
    """A quantity with its 95 % interval; None where there is none."""

    value: float
    low: float | None
    high: float | None
    is_significant: bool = True
    """Whether the rank test rejects chance; True where there is no rank test."""


class Limit(NamedTuple):
    """One kind of demand."""

    name: str
    parse: Callable[[str], float]
    words: Callable[[float], str]
    """The demand in a few words."""
    show: Callable[[float, float], str]
    """A value of the quantity, in the unit and with the digits that suit another value."""
    estimate: Callable[[Any], Estimate | None]
    """The quantity of a row of results, or of a ComparedRow; None where it was not measured."""
    is_least: bool = False
    """The limit is the least value allowed, not the largest."""
    needs_baseline: bool = False
    """It limits rows of a comparison with a baseline."""

    def decide(self, limit: float, found: Estimate) -> tuple[str, str]:
        """The outcome of a row, and the reason where the interval alone does not give it."""
        if found.low is None or found.high is None:
            return UNDECIDED, "no interval"
        worst, best = (found.low, found.high) if self.is_least else (found.high, found.low)
        within = (worst >= limit) if self.is_least else (worst <= limit)
        beyond = (best < limit) if self.is_least else (best > limit)
        if beyond and not found.is_significant:
            return UNDECIDED, "may be chance"
        if beyond:
            return FAIL, ""
        return (PASS, "") if within else (UNDECIDED, "")


def _slowdown(row: ComparedRow) -> Estimate | None:
    if row.ratio is None:
        return None
    is_significant = row.p_value is None or row.p_value < SIGNIFICANCE
    return Estimate(row.ratio, row.ratio_ci_low, row.ratio_ci_high, is_significant)


def _scaled(
    value: float | None, low: float | None, high: float | None, unit: float
) -> Estimate | None:
    if value is None:
        return None
    return Estimate(
        value * unit, None if low is None else low * unit, None if high is None else high * unit
    )


LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        Limit(
            name="max_slowdown",
            parse=lambda text: 1 + units.parse_percentage(text),
            words=lambda limit: f"at most {(limit - 1) * 100:g} % slower than the baseline",
            show=lambda ratio, _: f"x{units.format_ratio(ratio)}",
            estimate=_slowdown,
            needs_baseline=True,
        ),
        Limit(
            name="min_busbw",
            parse=units.parse_bandwidth,
            words=lambda limit: f"bus bandwidth at least {units.format_GBps(limit)} GB/s",
            show=lambda busbw, _: f"{units.format_GBps(busbw)} GB/s",
            estimate=lambda row: _scaled(
                row.busbw_GBps, row.busbw_ci_low_GBps, row.busbw_ci_high_GBps, GB
            ),
            is_least=True,
        ),
        Limit(
            name="max_time",
            parse=units.parse_time,
            words=lambda limit: f"time at most {units.format_time(limit)}",
            show=units.format_time,
            estimate=lambda row: _scaled(
                row.time_us, row.time_ci_low_us, row.time_ci_high_us, MICRO
            ),
        ),
    )
}
DEFAULT_SLOWDOWN = "10%"

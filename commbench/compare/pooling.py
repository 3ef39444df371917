"""The pooled ratio of neighbouring sizes, by a meta-analysis of their log ratios.

The rows of a kind of case are cut into ranges of sizes where the ratio really changes. Within a
range the rows are pooled with random effects. With y the log ratio of a row and v its variance,
from its 95 % interval, w = 1/v, and all sums over the k rows:

    m     = sum(w y) / sum(w)                         Q = sum(w (y - m)^2)
    tau^2 = max(0, (Q - (k - 1)) / (sum(w) - sum(w^2) / sum(w)))
    u     = 1 / (v + tau^2)                           pooled = sum(u y) / sum(u)
    q     = max(1, sum(u (y - pooled)^2) / (k - 1))
    se^2  = q / sum(u)                                interval = pooled +- t(k - 1) se

tau^2: DerSimonian and Laird, Controlled Clinical Trials 7 (1986). The interval: Hartung and Knapp,
Statistics in Medicine 20 (2001), with q at least 1: Roever, Knapp and Friede, BMC Medical Research
Methodology 15 (2015). It grows where rows differ by more than their intervals explain.

Rows of one run are not independent: what differs between its launches, and the host meanwhile,
changes all of them. So the interval covers at least that of the launches: each side has, for each
launch, one value, the mean of the log medians of its rows with the weights above, and
statistics.launch_half_width of these values. It never reaches beyond the intervals of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, hypot, inf, log, sqrt
from operator import mul
from typing import Any, NamedTuple

from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow, samples_by_launch
from commbench.analysis.statistics import UNDISTURBED, Z, launch_half_width, launch_logs, student
from commbench.compare.host_speed import HostChange, allow_for
from commbench.compare.ratio import of_launches
from commbench.spec.backends import usual_launch_spread
from commbench.stats.estimate import Estimate, ratio
from commbench.stats.verdict import SAME, UNDECIDED, decide
from commbench.views.as_json import fields_of

_CHANGE_SIGMA = 3.0
"""By how many standard errors a row has to differ from its range to begin a new one."""
_CHANGE_SHARE = 0.25
"""And by which share of the log ratio of the range: 1.5 and 1.6 times are one range."""
_LEAST_VARIANCE = 1e-8
"""Of a log ratio: one of 0.01 %. Samples that are all equal have none."""


class PooledRatio(NamedTuple):
    """Neighbouring sizes of one kind of case, and what they say together."""

    kind: str
    low_bytes: int
    high_bytes: int
    rows: int
    """How many rows were pooled."""
    ratio: Estimate
    """Time of B over time of A; without an interval where no row has one."""
    verdict: str
    """`slower`, `faster`, `same` or `undecided`."""
    undisturbed: Estimate | None
    """The same of undisturbed calls, the 5th percentile of the times; None where no row has it."""
    undisturbed_verdict: str
    """Empty where there is no ratio."""
    undisturbed_rows: int
    """How many rows have a ratio of undisturbed calls."""
    undisturbed_low_bytes: int
    """The smallest and the largest size of these rows; 0 where there is none."""
    undisturbed_high_bytes: int

    @property
    def smallest_difference(self) -> float | None:
        """The smallest difference that could have been shown: 0.04 for 4 %; None: not known."""
        low, high = self.ratio.ends
        return sqrt(high / low) - 1 if self.ratio.has_interval and low else None

    def as_json(self) -> dict[str, Any]:
        """Its fields, and the smallest difference."""
        return fields_of(self, "smallest_difference")


class PooledRow(NamedTuple):
    """One row of a comparison, with what pooling needs of it."""

    row: Any
    """The ComparedRow."""
    samples_a: ResultRow | None = None
    samples_b: ResultRow | None = None
    """Its sides with their samples; None where a run has none."""


class _LogRatio(NamedTuple):
    """The log ratio of a row, its variance, and the ends of its interval."""

    value: float
    variance: float
    low: float
    high: float
    of: PooledRow


class _Range(NamedTuple):
    """Neighbouring rows, those of them that have an interval, and their pooled ratio."""

    rows: list[PooledRow]
    estimates: list[_LogRatio]
    ratio: Estimate
    verdict: str


def pool_kind(
    kind: str,
    rows: Sequence[PooledRow],
    tolerance: float,
    host_changes: Sequence[HostChange] = (),
) -> list[PooledRatio]:
    """The ranges of one kind of case, whose rows are in the order of their sizes and have ratios.

    A new range begins where the ratio changes by more than the tolerance, by more than a quarter of
    the range's log ratio, and by more than three standard errors. Neighbouring ranges that are both
    `same`, or both `undecided`, become one.
    """
    ranges: list[_Range] = []
    for cut, estimates in _cut(rows, log(1 + tolerance)):
        found = _make_range(cut, estimates, tolerance, host_changes)
        while ranges and found.verdict == ranges[-1].verdict and found.verdict in (SAME, UNDECIDED):
            before = ranges.pop()
            found = _make_range(
                before.rows + found.rows,
                before.estimates + found.estimates,
                tolerance,
                host_changes,
            )
        ranges.append(found)
    return [_pooled_ratio(kind, found, tolerance, host_changes) for found in ranges]


def _cut(
    rows: Sequence[PooledRow], margin: float
) -> Iterator[tuple[list[PooledRow], list[_LogRatio]]]:
    current: list[PooledRow] = []
    estimates: list[_LogRatio] = []
    weights = mean = noise = 0.0
    for of in rows:
        row = of.row
        found = _estimate(of, "time")
        value, variance = (found.value, found.variance) if found else (log(row.ratio.value), 0.0)
        change = abs(value - mean)
        if (
            current
            and change > max(margin, _CHANGE_SHARE * abs(mean))
            and change > _CHANGE_SIGMA * sqrt(variance + noise / weights**2)
        ):
            yield current, estimates
            current, estimates, weights, mean, noise = [], [], 0.0, 0.0, 0.0
        current.append(of)
        if found:
            estimates.append(found)
        # With the margin in it, no single precise row decides what the mean of the range is.
        weight = 1 / (variance + margin * margin + _LEAST_VARIANCE)
        weights += weight
        noise += weight * weight * variance
        mean += (value - mean) * weight / weights
    if current:
        yield current, estimates


def _estimate(of: PooledRow, times: str) -> _LogRatio | None:
    """The ratio of a row's times, `time` or `undisturbed`; None where it has no finite interval."""
    found = ratio(getattr(of.row.b, times), getattr(of.row.a, times))
    if not found or not found.has_interval or not found.ends[0] or found.ends[1] == inf:
        return None
    value, low, high = map(log, (found.value, *found.ends))
    deviation = (high - low) / (2 * Z)
    return _LogRatio(value, deviation * deviation + _LEAST_VARIANCE, low, high, of)


def _make_range(
    rows: list[PooledRow],
    estimates: list[_LogRatio],
    tolerance: float,
    host_changes: Sequence[HostChange],
) -> _Range:
    if estimates:
        found = _pool(estimates, 0.5, host_changes)
    else:
        found = Estimate(exp(sum(log(of.row.ratio.value) for of in rows) / len(rows)))
    return _Range(rows, estimates, found, decide(found, tolerance))


def _pooled_ratio(
    kind: str, found: _Range, tolerance: float, host_changes: Sequence[HostChange]
) -> PooledRatio:
    estimates = [
        estimate
        for of in found.rows
        if of.row.a.undisturbed
        and of.row.b.undisturbed
        and (estimate := _estimate(of, "undisturbed"))
    ]
    undisturbed = _pool(estimates, UNDISTURBED, host_changes) if estimates else None
    sizes = [named_bytes(of.row.a) for of in found.rows]
    known = [named_bytes(estimate.of.row.a) for estimate in estimates] or [0]
    return PooledRatio(
        kind, sizes[0], sizes[-1], len(sizes), found.ratio, found.verdict, undisturbed,
        decide(undisturbed, tolerance) if estimates else "",
        len(estimates), known[0], known[-1],
    )  # fmt: skip


def _pool(
    estimates: Sequence[_LogRatio], fraction: float, host_changes: Sequence[HostChange]
) -> Estimate:
    """The pooled ratio of one or more rows. `fraction` is the quantile of the times that the ratios
    compare."""
    sides = estimates[0].of.row.a, estimates[0].of.row.b
    launches, backend = [row.launches for row in sides], sides[0].backend
    if len(estimates) == 1:
        (only,) = estimates
        pooled = Estimate(exp(only.value), exp(only.low), exp(only.high))
    else:
        pooled = _pool_several(estimates, fraction)
    return allow_for(host_changes, of_launches(pooled, launches, backend)) or pooled


def _pool_several(estimates: Sequence[_LogRatio], fraction: float) -> Estimate:
    variances = [e.variance for e in estimates]
    weights, mean, half = random_effects([e.value for e in estimates], variances)
    half = max(half, hypot(*(_half_of_launches(estimates, weights, fraction, s) for s in "ab")))
    low, high = min(e.low for e in estimates), max(e.high for e in estimates)
    return Estimate(exp(mean), exp(max(mean - half, low)), exp(min(mean + half, high)))


def random_effects(
    values: Sequence[float], variances: Sequence[float]
) -> tuple[list[float], float, float]:
    """The weights (their sum is 1), the pooled value and half its 95 % interval, of two or more
    values with their variances, by the formulas above."""
    degrees = len(values) - 1
    weights = [1 / variance for variance in variances]
    total = sum(weights)
    mean = sum(map(mul, weights, values)) / total
    heterogeneity = sum(w * (y - mean) ** 2 for w, y in zip(weights, values, strict=True))
    spread = total - sum(w * w for w in weights) / total
    tau2 = max(0.0, (heterogeneity - degrees) / spread) if spread > 0 else 0.0
    if tau2:
        weights = [1 / (variance + tau2) for variance in variances]
        total = sum(weights)
        mean = sum(map(mul, weights, values)) / total
        heterogeneity = sum(w * (y - mean) ** 2 for w, y in zip(weights, values, strict=True))
    half = student(degrees) * sqrt(max(1.0, heterogeneity / degrees) / total)
    return [weight / total for weight in weights], mean, half


def _half_of_launches(
    estimates: Sequence[_LogRatio], weights: Sequence[float], fraction: float, side: str
) -> float:
    """Half the interval of the pooled log time of one side, `a` or `b`, by its launches; 0 where it
    has only one, or a row lacks one."""
    samples = [getattr(estimate.of, f"samples_{side}") for estimate in estimates]
    if not all(samples):
        return 0.0
    logs = [launch_logs(samples_by_launch(row.measurement), fraction) for row in samples]
    number = min(map(len, logs))
    if number < 2 or number < max(map(len, logs)):  # a row lacks a launch
        return 0.0
    means = [sum(map(mul, weights, values)) for values in zip(*logs, strict=True)]
    return launch_half_width(means, usual_launch_spread(samples[0].header.plan.backend))

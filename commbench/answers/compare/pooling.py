"""The pooled ratio of neighbouring sizes: a meta-analysis of their log ratios with random effects.

docs/statistics.md has the formulas and their sources: "The ratio of a range", "A row with its
range". The rows of a kind of case are cut into ranges of sizes where the ratio really changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, hypot, inf, log, sqrt
from operator import mul, sub
from statistics import geometric_mean
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import statistics
from commbench.analysis.diagnostics import WAITED
from commbench.analysis.row_names import format_range, named_bytes
from commbench.analysis.statistics import Z
from commbench.answers.compare import ratio as of_rows
from commbench.answers.compare.ratio import NO_EFFECT, ComparedRow, HostEffect
from commbench.stats import Estimate
from commbench.views import cells
from commbench.views.formats import fields_of

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
    waited: int = 0
    """In how many of the rows ranks waited for a core too long: then it is undecided."""
    by_size: tuple[Estimate, ...] = ()
    """The smallest and the largest ratio of its rows, where these differ by more than chance and
    the tolerance; else empty."""
    number: int = 1
    """Among how many ranges, or rows where it is one, it is `slower` or `faster` with 95 % for all
    of them together."""
    degrees: int = 0
    """Of freedom of the interval, by its first row."""
    host: HostEffect = NO_EFFECT
    """For which both ratios are widened."""
    times_as_wide: float = 1.0
    """See ComparedRow.times_as_wide."""
    tolerance: float = 0.0
    """A difference up to this part counts as none."""
    between: float = 0.0
    """tau^2: the variance between the log ratios of its rows that their intervals do not
    explain."""

    def __repr__(self) -> str:
        sizes = format_range(self.low_bytes, self.high_bytes)
        ratio = cells.times_text(self.ratio, "as long")
        return f"<PooledRatio: {self.kind} {sizes}: {ratio}, {self.verdict}>"

    def covers(self, row: ComparedRow) -> bool:
        """Whether it is of a row."""
        return row.kind == self.kind and self.low_bytes <= named_bytes(row.a) <= self.high_bytes

    def ratio_of(self, row: ComparedRow) -> Estimate | None:
        """The ratio of one of its rows as far as the others tell it, too (empirical Bayes);
        None where an interval is not known."""
        found, plain = _log_ratio(row), self.host.without(self.ratio)
        if not (found and plain and plain.has_interval and plain.ends[0]):
            return None
        mean, low, high = map(log, (plain.value, *plain.ends))
        part = self.between / (self.between + found.variance)
        value, own = mean + part * (found.value - mean), Z * sqrt(part * found.variance)
        ends = value - hypot(mean - low, own), value + hypot(high - mean, own)
        return row.host.widen(Estimate(*map(exp, (value, *ends))))

    def foresee(self, row: ComparedRow, number: int, found: Estimate | None = None) -> float | None:
        """The smallest difference with so many launches of each run and twice as many turns, when
        the host is alike; `row` is one of its rows, and `found` a ratio of that one, by default
        that of the range. None where a run has only one launch, or that is not known, or 2 or
        more."""
        found = found or self.ratio
        low, high = (self.host.without(found) or found).ends
        shown = sqrt(high / low) - 1 if found.has_interval and low and high < inf else 0.0
        launches = row.a.launches, row.b.launches
        if not (shown and row.runs and min(each or 0 for each in launches) > 1):
            return None
        turns = [run.turns for run in row.runs]
        now = hypot(*map(statistics.run_factor, launches, turns))
        then = sqrt(2) * statistics.run_factor(number, 2 * min(turns))
        within = float((1 + shown) ** (then / now)) - 1
        return within if within < 2 else None

    @property
    def reason(self) -> str:
        """Why it is undecided although the interval may decide; empty for others."""
        if self.verdict != stats.UNDECIDED:
            return ""
        if self.waited:
            which = f" in {self.waited} of {self.rows} rows" * (self.waited < self.rows)
            return f"{WAITED}{which}"
        if self.without_host:
            alone = cells.ratio_with_interval_text(self.host.without(self.ratio))
            return of_rows.HOST.format(f"{alone}: {self.without_host}")
        if self.ratio.is_unknown:
            return cells.TOO_NOISY_TO_COMPARE
        alone = stats.decide(self.ratio, self.tolerance)
        if alone == stats.UNDECIDED:
            return ""
        if self._replace(number=1)._hold(self.ratio, alone) != alone:
            return of_rows.APART
        which = f"all {self.number} {'rows' if self.rows == 1 else 'ranges'} together"
        return f"{alone} by itself, but not with 95 % for {which}"

    @property
    def without_host(self) -> str:
        """The verdict without what the host may cause, where it is undecided for that alone."""
        if self.waited or self.verdict != stats.decide(self.ratio, self.tolerance):
            return ""
        plain = self.host.without(self.ratio) or self.ratio
        alone = self._replace(host=NO_EFFECT)._hold(plain, stats.decide(plain, self.tolerance))
        return alone * (alone != stats.UNDECIDED == self.verdict)

    def held(self, found: Estimate, times_as_wide: float) -> Estimate:
        """A ratio with the interval that holds for all of `number` together."""
        return self.host.hold(found, self.number, self.degrees, times_as_wide)

    def _hold(self, found: Estimate | None, verdict: str) -> str:
        """A verdict on one of its ratios; UNDECIDED in place of `slower` and `faster` where that
        does not hold for all of `number` together."""
        if not found or verdict not in stats.CHANGED:
            return verdict
        holds = stats.decide(self.held(found, self.times_as_wide), self.tolerance) == verdict
        return verdict if holds else stats.UNDECIDED

    def among(self, number: int) -> PooledRatio:
        """It as one of so many ranges (or rows, where it is one)."""
        own = self._replace(number=number)
        calm = own._hold(self.undisturbed, self.undisturbed_verdict)
        return own._replace(verdict=own._hold(self.ratio, self.verdict), undisturbed_verdict=calm)

    @property
    def smallest_difference(self) -> float | None:
        """By which part B must differ from A to be `slower` or `faster`, if the interval that
        decides stays as wide on the side of 1; 0.09 for 9 %. None: not known, or ranks waited."""
        found = self.held(self.ratio, self.times_as_wide)
        low, high = found.ends
        if self.waited or not found.has_interval or not low or high == inf:
            return None
        width = found.value / low if found.value > 1 else high / found.value
        return width * (1 + self.tolerance) - 1

    def as_json(self) -> dict[str, Any]:
        """Its fields, and the smallest difference."""
        return fields_of(
            self, "without_host", "smallest_difference", "reason",
            without=("number", "degrees", "host", "times_as_wide", "tolerance", "between"),
        )  # fmt: skip


class _LogRatio(NamedTuple):
    """The log ratio of a row, its variance, and the ends of its interval."""

    value: float
    variance: float
    low: float
    high: float
    row: ComparedRow


def pool_kind(rows: Sequence[ComparedRow], tolerance: float) -> list[PooledRatio]:
    """The ranges of one kind of case, whose rows are in the order of their sizes and have ratios.

    A new range begins where the ratio changes by more than the tolerance, by more than a quarter of
    the range's log ratio, and by more than three standard errors (of launches in turns, those of
    the differences by turn); and where rows in which ranks waited for a core begin or end.
    Neighbouring ranges that are both `same`, or both `undecided`, become one.
    """
    ranges: list[list[ComparedRow]] = []
    found: list[PooledRatio] = []
    for within in _cut(rows, log(1 + tolerance)):
        pooled = _pool(within, tolerance)
        while found and found[-1].verdict == pooled.verdict in (stats.SAME, stats.UNDECIDED):
            found.pop()
            within = ranges.pop() + within
            pooled = _pool(within, tolerance)
        ranges.append(within)
        found.append(pooled)
    return found


def _cut(rows: Sequence[ComparedRow], margin: float) -> Iterator[list[ComparedRow]]:
    current: list[ComparedRow] = []
    turns: list[float] = []
    weights = mean = noise = 0.0
    for row in rows:
        found = _log_ratio(row)
        value, variance = log(row.ratio.value) if row.ratio else 0.0, 0.0
        if found:
            value, variance = found.value, found.variance
        change, own = abs(value - mean), of_rows.logs_in_turns(row)
        unsure = _CHANGE_SIGMA * sqrt(variance + noise / weights**2 if weights else 0.0)
        if own and turns:  # what a turn does to all rows does not hide that they differ
            unsure = _unsure_in_turns(row, [*map(sub, own, turns)])
        is_other = change > max(margin, _CHANGE_SHARE * abs(mean), unsure)
        if current and (is_other or bool(row.waited) != bool(current[-1].waited)):
            yield current
            current, turns, weights, mean, noise = [], [], 0.0, 0.0, 0.0
        current.append(row)
        # With the margin in it, no single precise row decides what the mean of the range is.
        weight = 1 / (variance + margin * margin + _LEAST_VARIANCE)
        weights += weight
        noise += weight * weight * variance
        part = weight / weights
        mean += (value - mean) * part
        is_known = own and (turns or len(current) == 1)
        before = turns or own
        turns = [t + (o - t) * part for t, o in zip(before, own, strict=True)] if is_known else []
    if current:
        yield current


def _unsure_in_turns(row: ComparedRow, differences: Sequence[float]) -> float:
    """_CHANGE_SIGMA standard errors of the mean of these differences of two log ratios by turn, by
    Student's t."""
    usual = of_rows.usual_ratio_spread(row)
    half = statistics.launch_half_width(differences, usual, of_rows.UNUSUAL_RATIO)
    quantiles = (stats.student_quantile(sigma, row.degrees) for sigma in (_CHANGE_SIGMA, Z))
    return half * next(quantiles) / next(quantiles)


def _log_ratio(row: ComparedRow, fraction: float = 0.5) -> _LogRatio | None:
    """The ratio of this quantile of a row's times; None where it has no finite interval."""
    found = of_rows.find_ratio(row, fraction)
    if not found or not found.has_interval or not found.ends[0] or found.ends[1] == inf:
        return None
    value, low, high = map(log, (found.value, *found.ends))
    deviation = (high - low) / (2 * Z)
    return _LogRatio(value, deviation * deviation + _LEAST_VARIANCE, low, high, row)


def _pool(rows: Sequence[ComparedRow], tolerance: float) -> PooledRatio:
    """One range of sizes."""
    known, calm = (
        [found for row in rows if (found := _log_ratio(row, fraction))]
        for fraction in (0.5, statistics.UNDISTURBED)
    )
    effects = [row.host for row in rows]
    host = HostEffect(*map(geometric_mean, zip(*effects, strict=True)))
    pooled, between = _pool_logs(known, 0.5, host)
    if pooled is None:  # no row has an interval
        pooled = Estimate(exp(sum(log(row.ratio.value) for row in rows if row.ratio) / len(rows)))
    undisturbed, _ = _pool_logs(calm, statistics.UNDISTURBED, host)
    sizes = [named_bytes(row.a) for row in rows]
    waited = sum(bool(row.waited) for row in rows)
    judged = (None, None) if waited else (pooled, undisturbed)
    verdict, of_undisturbed = (stats.decide(each, tolerance) for each in judged)
    return PooledRatio(
        rows[0].kind, sizes[0], sizes[-1], len(sizes), pooled, verdict,
        undisturbed, of_undisturbed if undisturbed else "", waited,
        () if waited else _by_size(known, between, tolerance),
        degrees=rows[0].degrees, host=host, times_as_wide=rows[0].times_as_wide,
        tolerance=tolerance, between=between,
    )  # fmt: skip


def _by_size(found: Sequence[_LogRatio], between: float, tolerance: float) -> tuple[Estimate, ...]:
    """The smallest and the largest ratio of rows that differ by more than the tolerance, and than
    chance (Cochran's Q, 5 %; by `between`, which is random_effects' tau^2)."""
    ratios = sorted(each.row.ratio for each in found if each.row.ratio)
    weights = [1 / each.variance for each in found]
    heterogeneity = between * (sum(weights) - sum(map(mul, weights, weights)) / sum(weights or [1]))
    limit = statistics.chi_square_limit(len(found) - 1) - (len(found) - 1) if found[1:] else inf
    if heterogeneity <= limit or ratios[-1].value <= (1 + tolerance) * ratios[0].value:
        return ()
    return ratios[0], ratios[-1]


def by_size_text(found: Iterable[PooledRatio]) -> str:
    """`, 2.7 to 3.3 times by size`; empty where the rows of these ranges may be alike."""
    ends = [end for each in found for end in each.by_size]
    return f", {cells.ratios_text(ends)} times by size" if ends else ""


def _pool_logs(
    found: Sequence[_LogRatio], fraction: float, host: HostEffect
) -> tuple[Estimate | None, float]:
    """The pooled ratio of some rows, None of no row, and tau^2. `fraction` is the quantile of the
    times that the ratios compare."""
    if not found:
        return None, 0.0
    rows, weights, between = [each.row for each in found], [1.0], 0.0
    value, low, high = found[0].value, found[0].low, found[0].high
    if len(found) > 1:
        logs, variances = [e.value for e in found], [e.variance for e in found]
        weights, value, half, between = random_effects(logs, variances)
    together = of_rows.pair_launches(rows, fraction, weights)
    halves = [of_rows.half_of_launches(rows, n, fraction, weights) for n in (0, 1) if not together]
    if len(found) > 1:
        of_launches = [each for each, _ in halves]
        if together:
            of_launches = [log(together.ends[1] / together.value)]
        half = max(half, hypot(*of_launches))
        low = max(value - half, min(e.low for e in found))
        high = min(value + half, max(e.high for e in found))
    pooled = Estimate(exp(value), exp(low), exp(high))
    return of_rows.widen(rows, pooled, fraction, host, halves), between


def random_effects(
    values: Sequence[float], variances: Sequence[float]
) -> tuple[list[float], float, float, float]:
    """The weights (their sum is 1), the pooled value, half its 95 % interval, and tau^2, of two or
    more values with their variances."""

    def pool(between: float) -> tuple[list[float], float, float, float]:
        """The weights, their sum, the weighted mean, and the sum of squares about it."""
        weights = [1 / (variance + between) for variance in variances]
        mean = sum(map(mul, weights, values)) / sum(weights)
        squares = sum(w * (y - mean) ** 2 for w, y in zip(weights, values, strict=True))
        return weights, sum(weights), mean, squares

    weights, total, _, heterogeneity = pool(0.0)
    degrees, spread = len(values) - 1, total - sum(w * w for w in weights) / total
    tau2 = max(0.0, (heterogeneity - degrees) / spread) if spread > 0 else 0.0
    weights, total, mean, heterogeneity = pool(tau2)
    half = stats.student_quantile(Z, degrees) * sqrt(max(1.0, heterogeneity / degrees) / total)
    return [weight / total for weight in weights], mean, half, tau2

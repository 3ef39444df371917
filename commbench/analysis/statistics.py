"""Statistics of durations: median and 5th percentile with their intervals, other percentiles.

The intervals assume no distribution. No sample is ever dropped. A percentile is given only when
there are enough samples.

Samples come in batches: a few iterations of one case in a row, then other cases. Samples of one
batch are correlated because the machine was in one state, so they carry less information than as
many independent samples. Surveys call this cluster sampling. The intervals are widened by its
design effect.

A run has several launches: what differs between them (placement, connections, memory, the state of
the host) is fresh in each. So each launch weighs the same, however many samples it has: in the same
time a slow one has fewer. An interval covers at least the spread of their medians, of a single
launch the usual one; see launch_half_width.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from math import ceil, comb, exp, floor, hypot, log, sqrt
from statistics import stdev
from typing import NamedTuple, TypeAlias

from commbench.results.samples import MANY, concatenated, in_order, lengths_of
from commbench.stats import Estimate, known, np, student_quantile

CONFIDENCE = 0.95
Z = 1.959963984540054
"""The two-sided 95 % factor of the normal distribution."""
_EXACT_UP_TO = 1000
_ROUNDING = 1e-6
"""Of sums of weights, in samples."""
ENOUGH = 6
"""Samples of which the median has an interval by their order."""
ENOUGH_FOR_P95 = 59
"""The largest of n samples exceeds the 95th percentile with probability 1 - 0.95^n >= 0.95."""
UNDISTURBED = 0.05
"""The quantile that is the time of undisturbed calls: the 5th percentile; see docs/measuring.md."""
ENOUGH_FOR_P5 = 72
"""The smallest of n samples exceeds the 5th percentile with probability 0.95^n <= 0.025, so that
its interval has a lower end."""
ENOUGH_FOR_P99 = 299
_MEAN_RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326}
"""The mean range of so few normal values over their standard deviation (Tippett 1925)."""
UNTESTED = 2.0
"""The factor within which the time of a single sample is taken to be."""
PRIOR_DEGREES = 4
"""Degrees of freedom that the usual spread of launches counts for, beside those of a run."""

UNUSUAL = 2.6
"""Launches whose spread is so many times the usual one contradict it (5 %, F test)."""


RUNS = 1.0
"""The variance between runs over that between launches of a run. In five series of 10 to 14 equal
runs (gloo, hosts with 2 cores) it was 0.1, 0.8, 0.8, 1.1 and 1.3 for the mean of all sizes."""


class Summary(NamedTuple):
    """The distribution of a case's durations, in seconds; None where samples do not suffice."""

    iterations: int
    median: float
    low: float | None = None
    high: float | None = None
    design_effect: float = 1.0
    """The variance of the median over that of independent samples (Kish); 1 where batches agree."""
    minimum: float | None = None
    mean: float | None = None
    p95: float | None = None
    p99: float | None = None
    maximum: float | None = None
    p5: Estimate | None = None
    """The time of undisturbed calls."""

    @property
    def estimate(self) -> Estimate:
        """The median with its interval."""
        return Estimate(self.median, self.low, self.high)

    @property
    def precision(self) -> float | None:
        """Half the width of the interval over the median: 0.02 means known within 2 %."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * self.median) if self.median else 0.0


Samples: TypeAlias = Sequence[Sequence[float]]
"""Samples by batch or by launch."""


class _Samples(NamedTuple):
    """The samples of some batches, sorted; those of each launch have the same weight together."""

    batches: Samples
    launches: Samples
    ordered: Sequence[float]
    number: float
    """How many samples of equal weight would tell as much (Kish)."""
    reached: Sequence[float] = ()
    """The weight of each and of all before it, `number` at the last; empty where each weighs 1."""

    def at(self, weight: float) -> float:
        """The first sample at which so much weight is reached."""
        if self.reached:
            index = bisect_left(self.reached, weight - _ROUNDING)
        else:
            index = ceil(weight - _ROUNDING) - 1
        return self.ordered[max(0, min(index, len(self.ordered) - 1))]

    def quantile(self, fraction: float) -> float:
        """The nearest-rank quantile; the median lies between the middle two."""
        below = self.number * fraction
        if fraction != 0.5:
            return self.at(below)
        return (self.at(below) + self.at(below + 2 * _ROUNDING)) / 2

    def interval(
        self, fraction: float, usual_spread: float
    ) -> tuple[float | None, float | None, float]:
        """The 95 % interval of a quantile, and its design effect. It is widened to that of the
        quantiles of several launches, around it and around their mean, and goes beyond the samples
        only as far as launches that agree would need."""
        ordered, quantile = self.ordered, self.quantile(fraction)
        effect = design_effect(self.batches, quantile, fraction)
        if quantile_ranks(len(ordered), fraction) is None:
            return None, None, effect
        ranks = quantile_ranks(round(self.number), fraction) or (0, self.number)
        middle, factor = self.number * fraction + 0.5, sqrt(effect)
        first, last = (middle + (rank - middle) * factor if effect > 1 else rank for rank in ranks)
        low, high = self.at(floor(first)), self.at(ceil(last))
        logs = launch_logs(self.launches, fraction)
        if len(logs) < 2 and not (logs and usual_spread):
            return low, high, effect
        wide = exp(launch_half_width(logs, usual_spread))
        least = exp(launch_half_width([0.0] * len(logs), usual_spread))
        # The median of well-separated launches may be far from their mean; p5 is of the fastest.
        fast, slow = sorted((quantile, exp(sum(logs) / len(logs))))
        down = max(fast / wide, min(ordered[0], fast / least))
        up = min(slow * wide, max(ordered[-1], slow * least))
        return min(low, down), max(high, up), effect


def _weigh(batches: Samples, launches: Samples) -> _Samples:
    """The samples of some batches, which are those of the launches, each sorted."""
    launches = [*filter(len, launches)]
    lengths = [*map(len, launches)]
    if len({*lengths}) < 2:
        ordered = launches[0] if len(launches) == 1 else in_order(batches)
        return _Samples(batches, launches, ordered, len(ordered))
    number = len(lengths) ** 2 / sum(1 / length for length in lengths)
    weights = [number / len(lengths) / length for length in lengths]
    if sum(lengths) < MANY:
        pairs = sorted((x, w) for own, w in zip(launches, weights, strict=True) for x in own)
        reached = [*accumulate(w for _, w in pairs)]
        return _Samples(batches, launches, [x for x, _ in pairs], number, reached)
    whole = np.concatenate([np.asarray(own) for own in launches])
    order = whole.argsort(kind="stable")
    reached = np.repeat(weights, lengths)[order].cumsum().tolist()
    return _Samples(batches, launches, whole[order].tolist(), number, reached)


def summarise(batches: Samples, launches: Samples = (), usual_spread: float = 0.0) -> Summary:
    """The summary of at least one sample; samples come in batches, one sequence each.

    `launches` are the same samples by launch, sorted; `usual_spread` is that of launch_half_width.
    """
    found = _weigh(batches, launches)
    ordered = found.ordered

    def quantile(fraction: float, enough: int) -> float | None:
        return found.quantile(fraction) if round(found.number) >= enough else None

    low, high, effect = found.interval(0.5, usual_spread)
    fast = quantile(UNDISTURBED, ENOUGH_FOR_P5)
    ends = () if fast is None else found.interval(UNDISTURBED, usual_spread)[:2]
    means = [sum(own) / len(own) for own in filter(len, launches or (ordered,))]
    return Summary(
        len(ordered), found.quantile(0.5), low, high, effect, ordered[0], sum(means) / len(means),
        quantile(0.95, ENOUGH_FOR_P95), quantile(0.99, ENOUGH_FOR_P99), ordered[-1],
        known(fast, *ends),
    )  # fmt: skip


def median_ci(batches: Samples) -> tuple[float | None, float | None]:
    """The 95 % confidence interval of the median of samples of one launch that come in batches.

    Where batches agree, it is bounded by the order statistics of quantile_ranks. Where they differ
    by more than chance, these move apart by the root of the design effect, at most to the extremes
    (Woodruff, JASA 47, 1952). (None, None) below 6 samples.
    """
    return _weigh(batches, ()).interval(0.5, usual_spread=0.0)[:2]


def launch_half_width(
    logs: Sequence[float], usual_spread: float, unusual: float = UNUSUAL
) -> float:
    """Half the 95 % interval of the mean of values of launches, given as logarithms. One is enough
    where the usual spread is known.

    With k launches of standard deviation s, and `usual_spread` (s0) that of the log medians of
    other launches on such ranks (plan.backends), which counts as much as d0 = 4 degrees of freedom:

        s'^2 = (d0 s0^2 + (k - 1) s^2) / (d0 + k - 1)      half = t(d0 + k - 1) s' / sqrt(k)

    The moderated t of Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004).
    Where s is above `unusual` times s0, the launches contradict the usual spread, and d0 = 0.
    """
    number, squares = len(logs), _squares(logs)
    prior = prior_degrees(logs, usual_spread, unusual)
    variance = (prior * usual_spread**2 + squares) / (prior + number - 1)
    return launch_factor(number, prior) * sqrt(variance)


def prior_degrees(logs: Sequence[float], usual_spread: float, unusual: float = UNUSUAL) -> int:
    """The degrees of freedom d0 that the usual spread of launches counts as for these."""
    is_usual = _squares(logs) <= (len(logs) - 1) * (unusual * usual_spread) ** 2
    return PRIOR_DEGREES if usual_spread and is_usual else 0


def _squares(logs: Sequence[float]) -> float:
    mean = sum(logs) / len(logs)
    return sum((value - mean) ** 2 for value in logs)


def spread_of(launches: Iterable[Sequence[float]]) -> float:
    """The usual standard deviation of launches by the rows of one run, each given as logarithms:
    the median, by the median of chi-square (Wilson and Hilferty). 0 where all are single."""
    found = sorted(
        stdev(logs) / (1 - 2 / (9 * (len(logs) - 1))) ** 1.5 for logs in launches if len(logs) > 1
    )
    return median(found) if found else 0.0


def launch_factor(number: int, prior: int = PRIOR_DEGREES) -> float:
    """Half the 95 % interval of the mean of so many launches over their standard deviation."""
    return student_quantile(Z, prior + number - 1) / sqrt(number)


def run_factor(number: int, turns: int = 1) -> float:
    """The same for the mean of all runs of so many launches, which were measured in so many turns,
    each at another time, with the standard deviation of launches within a turn."""
    return launch_factor(number) * sqrt(1 + RUNS * number / turns)


def run_half_width(half: float, number: int, turns: int) -> float:
    """Half the 95 % interval of what differs between runs and not between launches, where that of
    the mean of launches is given. Launches of several turns differ in part for the same cause."""
    turns = min(turns, number)
    between = 1 - (number / turns - 1) / (number - 1) if turns > 1 else 0.0
    return half * sqrt((1 + RUNS * number / turns) / (1 + RUNS * between) - 1)


def launch_degrees(*launches: int | None) -> int:
    """The degrees of freedom of launch_half_width; of a ratio of two sides the sum, as of sides
    whose launches differ by as much (Welch and Satterthwaite). 0 where their number is not known:
    then the interval is not that of launches."""
    return sum(PRIOR_DEGREES + (number or 0) - 1 for number in launches) * all(launches)


def cover_launches(
    time: Estimate, launches: int, spread: float, iterations: int = 0,
    least: float | None = None, most: float | None = None,
) -> Estimate:  # fmt: skip
    """The time of a row; where samples are too few for an interval, with that of Student's t, with
    the deviation by their range, and of the usual spread of launches. Without launches, as in the
    files of other tools, the time as it is."""
    if time.has_interval or not (launches and time.value):
        return time
    ranges, factor = _MEAN_RANGES.get(iterations), UNTESTED
    if ranges and least and most:
        own = student_quantile(Z, iterations - 1) * log(most / least) / ranges / sqrt(iterations)
        usual = launch_half_width([0.0] * launches, spread) if spread else 0.0
        factor = exp(hypot(usual, own))
    return Estimate(time.value, time.value / factor, time.value * factor)


def launch_logs(launches: Samples, fraction: float = 0.5) -> list[float]:
    """The logarithm of a quantile of each launch, whose samples are sorted; empty where one has no
    time above 0."""
    quantiles = [_weigh((), [own]).quantile(fraction) for own in filter(len, launches)]
    return [*map(log, quantiles)] if all(value > 0 for value in quantiles) else []


def design_effect(batches: Samples, quantile: float, fraction: float = 0.5) -> float:
    """Kish's design effect of the share of samples below a quantile; `fraction` is 0.5 for the
    median.

    It is the variance of that share between batches over the variance that independent samples
    would have. It is 1 where the difference may be chance (5 % chi-square test), and for one batch.
    """
    lengths = lengths_of(batches)
    if not all(lengths):
        batches, lengths = [*filter(len, batches)], [*filter(None, lengths)]
    degrees = len(lengths) - 1
    if degrees < 1:
        return 1.0
    below = _count_below(batches, lengths, quantile)
    # `fraction`, unless many samples equal the quantile, as with a coarse clock.
    share = sum(found for _, found in below) / sum(number for number, _ in below)
    variance = fraction * (1 - fraction)
    scatter = sum((found - number * share) ** 2 / number for number, found in below) / variance
    if scatter <= chi_square_limit(degrees):
        return 1.0
    return max(1.0, scatter / degrees * (student_quantile(Z, degrees) / Z) ** 2)


def _count_below(batches: Samples, lengths: Sequence[int], limit: float) -> list[tuple[int, float]]:
    """For each batch its length, and how many are below a limit; one that equals it counts half."""
    if sum(lengths) < MANY:
        ordered = [*map(sorted, batches)]
        found = [(bisect_left(b, limit) + bisect_right(b, limit)) / 2 for b in ordered]
    else:
        whole, starts = np.frombuffer(concatenated(batches)), [0, *accumulate(lengths[:-1])]
        twice = (whole < limit).astype("int8") + (whole <= limit)
        found = (np.add.reduceat(twice, starts, dtype=int) / 2).tolist()
    return [*zip(lengths, found, strict=True)]


def chi_square_limit(degrees: int) -> float:
    """The 95th percentile of chi-square (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + 1.6448536 * sqrt(spread)) ** 3)


def median(ordered: Sequence[float]) -> float:
    """The median of sorted samples; between the middle two where their number is even."""
    middle, odd = divmod(len(ordered), 2)
    return ordered[middle] if odd else (ordered[middle - 1] + ordered[middle]) / 2


def medians(batches: Samples) -> list[float]:
    """The median of each batch that has samples."""
    lengths = lengths_of(batches)
    if sum(lengths) < MANY or len({*lengths}) > 1:
        return [median(sorted(batch)) for batch in batches if len(batch)]
    ordered = np.sort(np.frombuffer(concatenated(batches)).reshape(len(lengths), -1))
    found: list[float] = (
        (ordered[:, (lengths[0] - 1) // 2] + ordered[:, lengths[0] // 2]) / 2
    ).tolist()
    return found


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile: the smallest sample that `fraction` of all do not exceed."""
    return ordered[max(0, ceil(fraction * len(ordered) - 1e-9) - 1)]


@cache
def quantile_ranks(number: int, fraction: float = 0.5) -> tuple[int, int] | None:
    """The order statistics (1-based) that bound a quantile with 95 % confidence; None where the
    samples are too few.

    Distribution-free, with at most 2.5 % beyond either end: the largest j with
    P(Binomial(n, p) <= j-1) <= 2.5 %, and the smallest k with P(Binomial(n, p) >= k) <= 2.5 %; the
    normal approximation above 1000. Le Boudec, Performance Evaluation (2010), Thm 2.1.
    """
    tail = (1 - CONFIDENCE) / 2
    spread = sqrt(number * fraction * (1 - fraction))
    if number > _EXACT_UP_TO:
        reach = Z * spread
        return floor(number * fraction - reach), ceil(1 + number * fraction + reach)
    first = max(0, floor(number * fraction - 6 * spread))  # below it, P < 1e-9
    low, below = 0, 0.0
    probability = comb(number, first) * fraction**first * (1 - fraction) ** (number - first)
    for rank in range(first + 1, number + 1):  # `below` becomes P(Binomial <= rank - 1)
        below += probability
        probability *= (number - rank + 1) / rank * fraction / (1 - fraction)
        if below <= tail:
            low = rank
        if below >= 1 - tail:
            return (low, rank) if low else None
    return None

"""The usual level of the times of a row, and how far a new run may be from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import exp, hypot, log, prod, sqrt
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from commbench.analysis.statistics import Z, median
from commbench.answers.history import steps
from commbench.answers.history.cuts import FEWEST, SHORTEST
from commbench.answers.history.noise import (
    JUMP,
    LEAST_NOISE,
    Noise,
    estimate_noise,
    median_deviation,
)
from commbench.answers.history.steps import TOLERANCE, Fit, find_steps
from commbench.answers.history.two_levels import ALPHA, slow_end
from commbench.stats import Array, Estimate, around, factor_of_all, np, student_quantile

SURE = 0.25
"""The weight of a run whose interval is at most about as wide as runs differ; of a level of few
runs others do not count."""


class Level(NamedTuple):
    """The usual level of a row, and how far a new run may be from it. Deviations are standard ones,
    of logarithms."""

    time: float
    """Seconds."""
    places: frozenset[int]
    """Those of the runs on which it rests, without those that are far from the others."""
    number: int
    """With these."""
    deviation: float
    """Of single runs, in which what differs within and between runs is."""
    degrees: int
    """Of freedom, of this deviation."""
    usual: float
    """The deviation of a usual run by its own interval; it is a part of `deviation`."""
    end: int
    """The place of the first run of what is slower now: of the last segment, or after the level."""
    after: int
    """The place of the first run after the level."""
    known: int
    """The runs of which the deviation is known, those of other levels among them, and without the
    outliers."""
    outliers: int
    """How many more there are."""
    slowest: float
    """Seconds that a usual run may take, since earlier ones did: see slow_by_chance."""
    slowest_at: int
    """The place of that run."""
    slowest_run: int = 0
    """Its number in a history: see after_runs."""
    is_close: bool = False
    """Whether its runs, on CPUs, are of fewer than SURE_TURNS times that are TURN_S apart: so they
    do not show how the host changes."""
    earlier: int = 0
    """How many runs count before the new one."""
    own: float = 0.0
    """By how much more the interval of the new run is wider than usual: the square root of the
    difference of the variances."""

    @property
    def runs(self) -> int:
        """On how many runs it rests."""
        return len(self.places)

    def after_runs(self, times: Sequence[Estimate], numbers: Sequence[int]) -> Level:
        """The level for a run after these, which have these numbers in a history. No chance makes
        the SHORTEST-th run in a row slow, so then none before counts as slow by chance."""
        slowest = self.slowest
        if min(time.value for time in times[1 - SHORTEST :]) > self.slow_s:
            slowest = self.time
        return self._replace(slowest=slowest, slowest_run=numbers[self.slowest_at])

    def for_run(self, time: Estimate | None) -> Level:
        """The level for a new run with this time."""
        own = steps.own_deviation(time) if time else 0.0
        return self._replace(own=sqrt(max(0.0, own**2 - self.usual**2)))

    @property
    def mean(self) -> Estimate:
        """The level with its 95 % interval."""
        half = student_quantile(Z, self.degrees) * self.deviation / sqrt(self.runs)
        return around(log(self.time), half).map(exp)

    @property
    def prediction(self) -> Estimate:
        """The level with the interval in which 95 % of single runs are."""
        return around(log(self.time), self.half()).map(exp)

    def half(self, more: int = 0) -> float:
        """Half the 95 % prediction interval of a usual run, by so many more runs."""
        factor = student_quantile(Z, self.degrees + more)
        return factor * self.deviation * sqrt(1 + 1 / (self.runs + more))

    def half_of_mean(self, number: int) -> float:
        """Half the 95 % interval of the mean of so many later runs over the level."""
        factor = student_quantile(Z, self.degrees)
        return factor * self.deviation * sqrt(1 / number + 1 / self.runs)

    @property
    def slow_run_ratio(self) -> float | None:
        """How many times as long as usual that run took, where it is beyond the interval of noise:
        it alone makes the interval wider."""
        found = self.slowest / self.time
        return found if found > exp(self.half()) else None

    def as_json(self) -> dict[str, Any]:
        """The level and the interval of single runs, in seconds, and on what they rest."""
        low, high = self.prediction.ends
        return {
            "time_s": self.time, "runs_low_s": low, "runs_high_s": high, "runs": self.runs,
            "earlier": self.earlier, "noise": self.deviation,
        }  # fmt: skip

    @property
    def counted(self) -> str:
        """How many of the earlier runs it rests on, where others do not count: `5 of 7`."""
        return f"{self.runs} of {self.earlier}" * (self.runs < self.earlier)

    @property
    def slow_s(self) -> float:
        """The time above which a run is slower than noise explains."""
        return self.time * exp(max(self.half(), log(1 + TOLERANCE)))

    @property
    def full_half(self) -> float:
        """Half the 95 % prediction interval of the new run."""
        return hypot(self.half(), Z * self.own)


def find_level(times: Sequence[Estimate], accepted: int = 0, alpha: float = ALPHA) -> Level:
    """The usual level of these times, of at least FEWEST runs, for a usual run. It is that of the
    segment with the lowest level, of those since the place `accepted`, without the last times that
    are slower than the others, or as fast as before a slowdown again."""
    fit, back = fit_with_return(times, alpha, TOLERANCE, accepted)
    if back:
        return _of_earlier(times, back, accepted, alpha)
    logs = [log(each.value) for each in times]
    noise = estimate_noise(np.array(logs))
    weights = steps.weights_of(times, noise)
    segments, used = [], {}
    for part in fit.segments:
        own = [*range(part.first, part.last + 1)]
        is_short = not part.level or part.number < steps.STEADY
        if is_short:
            sure = [n for n in own if weights[n] >= SURE]
            own = sure if len(sure) >= SHORTEST else own
        own_logs = [logs[n] for n in own]
        near = near_of_few(own_logs, noise) if is_short else near_of_many(own_logs)
        if is_short or len(near) < len(own):
            own = [own[n] for n in near]
            part = part._replace(level=Estimate(exp(fmean(logs[n] for n in own))))
        segments.append(part)
        used[part.first] = own
    deviation, degrees, outliers = single_points(logs, segments, weights)
    known = len(logs) - len(outliers)
    base = _fast_parts([part for part in segments if part.first >= accepted], deviation)
    slow = _slow_end(logs, base[-1], noise.deviation) if base[-1] == segments[-1] else 0
    if slow:
        return _of_earlier(times, slow, accepted, alpha)
    number, counted = sum(part.number for part in base), [n for p in base for n in used[p.first]]
    if number >= FEWEST:  # so many say by themselves how much runs differ
        places = [n for part in base for n in range(part.first, part.last + 1)]
        fast = [logs[n] for n in places]
        deviation, degrees, found = single_points(fast, base, weights[places])
        outliers, known = {places[n] for n in found}, len(fast) - len(found)
    counted = [n for n in counted if n not in outliers]
    levels = [log(p.level.value) for p in base if p.level for _ in used[p.first]]
    time = exp(fmean(levels))
    rest = zip(_residuals(logs, segments), weights, strict=True)
    at, above = slow_by_chance([each if weight >= SURE else 0.0 for each, weight in rest])
    slowest = time * exp(above)
    usual = median(sorted(map(steps.own_deviation, times)))
    end = base[-1].last + 1 if base[-1] == segments[-1] else segments[-1].first
    return Level(
        time, frozenset(counted), number, deviation, degrees, usual, end, base[-1].last + 1, known,
        len(outliers), slowest, at, earlier=len(times),
    )  # fmt: skip


def _of_earlier(times: Sequence[Estimate], last: int, accepted: int, alpha: float) -> Level:
    """The level without so many of the last times."""
    return find_level(times[:-last], accepted, alpha)._replace(earlier=len(times))


def fit_with_return(
    times: Sequence[Estimate], alpha: float, tolerance: float, begin: int = 0
) -> tuple[Fit, int]:
    """The steps of a series, in which a level begins at the place `begin` in any case; and how many
    of its last points are as fast again as before the last step, where that is a slowdown which
    shows without them."""
    most = min(SHORTEST - 1, len(times) - begin - 1) if len(times) > FEWEST else 0
    for back in range(most, 0, -1):
        before, last = times[-back - 1].value, max(time.value for time in times[-back:])
        if before < (1 + tolerance) * last:
            continue  # the one before them is as fast: no need to try
        fit = find_steps(times[:-back], alpha, tolerance, begin)
        levels = [part.level.value for part in fit.segments[-2:] if part.level]
        step = fit.steps[-1] if fit.steps else None
        is_slowdown = step and step.ratio.value > 1 and step.is_sure
        if is_slowdown and len(levels) == 2 and last < sqrt(prod(levels)) < before:
            return fit, back
    return find_steps(times, alpha, tolerance, begin), 0


def _slow_end(logs: Sequence[float], last: steps.Segment, noise: float) -> int:
    """How many of the last runs are slower than the others of the last segment: by a t test, or few
    that are far above its level. Of few runs, fast ones widen the scatter, which hides them."""
    assert last.level
    most = log(last.level.value) + JUMP * max(noise, log(1 + TOLERANCE))
    above = len([*takewhile(lambda each: each > most, reversed(logs))])
    return slow_end(logs[last.first :], TOLERANCE)[0] or above * (above < SHORTEST)


def _residuals(logs: Sequence[float], segments: Sequence[steps.Segment]) -> Iterator[float]:
    """Of each time that over the level of its segment; logarithms. All levels are known."""
    levels = [log(part.level.value) for part in segments if part.level for _ in range(part.number)]
    return (own - level for own, level in zip(logs, levels, strict=True))


def slow_by_chance(logs: Sequence[float]) -> tuple[int, float]:
    """The largest of these logarithms of times over their levels, with its place, of those after
    which a run was as fast as usual again; of many, that which 5 % of them exceed. A run that is
    not slower than that may be slow by the same chance."""
    ended = max((n for n, own in enumerate(logs) if own <= 0), default=0)
    return sorted(enumerate(logs[: ended + 1]), key=itemgetter(1))[-1 - (ended + 2) // 20]


def _fast_parts(segments: Sequence[steps.Segment], deviation: float) -> list[steps.Segment]:
    """The segment with the lowest level, and those whose level is as low but for noise: a slowdown
    between them has ended."""
    low = min(segments, key=attrgetter("level.value"))

    def is_low(part: steps.Segment) -> bool:
        assert part.level and low.level
        error = deviation * sqrt(1 / part.number + 1 / low.number)
        return log(part.level.value / low.level.value) <= max(Z * error, log(1 + TOLERANCE))

    return [*filter(is_low, segments)]


def near_of_few(logs: Sequence[float], noise: Noise) -> list[int]:
    """Of the logarithms of a level of fewer than STEADY runs, one of which may be an outlier, the
    places of those that are near their median; of an even number, near the lower one of the middle
    two. Few points that happen to agree make no others far: half of the noise of the series is
    usual."""
    middle = sorted(logs)[(len(logs) - 1) // 2]
    away = sorted(abs(each - middle) for each in logs)
    least = max(noise.deviation / 2, LEAST_NOISE)
    usual = min(noise.deviation, max(2 * away[len(away) // 2], least))
    return [n for n, each in enumerate(logs) if abs(each - middle) <= JUMP * usual]


def near_of_many(logs: Sequence[float]) -> list[int]:
    """Of many logarithms the places of those that are not very far from their median; of all where
    more than one in five is far, and so is usual."""
    away = np.array(logs) - np.median(logs)
    most = 2 * JUMP * max(median_deviation(away), LEAST_NOISE)
    near = [n for n, distance in enumerate(away) if abs(distance) <= most]
    return near if 5 * len(near) >= 4 * len(logs) else [*range(len(logs))]


def single_points(
    logs: Sequence[float], segments: Sequence[steps.Segment], weights: Array
) -> tuple[float, int, set[int]]:
    """The standard deviation of single points, with these weights, about the levels of their
    segments, of all of which the level is known, its degrees of freedom, and the outliers. These do
    not count: at least one point, and one in ten, may be one, at 5 % for all points together, by
    Student's t of the others; one in five where they are twice as far."""
    both = zip(_residuals(logs, segments), weights, strict=True)
    squares = [weight * residual**2 for residual, weight in both]
    order = sorted(range(len(squares)), key=squares.__getitem__)
    number, lost = len(squares), len(segments)
    z, usual = factor_of_all(number), max(1, number // 10)
    for out in range(max(usual, number // 5), -1, -1):
        degrees = number - lost - out
        variance = sum(squares[n] for n in order[: number - out]) / degrees
        most = student_quantile(z, degrees) * (1 + (out > usual))
        if out and squares[order[-out]] > variance * most**2:
            break
    return max(sqrt(variance), LEAST_NOISE), degrees, {*order[number - out :]}

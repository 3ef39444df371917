"""What a soak found, of its journal alone: drift, two speeds, slow minutes, wrong elements by rank.

The value of a case in a cycle is the median of its batch. A case drifts by the ratio of the last
tenth of its cycles over the first. A minute is slow where the median over its batches, each over
the median of its case, is above 1 by more than the tolerance and the noise: the scatter of batches,
and that of the minutes.

    P(a fault of 1 call in 1,000 is seen) = 1 - (1 - 1/1000)^checks
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain, pairwise
from math import exp, hypot, log, sqrt
from statistics import NormalDist, linear_regression
from typing import Any, NamedTuple

from commbench.analysis.diagnostic_figures import BIMODAL, find_two_groups
from commbench.analysis.statistics import Z, median, medians, summarise
from commbench.errors import GATE_FAILS, UsageError, WrongResultError
from commbench.plan.case import Case
from commbench.results.records import Check, WrongElement
from commbench.results.samples import samples_of, soaked_s, without_samples
from commbench.results.schema import Measurement, Run
from commbench.stats import SLOWER, TOLERANCE, Estimate, decide, ratio, student_quantile
from commbench.views.formats import Result, fields_of

RARE = 1e-3
"""The share of wrong calls for which the probability of seeing one is given."""
TENTH, FEWEST = 10, 6
"""The ends that are compared have a tenth of the cycles, and at least FEWEST, which an interval of
their median needs."""
MINUTE_S = 60.0
FEWEST_MINUTES = 5
"""With fewer, nobody knows how much minutes usually differ."""
MAD, MEDIAN_SPREAD = 1.4826, 1.2533
"""Of normal values: their standard deviation over the median absolute deviation; and the standard
deviation of their median times the root of their number, over theirs."""


class Point(NamedTuple):
    """A case in one cycle."""

    cycle: int
    start_s: float
    time_s: float
    """The median of its batch."""


class SoakRow(NamedTuple):
    """A case in all cycles."""

    case: Case
    points: tuple[Point, ...]
    time_s: float
    """The median over the cycles."""
    first_s: Estimate | None
    """The median of the first tenth of the cycles; None for too few cycles."""
    last_s: Estimate | None
    drift: Estimate | None
    """The last tenth over the first."""
    drift_verdict: str
    """One of stats.verdict: `slower` is a drift beyond the tolerance."""
    two_speeds_s: tuple[float, ...]
    """The means of two separate groups of cycles; empty where there are none."""
    checked_calls: int
    wrong: int
    """Elements, over all ranks."""

    def as_json(self) -> dict[str, Any]:
        """The fields; of each cycle the number, the start and the time."""
        return {"case": self.case.name} | fields_of(self, without=("case",))


class SlowMinute(NamedTuple):
    """A minute in which calls took longer than usually."""

    start_s: float
    """Since the soak began."""
    clock: str
    """When it began: UTC, ISO 8601."""
    ratio: Estimate
    """Of the times in it over the usual ones."""
    batches: int


class WrongRank(NamedTuple):
    """A rank that had wrong elements of a case."""

    case: str
    rank: int
    host: str
    elements: int
    checks: int
    """In how many of its checks, each of one or several calls."""
    clock: str
    """When the first one was found: UTC, ISO 8601."""
    first: WrongElement | None
    """The first one, where it is of this rank."""


@dataclass(frozen=True, repr=False)
class SoakResult(Result, view="answers.soak.document", rows="rows"):
    """What a soak found until it ended."""

    name: str
    elapsed_s: float
    planned_s: float | None
    cycles: int
    """Those that have begun."""
    rows: tuple[SoakRow, ...]
    slow_minutes: tuple[SlowMinute, ...]
    wrong: tuple[WrongRank, ...]
    quorum: str
    """Which ranks are wrong and which right, in a clause; empty where all are right."""
    checked_calls: int
    check_share: float
    """The part of the time that checks took."""
    seen_probability: float
    """That checks show a fault of 1 call in 1,000."""
    tolerance: float
    incomplete: str
    """Why the soak ended early; empty where it did not."""

    @property
    def drifting(self) -> list[SoakRow]:
        """The cases that became slower by more than the tolerance, the worst first."""
        found = [row for row in self.rows if row.drift and row.drift_verdict == SLOWER]
        return sorted(found, key=lambda row: -row.drift.value if row.drift else 0.0)

    @property
    def exit_code(self) -> int:
        """5 for wrong results, 1 for drift or slow minutes, else 0."""
        if self.wrong:
            return WrongResultError.exit_code
        return GATE_FAILS if self.drifting or self.slow_minutes else 0

    def as_json(self) -> dict[str, Any]:
        """The fields, and the exit code."""
        return fields_of(self, "exit_code")


def analyse_soak(run: Run, tolerance: float = TOLERANCE) -> SoakResult:
    """What a soak found. Raises UsageError for another run."""
    if not run.header.plan.is_soak:
        raise UsageError(f"{run.name} is no soak", "`commbench soak --for 1h` makes one")
    checks: defaultdict[int, list[Check]] = defaultdict(list)
    for check in run.checks:
        checks[check.case].append(check)
    found = (m for m in run.measurements if m.batches)
    rows = tuple(_analyse_case(m, checks[m.case.index], tolerance) for m in found)
    elapsed_s, calls = soaked_s(run), sum(check.calls for check in run.checks)
    return SoakResult(
        run.name, elapsed_s, run.header.plan.soak_s,
        max((row.points[-1].cycle for row in rows), default=0), rows,
        find_slow_minutes(run, rows, tolerance), tuple(_find_wrong(run)), find_quorum(run), calls,
        sum(check.elapsed_s for check in run.checks) / (elapsed_s or 1.0), 1 - (1 - RARE) ** calls,
        tolerance, run.incomplete,
    )  # fmt: skip


def _analyse_case(found: Measurement, checks: Sequence[Check], tolerance: float) -> SoakRow:
    batches, values = without_samples(found.batches), medians(samples_of(found.batches))
    points = tuple(
        Point(batch.cycle, batch.start_s or 0.0, value)
        for batch, value in zip(batches, values, strict=True)
    )
    first, last, drift = find_drift(values)
    groups = find_two_groups(sorted(values))
    is_double = groups is not None and groups.separation > BIMODAL
    return SoakRow(
        found.case, points, median(sorted(values)), first, last, drift, decide(drift, tolerance),
        (groups.low_s, groups.high_s) if groups and is_double else (),
        sum(check.calls for check in checks), sum(sum(check.wrong_elements) for check in checks),
    )  # fmt: skip


def find_drift(values: Sequence[float]) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """The median of the first and of the last tenth of the values of cycles, and the ratio of the
    last over the first; Nones for too few.

    Values of neighbouring cycles are alike, so the interval covers at least what tenths differ by:
    t sqrt(2) s, where s is the scatter of their log medians around a straight line.
    """
    number = max(FEWEST, len(values) // TENTH)
    if len(values) < 2 * number:
        return None, None, None
    ends = values[:number], values[-number:]
    first, last = (summarise([[value] for value in part]).estimate for part in ends)
    found = ratio(last, first)
    if found is None or len(values) < 2 * TENTH or min(values) <= 0:
        return first, last, found
    edges = [len(values) * n // TENTH for n in range(TENTH + 1)]
    logs = [log(median(sorted(values[a:b]))) for a, b in pairwise(edges)]
    slope, start = linear_regression(range(TENTH), logs)
    squares = sum((y - start - slope * x) ** 2 for x, y in enumerate(logs))
    factor = exp(student_quantile(Z, TENTH - 2) * sqrt(2 * squares / (TENTH - 2)))
    low, high = found.ends
    widened = min(low, found.value / factor), max(high, found.value * factor)
    return first, last, Estimate(found.value, *widened)


def find_slow_minutes(
    run: Run, rows: Sequence[SoakRow], tolerance: float
) -> tuple[SlowMinute, ...]:
    """The minutes that were slower than others by more than the tolerance and the noise; none in a
    soak of few minutes."""
    by_minute: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        for point in row.points:
            if point.time_s > 0 and row.time_s > 0:
                minute = int(point.start_s / MINUTE_S)
                by_minute[minute].append(log(point.time_s / row.time_s))
    if len(by_minute) < FEWEST_MINUTES:
        return ()
    batch_spread = _spread([*chain.from_iterable(by_minute.values())])
    middles = {minute: median(sorted(logs)) for minute, logs in by_minute.items()}
    usual, spread = median(sorted(middles.values())), _spread([*middles.values()])
    factor = NormalDist().inv_cdf(1 - 0.025 / len(middles))  # one false alarm in 40 soaks
    slow = []
    for minute, middle in sorted(middles.items()):
        number = len(by_minute[minute])
        half = factor * hypot(MEDIAN_SPREAD * batch_spread / sqrt(number), spread)
        found = Estimate(middle - usual, middle - usual - half, middle - usual + half).map(exp)
        if found.ends[0] > 1 + tolerance:
            start_s = minute * MINUTE_S
            slow.append(SlowMinute(start_s, clock_at(run, start_s), found, number))
    return tuple(slow)


def _spread(values: Sequence[float]) -> float:
    """Their standard deviation, if they are normal; outliers do not change it."""
    middle = median(sorted(values))
    return MAD * median(sorted(abs(value - middle) for value in values))


def clock_at(run: Run, start_s: float) -> str:
    """When so many seconds of a soak had passed: UTC, ISO 8601."""
    parts = ((0.0, run.header.started), *run.restarts)
    before_s, started = max(part for part in parts if part[0] <= start_s)
    began = datetime.fromisoformat(started).astimezone(timezone.utc)
    return (began + timedelta(seconds=start_s - before_s)).isoformat(timespec="seconds")


def _find_wrong(run: Run) -> Iterator[WrongRank]:
    """The ranks with wrong elements of each case."""
    hosts = {rank.rank: rank.host for rank in run.header.ranks}
    found: defaultdict[tuple[int, int], list[tuple[int, Check]]] = defaultdict(list)
    for check in run.checks:
        for rank, elements in zip(check.wrong_ranks, check.wrong_elements, strict=True):
            found[check.case, rank].append((elements, check))
    for (case, rank), wrong in sorted(found.items()):
        own = (c.first_wrong for _, c in wrong if c.first_wrong and c.first_wrong.rank == rank)
        yield WrongRank(
            run.header.plan.cases()[case].name, rank, hosts.get(rank, ""), sum(n for n, _ in wrong),
            len(wrong), clock_at(run, wrong[0][1].start_s), next(own, None),
        )  # fmt: skip


_NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def find_quorum(run: Run) -> str:
    """Which ranks are wrong: `rank 3 differs from the other seven` where most ranks are always
    right; empty where all are."""
    plan, cases = run.header.plan, run.header.plan.cases()
    wrong = [check for check in run.checks if check.wrong_ranks]
    ranks = sorted({rank for check in wrong for rank in check.wrong_ranks})
    members = {rank for check in wrong for rank in plan.ranks_of(cases[check.case])}
    others, verb = len(members) - len(ranks), "differs" if len(ranks) == 1 else "differ"
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    if len(ranks) < others:
        rest = _NUMBERS[others] if others < len(_NUMBERS) else str(others)
        return f"{who} {verb} from the other {rest}"
    return f"{who} of {len(members)} {verb} from what is right" if ranks else ""

"""What a soak found, of its journal alone: drift, two speeds, slow minutes, wrong elements by rank.

The value of a case in a cycle is the median of its batch. A case drifts by the ratio of the last
tenth of its cycles over the first. A minute is slow where the median over its batches, each over
the median of its case, is above 1 by more than the tolerance and the noise: the scatter of batches,
and that of the minutes.

    P(a fault of 1 call in 1,000 is seen) = 1 - (1 - 1/1000)^checks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain, pairwise
from math import exp, hypot, log, pi, sqrt
from statistics import linear_regression
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import diagnostic_figures as figures
from commbench.analysis.diagnostics import has_waited
from commbench.analysis.statistics import Z, median, medians, summarise
from commbench.analysis.two_groups import BIMODAL, find_two_groups
from commbench.errors import GATE_FAILS, UsageError, WrongResultError
from commbench.plan.case import Case
from commbench.results.records import Check, WrongElement
from commbench.results.samples import samples_of, soaked_s, without_samples
from commbench.results.schema import Measurement, Run
from commbench.stats import SLOWER, TOLERANCE, UNDECIDED, Estimate, ratio
from commbench.views.formats import Result, fields_of

TENTH, FEWEST = 10, 6
"""The ends that are compared have a tenth of the cycles, but at least FEWEST, for an interval."""
MINUTE_S, FEWEST_MINUTES = 60.0, 5
"""With fewer minutes, nobody knows how much they usually differ."""


class Point(NamedTuple):
    """A case in one cycle."""

    cycle: int
    start_s: float
    time_s: float


class SoakRow(NamedTuple):
    """A case in all cycles."""

    case: Case
    points: tuple[Point, ...]
    time_s: float
    first_s: Estimate | None
    """The median of the first tenth of the cycles; None for too few cycles."""
    last_s: Estimate | None
    drift: Estimate | None
    drift_verdict: str
    """One of stats.verdict: `slower` is a drift beyond the tolerance. Undecided where ranks waited
    for a core too long."""
    two_speeds_s: tuple[float, ...]
    """The means of two separate groups of cycles; empty where there are none."""
    checked_calls: int
    wrong: int
    queued_share: float | None = None
    """The part of the time that ranks waited for a core; None where it is not known."""

    def as_json(self) -> dict[str, Any]:
        """The fields; of each cycle the number, the start and the time."""
        return {"case": self.case.name} | fields_of(self, without=("case",))


class SlowMinute(NamedTuple):
    """A minute in which calls took longer than usually."""

    start_s: float
    clock: str
    ratio: Estimate
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
    rows: tuple[SoakRow, ...]
    """The worst first."""
    slow_minutes: tuple[SlowMinute, ...]
    wrong: tuple[WrongRank, ...]
    quorum: str
    """Which ranks are wrong and which right, in a clause; empty where all are right."""
    checked_calls: int
    check_share: float
    seen_probability: float
    tolerance: float
    incomplete: str

    @property
    def drifting(self) -> list[SoakRow]:
        """The cases that became slower by more than the tolerance, the worst first."""
        return [row for row in self.rows if row.drift_verdict == SLOWER]

    @property
    def exit_code(self) -> int:
        """5 for wrong results, 1 for drift or slow minutes, else 0."""
        fails = GATE_FAILS if self.drifting or self.slow_minutes else 0
        return WrongResultError.exit_code if self.wrong else fails

    def as_json(self) -> dict[str, Any]:
        """The fields, and the exit code."""
        return fields_of(self, "exit_code")


def analyse_soak(run: Run, tolerance: float = TOLERANCE) -> SoakResult:
    """What a soak found. Raises UsageError for another run."""
    if not run.header.plan.is_soak:
        raise UsageError(f"{run.name} is no soak", "`commbench soak --for 1h` makes one")
    checks = stats.collect((check.case, check) for check in run.checks)
    found = (m for m in run.measurements if m.batches)
    cases = [_analyse_case(m, checks.get(m.case.index, ()), tolerance) for m in found]
    rows = sorted(cases, key=lambda row: (-row.wrong, -row.drift.value if row.drift else 0.0))
    elapsed_s, calls = soaked_s(run), sum(check.calls for check in run.checks)
    return SoakResult(
        run.name, elapsed_s, run.header.plan.soak_s,
        max((row.points[-1].cycle for row in rows), default=0), tuple(rows),
        tuple(_slow_minutes(run, rows, tolerance)), tuple(_find_wrong(run)), find_quorum(run),
        calls, sum(check.elapsed_s for check in run.checks) / (elapsed_s or 1.0),
        1 - (1 - 1e-3) ** calls, tolerance, run.incomplete,
    )  # fmt: skip


def _analyse_case(found: Measurement, checks: Sequence[Check], tolerance: float) -> SoakRow:
    batches, values = without_samples(found.batches), medians(samples_of(found.batches))
    both = zip(batches, values, strict=True)
    points = tuple(Point(batch.cycle, batch.start_s or 0.0, value) for batch, value in both)
    first, last, drift = find_drift(values)
    queued = figures.find_interference(found.batches, ()).queued_share
    groups = find_two_groups(sorted(values))
    is_double = groups and groups.separation > BIMODAL
    return SoakRow(
        found.case, points, median(sorted(values)), first, last,
        drift, UNDECIDED if has_waited(queued) else stats.decide(drift, tolerance),
        (groups.low_s, groups.high_s) if groups and is_double else (),
        sum(check.calls for check in checks), sum(sum(check.wrong_elements) for check in checks),
        queued,
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
    factor = exp(stats.student_quantile(Z, TENTH - 2) * sqrt(2 * squares / (TENTH - 2)))
    low, high = found.ends
    low, high = min(low, found.value / factor), max(high, found.value * factor)
    return first, last, Estimate(found.value, low, high)


def _slow_minutes(run: Run, rows: Sequence[SoakRow], tolerance: float) -> Iterator[SlowMinute]:
    """The minutes that were slower than others by more than the tolerance and the noise; none in a
    soak of few minutes."""
    by_minute = stats.collect(
        (int(point.start_s / MINUTE_S), log(point.time_s / row.time_s))
        for row in rows for point in row.points if point.time_s > 0 and row.time_s > 0
    )  # fmt: skip
    if len(by_minute) < FEWEST_MINUTES:
        return
    batch_spread = _spread([*chain.from_iterable(by_minute.values())])
    middles = {minute: median(sorted(logs)) for minute, logs in by_minute.items()}
    usual, spread = median(sorted(middles.values())), _spread([*middles.values()])
    factor = stats.factor_of_all(len(middles))  # one false alarm in 40 soaks
    for minute, middle in sorted(middles.items()):
        number = len(by_minute[minute])
        of_median = batch_spread * sqrt(pi / 2 / number)  # of normal values
        half = factor * hypot(of_median, spread)
        found = stats.around(middle - usual, half).map(exp)
        if found.ends[0] > 1 + tolerance:
            start_s = minute * MINUTE_S
            yield SlowMinute(start_s, clock_at(run, start_s), found, number)


def _spread(values: Sequence[float]) -> float:
    """Their standard deviation, if they are normal; outliers do not change it."""
    middle = median(sorted(values))
    return stats.MAD_TO_SD * median(sorted(abs(value - middle) for value in values))


def clock_at(run: Run, start_s: float) -> str:
    """When so many seconds of a soak had passed: UTC, ISO 8601."""
    parts = ((0.0, run.header.started), *run.restarts)
    before_s, started = max(part for part in parts if part[0] <= start_s)
    began = datetime.fromisoformat(started).astimezone(timezone.utc)
    return (began + timedelta(seconds=start_s - before_s)).isoformat(timespec="seconds")


def _find_wrong(run: Run) -> Iterator[WrongRank]:
    """The ranks with wrong elements of each case."""
    hosts = {rank.rank: rank.host for rank in run.header.ranks}
    found = stats.collect(
        ((check.case, rank), (elements, check)) for check in run.checks
        for rank, elements in zip(check.wrong_ranks, check.wrong_elements, strict=True)
    )  # fmt: skip
    for (case, rank), wrong in sorted(found.items()):
        own = (c.first_wrong for _, c in wrong if c.first_wrong and c.first_wrong.rank == rank)
        yield WrongRank(
            run.header.plan.cases()[case].name, rank, hosts.get(rank, ""), sum(n for n, _ in wrong),
            len(wrong), clock_at(run, wrong[0][1].start_s), next(own, None),
        )  # fmt: skip


def find_quorum(run: Run) -> str:
    """Which ranks are wrong: `rank 3 differs from the other 7` where most ranks are always
    right; empty where all are."""
    plan, cases = run.header.plan, run.header.plan.cases()
    wrong = [check for check in run.checks if check.wrong_ranks]
    ranks = sorted({rank for check in wrong for rank in check.wrong_ranks})
    members = {rank for check in wrong for rank in plan.ranks_of(cases[check.case])}
    others, verb = len(members) - len(ranks), "differs" if len(ranks) == 1 else "differ"
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    if len(ranks) < others:
        return f"{who} {verb} from the other {others}"
    return f"{who} of {len(members)} {verb} from what is right" if ranks else ""

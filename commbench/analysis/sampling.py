"""How many iterations a case gets: until its median is known well enough, or its time is used up.

Rank 0 follows a case's `schedule` and tells all ranks what comes next. Each timed block is one
visit to the case; others are visited in between (see analysis.itinerary).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import chain
from typing import NamedTuple

from commbench.analysis.statistics import interval, median
from commbench.plan import PIPELINED, Case, Plan
from commbench.records.schema import Visit

FEWEST = 10
FEWEST_SLOW = 8
"""Fewest timed iterations; the second for operations that take longer than SLOW_S."""
FEWEST_VISITS = 5
FEWEST_VISITS_SLOW = 2
SLOW_S = 5e-3
MOST = 20_000
VISIT_S = 20e-3
"""A visit lasts about this long: long against agreeing on what comes next."""
FEWEST_PER_VISIT = 4
WARMUP = 5
WARMUP_S = 50e-3
MOST_WARMUP = 200
"""Warm-up goes on in blocks of WARMUP calls until their median no longer falls, for at most so long
and so many. Calls too slow for that need none but the one whose result was checked."""
STILL_FALLING = 0.95
FASTER_THAN_S = 30e-3
"""Calls faster than this get one untimed call on each return to their case."""
FIXED_VISITS = 10
FIXED_PER_VISIT = 10
CALLS = 20
CALLS_S = 20e-3
"""Calls back to back in a pipelined iteration: nccl-tests' 20, fewer where they last longer."""


class Block(NamedTuple):
    """What all ranks do next: so many iterations of so many calls, recorded or to warm up."""

    iterations: int
    calls: int = 1
    timed: bool = True
    done: float = 0.0
    """Which part of what the case needs has been measured before."""


Schedule = Generator[Block, Sequence[float], str]
"""Yields blocks, is sent each block's durations in seconds per call (the slowest rank's of each
iteration), returns why it stopped: `fixed` (as many as asked for), `precision`, `budget` (of time)
or `cap` (of iterations)."""


def schedule(
    plan: Plan, case: Case, checked_s: float = 0.0, before: Sequence[Visit] = ()
) -> Schedule:
    """The blocks of one case, by the plan's rules and the limits above.

    `checked_s` is how long the operation took whose result was checked; 0: there was none.
    Visits that were made `before`, in a launch that is taken up again, count.
    """
    visits: list[Sequence[float]] = [visit.samples_s for visit in before]
    if before and (reason := stop_reason(plan, visits, before[0].calls)):
        return reason
    estimate = yield from _warm_up(plan.warmup, checked_s)
    calls = _calls(estimate) if case.timing == PIPELINED else 1
    if before:
        calls = before[0].calls
    while not (reason := stop_reason(plan, visits, calls)):
        done = part_done(plan, visits, calls)
        if visits:
            if plan.warmup != 0 and estimate < FASTER_THAN_S:
                yield Block(1, timed=False, done=done)
            estimate = median(sorted(chain.from_iterable(visits)))
        iterations = _iterations(plan, visits, estimate, calls)
        visits.append((yield Block(iterations, calls, done=done)))
    return reason


def stop_reason(plan: Plan, visits: Sequence[Sequence[float]], calls: int = 1) -> str:
    """Why these samples, one sequence a visit, are enough; empty when they are not."""
    number = sum(map(len, visits))
    if plan.iterations is not None:
        return "fixed" if number >= plan.iterations else ""
    if not number:
        return ""
    ordered = sorted(chain.from_iterable(visits))
    middle = median(ordered)
    fewest, fewest_visits = _fewest(middle * calls)
    if number < fewest or len(visits) < fewest_visits:
        return ""
    low, high = interval(visits)
    if low is not None and high is not None and high - low <= 2 * plan.precision * middle:
        return "precision"
    if sum(ordered) * calls >= plan.budget_s:
        return "budget"
    return "cap" if number >= MOST else ""


def part_done(plan: Plan, visits: Sequence[Sequence[float]], calls: int = 1) -> float:
    """Which part of the most that these samples may become has been measured, 0 to 1."""
    number = sum(map(len, visits))
    if plan.iterations is not None:
        return number / plan.iterations
    if not number:
        return 0.0
    ordered = sorted(chain.from_iterable(visits))
    fewest, fewest_visits = _fewest(median(ordered) * calls)
    most = max(sum(ordered) * calls / plan.budget_s, number / MOST)
    return min(1.0, number / fewest, len(visits) / fewest_visits, most)


def _fewest(lasts: float) -> tuple[int, int]:
    """The fewest iterations and visits of a case whose iterations last so many seconds."""
    return (FEWEST_SLOW, FEWEST_VISITS_SLOW) if lasts > SLOW_S else (FEWEST, FEWEST_VISITS)


def _warm_up(asked: int | None, checked_s: float) -> Generator[Block, Sequence[float], float]:
    """Warm-up blocks; returns about how long one call takes, 0 when nothing was run."""
    if asked is not None:
        if not asked:
            return checked_s
        return median(sorted((yield Block(asked, timed=False))))
    estimate = checked_s
    if not estimate:
        (estimate,) = yield Block(1, timed=False)
    number, spent, falling = 0, 0.0, True
    while falling and number < MOST_WARMUP and spent < WARMUP_S:
        more = min(WARMUP, int((WARMUP_S - spent) / max(estimate, 1e-9)))
        if not more:
            break
        durations = yield Block(more, timed=False)
        number, spent = number + more, spent + sum(durations)
        falling = median(sorted(durations)) < STILL_FALLING * estimate
        estimate = median(sorted(durations))
    return estimate


def _calls(estimate: float) -> int:
    return max(2, int(min(CALLS, CALLS_S / estimate))) if estimate else CALLS


def _iterations(plan: Plan, visits: Sequence[Sequence[float]], estimate: float, calls: int) -> int:
    """Iterations of the next visit."""
    done = sum(map(len, visits))
    if plan.iterations is not None:
        several = max(2, min(FIXED_VISITS, plan.iterations // FIXED_PER_VISIT))
        return min(-(-plan.iterations // several), plan.iterations - done)
    lasts = estimate * calls
    fitting = int(min(MOST, VISIT_S / lasts)) if lasts else MOST
    return max(FEWEST_PER_VISIT, min(fitting, MOST // FEWEST_VISITS))

"""How many iterations a case gets: until its median is known well enough, or its time is used up.

Rank 0 follows a case's `schedule` and tells all ranks what comes next. Each timed block is one
batch of the case; others are measured in between (see `visit_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple

from commbench.analysis.statistics import median, median_ci
from commbench.results.schema import Batch
from commbench.spec.case import Case
from commbench.spec.plan import SHUFFLED, Plan
from commbench.spec.timing_modes import describe_timing

FEWEST = 10
FEWEST_SLOW = 8
"""Fewest timed iterations; the second for operations that take longer than SLOW_S."""
FEWEST_VISITS = 5
FEWEST_VISITS_SLOW = 2
SLOW_S = 5e-3
MOST = 20_000
VISIT_S = 20e-3
"""A batch lasts about this long: long against agreeing on what comes next."""
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


class SampleRequest(NamedTuple):
    """What all ranks do next: so many iterations of so many calls, recorded or to warm up."""

    iterations: int
    calls: int = 1
    timed: bool = True
    done: float = 0.0
    """Which part of what the case needs has been measured before."""


SampleSchedule = Generator[SampleRequest, Sequence[float], str]
"""Yields blocks, is sent each block's durations in seconds per call (the slowest rank's of each
iteration), returns why it stopped: `fixed` (as many as asked for), `precision`, `budget` (of time)
or `cap` (of iterations)."""


def schedule(
    plan: Plan, case: Case, checked_s: float = 0.0, before: Sequence[Batch] = ()
) -> SampleSchedule:
    """The blocks of one case, by the plan's rules and the limits above.

    `checked_s` is how long the operation took whose result was checked; 0: there was none.
    Batches that were made `before`, in a launch that is taken up again, count.
    """
    batches: list[Sequence[float]] = [batch.samples_s for batch in before]
    if before and (reason := stop_reason(plan, batches, before[0].calls)):
        return reason
    estimate = yield from _warm_up(plan.warmup, checked_s)
    calls = describe_timing(case.timing).calls_per_iteration(estimate)
    if before:
        calls = before[0].calls
    while not (reason := stop_reason(plan, batches, calls)):
        done = progress(plan, batches, calls)
        if batches:
            if plan.warmup != 0 and estimate < FASTER_THAN_S:
                yield SampleRequest(1, timed=False, done=done)
            estimate = median(sorted(chain.from_iterable(batches)))
        iterations = _iterations(plan, batches, estimate, calls)
        batches.append((yield SampleRequest(iterations, calls, done=done)))
    return reason


def stop_reason(plan: Plan, batches: Sequence[Sequence[float]], calls: int = 1) -> str:
    """Why these samples, one sequence a batch, are enough; empty when they are not."""
    number = sum(map(len, batches))
    if plan.iterations is not None:
        return "fixed" if number >= plan.iterations else ""
    if not number:
        return ""
    ordered = sorted(chain.from_iterable(batches))
    middle = median(ordered)
    fewest, fewest_batches = _fewest(middle * calls)
    if number < fewest or len(batches) < fewest_batches:
        return ""
    low, high = median_ci(batches)
    if low is not None and high is not None and high - low <= 2 * plan.precision * middle:
        return "precision"
    if sum(ordered) * calls >= plan.budget_s:
        return "budget"
    return "cap" if number >= MOST else ""


def progress(plan: Plan, batches: Sequence[Sequence[float]], calls: int = 1) -> float:
    """Which part of the most that these samples may become has been measured, 0 to 1."""
    number = sum(map(len, batches))
    if plan.iterations is not None:
        return number / plan.iterations
    if not number:
        return 0.0
    ordered = sorted(chain.from_iterable(batches))
    fewest, fewest_batches = _fewest(median(ordered) * calls)
    most = max(sum(ordered) * calls / plan.budget_s, number / MOST)
    return min(1.0, number / fewest, len(batches) / fewest_batches, most)


def _fewest(lasts: float) -> tuple[int, int]:
    """The fewest iterations and batches of a case whose iterations last so many seconds."""
    return (FEWEST_SLOW, FEWEST_VISITS_SLOW) if lasts > SLOW_S else (FEWEST, FEWEST_VISITS)


def _warm_up(
    asked: int | None, checked_s: float
) -> Generator[SampleRequest, Sequence[float], float]:
    """Warm-up blocks; returns about how long one call takes, 0 when nothing was run."""
    if asked is not None:
        if not asked:
            return checked_s
        return median(sorted((yield SampleRequest(asked, timed=False))))
    estimate = checked_s
    if not estimate:
        (estimate,) = yield SampleRequest(1, timed=False)
    number, spent, falling = 0, 0.0, True
    while falling and number < MOST_WARMUP and spent < WARMUP_S:
        more = min(WARMUP, int((WARMUP_S - spent) / max(estimate, 1e-9)))
        if not more:
            break
        durations = yield SampleRequest(more, timed=False)
        number, spent = number + more, spent + sum(durations)
        falling = median(sorted(durations)) < STILL_FALLING * estimate
        estimate = median(sorted(durations))
    return estimate


def _iterations(plan: Plan, batches: Sequence[Sequence[float]], estimate: float, calls: int) -> int:
    """Iterations of the next batch."""
    done = sum(map(len, batches))
    if plan.iterations is not None:
        several = max(2, min(FIXED_VISITS, plan.iterations // FIXED_PER_VISIT))
        return min(-(-plan.iterations // several), plan.iterations - done)
    lasts = estimate * calls
    fitting = int(min(MOST, VISIT_S / lasts)) if lasts else MOST
    return max(FEWEST_PER_VISIT, min(fitting, MOST // FEWEST_VISITS))


ABREAST = 0.1
"""How much further than the last case others may be in a round. Most cases need ten batches."""


def visit_order(
    order: str, seed: int, unsettled: Collection[int], done: Callable[[int], float]
) -> Iterator[int]:
    """The case to batch next, again and again, until none is left in `unsettled`.

    The caller takes a case out of `unsettled` when it is settled, and `done` tells which part of
    what a case needs it has had. `shuffled`: rounds, each in a random order of its own that follows
    from the seed. Cases that need few batches sit some rounds out, so that theirs are spread over
    the run like those of the others. `ascending`: one case until it is settled.
    """
    if order != SHUFFLED:
        for case in sorted(unsettled):
            while case in unsettled:
                yield case
        return
    chance = Random(seed)
    while unsettled:
        last = min(map(done, unsettled))
        round_ = [case for case in sorted(unsettled) if done(case) < last + ABREAST]
        chance.shuffle(round_)
        yield from round_

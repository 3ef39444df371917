"""Each cpu mode tried in real launches, in turn with the others, so that what drifts hits all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from commbench.analysis.rows import ResultRow, make_rows
from commbench.errors import CommbenchError, Interrupted
from commbench.runner.temporary_run import run_temporarily
from commbench.spec.operations import DEFAULT_OPERATION
from commbench.spec.plan import CPU_MODES, Plan

PLAIN = "plain"
"""What the others are held against: ranks that are left alone."""
MODES = (PLAIN, *(mode for mode in CPU_MODES if mode != PLAIN))
SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
MOST_BUDGET_S = 0.2
BUDGET_PART = 0.05
"""Of a launch's share of the time, for each size: starting ranks, aligning and warming up take
their parts too."""
LEAST_TIMEOUT_S = 30.0


class SizeResult(NamedTuple):
    """What one launch gave for one size."""

    size_bytes: int
    iterations: int
    time_s: float
    busbw: float | None
    """Bytes per second."""
    stalled_share: float | None
    queued_share: float | None
    throttled_share: float | None
    stolen_share: float | None


class Trial(NamedTuple):
    """One launch in one mode."""

    round: int
    """From 0."""
    mode: str
    points: tuple[SizeResult, ...] = ()
    elapsed_s: float = 0.0
    trouble: CommbenchError | None = None
    """Why there are no points; the mode is not tried again."""


def itinerary(rounds: int, seed: int) -> list[tuple[int, str]]:
    """Rounds and modes in the order of their launches: every round is shuffled, but the first one
    begins with PLAIN, without which nothing can be compared."""
    chance, order = Random(seed), []
    for number in range(rounds):
        modes = list(MODES if number else MODES[1:])
        chance.shuffle(modes)
        order += [(number, mode) for mode in ([] if number else [PLAIN]) + modes]
    return order


def try_modes(
    ranks: int, rounds: int, seed: int, deadline: float, say: Callable[[str], None]
) -> Iterator[Trial]:
    """Launch after launch, the first in any case, until all are done, or the next would end after
    the deadline (monotonic) if it takes as long as the longest before it."""
    order = itinerary(rounds, seed)
    budget_s = min(MOST_BUDGET_S, BUDGET_PART * max(0.1, deadline - time.monotonic()) / len(order))
    longest, hopeless = 0.0, set()
    for number, (round_, mode) in enumerate(order, start=1):
        if mode in hopeless:
            continue
        if longest and time.monotonic() + longest > deadline:
            return
        say(f"[{number}/{len(order)}] round {round_ + 1} of {rounds}, {mode}")
        trial = _try(plan(ranks, mode, budget_s, seed + round_), round_)
        longest = max(longest, trial.elapsed_s)
        if trial.trouble:
            hopeless.add(mode)
        yield trial


def plan(ranks: int, mode: str, budget_s: float, seed: int) -> Plan:
    """What is measured in a launch."""
    return Plan(
        operations=(DEFAULT_OPERATION,),
        sizes=SIZES,
        backend="gloo",
        device="cpu",
        world_size=ranks,
        cpu_mode=mode,
        budget_s=budget_s,
        check=False,
        timeout_s=LEAST_TIMEOUT_S,
        seed=seed,
    )


def _try(what: Plan, round_: int) -> Trial:
    began = time.monotonic()
    points: tuple[SizeResult, ...] = ()
    trouble = None
    try:
        points = _launch(what)
    except Interrupted:
        raise
    except CommbenchError as error:
        trouble = error
    return Trial(round_, what.cpu_mode, points, time.monotonic() - began, trouble)


def _launch(what: Plan) -> tuple[SizeResult, ...]:
    rows = make_rows(run_temporarily(what, "doctor"))
    return tuple(_point(row) for row in rows if row.time)


def _point(row: ResultRow) -> SizeResult:
    assert row.time is not None
    strain = row.interference
    return SizeResult(
        size_bytes=row.measurement.case.size_bytes,
        iterations=row.time.iterations,
        time_s=row.time.median,
        busbw=row.busbw,
        stalled_share=strain.stalled_share,
        queued_share=strain.queued_share,
        throttled_share=strain.throttled_share,
        stolen_share=strain.stolen_share,
    )

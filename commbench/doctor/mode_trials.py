"""Launches of a small run in every cpu mode, in rounds: drift of the host affects all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from commbench.analysis.rows import make_rows
from commbench.errors import CommbenchError, Interrupted
from commbench.runner.launched_ranks import run_temporarily
from commbench.spec.operations import DEFAULT_OPERATION
from commbench.spec.plan import CPU_MODES, Plan

PLAIN = "plain"
"""The cpu mode that the others are compared with: ranks without any setting."""
MODES = (PLAIN, *(mode for mode in CPU_MODES if mode != PLAIN))
SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
MOST_BUDGET_S = 0.2
BUDGET_PART = 0.05
"""Share of a launch's time that is the budget of each size; starting ranks, aligning and warming up
take time too."""
LEAST_TIMEOUT_S = 30.0


class SizeResult(NamedTuple):
    """The result of one launch for one size."""

    size_bytes: int
    iterations: int
    time_s: float
    busbw_bytes_per_s: float | None
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
    """Why it has no points; its mode is not tried again."""


def order_trials(rounds: int, seed: int) -> list[tuple[int, str]]:
    """Rounds, from 0, and modes in the order of their launches: random, but PLAIN first of all,
    without which nothing can be compared."""
    generator, order = Random(seed), []
    for number in range(rounds):
        modes = list(MODES if number else MODES[1:])
        generator.shuffle(modes)
        order += [(number, mode) for mode in ([] if number else [PLAIN]) + modes]
    return order


def try_modes(
    ranks: int, rounds: int, seed: int, deadline: float, print_status: Callable[[str], None]
) -> Iterator[Trial]:
    """Launch every mode in every round; the first launch is made in any case. Ends early where the
    next one, if it took as long as the longest before it, would pass the deadline (monotonic)."""
    order = order_trials(rounds, seed)
    budget_s = min(MOST_BUDGET_S, BUDGET_PART * max(0.1, deadline - time.monotonic()) / len(order))
    longest, refused = 0.0, set()
    for number, (round_, mode) in enumerate(order, start=1):
        if mode in refused:
            continue
        if longest and time.monotonic() + longest > deadline:
            return
        print_status(f"[{number}/{len(order)}] round {round_ + 1} of {rounds}, {mode}")
        trial = _try(make_plan(ranks, mode, budget_s, seed + round_), round_)
        longest = max(longest, trial.elapsed_s)
        if trial.trouble:
            refused.add(mode)
        yield trial


def make_plan(ranks: int, mode: str, budget_s: float, seed: int) -> Plan:
    """The plan of one launch."""
    return Plan(
        operations=(DEFAULT_OPERATION,), sizes=SIZES, backend="gloo", device="cpu",
        world_size=ranks, cpu_mode=mode, budget_s=budget_s, check=False,
        timeout_s=LEAST_TIMEOUT_S, seed=seed,
    )  # fmt: skip


def _try(trial_plan: Plan, round_: int) -> Trial:
    start = time.monotonic()
    trial = Trial(round_, trial_plan.cpu_mode)
    try:
        trial = trial._replace(points=_launch(trial_plan))
    except Interrupted:
        raise
    except CommbenchError as error:
        trial = trial._replace(trouble=error)
    return trial._replace(elapsed_s=time.monotonic() - start)


def _launch(trial_plan: Plan) -> tuple[SizeResult, ...]:
    return tuple(
        SizeResult(
            row.measurement.case.size_bytes,
            row.time.iterations,
            row.time.median,
            row.busbw,
            *(getattr(row.interference, name) for name in SizeResult._fields[4:]),
        )
        for row in make_rows(run_temporarily(trial_plan, "doctor"))
        if row.time
    )

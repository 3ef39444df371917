"""Runs whose times are known in closed form, for tests of advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import Any

from synthetic import header, plan

from commbench.answers.advise.simulation import TimeTable
from commbench.plan.case import Case
from commbench.results.schema import Batch, Measurement, Run, RunEnd
from commbench.stats import Estimate

Seconds = Callable[[Case], float]
POWERS = tuple(1 << k for k in range(12, 29))
NCCL = {"backend": "nccl", "device": "cuda"}


def affine(
    alpha: float, beta: float, sizes: Sequence[int] = POWERS, part: float = 0.0
) -> TimeTable:
    """T(b) = alpha + beta b, known to `part`."""
    times = (alpha + beta * size for size in sizes)
    found = tuple(Estimate(t, t * (1 - part), t * (1 + part)) for t in times)
    return TimeTable("all_reduce float32 sum in_place", tuple(sizes), found)


def run_of(
    seconds: Seconds, label: str = "planted", noise: float = 0.005, launches: int = 1,
    variables: dict[str, str] | None = None, seed: int = 1, **asked: Any,
) -> Run:  # fmt: skip
    """A run in memory: each case takes `seconds`, with log-normal noise of the samples."""
    chance = Random(seed)
    wanted = plan(**asked)

    def batch(case: Case, launch: int) -> Batch:
        middle = seconds(case)
        samples = tuple(middle * exp(chance.gauss(0, noise)) for _ in range(8))
        return Batch(samples, launch=launch)

    measurements = tuple(
        Measurement(
            case, "ok", batches=tuple(batch(case, n // 8) for n in range(8 * launches)), wrong=0
        )
        for case in wanted.cases()
    )
    own = header(wanted, label, environment={"variables": variables or {}})
    return Run(f"results/{label}", own, measurements, RunEnd("complete"))

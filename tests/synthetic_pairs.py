"""Made-up times between pairs of ranks, each rank on a host of its own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from synthetic import header, plan

from commbench.answers.pairs.matrix import first_ranks
from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.records import RankInfo
from commbench.results.schema import Batch, Measurement, Run, RunEnd, RunHeader

MIB = 1 << 20
Speed = Callable[[int, int], float]
"""Of the way from one rank to another, over the usual speed."""


def pairs_plan(**more: Any) -> Plan:
    values: dict[str, Any] = {
        "operations": ("ping_pong", "stream"), "sizes": (MIB,), "latency_size": 8, "window": 1,
        "pairs": ("all",), "world_size": 4, "iterations": 10, "warmup": 1,
    }  # fmt: skip
    return plan(**values | more)


def pairs_header(asked: Plan) -> RunHeader:
    ranks = tuple(
        RankInfo(rank, f"node{rank}", 100 + rank, "cpu", interface="eth0")
        for rank in range(asked.world_size)
    )
    return header(asked, "pairs", ranks=ranks)


def pairs_batch(asked: Plan, case: Case, iterations: int, speed: Speed, chance: Random) -> Batch:
    """A batch of a case with 2 % of scatter; `speed` is of its bandwidth."""
    times = [1e-3] * asked.world_size
    for index, pair in first_ranks(asked, case):
        usual = 1e-2 / speed(*pair) if case.operation == "stream" else 5e-5
        times[index] = usual * chance.lognormvariate(0, 0.02)
    return Batch(samples_s=(max(times),) * iterations, rank_medians_s=tuple(times))


def pairs_run(asked: Plan, speed: Speed) -> Run:
    """A complete run of pairs."""
    chance = Random(1)
    found = [
        Measurement(case, "ok", batches=(pairs_batch(asked, case, 10, speed, chance),))
        for case in asked.cases()
    ]
    return Run("run", pairs_header(asked), tuple(found), RunEnd("complete"))

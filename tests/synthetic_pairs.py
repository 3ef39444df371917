"""Made-up times between pairs of ranks: runs, each rank on a host of its own; and matrices with a
known slow part, or none."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from random import Random
from typing import Any, NamedTuple

from synthetic import header, plan

from commbench.answers.pairs.matrix import BANDWIDTH, Pair, Quantity, RankMatrix, first_ranks
from commbench.answers.pairs.slow_parts import BOTH, HOST, IN, INTERFACE, LINK, OUT, RANK, Finding
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


WITHIN_HOST, ACROSS_HOSTS = 10e9, 1e9
"""The bandwidth of pairs, in bytes/s."""


class Defect(NamedTuple):
    """What is slow: of a host or a link between hosts their numbers, else the ranks."""

    kind: str
    direction: str = BOTH
    at: int = 0
    to: int = -1
    is_of_hosts: bool = False
    ratio: float = 0.5

    def slows(self, pair: Pair, per_host: int) -> bool:
        """Whether a pair uses it."""
        ends = tuple(rank // per_host for rank in pair) if self.uses_hosts else pair
        is_within = pair[0] // per_host == pair[1] // per_host
        if self.kind in (HOST, INTERFACE) and is_within:
            return False
        if self.kind == LINK:
            return ends == (self.at, self.to) or (
                self.direction == BOTH and ends == (self.to, self.at)
            )
        uses = {OUT: (0,), IN: (1,), BOTH: (0, 1)}[self.direction]
        return any(ends[end] == self.at for end in uses)

    @property
    def uses_hosts(self) -> bool:
        """Whether `at` and `to` are numbers of hosts."""
        return self.kind == HOST or self.is_of_hosts

    def is_named_by(self, finding: Finding, per_host: int) -> bool:
        """Whether a finding names this and nothing else."""

        def ranks(number: int) -> tuple[int, ...]:
            if number < 0:
                return ()
            first = number * per_host
            return tuple(range(first, first + per_host)) if self.uses_hosts else (number,)

        kind = HOST if self.kind == RANK and per_host == 1 else self.kind
        wanted = (kind, self.direction, ranks(self.at), ranks(self.to))
        found = (finding.kind, finding.direction, finding.ranks, finding.to_ranks)
        return found == wanted and abs(finding.ratio - self.ratio) < 0.12


def planted_matrix(
    ranks: int,
    per_host: int = 1,
    defect: Defect | None = None,
    *,
    noise: float = 0.02,
    seed: int = 0,
    quantity: Quantity = BANDWIDTH,
    interfaces: int = 0,
    share: float = 1.0,
) -> RankMatrix:
    """A matrix whose values have log-normal noise; `share` of them are measured. `interfaces` is
    the number of interfaces of a host, if these are known."""
    rng = Random(f"{ranks} {per_host} {defect} {seed}")
    values: dict[Pair, float] = {}
    for pair in ((a, b) for a in range(ranks) for b in range(ranks) if a != b):
        if not quantity.has_direction and pair[0] > pair[1]:
            continue
        is_within = pair[0] // per_host == pair[1] // per_host
        value = (WITHIN_HOST if is_within else ACROSS_HOSTS) * exp(rng.gauss(0, noise))
        if defect and defect.slows(pair, per_host):
            value *= defect.ratio
        if rng.random() < share:
            values[pair] = value if quantity.is_better_high else 1e4 / value
    if not quantity.has_direction:
        values |= {(b, a): value for (a, b), value in values.items()}
    hosts = tuple(f"node{rank // per_host}" for rank in range(ranks))
    names = tuple(f"eth{rank % interfaces}" for rank in range(ranks)) if interfaces else ()
    return RankMatrix(quantity, values, hosts, names)

"""Matrices of pairs of ranks with a known slow part, or none."""

from __future__ import annotations

import random
from math import exp
from typing import NamedTuple

from commbench.answers.pairs.matrix import BANDWIDTH, Pair, Quantity, RankMatrix
from commbench.answers.pairs.slow_parts import BOTH, HOST, IN, INTERFACE, LINK, OUT, RANK, Finding

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
    rng = random.Random(f"{ranks} {per_host} {defect} {seed}")
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

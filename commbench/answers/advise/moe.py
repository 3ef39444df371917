"""Tokens to experts: all_gather and reduce_scatter, or two times all_to_all.

Bytes of one rank, with ep ranks, t tokens on each rank, hidden numbers of B bytes in a token, top-k
routing over E experts in equal parts on the ranks (FlashInfer and TensorRT-LLM count alike: tech
blog 18 of TensorRT-LLM):

    all_gather + reduce_scatter    S = ep t hidden B        every token to every rank, and back
    all_to_all, two times          S = copies t hidden B    a token once to each rank that has one
                                                            of its experts, and back
    copies = ep (1 - C(E - E/ep, k) / C(E, k))              of k different experts, chosen evenly

copies is at most min(k, ep), so all_to_all moves less where ep is larger than k. It has more
messages, so few tokens may be faster with all_gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.answers.advise.time_table import Crossing, TimeTable, find_crossing, interval, widen
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import FASTER, SAME, SLOWER, UNDECIDED, decide
from commbench.views.as_json import fields_of

if TYPE_CHECKING:
    from numpy import ndarray

GATHERED, EXCHANGED = "all_gather + reduce_scatter", "all_to_all"
_WAYS = {SLOWER: EXCHANGED, FASTER: GATHERED, SAME: SAME, UNDECIDED: UNDECIDED}
"""What a verdict on the ratio of both says."""


class Routing(NamedTuple):
    """How tokens find their experts."""

    topk: int
    experts: int
    hidden: int
    element_bytes: int
    tokens: int | None = None
    """Tokens of one rank in a step; None: only the crossover is asked for."""

    def copies(self, ranks: int) -> float:
        """To how many ranks a token goes on average, its own rank included."""
        others = self.experts - self.experts // ranks
        return ranks * (1 - comb(others, self.topk) / comb(self.experts, self.topk))

    def gathered_bytes(self, ranks: int, tokens: float) -> float:
        """The size of all_gather and of reduce_scatter."""
        return ranks * tokens * self.hidden * self.element_bytes

    def exchanged_bytes(self, ranks: int, tokens: float) -> float:
        """The size of each all_to_all."""
        return self.copies(ranks) * tokens * self.hidden * self.element_bytes

    def sizes(self, ranks: int, tokens: float) -> tuple[float, float, float]:
        """Those of all_gather, reduce_scatter and all_to_all."""
        gathered = self.gathered_bytes(ranks, tokens)
        return gathered, gathered, self.exchanged_bytes(ranks, tokens)


class MoEPoint(NamedTuple):
    """Both ways with so many tokens on each rank."""

    tokens: int
    gathered_s: Estimate
    """Of all_gather and reduce_scatter."""
    exchanged_s: Estimate
    """Of two all_to_all."""
    ratio: Estimate
    """The first over the second."""
    faster: str
    """GATHERED, EXCHANGED, SAME or UNDECIDED."""


class MoEAdvice(NamedTuple):
    """Which way is faster, for numbers of tokens whose bytes were measured."""

    ranks: int
    routing: Routing
    copies: float
    curve: tuple[MoEPoint, ...]
    crossing: Crossing | None
    """In tokens; None where one way is faster throughout, or that is undecided."""

    @property
    def asked(self) -> tuple[MoEPoint, ...]:
        """That with the tokens of the routing; all where these are not given or not measured."""
        return _asked(self.curve, self.routing)

    @property
    def faster(self) -> list[str]:
        """The ways of which each is faster for some of these tokens."""
        known = {point.faster for point in self.asked}
        return [way for way in (GATHERED, EXCHANGED) if way in known]

    def as_json(self) -> dict[str, Any]:
        """Its fields; the crossing in tokens."""
        crossing = self.crossing and self.crossing.in_units("tokens")
        return {**fields_of(self, "faster", without=("crossing",)), "crossover": crossing}


def _asked(points: Sequence[MoEPoint], routing: Routing) -> tuple[MoEPoint, ...]:
    return tuple(p for p in points if p.tokens == routing.tokens) or tuple(points)


def find_moe(tables: Sequence[TimeTable], routing: Routing, tolerance: float) -> MoEAdvice | None:
    """Both ways against tokens, over the tokens whose bytes lie within the measured sizes of all
    three operations (all_gather, reduce_scatter, all_to_all); None where there are none."""
    ranks = tables[0].ranks
    draws = [table.draw(seed) for seed, table in enumerate(tables)]
    wanted = token_counts(tables, routing)
    points, ratios = [], []
    for tokens in wanted:
        gather, scatter, exchange = (
            draw.at(size) for draw, size in zip(draws, routing.sizes(ranks, tokens), strict=True)
        )
        first: ndarray = gather + scatter
        second: ndarray = 2 * exchange
        ratios.append(first / second)
        times = interval(first), interval(second), interval(first / second)
        points.append(MoEPoint(tokens, *times, UNDECIDED))
    if not points:
        return None
    number = len(_asked(points, routing))
    curve = [
        point._replace(faster=_WAYS[decide(widen(point.ratio, number), tolerance)])
        for point in points
    ]
    crossing = find_crossing(wanted, [p.ratio for p in points], tolerance, ratios)
    return MoEAdvice(ranks, routing, routing.copies(ranks), tuple(curve), crossing)


def token_counts(tables: Sequence[TimeTable], routing: Routing) -> list[int]:
    """Powers of two, and the tokens of the routing, for which all calls were measured."""
    wanted = {1 << k for k in range(24)} | ({routing.tokens} if routing.tokens else set())
    return [
        tokens
        for tokens in sorted(wanted)
        if all(map(TimeTable.covers, tables, routing.sizes(tables[0].ranks, tokens)))
    ]

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

from math import comb
from typing import TYPE_CHECKING, NamedTuple

from commbench.advise.crossings import Crossing, find_crossing
from commbench.advise.time_table import TimeTable, interval
from commbench.stats.estimate import Estimate

if TYPE_CHECKING:
    from numpy import ndarray

GATHERED, EXCHANGED = "all_gather + reduce_scatter", "all_to_all"


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


class MoEPoint(NamedTuple):
    """Both ways with so many tokens on each rank."""

    tokens: int
    gathered: Estimate
    """Seconds of all_gather and reduce_scatter."""
    exchanged: Estimate
    """Seconds of two all_to_all."""
    ratio: Estimate
    """The first over the second."""


class MoEAdvice(NamedTuple):
    """Which way is faster, for numbers of tokens whose bytes were measured."""

    kinds: tuple[str, ...]
    ranks: int
    routing: Routing
    copies: float
    curve: tuple[MoEPoint, ...]
    crossing: Crossing | None
    """In tokens; None where one way is faster throughout, or that is undecided."""


def find_moe(
    gather: TimeTable, scatter: TimeTable, exchange: TimeTable, ranks: int, routing: Routing,
    tolerance: float,
) -> MoEAdvice | None:  # fmt: skip
    """Both ways against tokens, over the tokens whose bytes lie within the measured sizes of all
    three operations; None where there are none."""
    draws = gather.draw(), scatter.draw(1), exchange.draw(2)
    wanted = token_counts(gather, scatter, exchange, ranks, routing)
    points, ratios = [], []
    for tokens in wanted:
        size, exchanged = (
            routing.gathered_bytes(ranks, tokens), routing.exchanged_bytes(ranks, tokens)
        )  # fmt: skip
        first: ndarray = draws[0].at(size) + draws[1].at(size)
        second: ndarray = 2 * draws[2].at(exchanged)
        ratios.append(first / second)
        points.append(MoEPoint(tokens, interval(first), interval(second), interval(first / second)))
    if not points:
        return None
    titles = (gather.kind, scatter.kind, exchange.kind)
    crossing = find_crossing(wanted, [p.ratio for p in points], tolerance, ratios)
    return MoEAdvice(titles, ranks, routing, routing.copies(ranks), tuple(points), crossing)


def token_counts(
    gather: TimeTable, scatter: TimeTable, exchange: TimeTable, ranks: int, routing: Routing
) -> list[int]:
    """Powers of two, and the tokens of the routing, for which all calls were measured."""
    wanted = {1 << k for k in range(24)} | ({routing.tokens} if routing.tokens else set())

    def is_measured(tokens: int) -> bool:
        gathered = routing.gathered_bytes(ranks, tokens)
        return (
            all(t.smallest <= gathered <= t.largest for t in (gather, scatter))
            and exchange.smallest <= routing.exchanged_bytes(ranks, tokens) <= exchange.largest
        )

    return sorted(filter(is_measured, wanted))

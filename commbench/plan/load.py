"""How unequally the ranks of a case with unequal blocks are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from commbench.plan.case import Case


class Load(NamedTuple):
    """How unequally the ranks of a case with unequal blocks are loaded."""

    sent: float
    """What the rank that sends most sends, over the mean of all ranks."""
    received: float
    """What the rank that receives most receives, over the mean of all ranks."""
    worst_rank: int | None
    """The rank whose link must carry most; None where all carry the same."""
    worst_link: float
    """What that link must carry in one direction, over S: without the block that a rank keeps."""
    largest: float
    """What the rank with most to send or to receive has, its own block included, over S."""

    @property
    def is_unequal(self) -> bool:
        """Whether some rank sends or receives more than another."""
        return max(self.sent, self.received) > 1

    @property
    def busiest(self) -> tuple[str, float]:
        """Whether the busiest rank `sends` or `receives` most, and that over the mean."""
        sides = ("receives", self.received), ("sends", self.sent)
        return max(sides, key=lambda side: side[1])


@lru_cache(maxsize=256)
def find_load(case: Case) -> Load:
    """The load of the ranks of a case with unequal blocks."""
    counts = [case.block_counts(rank) for rank in range(case.ranks)]
    totals = [[sum(own) for own in direction] for direction in zip(*counts, strict=True)]
    links = [
        max(_crossing(own, rank, case.ranks) for own in counts[rank]) for rank in range(case.ranks)
    ]
    size, worst = case.count * case.ranks, max(links)
    means = [sum(direction) / case.ranks for direction in totals]
    sent, received = (max(t) / mean if mean else 1.0 for t, mean in zip(totals, means, strict=True))
    return Load(
        sent=sent,
        received=received,
        worst_rank=links.index(worst) if len(set(links)) > 1 else None,
        worst_link=worst / size,
        largest=max(map(max, totals)) / size,
    )


def _crossing(blocks: Sequence[int], rank: int, ranks: int) -> int:
    """The elements of the blocks that must cross the link of a rank: all but the one that it keeps;
    a single block has to cross it."""
    if ranks == 1:
        return 0
    return sum(blocks) - (blocks[rank] if len(blocks) > 1 else 0)

"""In which order cases are visited, so that what drifts with time is not mistaken for size."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random

from commbench.plan import SHUFFLED


def itinerary(order: str, seed: int, unsettled: Collection[int]) -> Iterator[int]:
    """The case to visit next, again and again, until none is left in `unsettled`.

    The caller takes a case out of `unsettled` when it is settled. `shuffled`: rounds, each in a
    random order of its own that follows from the seed. `ascending`: one case until it is settled.
    """
    if order != SHUFFLED:
        for case in sorted(unsettled):
            while case in unsettled:
                yield case
        return
    chance = Random(seed)
    while unsettled:
        round_ = sorted(unsettled)
        chance.shuffle(round_)
        yield from round_

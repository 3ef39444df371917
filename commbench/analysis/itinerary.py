"""In which order cases are visited, so that what drifts with time is not mistaken for size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from random import Random

from commbench.plan import SHUFFLED

ABREAST = 0.1
"""How much further than the last case others may be in a round. Most cases need ten visits."""


def itinerary(
    order: str, seed: int, unsettled: Collection[int], done: Callable[[int], float]
) -> Iterator[int]:
    """The case to visit next, again and again, until none is left in `unsettled`.

    The caller takes a case out of `unsettled` when it is settled, and `done` tells which part of
    what a case needs it has had. `shuffled`: rounds, each in a random order of its own that follows
    from the seed. Cases that need few visits sit some rounds out, so that theirs are spread over
    the run like those of the others. `ascending`: one case until it is settled.
    """
    if order != SHUFFLED:
        for case in sorted(unsettled):
            while case in unsettled:
                yield case
        return
    chance = Random(seed)
    while unsettled:
        last = min(map(done, unsettled))
        round_ = [case for case in sorted(unsettled) if done(case) < last + ABREAST]
        chance.shuffle(round_)
        yield from round_

"""Which host's link is slower than the others'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commbench.analysis.statistics import median
from commbench.records.schema import Hop

SLOWER = 1.6
"""A hop that takes so many times as long as the usual one is slow: no scatter does that."""


class SlowHop(NamedTuple):
    """A hop slower than the usual one, and the rank whose host both ends of slow hops share."""

    hop: Hop
    times: float
    """How many times as long as the usual hop it took."""
    culprit: int
    """The sender; the host that both receives and sends slowly where there is one."""


def slow_hops(hops: Sequence[Hop]) -> tuple[SlowHop, ...]:
    """The slow hops among all of them, slowest first. The usual one is the median, for two hops the
    faster."""
    if len(hops) < 2:
        return ()
    ordered = sorted(hop.seconds for hop in hops)
    usual = ordered[0] if len(hops) == 2 else median(ordered)
    if not usual:
        return ()
    slow = [hop for hop in hops if hop.seconds > SLOWER * usual]
    receivers = {hop.receiver for hop in slow}
    both = {hop.sender for hop in slow} & receivers
    found = [
        SlowHop(
            hop,
            hop.seconds / usual,
            hop.receiver if hop.receiver in both and hop.sender not in both else hop.sender,
        )
        for hop in slow
    ]
    return tuple(sorted(found, key=lambda s: -s.times))

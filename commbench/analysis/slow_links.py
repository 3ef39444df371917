"""Finds the hosts whose links are slower than those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commbench.analysis.statistics import median
from commbench.results.schema import LinkProbe

SLOWER = 1.6
"""A probe that takes so many times as long as the usual one is slow; scatter is smaller."""


class SlowLink(NamedTuple):
    """A slow probe, and the rank whose host is the likely cause."""

    probe: LinkProbe
    times: float
    """How many times as long as the usual probe it took."""
    culprit: int
    """The host that both sends and receives slowly, where there is one; else the sender."""


def find_slow_links(link_probes: Sequence[LinkProbe]) -> tuple[SlowLink, ...]:
    """The slow probes, slowest first. The usual probe is the median; of two probes, the faster."""
    if len(link_probes) < 2:
        return ()
    ordered = sorted(probe.seconds for probe in link_probes)
    usual = ordered[0] if len(link_probes) == 2 else median(ordered)
    if not usual:
        return ()
    slow = [probe for probe in link_probes if probe.seconds > SLOWER * usual]
    receivers = {probe.receiver for probe in slow}
    both = {probe.sender for probe in slow} & receivers
    found = [
        SlowLink(
            probe,
            probe.seconds / usual,
            probe.receiver if probe.receiver in both and probe.sender not in both else probe.sender,
        )
        for probe in slow
    ]
    return tuple(sorted(found, key=lambda s: -s.times))

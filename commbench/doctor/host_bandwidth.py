"""What this host can move at most: ceilings that no bandwidth of gloo on it can exceed."""

from __future__ import annotations

from typing import NamedTuple

from commbench.doctor import loopback
from commbench.doctor.host_facts import HostFacts
from commbench.doctor.memory_copy import copy_rate
from commbench.doctor.sample_range import SampleRange

REPEATS = 5
STREAM_S = 0.5
TRIP_S = 0.1
COPY_S = 0.2
"""Seconds of one repeat where there is a minute for the whole check."""
A_MINUTE_S = 60.0


class HostBandwidth(NamedTuple):
    """Medians over the repeats, with the least and the largest; None: could not be measured."""

    loopback: SampleRange | None
    """Bytes per second, one way, between two processes."""
    round_trip: SampleRange | None
    """Seconds for a byte there and one back."""
    copy_one: SampleRange | None
    """Bytes per second that one core copies."""
    copy_all: SampleRange | None
    """Bytes per second that all cores copy together."""
    cores: int
    """So many are all."""
    undisturbed: bool
    """Whether the first three were measured before all other work on their cores."""


def measure_ceilings(facts: HostFacts, seconds: float) -> HostBandwidth:
    """Measure them, in a twelfth of the seconds that there are for the whole check."""
    scale = min(1.0, seconds / A_MINUTE_S)
    cores = len(facts.cores)
    sharing = facts.cache_cores or cores
    return HostBandwidth(
        loopback=loopback.bandwidth(REPEATS, scale * STREAM_S),
        round_trip=loopback.round_trip(REPEATS, scale * TRIP_S),
        copy_one=copy_rate(1, facts.cache_bytes, 1, REPEATS, scale * COPY_S),
        copy_all=copy_rate(cores, facts.cache_bytes, sharing, REPEATS, scale * COPY_S),
        cores=cores,
        undisturbed=facts.fifo_permitted is True,
    )

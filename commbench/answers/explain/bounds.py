"""What bounds a call, latency or bandwidth, and what then helps."""

from __future__ import annotations

from commbench.stats import Estimate
from commbench.units import format_share
from commbench.views.cells import RATIO_WITH_INTERVAL

LATENCY, BANDWIDTH, BOTH = "latency-bound", "bandwidth-bound", "bound by latency and bandwidth"
PARTLY_LATENCY, PARTLY_BANDWIDTH = (f"at least partly {each}" for each in (LATENCY, BANDWIDTH))
UNDECIDED = "undecided"
FEWER_BYTES = "fewer bytes or a faster path help"
HELPS = {
    LATENCY: ("fewer and larger calls help", "fewer calls help"),
    BANDWIDTH: (f"{FEWER_BYTES} most", FEWER_BYTES),
    BOTH: ("larger calls and fewer bytes both help", "fewer bytes help"),
    PARTLY_LATENCY: (
        "fewer and larger calls help, perhaps also fewer bytes",
        "fewer calls help, perhaps also fewer bytes",
    ),
    PARTLY_BANDWIDTH: (f"{FEWER_BYTES}, perhaps also larger calls", FEWER_BYTES),
}
"""What helps; and the same where measured times say that another size may not be slower."""
NO_DATA = "fewer calls help", "since it moves no data"
"""Of a call that moves no data: what helps, and why all of its time is latency."""
CLEAR = 0.6
"""A part that takes at least so much of a time bounds it."""
LIMITS = f"{LATENCY} from {format_share(CLEAR)} on, {BANDWIDTH} up to {format_share(1 - CLEAR)}"
"""From which share of latency on a call is one or the other."""


def find_bound(share: float | Estimate) -> str:
    """What bounds a call of whose time this share is latency; as far as all of its interval says
    so."""
    ends = share.ends if isinstance(share, Estimate) else (share, share)
    bounds = {LATENCY if s >= CLEAR else BANDWIDTH if s <= 1 - CLEAR else BOTH for s in ends}
    if len(bounds) == 1:
        return bounds.pop()
    partly = {LATENCY: PARTLY_LATENCY, BANDWIDTH: PARTLY_BANDWIDTH}
    return partly[(bounds - {BOTH}).pop()] if BOTH in bounds else UNDECIDED


def what_helps(bound: str, twice: Estimate | None = None, half: Estimate | None = None) -> str:
    """What helps a call, as far as measured times agree: of twice the size over its own, and its
    own over that of half the size. Above 2, the smaller calls move the same bytes faster."""
    helps, otherwise = HELPS.get(bound, (LIMITS, LIMITS))
    said = {"twice the size takes {} times as long": twice}
    said["it takes {} times as long as half the size"] = half
    measured = [(how, found) for how, found in said.items() if found]
    slower = [each for each in measured if each[1].has_interval and each[1].ends[0] > 2]
    words = "larger calls do not help, and smaller ones may"
    if slower and slower[0][1] is not twice:
        words = "smaller calls may help"
    elif not slower and bound not in (BANDWIDTH, UNDECIDED):
        slower = [each for each in measured[:1] if each[1].ends[1] >= 2]
        words = "larger calls may not help"
    if not slower:
        return helps
    how, ratio = slower[0]
    return f"{otherwise}; {words}: {how.format(RATIO_WITH_INTERVAL.write(ratio))}"

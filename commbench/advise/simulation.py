"""Computation and calls that go on at the same time.

Calls are sent one after the other. While computation and a call both go on, each advances at
1/(1 + slowdown) of its own rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import ndarray


class Slowdown(NamedTuple):
    """What computation and communication cost each other while both go on, as fractions."""

    computation: float = 0.0
    communication: float = 0.0
    source: str = ""
    """The computation that was measured; empty where none was."""


class Call(NamedTuple):
    """A call, and the computation around it."""

    alone_s: ndarray
    """Of the call when no other is under way, in replicates."""
    busy_s: ndarray
    """Of the call when it follows another one without a pause."""
    ready_s: float
    """Seconds of computation that must be done before it is sent."""
    limit_s: float
    """Seconds of computation that can be done before it has ended."""


def simulate(calls: Sequence[Call], computation_s: float, slowdown: Slowdown) -> ndarray:
    """Seconds until all is computed and all calls have ended, in replicates."""
    import numpy as np

    both, alone_after = 1 + slowdown.communication, 1 + slowdown.computation
    now = np.zeros_like(calls[0].alone_s)  # seconds since the beginning
    done = np.zeros_like(now)  # seconds of computation that are done
    for index, call in enumerate(calls):
        is_waiting = done >= call.ready_s * (1 - 1e-12)
        idle = np.where(is_waiting, 0.0, call.ready_s - done)
        now += idle
        done += idle
        work = np.where(is_waiting, call.busy_s, call.alone_s) if index else call.alone_s
        left = np.maximum(call.limit_s - done, 0.0)
        beside = work * both / alone_after  # computation done, if it outlasts the call
        lasts = beside <= left
        rest = work - left * alone_after / both  # of the call, after the end of the computation
        now += np.where(lasts, work * both, left * alone_after + rest)
        done += np.where(lasts, beside, left)
    return np.asarray(now + (computation_s - done))

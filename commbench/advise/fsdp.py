"""How long a step of FSDP2 takes with 1, 2, 3 ... blocks in one group, by simulation over measured
times.

    forward    all_gather 0 1 2 ...          each group is gathered while the one before it computes
               compute      0 1 2 ...
    backward   all_gather ... 2 1 0          the same in reverse order
               compute      ... 2 1 0
               reduce_scatter ... 2 1 0      of a group when its gradients are ready

All calls of a group of ranks are sent one after the other, as NCCL does with the calls of one
communicator. At most two groups of blocks are gathered at once, as FSDP2 prefetches one group. A
group computes backwards when the gradients of the second group before it have been reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from commbench.advise.simulation import Call, Slowdown, simulate
from commbench.advise.time_table import TimeTable, interval
from commbench.stats.estimate import Estimate

if TYPE_CHECKING:
    from numpy import ndarray

FORWARD_PART = 0.5
"""The forward pass has half the operations of the backward pass."""


class Blocks(NamedTuple):
    """What a step of FSDP computes and communicates."""

    gathered_bytes: int
    """Bytes of all parameters, as they are gathered."""
    reduced_bytes: int
    """Bytes of all gradients, as they are reduced."""
    blocks: int
    """How many transformer blocks, or other parts of equal size, the model has."""
    backward_s: float
    """Seconds of the backward pass without communication; the forward pass takes FORWARD_PART of
    it."""


class GroupTime(NamedTuple):
    """A step with so many blocks in one group."""

    blocks: int
    time_s: Estimate
    """Of forward and backward pass, with their communication."""
    gathered_bytes: int
    """The memory of the two groups that are gathered at once."""


class GroupingAdvice(NamedTuple):
    """How many blocks belong into one group of FSDP2."""

    step: Blocks
    slowdown: Slowdown
    curve: tuple[GroupTime, ...]
    recommended: GroupTime
    """The smallest group whose step takes at most `tolerance` longer than the shortest one."""
    now: GroupTime
    """One block in each group; the smallest group that was measured, where that is larger."""
    gain: Estimate
    """The time of now over that of the recommended groups."""
    gain_without_reshard: Estimate
    """The time of the recommended groups over the same with reshard_after_forward=False."""


def find_grouping(
    gather: TimeTable, scatter: TimeTable, step: Blocks, slowdown: Slowdown, tolerance: float
) -> GroupingAdvice | None:
    """The best number of blocks in a group among those whose calls were measured; None where no
    size of a group was measured."""
    draws = gather.draw(), scatter.draw(1)
    times: dict[int, ndarray] = {}
    kept: dict[int, ndarray] = {}
    for count in group_sizes(gather, scatter, step):
        sizes = [min(count, step.blocks - first) for first in range(0, step.blocks, count)]
        gathers, scatters = (
            [draw.at(total * size / step.blocks) for size in sizes]
            for draw, total in zip(draws, (step.gathered_bytes, step.reduced_bytes), strict=True)
        )
        times[count] = step_time(step, sizes, gathers, scatters, slowdown, is_kept=False)
        kept[count] = step_time(step, sizes, gathers, scatters, slowdown, is_kept=True)
    if not times:
        return None
    curve = [
        GroupTime(count, interval(found), ceil(2 * step.gathered_bytes * count / step.blocks))
        for count, found in times.items()
    ]
    shortest = min(found[0] for found in times.values())
    recommended = next(p for p in curve if p.time_s.value <= shortest * (1 + tolerance))
    now = curve[0]
    return GroupingAdvice(
        step, slowdown, tuple(curve), recommended, now,
        interval(times[now.blocks] / times[recommended.blocks]),
        interval(times[recommended.blocks] / kept[recommended.blocks]),
    )  # fmt: skip


def group_sizes(gather: TimeTable, scatter: TimeTable, step: Blocks) -> list[int]:
    """Numbers of blocks in a group, from 1 on, whose calls lie within the measured sizes; at least
    two groups are left, so that something can be hidden."""
    numbers = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if 2 * n <= step.blocks]
    return [
        count
        for count in numbers or [1]
        if gather.covers(step.gathered_bytes * count / step.blocks)
        and scatter.covers(step.reduced_bytes * count / step.blocks)
    ]


def step_time(
    step: Blocks, sizes: Sequence[int], gathers: Sequence[ndarray], scatters: Sequence[ndarray],
    slowdown: Slowdown, is_kept: bool,
) -> ndarray:  # fmt: skip
    """Seconds of one step whose groups have so many blocks each, and whose calls take so long.
    `is_kept`: parameters stay gathered after the forward pass, and are not gathered again."""
    part = step.backward_s / step.blocks
    forward = [*accumulate((part * FORWARD_PART * size for size in sizes), initial=0.0)]
    backward = [*accumulate((part * size for size in reversed(sizes)), initial=forward[-1])]
    total, groups = backward[-1], len(sizes)
    calls = [  # one group ahead: not before the group before computes
        (gathers[index], forward[max(0, index - 1)], forward[index]) for index in range(groups)
    ]
    for turn in range(1, groups):  # the last group is still there
        index = groups - 1 - turn
        if not is_kept:
            calls.append((gathers[index], backward[turn - 1], backward[turn]))
        calls.append((scatters[index + 1], backward[turn], backward[turn + 1]))
    calls.append((scatters[0], total, total))
    return simulate([Call(time, time, *around) for time, *around in calls], total, slowdown)

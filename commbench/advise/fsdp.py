"""How long a step of FSDP2 takes with 1, 2, 3 ... blocks in one group, by simulation over measured
times.

    forward    all_gather 0 1 2 ...          each group is gathered while the one before it computes
               compute      0 1 2 ...
    backward   all_gather ... 2 1 0          the same in reverse order
               compute      ... 2 1 0
               reduce_scatter ... 2 1 0      of a group when its gradients are ready

All calls of a group of ranks are sent one after the other, as NCCL does with the calls of one
communicator. At most two groups of blocks are gathered at once, as FSDP2 prefetches one group.
While computation and communication both go on, each advances at 1/(1 + slowdown) of its own rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from commbench.advise.buckets import Slowdown
from commbench.advise.time_table import TimeTable, interval
from commbench.stats.estimate import Estimate

if TYPE_CHECKING:
    from numpy import ndarray

REPLICATES = 60
"""A simulation has so many replicates: it is not vectorised."""
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
    import numpy as np

    draws = gather.draw(), scatter.draw(1)
    times: dict[int, ndarray] = {}
    kept: dict[int, ndarray] = {}
    for count in group_sizes(gather, scatter, step):
        sizes = [min(count, step.blocks - first) for first in range(0, step.blocks, count)]
        calls = [
            [draw.at(total * size / step.blocks)[:REPLICATES] for size in sizes]
            for draw, total in zip(draws, (step.gathered_bytes, step.reduced_bytes), strict=True)
        ]
        for found, is_kept in ((times, False), (kept, True)):
            found[count] = np.array([
                step_time(step, sizes, [c[r] for c in calls[0]], [c[r] for c in calls[1]],
                          slowdown, is_kept)
                for r in range(REPLICATES)
            ])  # fmt: skip
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
        if all(
            table.smallest <= total * count / step.blocks <= table.largest
            for table, total in ((gather, step.gathered_bytes), (scatter, step.reduced_bytes))
        )
    ]


class _Task(NamedTuple):
    """Work of one of the two queues, which begins when both queues have done so many tasks."""

    seconds: float
    calls: int
    """Tasks of the communication that must have ended before."""
    computed: int
    """Tasks of the computation that must have ended before."""


def step_time(
    step: Blocks, sizes: Sequence[int], gathers: Sequence[float], scatters: Sequence[float],
    slowdown: Slowdown, is_kept: bool,
) -> float:  # fmt: skip
    """Seconds of one step whose groups have so many blocks each, and whose calls take so long.
    `is_kept`: parameters stay gathered after the forward pass, and are not gathered again."""
    calls: list[_Task] = []
    computation: list[_Task] = []
    part = step.backward_s / step.blocks
    for index, size in enumerate(sizes):  # one group ahead: not before the group before computes
        calls.append(_Task(gathers[index], 0, max(0, index - 1)))
        computation.append(_Task(part * FORWARD_PART * size, index + 1, 0))
    groups = len(sizes)
    order = list(reversed(range(groups)))
    waiting: list[_Task] = []
    for turn, index in enumerate(order):
        if not is_kept and turn:  # the last group is still there
            calls.append(_Task(gathers[index], 0, groups + turn - 1))
        needed = len(calls)
        calls += waiting
        computation.append(_Task(part * sizes[index], needed, 0))
        waiting = [_Task(scatters[index], 0, groups + turn + 1)]
    calls += waiting
    return _run(calls, computation, slowdown)


def _run(calls: Sequence[_Task], computation: Sequence[_Task], slowdown: Slowdown) -> float:
    """Seconds until both queues are empty."""
    queues = (list(calls), list(computation))
    slow = (1 + slowdown.communication, 1 + slowdown.computation)
    done, left, now = [0, 0], [calls[0].seconds, computation[0].seconds], 0.0

    def can_run(which: int) -> bool:
        if done[which] == len(queues[which]):
            return False
        task = queues[which][done[which]]
        return task.calls <= done[0] and task.computed <= done[1]

    while done[0] < len(calls) or done[1] < len(computation):
        runs = [can_run(0), can_run(1)]
        assert any(runs)
        rates = [slow[w] if all(runs) else 1.0 for w in (0, 1)]
        step = min(left[w] * rates[w] for w in (0, 1) if runs[w])
        now += step
        for which in (0, 1):
            if runs[which]:
                left[which] -= step / rates[which]
                if left[which] <= 1e-15:
                    done[which] += 1
                    if done[which] < len(queues[which]):
                        left[which] = queues[which][done[which]].seconds
    return now

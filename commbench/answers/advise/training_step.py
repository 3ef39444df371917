"""How long a backward pass takes with buckets of each size, by simulation over measured times.

    gradients   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒          ready at an even rate, G bytes in C seconds
    buckets          ■■■■ ■■■■ ■■■■ ■■■■ ■■■■     one after the other, T(b) each

A bucket is sent when its last gradient is ready and the bucket before it has been sent. The pass
ends when all gradients are ready and the last bucket has been sent. With T(b) = alpha + beta b and
n = G/b equal buckets that is, where the computation is the longer of the two (C > G beta),

    C + T(b), from b* = alpha / (C/G - beta) on, the smallest bucket with T(b) <= C b/G

and where the communication is the longer one

    C b/G + G/b alpha + G beta, least at b* = G sqrt(alpha/C)

The simulation needs neither form: it takes T(b) from the measured table, the rest that the last
bucket holds, the smaller first bucket of torch's default, and the slowdown of computation and
communication while both go on: each then advances at 1/(1 + slowdown) of its own rate.

How long a step of FSDP2 takes with 1, 2, 3 ... blocks in one group, by simulation over measured
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
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.answers.advise.time_table import Call, Draw, Slowdown, TimeTable, interval, simulate
from commbench.errors import UsageError
from commbench.plan.call_forms import DDP_BUCKET, DDP_FIRST_BUCKET
from commbench.stats import Estimate
from commbench.units import format_bytes
from commbench.views.formats import fields_of

if TYPE_CHECKING:
    from numpy import ndarray

MIB = 1 << 20
MOST_BUCKETS = 1024
"""Bucket sizes that make more buckets are not simulated: where so many small ones are fast, the
time that is not hidden is at most a thousandth of the computation."""
FAR, TOO_FAR = 2, 8
"""A bucket that is more than so many times as large as any measured size is only guessed: the first
where it is the best one, the second always."""
MOST_BUCKETS_NOW = 1 << 16
"""The most buckets that the size in use may make: they take two seconds to simulate."""
STEPS_PER_OCTAVE = (1.0, 1.25, 1.5, 1.75)
"""Bucket sizes that are tried, times a power of two: short numbers to paste."""


class Step(NamedTuple):
    """What a training step computes and communicates."""

    gradient_bytes: int
    """Bytes of all gradients."""
    backward_s: float
    """Seconds of the backward pass without communication."""
    tensors: int | None = None
    """Into how many equal parts the gradients are cut that become ready one by one; None: so many
    that a bucket never holds more than its size."""


class BucketTime(NamedTuple):
    """The backward pass with buckets of one size."""

    bucket_bytes: int
    time_s: Estimate
    """From its beginning to the end of the last bucket."""
    buckets: int
    """How many there are."""
    largest_bytes: int
    """Of the largest of them."""


class BucketAdvice(NamedTuple):
    """Which bucket size is best, for one operation of one group of ranks."""

    table: TimeTable
    step: Step
    slowdown: Slowdown
    curve: tuple[BucketTime, ...]
    """By ascending size, within the measured sizes."""
    best: BucketTime
    """The fastest of `curve` and `now`."""
    recommended: BucketTime
    """`now` where that is good; else in the middle of `good`, so that a small error of the
    simulation costs nothing."""
    good_bytes: tuple[int, int]
    """The sizes from and to which the pass takes at most `tolerance` longer than the best one."""
    now: BucketTime
    """With the buckets that are used now, also where they are larger than any measured size."""
    gain: Estimate
    """The time of now over that of the recommended size."""
    is_communication_bound: bool
    """Whether the communication of all gradients alone takes longer than the computation."""
    communication_s: float
    """Seconds of all buckets of the recommended size, one after another, alone."""
    beyond: bool
    """Whether the largest measured size, or a larger one, is good: larger ones may be better."""

    @property
    def largest_sent(self) -> int:
        """Bytes of the largest bucket, of the recommended ones and of those in use."""
        return max(self.recommended.largest_bytes, self.now.largest_bytes)

    @property
    def is_guess(self) -> bool:
        """Whether the size in use is so large that no measured size supports its time."""
        far = FAR if self.recommended == self.now else TOO_FAR
        return self.now.largest_bytes > far * self.table.largest

    def as_json(self) -> dict[str, Any]:
        """Its fields, without the measured times."""
        measured = (self.table.smallest, self.table.largest)
        return {**fields_of(self, "is_guess", without=("table",)), "measured_bytes": measured}


def find_buckets(
    table: TimeTable, step: Step, slowdown: Slowdown, tolerance: float,
    now_bytes: int | None = None,
) -> BucketAdvice:  # fmt: skip
    """The best bucket size of DistributedDataParallel: that in use, or one of those that lie within
    the measured sizes. `now_bytes` is the bucket_cap_mb in use; None: torch's default, 25 MiB with
    a first bucket of 1 MiB. Raises UsageError where the size in use makes too many buckets."""
    import numpy as np

    draw = table.draw()

    def run(cap: int, first: int) -> tuple[BucketTime, ndarray, list[int]]:
        sizes = cut(step, cap, first)
        times = pass_times(draw, sizes, step, slowdown)
        return BucketTime(cap, interval(times), len(sizes), max(sizes)), times, sizes

    cap = DDP_BUCKET if now_bytes is None else now_bytes
    _require_few(step, cap)
    used = run(cap, DDP_FIRST_BUCKET if now_bytes is None else cap)
    # Of several sizes that make the same buckets, the largest.
    different = {tuple(cut(step, size, size)): size for size in bucket_sizes(table, step)}
    tried = [run(size, size) for size in sorted(different.values())]
    now, curve = used[0], [point for point, _, _ in tried]
    every = sorted(dict.fromkeys([*curve, now]), key=lambda each: each.bucket_bytes)
    best = min(every, key=lambda point: point.time_s.value)
    good = _around(every, best, tolerance)
    middle = (good[0].bucket_bytes * good[-1].bucket_bytes) ** 0.5
    chosen = used
    if now not in good:
        inside = [each for each in tried if each[0] in good]
        chosen = min(inside, key=lambda each: abs(np.log(each[0].bucket_bytes / middle)))
    recommended, times, sent = chosen
    alone = float(sum(draw.at(size)[0] for size in sent))
    return BucketAdvice(
        table, step, slowdown, tuple(curve), best, recommended,
        (good[0].bucket_bytes, good[-1].bucket_bytes), now, interval(used[1] / times),
        alone > step.backward_s, alone,
        curve[-1].bucket_bytes <= good[-1].bucket_bytes and table.largest < step.gradient_bytes,
    )  # fmt: skip


def _require_few(step: Step, cap: int) -> None:
    number = min(ceil(step.gradient_bytes / cap), step.tensors or step.gradient_bytes)
    if number > MOST_BUCKETS_NOW:
        raise UsageError(
            f"{number:,} buckets of {format_bytes(cap)} are too many to simulate: more than "
            f"{MOST_BUCKETS_NOW:,}",
            "give a larger --bucket-cap, such as 100M",
        )


def _around(curve: Sequence[BucketTime], best: BucketTime, tolerance: float) -> list[BucketTime]:
    """The points next to the best one that are at most `tolerance` longer, without a gap."""
    limit = best.time_s.value * (1 + tolerance)
    first = last = curve.index(best)
    while first > 0 and curve[first - 1].time_s.value <= limit:
        first -= 1
    while last + 1 < len(curve) and curve[last + 1].time_s.value <= limit:
        last += 1
    return list(curve[first : last + 1])


def bucket_sizes(table: TimeTable, step: Step) -> list[int]:
    """The bucket sizes to try: short numbers within the measured sizes, and all gradients in one
    bucket if that was measured; at least one size."""
    most = min(table.largest, step.gradient_bytes)
    least = min(max(table.smallest, least_size(step)), most)
    found = {most} if step.gradient_bytes <= table.largest else set()
    found |= {int((1 << k) * p) for k in range(most.bit_length()) for p in STEPS_PER_OCTAVE}
    return sorted(size for size in found if least <= size <= most) or [most]


def least_size(step: Step) -> int:
    """The bytes of a bucket below which there would be more than MOST_BUCKETS; 1 where the tensors
    are too few for that."""
    few = step.tensors is not None and step.tensors <= MOST_BUCKETS
    return 1 if few else ceil(step.gradient_bytes / MOST_BUCKETS)


def cut(step: Step, cap: int, first: int) -> list[int]:
    """The bytes of each bucket, in the order in which they are sent. A bucket is full when it has
    reached its size, so with tensors it holds whole ones, and may be larger than its size, as in
    torch's Reducer."""
    left, sizes, limit = step.gradient_bytes, [], first
    part = step.gradient_bytes / step.tensors if step.tensors else None
    while left > 0:
        size = limit if part is None else int(part * max(1, ceil(limit / part - 1e-9)))
        sizes.append(min(left, size))
        left -= sizes[-1]
        limit = cap
    return sizes


def pass_times(draw: Draw, sizes: Sequence[int], step: Step, slowdown: Slowdown) -> ndarray:
    """Seconds of a backward pass with these buckets, for each replicate."""
    times = {size: (draw.at(size), draw.busy_at(size)) for size in {*sizes}}
    ready = accumulate(size / step.gradient_bytes * step.backward_s for size in sizes)
    calls = [Call(*times[s], at, step.backward_s) for s, at in zip(sizes, ready, strict=True)]
    return simulate(calls, step.backward_s, slowdown)


# Groups of FSDP2

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

    @property
    def is_alone(self) -> bool:
        """Whether the calls of no other groups, of which there are some, were measured."""
        return len(self.curve) == 1 and self.step.blocks >= 4


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

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
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, takewhile
from math import ceil, log
from typing import Any, NamedTuple

from commbench.analysis.statistics import Z
from commbench.answers.cost.fit import factor_above, fit_sizes
from commbench.errors import UsageError
from commbench.plan.call_forms import DDP_BUCKET, DDP_FIRST_BUCKET
from commbench.stats import UNDECIDED, Array, Estimate, decide, np
from commbench.units import format_bytes
from commbench.views.formats import fields_of

REPLICATES = 200
"""Columns of drawn times; the ends of a 95 % interval are then known to about one of a hundred."""
ESTIMATED = "estimated"
"""The kind of a table of calls that follow one another, where that was not measured."""


class TimeTable(NamedTuple):
    """The times of one operation against size."""

    kind: str
    """The title of the rows."""
    sizes: tuple[int, ...]
    """In bytes, ascending; at least two."""
    times: tuple[Estimate, ...]
    """In seconds, of a call that begins when no other one is under way."""
    busy: TimeTable | None = None
    """The times of calls that follow one another without a pause, or are started together; None
    where that was not measured."""
    waited: tuple[int, ...] = ()
    """The sizes at which ranks waited for a core too long."""

    @property
    def smallest(self) -> int:
        """The smallest measured size."""
        return self.sizes[0]

    @property
    def largest(self) -> int:
        """The largest measured size."""
        return self.sizes[-1]

    def has_waited(self, size_bytes: float) -> bool:
        """Whether ranks waited for a core at a size that says how long one of this size takes, also
        after another."""
        place = min(max(1, bisect_left(self.sizes, size_bytes)), len(self.sizes) - 1)
        low, high = self.sizes[place - 1 : place + 1]
        used = {size_bytes} & {low, high} or {low, high}
        return bool(used & {*self.waited} or (self.busy and self.busy.has_waited(size_bytes)))

    @property
    def flat_sizes(self) -> tuple[int, int] | None:
        """The first and the last of the largest sizes, if it is not sure that the time grows with
        them: nothing shows larger ones then. The line is that of `commbench explain`; of two sizes
        the intervals count."""
        if ranges := fit_sizes(dict(zip(self.sizes, self.times, strict=True))):
            return None if ranges[-1].grows else ranges[-1].ends
        is_sure = self.times[-1].ends[0] > self.times[0].ends[1]
        return None if is_sure else (self.smallest, self.largest)

    def draw(self, seed: int = 0) -> Draw:
        """The table with its replicates."""
        chance = np.random.default_rng(seed)
        times = np.array([time.value * draw_factors(time, chance) for time in self.times])
        busy = self.busy.draw(seed + 1) if self.busy else None
        return Draw(np.array(self.sizes, float), times, busy)


class Draw(NamedTuple):
    """The times of a table, in replicates."""

    sizes: Array
    times: Array
    """Seconds: a row for each size, a column for each replicate; column 0 has the medians."""
    busy: Draw | None = None

    def at(self, size_bytes: float) -> Array:
        """Seconds of a call of that size, for each replicate."""
        place = int(np.searchsorted(self.sizes, size_bytes))
        if place == 0:
            return np.asarray(self.times[0])
        place = min(place, len(self.sizes) - 1)
        low, high = self.sizes[place - 1], self.sizes[place]
        part = (size_bytes - low) / (high - low)
        found = self.times[place - 1] * (1 - part) + self.times[place] * part
        if part <= 1:
            return np.asarray(found * self._between(place) if part < 1 else found)
        # By noise, the line of the last two sizes may fall; a larger call takes no less time.
        error = factor_above(size_bytes, high)
        found *= draw_factors(Estimate(1.0, 1 / error, error), np.random.default_rng(2))
        return np.asarray(np.maximum(found, self.times[-1]))

    def _between(self, place: int) -> Array:
        """Factors of what a line between two sizes may be off: as much as the line over one of them
        is, from its neighbour on one side to that on the other."""
        sizes, times, error = self.sizes, self.times[:, 0], 1.0
        for n in range(max(1, place - 1), min(place + 1, len(sizes) - 1)):
            line = np.interp(sizes[n], sizes[[n - 1, n + 1]], times[[n - 1, n + 1]])
            error = max(error, line / times[n], times[n] / line)
        return draw_factors(Estimate(1.0, 1 / error, error), np.random.default_rng(place))

    def busy_at(self, size_bytes: float) -> Array:
        """Seconds that a call of that size takes after another one, without a pause: as `at` where
        that was not measured, or not at such sizes."""
        busy = self.busy
        if busy is None or not busy.sizes[0] <= size_bytes <= busy.sizes[-1]:
            return self.at(size_bytes)
        return busy.at(size_bytes)


def draw_factors(found: Estimate, chance: np.random.Generator) -> Array:
    """Drawn values over the value itself: log-normal with its interval; the first is 1. All are 1
    where the interval is not known."""
    sigma = log(found.high / found.low) / (2 * Z) if found.low and found.high else 0.0
    factors = np.exp(sigma * chance.standard_normal(REPLICATES))
    factors[0] = 1.0
    return np.asarray(factors)


def interval(replicates: Array) -> Estimate:
    """The value of column 0 with the interval of the replicates; no interval where they are all the
    same, because that of no row is known."""
    low, high = np.percentile(replicates, (2.5, 97.5))
    value = float(replicates[0])
    if np.ptp(replicates) <= 1e-12 * value:
        return Estimate(value)
    return Estimate(value, min(value, float(low)), max(value, float(high)))


class Slowdown(NamedTuple):
    """What computation and communication cost each other while both go on, as fractions."""

    computation: Estimate = Estimate(0.0)
    communication: Estimate = Estimate(0.0)
    source: str = ""
    """The computation that was measured; empty where none was."""
    other_run: str = ""
    """The run in which, where it ran in another CPU mode: `ov (cpu mode plain)`."""
    hides_nothing_in: str = ""
    """The run in which a computation hid hardly any of the communication; empty where it did."""

    @property
    def times(self) -> tuple[Estimate, Estimate]:
        """How many times as long a computation and a call take then, 1 or more."""
        both = self.computation, self.communication
        work, calls = (each.map(lambda more: max(1.0, 1 + more)) for each in both)
        return work, calls

    def draw(self) -> tuple[Array, Array]:
        """The same for each replicate; the first one has the values."""
        work, calls = self.times
        return _draw_sides(work, 3), _draw_sides(calls, 4)


def _draw_sides(found: Estimate, seed: int) -> Array:
    """Drawn values of 1 or more, log-normal on each side of the value: an end at 1 is nearer."""
    chance, (low, high) = np.random.default_rng(seed).standard_normal(REPLICATES), found.ends
    chance[0] = 0.0
    sides = np.where(chance > 0, high / found.value, found.value / low)
    return np.maximum(1.0, found.value * sides ** (chance / Z))


IN_TURNS = Slowdown(Estimate(1.0), Estimate(1.0))
"""Each takes twice as long beside the other: as if they only took turns, and hid nothing."""
MIB = 1 << 20
MOST_BUCKETS = 1024
"""Bucket sizes that make more buckets are not simulated: where so many small ones are fast, the
time that is not hidden is at most a thousandth of the computation."""
FAR = 2
"""A bucket that is more than so many times as large as any measured size is only guessed."""
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
    over_best: Estimate
    """Its time over that of the fastest size."""


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
    simulation costs nothing, and of a measured size where one is good."""
    good_bytes: tuple[int, int]
    """The sizes from and to which the pass takes at most `tolerance` longer than the best one."""
    now: BucketTime
    """With the buckets that are used now, also where they are larger than any measured size."""
    gain: Estimate
    """The time of now over that of the recommended size."""
    communication_s: Estimate
    """Seconds of all buckets of the recommended size, one after another, alone."""
    gain_in_turns: Estimate | None
    """The gain if calls and computing only take turns; None where their slowdown was measured."""
    tolerance: float
    """A smaller gain counts as none."""
    beyond: bool
    """Whether the largest measured size, or a larger one, is good: larger ones may be better."""

    @property
    def sure_gain(self) -> Estimate:
        """The gain, with an interval that contains gain_in_turns."""
        ends = [end for each in (self.gain, self.gain_in_turns) if each for end in each.ends]
        return Estimate(self.gain.value, min(ends), max(ends))

    @property
    def largest_sent(self) -> int:
        """Bytes of the largest bucket, of the recommended ones and of those in use."""
        return max(self.recommended.largest_bytes, self.now.largest_bytes)

    @property
    def is_guess(self) -> bool:
        """Whether the size in use is so large that no measured size supports its time."""
        return self.now.largest_bytes > FAR * self.table.largest

    @property
    def has_waited(self) -> bool:
        """Whether ranks waited for a core at the sizes of the buckets that it compares."""
        sizes = (self.recommended.largest_bytes, self.now.largest_bytes)
        return any(map(self.table.has_waited, sizes))

    @property
    def is_open(self) -> bool:
        """Whether the gain is not decided, even if nothing slows down more than is known."""
        decided = decide(self.gain, self.tolerance)
        return self.is_guess or self.has_waited or decided == UNDECIDED

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
    cap = DDP_BUCKET if now_bytes is None else now_bytes
    number = min(ceil(step.gradient_bytes / cap), step.tensors or step.gradient_bytes)
    if number > MOST_BUCKETS_NOW:
        what = f"{number:,} buckets of {format_bytes(cap)} are too many to simulate: more than "
        hint = "give a larger --bucket-cap, such as 100M"
        raise UsageError(f"{what}{MOST_BUCKETS_NOW:,}", hint)
    # Of several sizes that make the same buckets, the largest.
    different = {tuple(cut(step, size, size)): size for size in bucket_sizes(table, step)}
    tried = [(size, size) for size in sorted(different.values())]
    tried.append((cap, DDP_FIRST_BUCKET if now_bytes is None else cap))
    draw, sent = table.draw(), [cut(step, *each) for each in tried]
    times = [pass_times(draw, sizes, step, slowdown) for sizes in sent]
    fastest = min(times, key=lambda own: float(own[0]))
    *curve, now = points = [
        BucketTime(size, interval(own), len(sizes), max(sizes), interval(own / fastest))
        for (size, _), sizes, own in zip(tried, sent, times, strict=True)
    ]
    every = sorted(dict.fromkeys(points), key=lambda point: point.bucket_bytes)
    best = min(every, key=lambda point: point.time_s.value)
    good = _around(every, best, tolerance)
    middle = (good[0].bucket_bytes * good[-1].bucket_bytes) ** 0.5
    recommended = now
    if now not in good:
        measured = [point for point in good if point.largest_bytes in table.sizes]
        recommended = min(measured or good, key=lambda p: abs(np.log(p.bucket_bytes / middle)))
    at = points.index(recommended)
    alone = interval(np.sum([draw.at(size) for size in sent[at]], axis=0))
    in_turns = None
    if not slowdown.source:
        of_now, chosen = (pass_times(draw, sent[n], step, IN_TURNS) for n in (-1, at))
        in_turns = interval(of_now / chosen)
    return BucketAdvice(
        table, step, slowdown, tuple(curve), best, recommended,
        (good[0].bucket_bytes, good[-1].bucket_bytes), now, interval(times[-1] / times[at]),
        alone, in_turns, tolerance,
        curve[-1].bucket_bytes <= good[-1].bucket_bytes and table.largest < step.gradient_bytes,
    )  # fmt: skip


def _around(curve: Sequence[BucketTime], best: BucketTime, tolerance: float) -> list[BucketTime]:
    """The points next to the best one that are at most `tolerance` longer, without a gap."""

    def is_good(point: BucketTime) -> bool:
        return point.time_s.value <= best.time_s.value * (1 + tolerance)

    at = curve.index(best)
    before = [*takewhile(is_good, reversed(curve[:at]))]
    return [*reversed(before), best, *takewhile(is_good, curve[at + 1 :])]


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


def pass_times(draw: Draw, sizes: Sequence[int], step: Step, slowdown: Slowdown) -> Array:
    """Seconds until all is computed and all buckets have been sent, for each replicate."""
    times = {size: (draw.at(size), draw.busy_at(size)) for size in {*sizes}}
    alone_after, both = slowdown.draw()
    now = np.zeros_like(times[sizes[0]][0])  # seconds since the beginning
    done = np.zeros_like(now)  # seconds of computation that are done
    ready_s = accumulate(size / step.gradient_bytes * step.backward_s for size in sizes)
    for index, (size, ready) in enumerate(zip(sizes, ready_s, strict=True)):
        alone_s, busy_s = times[size]
        is_waiting = done >= ready * (1 - 1e-12)
        idle = np.where(is_waiting, 0.0, ready - done)
        now += idle
        done += idle
        work = np.where(is_waiting, busy_s, alone_s) if index else alone_s
        left = np.maximum(step.backward_s - done, 0.0)
        beside = work * both / alone_after  # computation done, if it outlasts the call
        lasts = beside <= left
        rest = work - left * alone_after / both  # of the call, after the end of the computation
        now += np.where(lasts, work * both, left * alone_after + rest)
        done += np.where(lasts, beside, left)
    return np.asarray(now + (step.backward_s - done))

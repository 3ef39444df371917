"""T(b): the time of a call of b bytes, from measured rows, between their sizes.

Between two measured sizes, T is linear in b, so a table of alpha + beta b is exact everywhere.
Below the smallest size it is the time of the smallest one, an upper bound. Above the largest it is
not known. Uncertainty is carried by replicates: column 0 has the medians, and in each other column
every measured time is drawn from the log-normal distribution whose 95 % interval is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from statistics import correlation
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.plan.backends import BACKENDS
from commbench.plan.call_forms import CALL_FORMS, ONE_TENSOR
from commbench.plan.case import Case
from commbench.plan.dimensions import EAGER, ISOLATED
from commbench.results.schema import OK
from commbench.stats import Estimate, collect
from commbench.units import format_bytes

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator

REPLICATES = 200
"""Columns of drawn times; the ends of a 95 % interval are then known to about one of a hundred."""
WIDTH_95 = 2 * 1.959964
"""The width of a 95 % interval in standard deviations of the normal distribution."""


CORRELATED = 0.9
"""Of size and time where a smaller growth counts, too."""
GROWTH = 1.5
"""So many times as long may a call take on a busy host, where the size is not the cause."""
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
    ranks: int = 1
    """That made each call."""

    @property
    def smallest(self) -> int:
        """The smallest measured size."""
        return self.sizes[0]

    @property
    def largest(self) -> int:
        """The largest measured size."""
        return self.sizes[-1]

    @property
    def grows(self) -> bool:
        """Whether the time surely depends on the size: otherwise nothing shows larger ones."""
        (_, most), (least, _) = self.times[0].ends, self.times[-1].ends
        medians = [time.value for time in self.times]
        return least > GROWTH * most or (
            least > most and correlation(self.sizes, medians) > CORRELATED
        )

    def covers(self, size_bytes: float) -> bool:
        """Whether a size lies within the measured sizes."""
        return self.smallest <= size_bytes <= self.largest

    def draw(self, seed: int = 0) -> Draw:
        """The table with its replicates."""
        import numpy as np

        chance = np.random.default_rng(seed)
        times = np.array([time.value * draw_factors(time, chance) for time in self.times])
        busy = self.busy.draw(seed + 1) if self.busy else None
        return Draw(np.array(self.sizes, float), times, busy)


class Draw(NamedTuple):
    """The times of a table, in replicates."""

    sizes: ndarray
    times: ndarray
    """Seconds: a row for each size, a column for each replicate; column 0 has the medians."""
    busy: Draw | None = None

    def at(self, size_bytes: float) -> ndarray:
        """Seconds of a call of that size, for each replicate."""
        import numpy as np

        place = int(np.searchsorted(self.sizes, size_bytes))
        if place == 0:
            return np.asarray(self.times[0])
        place = min(place, len(self.sizes) - 1)
        low, high = self.sizes[place - 1], self.sizes[place]
        part = (size_bytes - low) / (high - low)
        found = self.times[place - 1] * (1 - part) + self.times[place] * part
        # By noise, the line of the last two sizes may fall; a larger call takes no less time.
        return np.asarray(np.maximum(found, self.times[-1]) if part > 1 else found)

    def busy_at(self, size_bytes: float) -> ndarray:
        """Seconds that a call of that size takes after another one, without a pause: as `at` where
        that was not measured, or not at such sizes."""
        busy = self.busy
        if busy is None or not busy.sizes[0] <= size_bytes <= busy.sizes[-1]:
            return self.at(size_bytes)
        return busy.at(size_bytes)


def draw_factors(found: Estimate, chance: Generator) -> ndarray:
    """Drawn values over the value itself: log-normal with its interval; the first is 1. All are 1
    where the interval is not known."""
    import numpy as np

    sigma = log(found.high / found.low) / WIDTH_95 if found.low and found.high else 0.0
    factors = np.exp(sigma * chance.standard_normal(REPLICATES))
    factors[0] = 1.0
    return np.asarray(factors)


def interval(replicates: ndarray) -> Estimate:
    """The value of column 0 with the interval of the replicates; no interval where they are all the
    same, because that of no row is known."""
    import numpy as np

    low, high = np.percentile(replicates, (2.5, 97.5))
    value = float(replicates[0])
    if np.ptp(replicates) <= 1e-12 * value:
        return Estimate(value)
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def is_plain(case: Case) -> bool:
    """Whether a case is one eager call alone: no computation beside it, and one tensor."""
    return (
        not case.part
        and case.tensors == ONE_TENSOR
        and case.form in (CALL_FORMS["direct"].name, "")
        and case.launch_mode == EAGER
        and bool(case.size_bytes)
    )


def is_timed(row: ResultRow) -> bool:
    """Whether a row has a valid time."""
    return bool(row.time and row.time.median) and row.measurement.status == OK


def make_tables(rows: Iterable[ResultRow], operation: str) -> dict[str, TimeTable]:
    """The tables of an operation by the group that calls (Case.group), each of the kind of its rows
    with most sizes: the dtype, placement and so on. Calls that were timed back to back count only
    where no call was timed alone. Groups with fewer than two sizes have none."""
    every = [row for row in rows if is_timed(row) and row.case.operation == operation]
    found: dict[str, list[ResultRow]] = {}
    plain = [row for row in every if is_plain(row.case)]
    for is_isolated in (True, False):
        timed = (row for row in plain if (row.case.timing == ISOLATED) == is_isolated)
        found = collect((row.case.group, row) for row in timed) | found
    tables = {}
    for group, of_group in found.items():
        kinds = collect((row.case.title, row) for row in of_group)
        kind, same = max(kinds.items(), key=lambda item: len(item[1]))
        if _has_sizes(same):
            table = _table(kind, same, lambda case: case.size_bytes)
            tables[group] = table._replace(busy=_busy(every, same[0], table))
    return tables


def _busy(rows: Sequence[ResultRow], like: ResultRow, table: TimeTable) -> TimeTable | None:
    """The times of calls without a pause between them, of the same kind: of several tensors whose
    calls were started together, over their number; else of calls that were timed back to back.

    A backend that works on k calls at once takes at least T(b)/k for each, and no less than their
    bytes at the speed of the largest size; that is estimated where calls that were started together
    were not measured."""
    started, followed = [], []
    free = ("timing", "size_bytes", "tensors", "form", "buffers")
    for row in rows:
        if row.case.key(*free) != like.case.key(*free):
            continue
        is_several = row.case.tensors.isdigit() and row.case.tensors != ONE_TENSOR
        if row.case.form == "async" and is_several and row.case.timing == ISOLATED:
            started.append(row)
        elif is_plain(row.case) and row.case.timing != ISOLATED:
            followed.append(row)
    backend = BACKENDS.get(like.header.plan.backend)
    at_once = backend.calls_at_once if backend else 1
    if _has_sizes(started):
        return _table(started[0].case.title, started, _bytes_each)
    if _has_sizes(followed):
        table = _table(followed[0].case.title, followed, _bytes_each)
        if at_once == 1:
            return table
    if at_once == 1:
        return None
    speed = table.largest / table.times[-1].value
    times = []
    for size, time in zip(table.sizes, table.times, strict=True):
        times.append(time.scaled(min(1.0, max(1 / at_once, size / speed / time.value))))
    return TimeTable(ESTIMATED, table.sizes, tuple(times))


def _has_sizes(rows: Sequence[ResultRow]) -> bool:
    return len({_bytes_each(row.case) for row in rows}) > 1


def _bytes_each(case: Case) -> int:
    return case.size_bytes // case.num_tensors


def _table(kind: str, rows: Sequence[ResultRow], size: Callable[[Case], int]) -> TimeTable:
    """The table of rows; of several rows of one size the last counts."""
    by_size: dict[int, Estimate] = {}
    for row in rows:
        case, time = row.case, row.time
        assert time
        number = case.num_tensors
        by_size[size(case)] = time.estimate.scaled(1 / number)
    sizes = tuple(sorted(by_size))
    times = tuple(by_size[each] for each in sizes)
    return TimeTable(kind, sizes, times, ranks=rows[0].case.ranks)


# Computation and calls that go on at the same time


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


def size_range_text(low: int, high: int) -> str:
    """`64 KiB to 1 MiB`; empty without a size."""
    if not high:
        return ""
    return format_bytes(low) if low == high else f"{format_bytes(low)} to {format_bytes(high)}"

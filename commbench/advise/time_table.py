"""T(b): the time of a call of b bytes, from measured rows, between their sizes.

Between two measured sizes, T is linear in b, so a table of alpha + beta b is exact everywhere.
Below the smallest size it is the time of the smallest one, an upper bound. Above the largest it is
not known. Uncertainty is carried by replicates: column 0 has the medians, and in each other column
every measured time is drawn from the log-normal distribution whose 95 % interval is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.results.schema import OK
from commbench.spec.backends import BACKENDS
from commbench.spec.call_forms import CALL_FORMS, ONE_TENSOR
from commbench.spec.case import Case
from commbench.spec.timing_modes import EAGER, ISOLATED
from commbench.stats.estimate import Estimate

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator

REPLICATES = 200
"""Columns of drawn times; the ends of a 95 % interval are then known to about one of a hundred."""
WIDTH_95 = 2 * 1.959964
"""The width of a 95 % interval in standard deviations of the normal distribution."""


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
    every = [row for row in rows if is_timed(row) and row.measurement.case.operation == operation]
    found: dict[str, dict[str, list[ResultRow]]] = {}
    for is_isolated in (True, False):
        kinds: dict[str, dict[str, list[ResultRow]]] = {}
        for row in every:
            case = row.measurement.case
            if is_plain(case) and (case.timing == ISOLATED) == is_isolated:
                kinds.setdefault(case.group, {}).setdefault(case.title, []).append(row)
        found = kinds | found
    tables = {}
    for group, of_group in found.items():
        kind, same = max(of_group.items(), key=lambda item: len(item[1]))
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
        case = row.measurement.case
        if case.key(*free) != like.measurement.case.key(*free):
            continue
        is_several = case.tensors.isdigit() and case.tensors != ONE_TENSOR
        if case.form == "async" and is_several and case.timing == ISOLATED:
            started.append(row)
        elif is_plain(case) and case.timing != ISOLATED:
            followed.append(row)
    backend = BACKENDS.get(like.header.plan.backend)
    at_once = backend.calls_at_once if backend else 1
    if _has_sizes(started):
        return _table(started[0].measurement.case.title, started, _bytes_each)
    if _has_sizes(followed):
        table = _table(followed[0].measurement.case.title, followed, _bytes_each)
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
    return len({_bytes_each(row.measurement.case) for row in rows}) > 1


def _bytes_each(case: Case) -> int:
    return case.size_bytes // case.num_tensors


def _table(kind: str, rows: Sequence[ResultRow], size: Callable[[Case], int]) -> TimeTable:
    """The table of rows; of several rows of one size the last counts."""
    by_size: dict[int, Estimate] = {}
    for row in rows:
        case, time = row.measurement.case, row.time
        assert time
        number = case.num_tensors
        by_size[size(case)] = time.estimate.scaled(1 / number)
    sizes = tuple(sorted(by_size))
    times = tuple(by_size[each] for each in sizes)
    return TimeTable(kind, sizes, times, ranks=rows[0].measurement.case.ranks)

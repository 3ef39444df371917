"""The ratio of the times of two rows of one case: its interval, its verdict, and what else there
is to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from operator import mul
from statistics import fmean
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import statistics
from commbench.analysis.columns import COLUMNS, KEY
from commbench.analysis.diagnostics import LONGER, MOST_QUEUED, WAITED, has_waited
from commbench.analysis.rows import samples_by_launch
from commbench.analysis.statistics import UNDISTURBED
from commbench.answers.compare.turns import TIMES_AS_WIDE, RunFacts, are_in_turns, subtract
from commbench.output.text import short_repr
from commbench.plan.backends import usual_launch_spread
from commbench.plan.computations import COMMUNICATION
from commbench.results.schema import OK, WRONG, Measurement
from commbench.stats import Estimate
from commbench.views.formats import fields_of

WIDEST = 4.0
"""A ratio whose interval has ends that differ by more says too little to pass."""
OVERLAP = "the interval reaches over the tolerance"
HOST = "the host itself differs; without that it would be {}"
"""Why what the same host would decide is undecided."""
APART = "the runs differ, but they did not run in turns"
"""Why two runs on CPUs are undecided: see turns.SURE_TURNS."""
CLOSE = "beyond the limit, but the earlier runs are close in time"
"""Why a run against a history is: see Level.is_close."""
NO_INTERVAL = "decided by the two times alone, because no interval is known"
LATENCY, BANDWIDTH = "latency", "bandwidth"


FOLLOWED = 0.75
"""Below this part of its logarithm, it is said that calls hardly followed a change of the host."""


class HostChange(NamedTuple):
    """A figure of the host that differs between two runs by more than chance."""

    takes: str
    ratio: Estimate
    """That of B over that of A."""
    part: str = ""
    """The part of the time of a call that it changes, LATENCY or BANDWIDTH; empty: the whole."""
    allowed: float = 1.0
    """The ratio as far as calls may have followed it: see host.limit_change."""


class HostEffect(NamedTuple):
    """How many times as long a call may take for the host alone."""

    least: float = 1.0
    most: float = 1.0

    def widen(self, found: Estimate | None) -> Estimate | None:
        """The ratio of two times, with an interval that leaves to the host what it may cause."""
        if found is None or not found.has_interval:
            return found
        low, high = found.ends
        return Estimate(found.value, low / self.most, high / self.least)

    def with_wait(self, times: float) -> HostEffect:
        """With what find_wait_effect says."""
        return HostEffect(self.least * min(1.0, times), self.most * max(1.0, times))

    def without(self, found: Estimate | None) -> Estimate | None:
        """The ratio with the interval that it had before it was widened."""
        return HostEffect(1 / self.least, 1 / self.most).widen(found)

    def hold(self, found: Estimate, number: int, degrees: int, times_as_wide: float) -> Estimate:
        """The ratio as stats.hold_together makes it; what the host may cause grows with nothing."""
        plain = self.without(found) or found
        wide = stats.hold_together(plain, number, degrees, times_as_wide)
        return self.widen(wide) or wide


NO_EFFECT = HostEffect()


@short_repr("either.case.name", "verdict")
class ComparedRow(NamedTuple):
    """Two rows that measured the same case."""

    kind: str
    """The title of the case: what it is without its size."""
    a: Any
    """The row of A, a named tuple of columns of results.csv; None where only B has one."""
    b: Any
    ratio: Estimate | None
    """Time of B over time of A; None where it is not known."""
    verdict: str
    """One of VERDICTS."""
    reason: str = ""
    """Why it is `undecided` or `not compared`, or that no interval is known; empty for others."""
    samples: tuple[Measurement, Measurement] | None = None
    """Both sides with their samples; None where a run has none."""
    host: HostEffect = NO_EFFECT
    """For which both ratios are widened."""
    runs: tuple[RunFacts, RunFacts] | None = None
    """Of A and of B, where these are two runs. Then both ratios are widened for what differs
    between runs."""
    level: Any = None
    """Of a history the answers.history.level.Level of A."""

    @property
    def in_turns(self) -> bool:
        """Whether each launch of both sides was a turn of its own."""
        return are_in_turns(self.runs)

    @property
    def times_as_wide(self) -> float:
        """TIMES_AS_WIDE where there is a `why_apart`."""
        return TIMES_AS_WIDE if self.why_apart else 1.0

    @property
    def why_apart(self) -> str:
        """Why the host may have changed between both sides, more than they show; else empty."""
        if self.level:
            return CLOSE if self.level.is_close else ""
        return APART if self.runs and self.runs[0].is_apart else ""

    @property
    def either(self) -> Any:
        """The row of A; where it has none that of B."""
        return self.a or self.b

    @property
    def times(self) -> list[Estimate | None]:
        """The times of A and of B; in turns the geometric means over launches, whose ratio is
        `ratio`, without intervals: the ratio is known better than they are."""
        logs = [statistics.launch_logs(samples_by_launch(m)) for m in self.samples or ()]
        if self.in_turns and logs and all(logs):
            return [Estimate(exp(fmean(each))) for each in logs]
        return [self.a.time, self.b.time]

    @property
    def degrees(self) -> int:
        """Of freedom of the ratio; 0 where they are not known."""
        if self.level:
            return int(self.level.degrees)
        if self.runs and (own := logs_in_turns(self)):
            usual = usual_ratio_spread(self) or self.runs[0].spread
            return statistics.prior_degrees(own, usual, UNUSUAL_RATIO) + len(own) - 1
        sides = self.a.launches, self.b.launches
        return statistics.launch_degrees(*sides[: 1 if self.in_turns else 2])

    @property
    def waited(self) -> str:
        """On which sides ranks waited for a core, where it is undecided for that: `A and B`."""
        is_open = self.verdict == stats.UNDECIDED
        return waited_sides(self.a, self.b, self.in_turns) if is_open else ""

    @property
    def waits_itself(self) -> str:
        """The side whose ranks waited far longer for a core than those of the other, in turns."""
        sides = waited_sides(self.a, self.b)
        return "" if waited_sides(self.a, self.b, self.in_turns) == sides else sides

    @property
    def undisturbed(self) -> Estimate | None:
        """The same ratio of undisturbed calls."""
        return widen([self], find_ratio(self, UNDISTURBED), UNDISTURBED)

    def as_json(self) -> dict[str, Any]:
        """What was measured on either side, and the ratio."""
        sides = {"a": side_json(self.a), "b": side_json(self.b)}
        unsaid = ("kind", "a", "b", "samples", "host", "runs", "level")
        found = fields_of(self, without=unsaid)
        return case_json(self.a) | sides | found | {"undisturbed_ratio": self.undisturbed}


def case_json(row: Any) -> dict[str, Any]:
    """What a row of results measured."""
    return {name: COLUMNS[name].as_written(getattr(row, name)) for name in KEY}


def side_json(row: Any) -> dict[str, Any]:
    """What a row of results says of its case."""
    return {
        "time_s": row.time,
        "undisturbed_s": row.undisturbed,
        "busbw_bytes_per_s": row.busbw_bytes_per_s,
        "status": row.status,
    }


def compare_rows(
    kind: str, a: Any, b: Any, tolerance: float, host: HostEffect = NO_EFFECT,
    samples: tuple[Measurement, Measurement] | None = None,
    runs: tuple[RunFacts, RunFacts] | None = None,
) -> ComparedRow:  # fmt: skip
    """The ratio of two rows of results, and the verdict on it."""
    row = ComparedRow(kind, a, b, None, stats.UNDECIDED, "", samples, host, runs)
    row = row._replace(ratio=(found := widen([row], find_ratio(row))))
    if why := why_not_compared(a, b) or ("" if found else "the ratio is out of range"):
        return row._replace(verdict=stats.NOT_COMPARED, reason=why)
    if why := why_undecided(a, b, row.in_turns):
        return row._replace(reason=why)
    verdict, alone = (stats.decide(each, tolerance) for each in (found, host.without(found)))
    if verdict in stats.CHANGED and stats.decide(hold_together(row, 1), tolerance) != verdict:
        return row._replace(reason=APART)
    lacking = [
        letter for letter, row in (("A", a), ("B", b)) if not (row.time and row.time.has_interval)
    ]
    why = f"{NO_INTERVAL} of {' and '.join(lacking)}"
    if not lacking:
        why = HOST.format(alone) if alone != stats.UNDECIDED else OVERLAP
        why *= verdict == stats.UNDECIDED
    return row._replace(verdict=verdict, reason=why)


def why_not_compared(a: Any, b: Any) -> str:
    """Why two rows of results are not compared; empty where they are."""
    for letter, row in (("A", a), ("B", b)):
        if row.status != OK:
            return f"{'wrong results' if row.status == WRONG else row.status} in {letter}"
        if not row.time_s:
            return f"nothing timed in {letter}"
    return other_work(a, b)


def find_wait_effect(a: Any, b: Any) -> float:
    """How many times as long a call of B may take because its ranks waited for a core LONGER than
    those of A, or shorter, in one CPU mode: the rest of its time is what it takes without."""
    of_a, of_b = (min(row.queued_share or 0.0, MOST_QUEUED) for row in (a, b))
    is_alike = getattr(a, "cpu_mode", "") == getattr(b, "cpu_mode", "")
    return (1 - of_a) / (1 - of_b) if is_alike and abs(of_b - of_a) >= LONGER else 1.0


OWN_QUEUED = 0.5
"""By so much of the time ranks wait longer for a core than those of the other side, in turns with
them, where they do so for a cause of their own: the host made both wait alike."""


def waited_sides(a: Any, b: Any, in_turns: bool | None = None) -> str:
    """In which of two rows of results ranks waited for a core too long: their ratio has no
    verdict. Empty where they did in neither; in CPU modes, of which waiting is a consequence, in
    turns or, where that is not known, in one of the two; and where `in_turns` one side waited far
    longer: the host was the same, so it did so itself."""
    sides = [side for side, row in (("A", a), ("B", b)) if has_waited(row.queued_share)]
    are_modes = getattr(a, "cpu_mode", "") != getattr(b, "cpu_mode", "")
    if are_modes and (in_turns or (in_turns is None and len(sides) < 2)):
        return ""
    least, most = sorted(row.queued_share or 0.0 for row in (a, b))
    is_own = in_turns and len(sides) == 1 and most - least >= OWN_QUEUED
    return "" if is_own else " and ".join(sides)


def why_undecided(a: Any, b: Any, in_turns: bool = False) -> str:
    """Why the ratio of two rows of results has no verdict, whatever its interval; else empty."""
    sides = waited_sides(a, b, in_turns)
    return f"{WAITED} in {sides}" if sides else ""


def other_work(a: Any, b: Any) -> str:
    """What two rows of results compute, where they do not compute the same; otherwise empty."""
    if a.part == COMMUNICATION or a.work == b.work:
        return ""
    return f"{a.work or 'nothing'} is computed in A, and {b.work or 'nothing'} in B"


# What launches, runs and the host leave unsure, and many rows.


MOST_OF_MEAN = 0.5
"""A sum of squared weights, whose sum is 1: beyond it one row has most of the weight."""


def find_ratio(row: ComparedRow, fraction: float = 0.5) -> Estimate | None:
    """The ratio of the medians of a row, or of the 5th percentiles, without what differs between
    runs; in turns the one of pair_launches. None where it is not known."""
    name = "time" if fraction != UNDISTURBED else "undisturbed"
    found = stats.ratio(*(getattr(side, name, None) for side in (row.b, row.a)))
    return found and (pair_launches([row], fraction) or found)


UNUSUAL_RATIO = 1.6
"""Where the ratios of a row differ by so many times more than is usual, they alone count: by
chance, that is so in 5 % of the rows (chi-square, 3 to 6 launches)."""


def pair_launches(
    rows: Sequence[ComparedRow], fraction: float, weights: Sequence[float] = (1.0,)
) -> Estimate | None:
    """The ratio of rows that were measured in turns: the geometric mean of their ratios by launch,
    of each launch the weighted mean, with its 95 % interval (a paired t test of the logarithms).
    What the host does in one turn changes both sides, and not their ratio. None where launches are
    not in turns, or a row lacks one."""
    logs = [logs_in_turns(row, fraction) for row in rows]
    if not (rows[0].runs and all(logs)):
        return None
    means = [sum(map(mul, weights, values)) for values in zip(*logs, strict=True)]
    spread = rows[0].runs[0].spread
    usual = usual_ratio_spread(rows[0]) or spread
    # That of its rows is no prior for a noisy row: they share what the host does in a turn.
    half = max(
        statistics.launch_half_width(means, each, UNUSUAL_RATIO)
        for each in {usual, max(usual, spread)}
    )
    value = sum(means) / len(means)
    return Estimate(exp(value), exp(value - half), exp(value + half))


def logs_in_turns(row: ComparedRow, fraction: float = 0.5) -> list[float]:
    """The log ratio of each launch; empty where launches are not in turns, or the row lacks one."""
    if not (row.samples and row.runs and row.in_turns):
        return []
    b, a = (statistics.launch_logs(samples_by_launch(m), fraction) for m in reversed(row.samples))
    return subtract(b, a) if len(a) == row.runs[0].launches else []


def usual_ratio_spread(row: ComparedRow) -> float:
    """The standard deviation of the log ratio of two launches, as far as the backend tells it."""
    return sqrt(2) * usual_launch_spread(row.a.backend)


def half_of_launches(
    rows: Sequence[ComparedRow], side: int, fraction: float, weights: Sequence[float] = (1.0,)
) -> tuple[float, int]:
    """Half the interval of the weighted log times of rows on one side, A (0) or B (1), by its
    launches, and their number; by their ends where rows have no samples; by their number alone
    where a row lacks a launch, and 0 where it is not known. `fraction` is the quantile that the
    times are. A single row, or one with most of the weight, differs at least as those of its run
    do; the launches of a mean differ by less."""
    own = [(row.a, row.b)[side] for row in rows]
    samples = [row.samples[side] for row in rows if row.samples]
    logs = [statistics.launch_logs(samples_by_launch(each), fraction) for each in samples]
    logs = logs or [*map(_launches_between, own)]
    means = [0.0] * min(each.launches or 0 for each in own)
    if len(logs) == len(own) and len({*map(len, logs)}) == 1 and logs[0]:
        means = [sum(map(mul, weights, values)) for values in zip(*logs, strict=True)]
    usual = usual_launch_spread(own[0].backend)
    if rows[0].runs and sum(map(mul, weights, weights)) > MOST_OF_MEAN:
        usual = max(usual, rows[0].runs[side].spread)
    is_known = len(means) > 1 or (means and usual)
    return (statistics.launch_half_width(means, usual) if is_known else 0.0), len(means)


def _launches_between(row: Any) -> list[float]:
    """The log medians of the launches of a row without samples, by the smallest and the largest:
    at equal distances, whose deviation is that of as many normal values with this range."""
    number = row.launches or 0
    low, high = (getattr(row, name, None) for name in ("launch_min_s", "launch_max_s"))
    if number < 2 or not low or not high:
        return []
    return [log(low) + n * log(high / low) / (number - 1) for n in range(number)]


def widen(
    rows: Sequence[ComparedRow], found: Estimate | None, fraction: float = 0.5,
    host: HostEffect | None = None, halves: Sequence[tuple[float, int]] = (),
) -> Estimate | None:  # fmt: skip
    """A ratio of rows, with an interval for what differs between runs, and for what their host may
    cause. `halves` are those of half_of_launches for A and B, by default of a single row."""
    runs, host = rows[0].runs, host or rows[0].host
    if found and runs and not are_in_turns(runs):
        halves = halves or [half_of_launches(rows, side, fraction) for side in (0, 1)]
        if all(number for _, number in halves):
            both = zip(halves, runs, strict=True)
            more = (statistics.run_half_width(*own, run.turns) for own, run in both)
            found = stats.spread(found, *more)
    return host.widen(found)


def hold_together(row: ComparedRow, number: int) -> Estimate | None:
    """The ratio of one of so many rows, with the interval that holds with 95 % for all of them: a
    false alarm is then as rare as that of a single row. It is `times_as_wide`."""
    return row.ratio and row.host.hold(row.ratio, number, row.degrees, row.times_as_wide)

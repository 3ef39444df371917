"""The ratio of the times of two rows of one case: its interval, its verdict, and what else there
is to know of it.

The rank test beside it ranks launches or batches, not samples: samples of one batch are not
independent. A launch is an experimental factor of its own (Hunold and Carpen-Amarie, TPDS 2016). So
the test ranks the medians of launches where both sides have enough, otherwise the medians of
batches: other cases were measured between two batches of a case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, inf, log, sqrt
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import statistics
from commbench.analysis.columns import COLUMNS, KEY
from commbench.analysis.diagnostics import WAITED, has_waited
from commbench.analysis.rows import samples_by_launch
from commbench.plan.computations import COMMUNICATION
from commbench.results.samples import samples_of
from commbench.results.schema import OK, WRONG, Measurement
from commbench.stats import Estimate
from commbench.views.formats import fields_of

OVERLAP = "the interval reaches over the tolerance"
HOST = "the host itself differs; without that {}"
"""Why what the same host would decide is undecided."""
NO_INTERVAL = "decided by the two times alone, because no interval is known"
FEWEST = 4
"""With three values against three, no rank test can reach 5 %."""
LATENCY, BANDWIDTH = "latency", "bandwidth"


class HostChange(NamedTuple):
    """A figure of the host that differs between two runs by more than chance."""

    takes: str
    ratio: Estimate
    """That of B over that of A."""
    part: str = ""
    """The part of the time of a call that it changes, LATENCY or BANDWIDTH; empty: the whole."""


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

    def without(self, found: Estimate | None) -> Estimate | None:
        """The ratio with the interval that it had before it was widened."""
        return HostEffect(1 / self.least, 1 / self.most).widen(found)


NO_EFFECT = HostEffect()


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
    p_value: float | None = None
    """The p-value of the rank test, which does not decide; None where there is none."""
    units: str = ""
    """What the rank test ranked: `launches` or `batches`; empty where there is none."""
    host: HostEffect = NO_EFFECT
    """For which both ratios are widened."""

    @property
    def either(self) -> Any:
        """The row of A; where it has none that of B."""
        return self.a or self.b

    @property
    def waited(self) -> str:
        """On which sides ranks waited for a core, where it is undecided for that: `A and B`."""
        return waited_sides(self.a, self.b) if self.verdict == stats.UNDECIDED else ""

    @property
    def undisturbed(self) -> Estimate | None:
        """The same ratio of undisturbed calls."""
        b, a = (getattr(side, "undisturbed", None) for side in (self.b, self.a))
        return self.host.widen(stats.ratio(b, a)) if a and b else None

    def as_json(self) -> dict[str, Any]:
        """What was measured on either side, and the ratio."""
        sides = {"a": side_json(self.a), "b": side_json(self.b)}
        found = fields_of(self, without=("kind", "a", "b", "samples", "host"))
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
    kind: str, a: Any, b: Any, tolerance: float, host: HostEffect = NO_EFFECT
) -> ComparedRow:
    """The ratio of two rows of results, and the verdict on it; without a rank test."""
    found = host.widen(stats.ratio(b.time, a.time))
    row = ComparedRow(kind, a, b, found, stats.UNDECIDED, host=host)
    if why := why_not_compared(a, b) or ("" if found else "the ratio is out of range"):
        return row._replace(verdict=stats.NOT_COMPARED, reason=why)
    if why := why_undecided(a, b):
        return row._replace(reason=why)
    verdict, alone = (stats.decide(each, tolerance) for each in (found, host.without(found)))
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


def waited_sides(a: Any, b: Any) -> str:
    """In which of two rows of results ranks waited for a core most of the time: their ratio has no
    verdict. Empty where they did in neither; and for two CPU modes, of which waiting is a
    consequence."""
    if getattr(a, "cpu_mode", "") != getattr(b, "cpu_mode", ""):
        return ""
    return " and ".join(side for side, row in (("A", a), ("B", b)) if has_waited(row.queued_share))


def why_undecided(a: Any, b: Any) -> str:
    """Why the ratio of two rows of results has no verdict, whatever its interval; else empty."""
    sides = waited_sides(a, b)
    return f"{WAITED} in {sides}" if sides else ""


def other_work(a: Any, b: Any) -> str:
    """What two rows of results compute, where they do not compute the same; otherwise empty."""
    if a.part == COMMUNICATION or a.work == b.work:
        return ""
    return f"{a.work or 'nothing'} is computed in A, and {b.work or 'nothing'} in B"


def rank_test(a: Measurement, b: Measurement) -> tuple[float | None, str]:
    """The p-value of a pair of rows, and what was ranked; None and empty where values are few."""
    ranked: dict[str, Callable[[Measurement], Sequence[float]]] = {
        "launches": lambda row: [*map(statistics.median, samples_by_launch(row))],
        "batches": lambda row: statistics.medians(samples_of(row.batches)),
    }
    for name, values in ranked.items():
        first, second = values(a), values(b)
        if min(len(first), len(second)) >= FEWEST:
            return stats.mann_whitney(first, second), name
    return None, ""


# What the launches and the host leave unsure, and many rows.


def hold_together(row: ComparedRow, number: int) -> Estimate | None:
    """The ratio of one of so many rows, with the interval that holds with 95 % for all of them: a
    false alarm is then as rare as that of a single row."""
    if row.ratio is None:
        return None
    launches = row.a.launches, row.b.launches
    found = row.host.without(row.ratio) or row.ratio
    return row.host.widen(stats.hold_together(found, number, statistics.launch_degrees(*launches)))


MOST_FORESEEN = 32
"""Launches of a run that are proposed, at most."""


def foresee(
    ratios: Sequence[Estimate | None], launches: Sequence[int | None], limit: float
) -> tuple[int, float]:
    """With how many launches of each side all these ratios would be known within half of the limit
    (equal runs differ by up to it, too), at most MOST_FORESEEN, and within what they would be, if
    launches differ as they do here. 0 where more are not proposed, or a side has only one."""
    ends = [found.ends for found in ratios if found]
    half = max((log(high / low) / 2 for low, high in ends if low), default=inf)
    known = [number for number in launches if number and number > 1]
    number, within = max(known, default=1), inf
    now = hypot(*map(statistics.launch_factor, known))
    while len(known) > 1 and within > limit / 2 and 2 * number <= MOST_FORESEEN:
        number *= 2
        within = exp(half * sqrt(2) * statistics.launch_factor(number) / now) - 1
    return (number, within) if within < 1 else (0, within)

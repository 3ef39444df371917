"""When a number should not be believed: the closed table of warnings about a measurement.

Each has a name, a figure, a threshold, and what to do about it. They are computed from the journal
whenever a run is read, so that a better rule serves old runs too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.statistics import design_effect, median
from commbench.spec.timing_modes import PIPELINED, describe_timing
from commbench.units import format_share

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow

FEWEST_FOR_SHAPE = 20
"""Samples below which nothing is said of the shape of their distribution."""
SMALLEST_MODE = 0.15
ENOUGH_VISITS = 4


class Diagnostic(NamedTuple):
    """One way in which a measurement can mislead."""

    name: str
    figure: Callable[[ResultRow], float | None]
    """What is held against the threshold; None where it is not known or does not apply."""
    threshold: float
    """Warned about above it."""
    message: str
    """`{}` stands for the largest figure among the rows concerned, `{percent}` for it as such."""
    advice: str
    """What to do about it."""
    advice_if_quiet: str = ""
    """What to do where that was done already: ranks ran in quiet mode."""

    def says(self, rows: Sequence[ResultRow]) -> str:
        """Message and advice for the rows concerned."""
        worst = max(self.figure(row) or 0.0 for row in rows)
        quiet = all(row.header.plan.cpu_mode == "quiet" for row in rows)
        advice = (self.advice_if_quiet if quiet else "") or self.advice
        return f"{self.message.format(worst, percent=format_share(worst))}; {advice}"


def warnings_of(row: ResultRow) -> tuple[Diagnostic, ...]:
    """What to warn about in one row."""
    if not row.measurement.batches:
        return ()
    return tuple(w for w in WARNINGS if (f := w.figure(row)) is not None and f > w.threshold)


def ranks_per_core(row: ResultRow) -> float | None:
    """The most ranks that share a core, on any host; None on devices other than the CPU."""
    if row.header.plan.device != "cpu":
        return None
    hosts: dict[str, list[tuple[int, ...]]] = {}
    for rank in row.header.ranks:
        hosts.setdefault(rank.host, []).append(rank.cores)
    crowded = [_crowding(cores) for cores in hosts.values() if all(cores)]
    return max(crowded, default=None)


def _crowding(ranks: Sequence[tuple[int, ...]]) -> float:
    """Ranks over the cores they may use together, or those that share a core of their own."""
    together = len(ranks) / len({core for cores in ranks for core in cores})
    alone = Counter(cores[0] for cores in ranks if len(cores) == 1)
    return max(together, *alone.values(), 0)


def _imprecision(row: ResultRow) -> float | None:
    if row.time is None or row.header.plan.iterations is not None:
        return None
    precision = row.time.precision
    return None if precision is None else precision / row.header.plan.precision


def _drift(row: ResultRow) -> float | None:
    """By how much the later half of the batches differs from the earlier half, over the median;
    None where it may be chance."""
    batches = [batch.samples_s for batch in row.measurement.batches if batch.launch == 0]
    if len(batches) < ENOUGH_VISITS or row.time is None or not row.time.median:
        return None
    half = len(batches) // 2
    halves = [sorted(sum(part, ())) for part in (batches[:half], batches[-half:])]
    if sum(map(len, halves)) < FEWEST_FOR_SHAPE or not _trend(batches, row.time.median):
        return None
    return abs(median(halves[1]) - median(halves[0])) / row.time.median


def _trend(batches: Sequence[Sequence[float]], middle: float) -> bool:
    """Whether batches move one way: their medians against their order (Mann-Kendall test, 1 %)."""
    if design_effect(batches, middle) == 1:
        return False
    middles = [median(sorted(batch)) for batch in batches]
    number = len(middles)
    score = sum(
        (middles[j] > middles[i]) - (middles[j] < middles[i])
        for i in range(number)
        for j in range(i + 1, number)
    )
    variance = number * (number - 1) * (2 * number + 5) / 18
    return abs(score) - 1 > 2.576 * sqrt(variance) or abs(score) == number * (number - 1) / 2


def _bimodality(row: ResultRow) -> float | None:
    """Ashman's D of the two groups that durations split into best, on a log scale: the distance of
    their means over their spread; None where it may be chance. Above 2 two groups show; a single
    bell cut in two has 2.7, an even spread 3.5, and few samples of them more: 98 % of the latter
    stay below 3.25 + 14 / sqrt(n), by simulation."""
    samples = sorted(sample for sample in row.measurement.samples_s if sample > 0)
    if len(samples) < FEWEST_FOR_SHAPE:
        return None
    logs = [log(sample) for sample in samples]
    number, least = len(logs), max(2, int(SMALLEST_MODE * len(logs)))
    sums, squares = [0.0], [0.0]
    for value in logs:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)
    best, separation = -1.0, 0.0
    for cut in range(least, number - least + 1):
        left, right = sums[cut] / cut, (sums[-1] - sums[cut]) / (number - cut)
        between = cut * (number - cut) * (right - left) ** 2
        if between > best:
            inner = squares[-1] - cut * left**2 - (number - cut) * right**2
            best = between
            spread = sqrt(max(inner / number, 1e-12))
            separation = (right - left) / spread if right - left > DISTINCT else 0.0
    return separation if separation > 3.25 + 14 / sqrt(number) else None


DISTINCT = log(1.15)
"""Two modes closer than 15 % are one for all purposes."""


def _skew(row: ResultRow) -> float | None:
    skew, case = row.strain.entry_skew_s, row.measurement.case
    if not describe_timing(case.timing).has_entry_skew:
        return None
    if skew is None or row.time is None or not row.time.median:
        return None
    return skew / row.time.median


def _always_last(row: ResultRow) -> float | None:
    shares, skew = row.strain.last_share, _skew(row)
    if len(shares) < 2 or skew is None or skew <= 0.05:
        return None
    if len(row.measurement.samples_s) < FEWEST_FOR_SHAPE:
        return None
    return max(shares)


def _clock(row: ResultRow) -> float | None:
    """Clock step and loop overhead over the duration of an iteration: 1 is a tenth of the time for
    the step, or a twentieth for the overhead."""
    if row.time is None or not row.time.median:
        return None
    iteration = row.time.median * (row.strain.calls or 1)
    step, overhead = row.header.resolution_s or 0.0, row.header.overhead_s or 0.0
    return max(10 * step, 20 * overhead) / iteration


def _launch_spread(row: ResultRow) -> float | None:
    medians = row.launch_medians
    return max(medians) / min(medians) - 1 if len(medians) > 1 and min(medians) else None


def _above_link(row: ResultRow) -> float | None:
    """What was reached of the most that the named link can carry, a network that reduces included;
    None where no link was named."""
    if not row.header.plan.peak:
        return None
    from commbench.analysis.peak import share_of_peak
    from commbench.spec.links import parse_peak

    share = share_of_peak(row, parse_peak(row.header.plan.peak))
    return share.fraction / share.ceiling if share else None


WARNINGS: tuple[Diagnostic, ...] = (
    Diagnostic(
        "too_few_cores", ranks_per_core, 1.0,
        "{:.3g} ranks share a core: they wait for each other, and not only for data",
        "start fewer ranks (--nproc-per-node), or read these times as what such sharing costs",
    ),
    Diagnostic(
        "stalls", lambda row: row.strain.stalled_share, 0.05,
        "up to {percent} of the iterations took at least 1.5 ms and half as long again as the "
        "usual",
        "the host's scheduler did that: --cpu-mode quiet (SCHED_BATCH, a core for each rank); "
        "`commbench doctor` says what it gains",
        "other work takes the cores to which quiet mode keeps ranks: --cpu-mode plain lets them "
        "move; `commbench doctor` tries both",
    ),
    Diagnostic(
        "queued", lambda row: row.strain.queued_share, 0.5,
        "threads of a rank waited for a processor up to {percent} of the time",
        "other work runs on these cores, or too few are allowed; see `commbench doctor`",
        "other work runs on the cores to which quiet mode keeps ranks: --cpu-mode plain lets them "
        "move; `commbench doctor` tries both",
    ),
    Diagnostic(
        "throttled", lambda row: row.strain.throttled_share, 0.01,
        "the control group's share of the processor was used up for {percent} of the time",
        "raise the CPU limit of this container, or start fewer ranks",
    ),
    Diagnostic(
        "stolen", lambda row: row.strain.stolen_share, 0.05,
        "the hypervisor gave away up to {percent} of a processor's time meanwhile",
        "other guests of this host are busy; run again, or on a host of your own",
    ),
    Diagnostic(
        "drift", _drift, 0.10,
        "later batches differ from earlier ones by up to {percent}, all in one direction",
        "the machine was warming up, throttling or filling up: run longer (--budget), or again",
    ),
    Diagnostic(
        "bimodal", _bimodality, 4.0,
        "durations fall into two groups, {:.1f} times as far apart as each is wide",
        "the median lies in one of them by chance: look at the samples before you compare it",
    ),
    Diagnostic(
        "skew", _skew, 0.10,
        "ranks entered up to {percent} of the time apart: that much of it is waiting, not moving",
        "operation_us in results.csv leaves the waiting out; see slowest_rank",
    ),
    Diagnostic(
        "always_last", _always_last, 0.90,
        "one rank was the last to enter in {percent} of the iterations",
        "see slowest_rank: what else runs on its core, is its clock lower, its link slower?",
    ),
    Diagnostic(
        "above_link", _above_link, 1.005,
        "bus bandwidth is up to {percent} of what the link named by --peak can carry",
        "that cannot be: is it the peak of one link among several, or of another link?",
    ),
    Diagnostic(
        "coarse_clock", _clock, 1.0,
        "the clock and the loop are {:.1f} times as coarse as such short times allow",
        f"--timing {PIPELINED} times many calls at once",
    ),
    Diagnostic(
        "imprecise", _imprecision, 1.0,
        "intervals are up to {:.1f} times as wide as --precision asks",
        "give it more time (--budget 2), or a quieter host (`commbench doctor`)",
    ),
    Diagnostic(
        "launches", _launch_spread, 0.10,
        "medians of separate launches lie up to {percent} apart",
        "compare over several launches (--launches 6, of a sweep --rounds), never single ones",
    ),
)  # fmt: skip

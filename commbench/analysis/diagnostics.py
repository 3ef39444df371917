"""DIAGNOSTICS: the warnings about a measurement, each with its threshold and advice.

Each has a name, a figure, a threshold, and advice. They are computed from the journal whenever a
run is read, so a better rule applies to old runs too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.statistics import design_effect, median
from commbench.output.paragraphs import list_some
from commbench.spec.backends import BACKENDS
from commbench.spec.timing_modes import PIPELINED, describe_timing
from commbench.spec.variables import find_unread
from commbench.units import format_share

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow
    from commbench.results.schema import RankInfo, RunHeader

FEWEST_FOR_SHAPE = 20
"""With fewer samples the shape of their distribution is unknown."""
FEWEST_BATCHES_FOR_DRIFT = 4
SMALLEST_MODE = 0.15
"""Share of the samples that a group must have to count as a mode."""
DISTINCT = log(1.15)
"""Two modes that differ by less than 15 % count as one."""


class Diagnostic(NamedTuple):
    """One way in which a measurement can mislead."""

    name: str
    figure: Callable[[ResultRow], float | None]
    """What is compared with the threshold; None where it is unknown or does not apply."""
    threshold: float
    """The diagnostic applies where the figure is above it."""
    message: str
    """`{}` stands for the largest figure of the rows concerned, `{percent}` for it in percent;
    `{variables}` and `{backend}` for unread_variables() and the backend of the run."""
    advice: str
    """What to do about it."""
    advice_if_quiet: str = ""
    """The advice where it differs because ranks already ran in quiet mode."""

    def describe(self, concerned: Sequence[tuple[ResultRow, float]]) -> str:
        """Message and advice for the rows concerned, each given with its figure."""
        worst = max(figure for _, figure in concerned)
        is_quiet = all(row.header.plan.cpu_mode == "quiet" for row, _ in concerned)
        advice = (self.advice_if_quiet if is_quiet else "") or self.advice
        header = concerned[0][0].header
        message = self.message.format(
            worst,
            percent=format_share(worst),
            variables=list_some(unread_variables(header), 3),
            backend=header.plan.backend,
        )
        return f"{message}; {advice}"


def diagnose_row(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics that apply to a row, each with its figure, in the order of the table."""
    if not row.measurement.batches:
        return {}
    figures = ((diagnostic, diagnostic.figure(row)) for diagnostic in DIAGNOSTICS)
    return {d: figure for d, figure in figures if figure is not None and figure > d.threshold}


def ranks_per_core(row: ResultRow) -> float | None:
    """The most ranks that share a core, on any host; None on devices other than the CPU."""
    return _ranks_per_core(row.header.ranks) if row.header.plan.device == "cpu" else None


@lru_cache(maxsize=16)
def _ranks_per_core(ranks: tuple[RankInfo, ...]) -> float | None:
    hosts: dict[str, list[tuple[int, ...]]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host, []).append(rank.cores)
    return max(map(_ranks_per_core_of_host, filter(all, hosts.values())), default=None)


def _ranks_per_core_of_host(ranks: Sequence[tuple[int, ...]]) -> float:
    """The larger of two figures: ranks over all cores they may use, and the most ranks that are
    bound to the same single core. `ranks` holds the allowed cores of each rank."""
    average = len(ranks) / len({core for cores in ranks for core in cores})
    bound = Counter(cores[0] for cores in ranks if len(cores) == 1)
    return max(average, *bound.values(), 0)


def _imprecision(row: ResultRow) -> float | None:
    if row.time is None or row.header.plan.iterations is not None:
        return None
    precision = row.time.precision
    return None if precision is None else precision / row.header.plan.precision


def _drift(row: ResultRow) -> float | None:
    """The difference of the medians of the later and the earlier half of the batches, over the
    median of all; None where it may be chance."""
    batches = [batch.samples_s for batch in row.measurement.batches if batch.launch == 0]
    if len(batches) < FEWEST_BATCHES_FOR_DRIFT or row.time is None or not row.time.median:
        return None
    is_only_launch = len(batches) == len(row.measurement.batches)
    effect = row.time.design_effect
    if not is_only_launch:
        effect = design_effect(batches, row.time.median)
    if effect == 1 or not _has_trend(batches):
        return None
    half = len(batches) // 2
    halves = [sorted(chain.from_iterable(part)) for part in (batches[:half], batches[-half:])]
    if sum(map(len, halves)) < FEWEST_FOR_SHAPE:
        return None
    return abs(median(halves[1]) - median(halves[0])) / row.time.median


def _has_trend(batches: Sequence[Sequence[float]]) -> bool:
    """Whether the medians of batches rise or fall with time (Mann-Kendall test, 1 %)."""
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
    """Ashman's D of the best split of the durations into two groups, on a log scale: the distance
    of the groups' means over their standard deviation. None where it may be chance.

    Two groups show above 2. One normal distribution cut in two has 2.7, a uniform one 3.5, and
    small samples more: 98 % of uniform samples stay below 3.25 + 14 / sqrt(n), by simulation.
    """
    logs = list(map(log, sorted(s for s in row.measurement.samples_s if s > 0)))
    number, least = len(logs), max(2, int(SMALLEST_MODE * len(logs)))
    if number < FEWEST_FOR_SHAPE:
        return None
    sums = list(accumulate(logs, initial=0.0))
    total, cuts = sums[-1], range(least, number - least + 1)
    # The variance between the two groups of each split.
    between = [(number * sums[i] - i * total) ** 2 / (i * (number - i)) for i in cuts]
    cut = cuts[between.index(max(between))]
    left, right = sums[cut] / cut, (total - sums[cut]) / (number - cut)
    if right - left <= DISTINCT:
        return None
    within = sum(v * v for v in logs) - cut * left**2 - (number - cut) * right**2
    separation = (right - left) / sqrt(max(within / number, 1e-12))
    return separation if separation > 3.25 + 14 / sqrt(number) else None


def _skew(row: ResultRow) -> float | None:
    skew, case = row.interference.entry_skew_s, row.measurement.case
    if not describe_timing(case.timing).has_entry_skew:
        return None
    if skew is None or row.time is None or not row.time.median:
        return None
    return skew / row.time.median


def _always_last(row: ResultRow) -> float | None:
    shares, skew = row.interference.last_share, _skew(row)
    if len(shares) < 2 or skew is None or skew <= 0.05:
        return None
    if len(row.measurement.samples_s) < FEWEST_FOR_SHAPE:
        return None
    return max(shares)


def _clock(row: ResultRow) -> float | None:
    """How coarse the clock is for the duration of an iteration: 1 where the clock's step is a tenth
    of it, or the overhead of the timed loop a twentieth."""
    if row.time is None or not row.time.median:
        return None
    iteration = row.time.median * (row.interference.calls or 1)
    step, overhead = row.header.resolution_s or 0.0, row.header.overhead_s or 0.0
    return max(10 * step, 20 * overhead) / iteration


def _launch_spread(row: ResultRow) -> float | None:
    medians = row.launch_medians
    return max(medians) / min(medians) - 1 if len(medians) > 1 and min(medians) else None


def unread_variables(header: RunHeader) -> tuple[str, ...]:
    """The NCCL_* variables that are set although the backend is another, which does not read them.

    Only these: commbench and torch use gloo beside NCCL, and torchrun sets TORCH_NCCL_* itself."""
    variables = header.environment.get("variables")
    if not isinstance(variables, dict) or header.plan.backend not in BACKENDS:
        return ()
    names = [name for name in variables if name.startswith("NCCL_")]
    return find_unread(names, header.plan.backend)


def _above_link(row: ResultRow) -> float | None:
    """The bandwidth over the most that the link named by --peak can carry; None without --peak."""
    if not row.header.plan.peak:
        return None
    from commbench.analysis.peak import find_peak_fraction
    from commbench.spec.links import parse_peak

    share = find_peak_fraction(row, parse_peak(row.header.plan.peak))
    return share.fraction / share.ceiling if share else None


DIAGNOSTICS: tuple[Diagnostic, ...] = (
    Diagnostic(
        "too_few_cores", ranks_per_core, 1.0,
        "{:.3g} ranks share a core: they wait for each other, and not only for data",
        "start fewer ranks (--nproc-per-node), or read these times as what such sharing costs",
    ),
    Diagnostic(
        "stalls", lambda row: row.interference.stalled_share, 0.05,
        "up to {percent} of the iterations took at least 1.5 ms and half as long again as the "
        "usual",
        "the host's scheduler did that: --cpu-mode quiet (SCHED_BATCH, a core for each rank); "
        "`commbench doctor` says what it gains",
        "other work takes the cores to which quiet mode keeps ranks: --cpu-mode plain lets them "
        "move; `commbench doctor` tries both",
    ),
    Diagnostic(
        "queued", lambda row: row.interference.queued_share, 0.5,
        "threads of a rank waited for a processor up to {percent} of the time",
        "other work runs on these cores, or too few are allowed; see `commbench doctor`",
        "other work runs on the cores to which quiet mode keeps ranks: --cpu-mode plain lets them "
        "move; `commbench doctor` tries both",
    ),
    Diagnostic(
        "throttled", lambda row: row.interference.throttled_share, 0.01,
        "the control group's share of the processor was used up for {percent} of the time",
        "raise the CPU limit of this container, or start fewer ranks",
    ),
    Diagnostic(
        "stolen", lambda row: row.interference.stolen_share, 0.05,
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
    Diagnostic(
        "unread_variables", lambda row: len(unread_variables(row.header)), 0,
        "{backend} does not read {variables}: what is set there has no effect",
        "unset them, or measure with --backend nccl",
    ),
)  # fmt: skip

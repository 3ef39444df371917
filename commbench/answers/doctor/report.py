"""What a check is asked for and what it finds: data, the launches of a small run in every cpu mode,
and what each mode would change, compared with the mode `plain`.

The launches are in rounds: drift of the host affects all modes alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import comb, inf, prod
from random import Random
from typing import Any, NamedTuple

from commbench import __version__
from commbench.analysis.rows import make_rows
from commbench.analysis.statistics import median
from commbench.answers.doctor.host_bandwidth import HostBandwidth, median_range
from commbench.errors import CommbenchError, Interrupted, UnavailableError, UsageError
from commbench.host.facts import HostFacts
from commbench.host.gpu_system import GpuSystem
from commbench.host.gpus import Gpu
from commbench.plan.operations import DEFAULT_OPERATION
from commbench.plan.plan import CPU_MODES, Plan
from commbench.runner.launched_ranks import run_temporarily
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import CHANGED, UNDECIDED, decide
from commbench.validation import require_within
from commbench.views.as_json import fields_of
from commbench.views.result import Result

PLAIN = "plain"
"""The cpu mode that the others are compared with: ranks without any setting."""
MODES = (PLAIN, *(mode for mode in CPU_MODES if mode != PLAIN))
SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
MOST_BUDGET_S = 0.2
BUDGET_PART = 0.05
"""Share of a launch's time that is the budget of each size; starting ranks, aligning and warming up
take time too."""
LEAST_TIMEOUT_S = 30.0


class SizeResult(NamedTuple):
    """The result of one launch for one size."""

    size_bytes: int
    iterations: int
    time_s: float
    busbw_bytes_per_s: float | None
    stalled_share: float | None
    queued_share: float | None
    throttled_share: float | None
    stolen_share: float | None


class Trial(NamedTuple):
    """One launch in one mode."""

    round: int
    """From 0."""
    mode: str
    points: tuple[SizeResult, ...] = ()
    elapsed_s: float = 0.0
    trouble: CommbenchError | None = None
    """Why it has no points; its mode is not tried again."""


def order_trials(rounds: int, seed: int) -> list[tuple[int, str]]:
    """Rounds, from 0, and modes in the order of their launches: random, but PLAIN first of all,
    without which nothing can be compared."""
    generator, order = Random(seed), []
    for number in range(rounds):
        modes = list(MODES if number else MODES[1:])
        generator.shuffle(modes)
        order += [(number, mode) for mode in ([] if number else [PLAIN]) + modes]
    return order


def try_modes(
    ranks: int, rounds: int, seed: int, deadline: float, print_status: Callable[[str], None]
) -> Iterator[Trial]:
    """Launch every mode in every round; the first launch is made in any case. Ends early where the
    next one, if it took as long as the longest before it, would pass the deadline (monotonic)."""
    order = order_trials(rounds, seed)
    budget_s = min(MOST_BUDGET_S, BUDGET_PART * max(0.1, deadline - time.monotonic()) / len(order))
    longest, refused = 0.0, set()
    for number, (round_, mode) in enumerate(order, start=1):
        if mode in refused:
            continue
        if longest and time.monotonic() + longest > deadline:
            return
        print_status(f"[{number}/{len(order)}] round {round_ + 1} of {rounds}, {mode}")
        trial = _try(make_plan(ranks, mode, budget_s, seed + round_), round_)
        longest = max(longest, trial.elapsed_s)
        if trial.trouble:
            refused.add(mode)
        yield trial


def make_plan(ranks: int, mode: str, budget_s: float, seed: int) -> Plan:
    """The plan of one launch."""
    return Plan(
        operations=(DEFAULT_OPERATION,), sizes=SIZES, backend="gloo", device="cpu",
        world_size=ranks, cpu_mode=mode, budget_s=budget_s, check=False,
        timeout_s=LEAST_TIMEOUT_S, seed=seed,
    )  # fmt: skip


def _try(trial_plan: Plan, round_: int) -> Trial:
    start = time.monotonic()
    trial = Trial(round_, trial_plan.cpu_mode)
    try:
        trial = trial._replace(points=_launch(trial_plan))
    except Interrupted:
        raise
    except CommbenchError as error:
        trial = trial._replace(trouble=error)
    return trial._replace(elapsed_s=time.monotonic() - start)


def _launch(trial_plan: Plan) -> tuple[SizeResult, ...]:
    return tuple(
        SizeResult(
            row.measurement.case.size_bytes,
            row.time.iterations,
            row.time.median,
            row.busbw,
            *(getattr(row.interference, name) for name in SizeResult._fields[4:]),
        )
        for row in make_rows(run_temporarily(trial_plan, "doctor"))
        if row.time
    )


SMALL, LARGE = SIZES[:-1], SIZES[-1:]
GROUPS = (SMALL, LARGE)
"""Sizes whose time depends on the scheduler, and on memory. Each group is compared as a whole:
every further comparison is one more chance to take noise for a difference."""
WORTH_SAYING = 0.05
"""Smaller relative differences of times count as none."""
BY_CHANCE = 0.1
"""Largest probability of two disjoint ranges by chance with which they count as different."""


class ModeEffect(NamedTuple):
    """The results of a mode for some sizes, and how it compares with another mode."""

    mode: str
    sizes_bytes: tuple[int, ...]
    time_s: Estimate
    """Of the medians of the launches; of several sizes the geometric mean."""
    launches: int
    ratio: Estimate | None
    """`time_s` over the other mode's, from the fastest launch over the slowest one to the slowest
    over the fastest; None where the other mode was not measured."""
    verdict: str
    """Whether it is faster or slower beyond noise, or undecided; empty without a ratio."""
    chance: float | None
    """The probability that noise alone separates the launches of the two modes."""
    busbw_bytes_per_s: float | None
    """The median of the launches, of a single size."""
    stalled_share: float | None
    queued_share: float | None
    """Medians of the launches; of several sizes the largest."""


def compare_modes(
    trials: Sequence[Trial], groups: Iterable[tuple[int, ...]]
) -> tuple[ModeEffect, ...]:
    """The effects of every mode, plain first, on every group of sizes that was measured."""
    found = [compare_mode(trials, mode, sizes) for mode in MODES for sizes in groups]
    return tuple(effect for effect in found if effect)


def compare_mode(
    trials: Sequence[Trial], mode: str, sizes: tuple[int, ...], other: str = PLAIN
) -> ModeEffect | None:
    """The effect of a mode on the time of these sizes; None where it was not measured.

    For n and m launches of one distribution, the ranges of their times are disjoint with the
    probability 2 / C(n+m, n), the smallest p-value of the exact rank-sum test: 10 % for 3 and 3,
    2.9 % for 4 and 4.
    """
    mine, theirs = find_times(trials, mode, sizes), find_times(trials, other, sizes)
    if not mine:
        return None
    own, ratio, chance, verdict = median_range(mine.values()), None, None, ""
    if theirs and mode != other:
        others = median_range(theirs.values())
        (least, most), (low, high) = own.ends, others.ends
        ratio = Estimate(own.value / others.value, least / high, most / low)
        chance = 2 / comb(len(mine) + len(theirs), len(mine))
        verdict = decide(Estimate(ratio.value), WORTH_SAYING)
        if chance > BY_CHANCE or (least <= high and most >= low) or verdict not in CHANGED:
            verdict = UNDECIDED
    busbw = _medians(trials, mode, sizes, "busbw_bytes_per_s") if len(sizes) == 1 else []
    stalled, queued = (
        _medians(trials, mode, sizes, name) for name in ("stalled_share", "queued_share")
    )
    return ModeEffect(
        mode, sizes, own, len(mine), ratio, verdict, chance,
        *(max(found, default=None) for found in (busbw, stalled, queued)),
    )  # fmt: skip


def find_times(trials: Sequence[Trial], mode: str, sizes: tuple[int, ...]) -> dict[int, float]:
    """Geometric mean time over the sizes by round, for the launches of a mode with all of them."""
    found = {}
    for trial in trials:
        times = {point.size_bytes: point.time_s for point in trial.points if point.time_s > 0}
        if trial.mode == mode and all(size in times for size in sizes):
            found[trial.round] = prod(times[size] for size in sizes) ** (1 / len(sizes))
    return found


def _medians(trials: Sequence[Trial], mode: str, sizes: tuple[int, ...], name: str) -> list[float]:
    """For each size the median of a figure of the launches, where it is known."""
    points = [point for trial in trials if trial.mode == mode for point in trial.points]
    known = [
        sorted(
            value
            for point in points
            if point.size_bytes == size and (value := getattr(point, name)) is not None
        )
        for size in sizes
    ]
    return [median(values) for values in known if values]


LONGEST_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of `commbench doctor`; raises UsageError for invalid values."""

    ranks: int
    rounds: int
    seconds: float
    """For everything together."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_within("--nproc-per-node", self.ranks, 2, inf)
        require_within("--rounds", self.rounds, 1, inf)
        if not 0 < self.seconds <= LONGEST_S:
            why = f"--seconds {self.seconds:g} is not between 0 and 86400, a day"
            raise UsageError(why, "write --seconds 60")


class OtherLoad(NamedTuple):
    """The use of the cores by others while modes were tried, as shares of their time."""

    others_share: float
    """Used by other programs. The kernel's work for the network belongs to none and is left out."""
    stolen_share: float


class Finding(NamedTuple):
    """A problem for measurements on this host."""

    name: str
    figure: float
    threshold: float
    message: str
    """A sentence without its full stop, as is the advice."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True, repr=False)
class DoctorReport(Result, view="answers.doctor.document", rows="modes"):
    """What is known of the host; a part that was not reached is empty or None."""

    request: DoctorOptions
    facts: HostFacts | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_system: GpuSystem | None = None
    """The host around its GPUs; None where it has none."""
    ceilings: HostBandwidth | None = None
    trials: tuple[Trial, ...] = ()
    meanwhile: OtherLoad | None = None
    ended: CommbenchError | None = None
    """The error that ended the check early."""
    findings: tuple[Finding, ...] = ()

    @property
    def effects(self) -> tuple[ModeEffect, ...]:
        """What each mode changes, of small sizes together and of large ones."""
        return compare_modes(self.trials, GROUPS)

    @property
    def modes(self) -> tuple[ModeEffect, ...]:
        """The results of every mode and size that was measured."""
        return compare_modes(self.trials, [(size,) for size in SIZES])

    @property
    def trouble(self) -> CommbenchError | None:
        """The error to raise after the report: what ended the check, that of a rank that died, or
        why no mode at all could be tried."""
        troubles = [trial.trouble for trial in self.trials if trial.trouble]
        deaths = [error for error in troubles if not isinstance(error, UnavailableError)]
        refusals = troubles if not any(trial.points for trial in self.trials) else []
        return next(iter([*([self.ended] if self.ended else []), *deaths, *refusals]), None)

    def as_json(self) -> dict[str, Any]:
        """Everything that is known, and the version that found it."""
        fit = self.facts.ranks_fit if self.facts else None
        found = fields_of(self, "effects", "modes")
        return {"commbench": __version__, "ranks_fit": fit, **found}

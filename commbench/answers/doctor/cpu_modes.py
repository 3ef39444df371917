"""A small run in every CPU mode, compared with the mode `plain`. Its launches are in rounds: drift
of the host affects all modes alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import comb
from random import Random
from statistics import geometric_mean
from typing import NamedTuple

from commbench.analysis.row_names import format_range
from commbench.analysis.rows import make_rows
from commbench.analysis.statistics import median
from commbench.answers.doctor.measure import median_range
from commbench.errors import CommbenchError, Interrupted
from commbench.host.cpu import PLAIN
from commbench.output.text import about
from commbench.plan.operations import DEFAULT_OPERATION
from commbench.plan.plan import CPU_MODES, Plan
from commbench.runner.launched_ranks import run_temporarily
from commbench.stats import CHANGED, UNDECIDED, Estimate, decide
from commbench.units import format_share
from commbench.views.cells import in_brackets, ratio_interval_text, ratio_text

FALSE_ALARMS = 0.05
"""How often noise alone may make a mode faster or slower, of all comparisons of a check together:
by Bonferroni's inequality each may do so in this share over their number."""
MODES = (PLAIN, *(mode for mode in CPU_MODES if mode != PLAIN))
SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
SMALL, LARGE = SIZES[:-1], SIZES[-1:]
"""Sizes whose time depends on the scheduler, and on memory. Each group is compared as a whole:
every further comparison is one more chance to take noise for a difference."""
FEWEST_CALLS = 100
"""Of fewer calls it is not said how many were interrupted: one alone would be 1 % or more."""
COMPARISONS = 2 * (len(MODES) - 1)
"""Of each mode but PLAIN with it, of the small and of the large sizes."""


def chance_of(first: int, second: int) -> float:
    """How often the times of so many launches of one distribution have disjoint ranges: in
    2 / C(n+m, n), the smallest p-value of the exact rank-sum test: 10 % for 3 and 3, 0.2 % for 6
    and 6."""
    return 2 / comb(first + second, first)


FEWEST_LAUNCHES = next(n for n in range(1, 99) if chance_of(n, n) * COMPARISONS <= FALSE_ALARMS)
"""Of each of two modes, for a verdict."""


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


def try_modes(
    ranks: int, rounds: int, seed: int, deadline: float, print_status: Callable[[str], None]
) -> Iterator[Trial]:
    """Launch every mode in every round, in random order; the first launch, of PLAIN, is made in any
    case. Ends early where the
    next one, if it took as long as the longest before it, would pass the deadline (monotonic)."""
    generator = Random(seed)
    order = [(r, mode) for r in range(rounds) for mode in generator.sample(MODES, len(MODES))]
    order.sort(key=lambda trial: trial != (0, PLAIN))  # the others are compared with it
    # The budget of each size; starting ranks, aligning and warming up take time too.
    budget_s = min(0.2, 0.05 * max(0.1, deadline - time.monotonic()) / len(order))
    began, longest, refused = time.monotonic(), 0.0, set()
    for number, (round_, mode) in enumerate(order, start=1):
        if mode in refused:
            continue
        start = time.monotonic()
        if longest and start + longest > deadline:
            return
        left_s = (start - began) / max(number - 1, 1) * (len(order) - number + 1)
        left = f"{about(left_s)} left; " * (number > 1)
        print_status(f"[{number}/{len(order)}] {left}round {round_ + 1} of {rounds}, {mode}")
        plan = Plan(
            operations=(DEFAULT_OPERATION,), sizes=SIZES, backend="gloo", device="cpu",
            world_size=ranks, cpu_mode=mode, budget_s=budget_s, check=False,
            timeout_s=30.0, seed=seed + round_,
        )  # fmt: skip
        points, trouble = _launch(plan)
        if trouble:
            refused.add(mode)
        elapsed_s = time.monotonic() - start
        longest = max(longest, elapsed_s)
        yield Trial(round_, mode, points, elapsed_s, trouble)


def _launch(plan: Plan) -> tuple[tuple[SizeResult, ...], CommbenchError | None]:
    """The results of a launch, or why there is none."""
    try:
        rows = make_rows(run_temporarily(plan, "doctor"))
    except Interrupted:
        raise
    except CommbenchError as error:
        return (), error
    return tuple(
        SizeResult(
            row.measurement.case.size_bytes, row.time.iterations, row.time.median, row.busbw,
            *(getattr(row.interference, name) for name in SizeResult._fields[4:]),
        )
        for row in rows if row.time
    ), None  # fmt: skip


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

    def takes(self, other: str) -> str:
        """`12 times as long as with plain (launches: 8 … 64)`."""
        launches = in_brackets(f"launches: {ratio_interval_text(self.ratio)}")
        return f"{ratio_text(self.ratio)} times as long as with {other}{launches}"

    @property
    def stalled_calls(self) -> str:
        """How many were interrupted: `12 % of the calls of 16M`, `up to 3 % of ...`."""
        sizes = self.sizes_bytes
        share = f"{'up to ' * (len(sizes) > 1)}{format_share(self.stalled_share or 0.0)}"
        return f"{share} of the calls of {format_range(sizes[0], sizes[-1])}"


def compare_mode(
    trials: Sequence[Trial], mode: str, sizes: tuple[int, ...], other: str = PLAIN
) -> ModeEffect | None:
    """The effect of a mode on the time of these sizes; None where it was not measured.

    It is faster or slower if each of its launches is, by 5 % or more in the median, and if noise
    alone does that in none of COMPARISONS with 95 % (FALSE_ALARMS).
    """
    mine, theirs = (_launches(trials, name, sizes) for name in (mode, other))
    if not mine:
        return None
    own, ratio, chance, verdict = _mean_time(mine), None, None, ""
    if theirs and mode != other:
        others = _mean_time(theirs)
        (least, most), (low, high) = own.ends, others.ends
        ratio = Estimate(own.value / others.value, least / high, most / low)
        chance = chance_of(len(mine), len(theirs))
        verdict = decide(Estimate(ratio.value), 0.05)
        is_apart = least > high or most < low
        if chance * COMPARISONS > FALSE_ALARMS or not is_apart or verdict not in CHANGED:
            verdict = UNDECIDED

    def largest(name: str, least_calls: int = 1) -> float | None:
        """Of the sizes with so many calls, the largest median of the launches."""
        points = zip(*mine, strict=True)
        known_well = (own for own in points if sum(p.iterations for p in own) >= least_calls)
        columns = ([getattr(point, name) for point in column] for column in known_well)
        known = (sorted(v for v in column if v is not None) for column in columns)
        return max((median(values) for values in known if values), default=None)

    busbw = largest("busbw_bytes_per_s") if len(sizes) == 1 else None
    shares = largest("stalled_share", FEWEST_CALLS), largest("queued_share")
    return ModeEffect(mode, sizes, own, len(mine), ratio, verdict, chance, busbw, *shares)


def _launches(trials: Sequence[Trial], mode: str, sizes: tuple[int, ...]) -> list[list[SizeResult]]:
    """The points of these sizes, for each launch of a mode that has all of them."""
    tried = (trial.points for trial in trials if trial.mode == mode)
    own = ([p for p in points if p.size_bytes in sizes and p.time_s > 0] for points in tried)
    return [points for points in own if len(points) == len(sizes)]


def _mean_time(launches: Sequence[Sequence[SizeResult]]) -> Estimate:
    """The median of the launches and their extremes, of the geometric mean over sizes."""
    return median_range(geometric_mean(point.time_s for point in own) for own in launches)

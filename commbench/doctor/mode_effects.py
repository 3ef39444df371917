"""Computes what each CPU mode would change, compared with the mode `plain` in the same rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, prod
from typing import NamedTuple

from commbench.analysis.statistics import median
from commbench.doctor.host_bandwidth import median_range
from commbench.doctor.mode_trials import MODES, PLAIN, SIZES, Trial
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import CHANGED, UNDECIDED, decide

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
    """Time over the other mode's in the same round; None where no round has both modes."""
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
    ratios = [mine[round_] / theirs[round_] for round_ in mine if round_ in theirs]
    ratio = median_range(ratios) if ratios and mode != other else None
    chance, verdict = None, ""
    if ratio:
        chance = 2 / comb(len(mine) + len(theirs), len(mine))
        verdict = decide(Estimate(ratio.value), WORTH_SAYING)
        times, others = [*mine.values()], [*theirs.values()]
        is_disjoint = max(times) < min(others) or min(times) > max(others)
        if chance > BY_CHANCE or not is_disjoint or verdict not in CHANGED:
            verdict = UNDECIDED
    busbw = _medians(trials, mode, sizes, "busbw_bytes_per_s") if len(sizes) == 1 else []
    stalled, queued = (
        _medians(trials, mode, sizes, name) for name in ("stalled_share", "queued_share")
    )
    return ModeEffect(
        mode, sizes, median_range(mine.values()), len(mine), ratio, verdict, chance,
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

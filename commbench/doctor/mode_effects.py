"""What each mode would change: its launches held against those of plain in the same rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from commbench.analysis.statistics import median
from commbench.doctor.mode_trials import MODES, PLAIN, SIZES, Trial
from commbench.doctor.sample_range import SampleRange, lie_apart, spread

SMALL, LARGE = SIZES[:-1], SIZES[-1:]
"""Sizes at which the scheduler rules, and at which memory does; judged apart, each as a whole:
every further comparison is one more chance to take noise for a difference."""
FASTER, SLOWER, UNCLEAR = "faster", "slower", "unclear"
WORTH_SAYING = 0.05
"""Smaller differences of times are not called one, nor are smaller differences of shares."""


class ModeResult(NamedTuple):
    """A mode at one size, over its launches."""

    mode: str
    size_bytes: int
    time_s: SampleRange
    """Of the medians of the launches."""
    ratio: SampleRange | None
    """Time over that of plain in the same round; None for plain, or where plain has none."""
    busbw: float | None
    """Bytes per second: the median of the launches."""
    stalled_share: float | None
    queued_share: float | None
    """Medians of the launches."""


class ModeEffect(NamedTuple):
    """What a mode does to the time of some sizes, compared with another mode."""

    mode: str
    sizes: tuple[int, ...]
    ratio: SampleRange
    """Time over the other's in the same round; of several sizes the geometric mean."""
    verdict: str
    """FASTER, SLOWER or UNCLEAR."""


class StallShares(NamedTuple):
    """Share of iterations that stall, over all sizes, in a mode and in plain: medians of rounds."""

    mode: float
    plain: float


def compare(trials: Sequence[Trial]) -> tuple[ModeResult, ...]:
    """The figures of every mode and size that was measured; plain first."""
    found = (_figure(trials, mode, size) for mode in MODES for size in SIZES)
    return tuple(figure for figure in found if figure)


def _figure(trials: Sequence[Trial], mode: str, size: int) -> ModeResult | None:
    points = [p for t in trials if t.mode == mode for p in t.points if p.size_bytes == size]
    times = times_of(trials, mode, (size,))
    if not times:
        return None
    return ModeResult(
        mode=mode,
        size_bytes=size,
        time_s=spread(list(times.values())),
        ratio=None if mode == PLAIN else _ratio(times, times_of(trials, PLAIN, (size,))),
        busbw=_middle(point.busbw for point in points),
        stalled_share=_middle(point.stalled_share for point in points),
        queued_share=_middle(point.queued_share for point in points),
    )


def effect(
    trials: Sequence[Trial], mode: str, sizes: tuple[int, ...], other: str = PLAIN
) -> ModeEffect | None:
    """What a mode does to the time of these sizes; None where no round has both modes."""
    mine, theirs = times_of(trials, mode, sizes), times_of(trials, other, sizes)
    ratio = _ratio(mine, theirs)
    if ratio is None:
        return None
    apart = lie_apart(list(mine.values()), list(theirs.values()))
    if not apart or abs(ratio.median - 1) < WORTH_SAYING:
        return ModeEffect(mode, sizes, ratio, UNCLEAR)
    return ModeEffect(mode, sizes, ratio, FASTER if ratio.median < 1 else SLOWER)


def times_of(trials: Sequence[Trial], mode: str, sizes: tuple[int, ...]) -> dict[int, float]:
    """The time of each launch of a mode, by its round: the geometric mean over the sizes. Launches
    that lack one of them are left out."""
    found = {}
    for trial in trials:
        times = {point.size_bytes: point.time_s for point in trial.points if point.time_s > 0}
        if trial.mode == mode and all(size in times for size in sizes):
            found[trial.round] = prod(times[size] for size in sizes) ** (1 / len(sizes))
    return found


def _ratio(mine: dict[int, float], theirs: dict[int, float]) -> SampleRange | None:
    both = [mine[round_] / theirs[round_] for round_ in mine if round_ in theirs]
    return spread(both) if both else None


def stalls(trials: Sequence[Trial], mode: str) -> StallShares | None:
    """How often iterations stall in a mode and in plain; None where they cannot be told apart."""
    mine, plains = (_stalled_shares(trials, name) for name in (mode, PLAIN))
    if not lie_apart(mine, plains):
        return None
    found = StallShares(spread(mine).median, spread(plains).median)
    return found if abs(found.mode - found.plain) >= WORTH_SAYING else None


def _stalled_shares(trials: Sequence[Trial], mode: str) -> list[float]:
    """For each launch of a mode the mean over its sizes."""
    launches = [
        [p.stalled_share for p in trial.points if p.stalled_share is not None]
        for trial in trials
        if trial.mode == mode
    ]
    return [sum(shares) / len(shares) for shares in launches if shares]


def _middle(values: Iterable[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return median(known) if known else None

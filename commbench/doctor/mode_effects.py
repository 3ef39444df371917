"""Computes what each CPU mode would change, compared with the mode `plain` in the same rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from commbench.analysis.statistics import median
from commbench.doctor.mode_trials import MODES, PLAIN, SIZES, Trial
from commbench.doctor.sample_range import SampleRange, is_disjoint, make_range

SMALL, LARGE = SIZES[:-1], SIZES[-1:]
"""Sizes whose time depends on the scheduler, and on memory. Each group is compared as a whole:
every further comparison is one more chance to take noise for a difference."""
FASTER, SLOWER, UNCLEAR = "faster", "slower", "unclear"
WORTH_SAYING = 0.05
"""Smaller relative differences of times, and smaller differences of shares, count as none."""


class ModeResult(NamedTuple):
    """The results of a mode at one size, over its launches."""

    mode: str
    size_bytes: int
    time_s: SampleRange
    """Of the medians of the launches."""
    ratio: SampleRange | None
    """Time over plain's in the same round; None for plain, or where plain has none."""
    busbw: float | None
    """Bytes per second: the median of the launches."""
    stalled_share: float | None
    queued_share: float | None
    """Medians of the launches."""


class ModeEffect(NamedTuple):
    """The effect of a mode on the time of some sizes, compared with another mode."""

    mode: str
    sizes: tuple[int, ...]
    ratio: SampleRange
    """Time over the other's in the same round; of several sizes the geometric mean."""
    verdict: str
    """FASTER, SLOWER or UNCLEAR."""


def make_mode_results(trials: Sequence[Trial]) -> tuple[ModeResult, ...]:
    """The results of every mode and size that was measured; plain first."""
    found = (_make_result(trials, mode, size) for mode in MODES for size in SIZES)
    return tuple(result for result in found if result)


def _make_result(trials: Sequence[Trial], mode: str, size: int) -> ModeResult | None:
    points = [p for t in trials if t.mode == mode for p in t.points if p.size_bytes == size]
    times = find_times(trials, mode, (size,))
    if not times:
        return None
    return ModeResult(
        mode=mode,
        size_bytes=size,
        time_s=make_range(list(times.values())),
        ratio=None if mode == PLAIN else _divide(times, find_times(trials, PLAIN, (size,))),
        busbw=_median(point.busbw for point in points),
        stalled_share=_median(point.stalled_share for point in points),
        queued_share=_median(point.queued_share for point in points),
    )


def compare_modes(
    trials: Sequence[Trial], mode: str, sizes: tuple[int, ...], other: str = PLAIN
) -> ModeEffect | None:
    """The effect of a mode on the time of these sizes; None where no round has both modes."""
    mine, theirs = find_times(trials, mode, sizes), find_times(trials, other, sizes)
    ratio = _divide(mine, theirs)
    if ratio is None:
        return None
    verdict = UNCLEAR
    differ = is_disjoint(list(mine.values()), list(theirs.values()))
    if differ and abs(ratio.median - 1) >= WORTH_SAYING:
        verdict = FASTER if ratio.median < 1 else SLOWER
    return ModeEffect(mode, sizes, ratio, verdict)


def find_times(trials: Sequence[Trial], mode: str, sizes: tuple[int, ...]) -> dict[int, float]:
    """Geometric mean time over the sizes by round, for the launches of a mode with all of them."""
    found = {}
    for trial in trials:
        times = {point.size_bytes: point.time_s for point in trial.points if point.time_s > 0}
        if trial.mode == mode and all(size in times for size in sizes):
            found[trial.round] = prod(times[size] for size in sizes) ** (1 / len(sizes))
    return found


def _divide(mine: dict[int, float], theirs: dict[int, float]) -> SampleRange | None:
    both = [mine[round_] / theirs[round_] for round_ in mine if round_ in theirs]
    return make_range(both) if both else None


def compare_stalls(trials: Sequence[Trial], mode: str) -> tuple[float, float] | None:
    """Median share of iterations that stall, in a mode and in plain; None if they do not differ."""
    mine, plains = (_stalled_shares(trials, name) for name in (mode, PLAIN))
    if not is_disjoint(mine, plains):
        return None
    share, in_plain = make_range(mine).median, make_range(plains).median
    return (share, in_plain) if abs(share - in_plain) >= WORTH_SAYING else None


def _stalled_shares(trials: Sequence[Trial], mode: str) -> list[float]:
    """For each launch of a mode the mean over its sizes."""
    launches = [
        [p.stalled_share for p in trial.points if p.stalled_share is not None]
        for trial in trials
        if trial.mode == mode
    ]
    return [sum(shares) / len(shares) for shares in launches if shares]


def _median(values: Iterable[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return median(known) if known else None

"""What a sweep found, in a few sentences for each kind of case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commbench.compare.ratio import FASTER, SAME, SLOWER, MedianCI, decide_verdict, time_ratio
from commbench.output.paragraphs import list_some
from commbench.output.table import clean
from commbench.sweep.ranking import SweepPoint, make_ranges, pooled_ratio, rank_settings
from commbench.sweep.settings import Setting
from commbench.units import format_bytes, format_ratio

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult

MOST_NAMED = 3
MOST_RANGES = 4


def kind_sentences(result: SweepResult) -> list[str]:
    """What was found, in one or a few sentences for each kind of case."""
    kinds: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        kinds.setdefault(point.kind, []).append(point)
    if not kinds:
        return ["Nothing was timed."]
    return [
        f"{clean(kind)}: {' '.join(_sentences(result, points))}" for kind, points in kinds.items()
    ]


def _sentences(result: SweepResult, points: Sequence[SweepPoint]) -> list[str]:
    """What was found for the cases of one kind."""
    settings = [
        setting
        for setting in result.sweep.settings
        if any(each.setting == setting for point in points for each in point.by_time)
    ]
    compared = sorted((p for p in points if p.is_compared), key=lambda p: p.size_bytes)
    names = {setting: clean(name) for setting, name in result.names.items()}
    if len(settings) == 1:
        return [f"only {names[settings[0]]} was measured: there is nothing to compare it with."]
    if not compared:
        return ["no size was measured under two settings: there is nothing to compare."]
    if len(settings) == 2:
        return _two_settings(compared, settings[0], settings[1], names, result.sweep.tolerance)
    found = [_winners(compared, names)]
    first = result.sweep.settings[0]
    if first in settings:
        others = [setting for setting in settings if setting != first]
        found += _against_first(compared, first, others, names)
    return found


def _two_settings(
    points: Sequence[SweepPoint], a: Setting, b: Setting, names: dict[Setting, str],
    tolerance: float,
) -> list[str]:  # fmt: skip
    """One sentence for each range of sizes at which B is slower, or faster; one for all sizes where
    these alternate often."""
    ranges: list[tuple[str, list[SweepPoint]]] = []
    for point in points:
        times = {each.setting: each.time for each in point.by_time}
        verdict = decide_verdict(time_ratio(times[a], times[b]), tolerance)
        decided = verdict if verdict in (FASTER, SLOWER) else ""
        if ranges and (not decided or decided == ranges[-1][0] or not ranges[-1][0]):
            ranges[-1] = (ranges[-1][0] or decided, [*ranges[-1][1], point])
        else:
            ranges.append((decided, [point]))
    if len(ranges) <= MOST_RANGES:
        return [_pair_sentence(of_range, a, b, names, tolerance) for _, of_range in ranges]
    whole = _pair_sentence(points, a, b, names, tolerance)
    return [whole, f"Which is faster changes {len(ranges) - 1} times with the size."]


def _pair_sentence(
    points: Sequence[SweepPoint], a: Setting, b: Setting, names: dict[Setting, str],
    tolerance: float,
) -> str:  # fmt: skip
    ratio = pooled_ratio(points, a, b)
    if ratio.median is not None and ratio.median < 1:
        a, b, ratio = b, a, pooled_ratio(points, b, a)
    verdict = decide_verdict(ratio, tolerance)
    where = size_words(points)
    known = _in_brackets(ratio)
    times = f"{ratio_text(ratio)} times as long as {names[a]}{where}{known}"
    if ratio.low is None or verdict == SLOWER:
        return f"{names[b]} takes {times}."
    if verdict == SAME:
        return f"{names[b]} takes {times}: no difference above {tolerance * 100:g} %."
    return f"{names[b]} takes {times}: this may be noise."


def size_words(points: Sequence[SweepPoint]) -> str:
    """The sizes of cases, as the end of a phrase: ` from 1 KiB to 16 MiB`."""
    low, high = points[0].size_bytes, points[-1].size_bytes
    if not high:
        return ""
    if low == high:
        return f" at {format_bytes(low)}"
    return f" from {format_bytes(low)} to {format_bytes(high)}"


def _winners(points: Sequence[SweepPoint], names: dict[Setting, str]) -> str:
    """The settings that are the fastest, or tied with it, by ranges of sizes."""
    ranges = make_ranges(points)
    if len(ranges) > MOST_RANGES:
        best = rank_settings(points)[0]
        return (
            f"{names[best.setting]} is the fastest over all sizes; which one is the fastest "
            f"changes {len(ranges) - 1} times with the size."
        )
    if len(ranges) == 1 and len(ranges[0].best) == len(points[0].by_time):
        return f"no setting is known to be slower than another{size_words(points)}."
    parts = [f"{_names(found.best, names)}{size_words(found.points)}" for found in ranges]
    return f"the fastest is {'; '.join(parts)}."


def _against_first(
    points: Sequence[SweepPoint], first: Setting, others: Sequence[Setting],
    names: dict[Setting, str],
) -> list[str]:  # fmt: skip
    """One sentence: over all sizes, the ratio of each other setting, or of the extreme ones."""
    ratios = [(pooled_ratio(points, first, other), names[other]) for other in others]
    known = sorted(
        ((ratio, name) for ratio, name in ratios if ratio.median is not None),
        key=lambda each: each[0].median or 0.0,
    )
    if not known:
        return []
    shown = known if len(known) <= MOST_NAMED else [known[0], known[-1]]
    parts = []
    for ratio, name in shown:
        parts.append(f"{name} takes {ratio_text(ratio)} times as long{_in_brackets(ratio)}")
    which = "" if len(shown) == len(known) else "; all others lie between"
    return [f"Against {names[first]}{size_words(points)}: {', '.join(parts)}{which}."]


def _names(settings: Sequence[Setting], names: dict[Setting, str]) -> str:
    """The fastest setting, or those tied with it: the first MOST_NAMED."""
    shown = list_some([names[setting] for setting in settings], MOST_NAMED)
    return f"{shown} (tied)" if len(settings) > 1 else shown


def ratio_text(ratio: MedianCI) -> str:
    """A ratio with three digits: `1.93`; empty where there is none."""
    return "" if ratio.median is None else _digits(ratio.median)


def interval_text(ratio: MedianCI) -> str:
    """The interval of a ratio: `1.80-2.10`; empty where there is none."""
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{_digits(ratio.low)}-{_digits(ratio.high)}"


def _in_brackets(ratio: MedianCI) -> str:
    """The interval of a ratio in a sentence."""
    return f" ({interval_text(ratio)})" if ratio.low is not None else ""


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else format_ratio(value)

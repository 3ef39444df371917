"""The sentences about ranges of sizes: what the pooled ratio is, and what it means."""

from __future__ import annotations

from itertools import groupby
from math import ceil, inf, log
from operator import attrgetter
from typing import Any

from commbench.analysis.row_names import format_range, short_titles
from commbench.compare.comparison import Comparison
from commbench.compare.pooling import PooledRatio
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import CHANGED, SAME, SLOWER, UNDECIDED
from commbench.views.cells import in_brackets, ratio_decimals, ratio_interval_text, ratio_text

_KIND = attrgetter("kind")
_LONGEST_NAME = 24
"""A run with a longer name is called A or B in a sentence."""
_NOTHING = 0.005
"""An end of an interval that is this near to 1 is no difference."""


def pooled_sentences(found: Comparison, kind: str | None = None) -> list[str]:
    """For each range of sizes what the pooled ratio is, and what it means; the steps of a workload
    first, then ranges where B is slower or faster. `kind` limits them to one kind of case."""
    steps = {row.kind for row in found.rows if row.a.step}
    ranked = sorted(found.pooled, key=lambda p: (p.kind not in steps, p.verdict not in CHANGED))
    short = _short_kinds(found)
    names = found.a.name, found.b.name
    if names[0] == names[1] or max(map(len, names)) > _LONGEST_NAME:
        names = "A", "B"
    return [
        pooled_sentence(pooled, short[pooled.kind], *names)
        for pooled in ranked
        if kind in (None, pooled.kind)
    ]


def pooled_sentence(pooled: PooledRatio, kind: str, a: str, b: str) -> str:
    """What the pooled ratio of B over A is, and what it means."""
    where = " ".join(filter(None, (kind, format_range(pooled.low_bytes, pooled.high_bytes))))
    meaning = _meaning(pooled.verdict, pooled.ratio)
    if not pooled.ratio.has_interval:
        meaning += "; no interval is known"
    takes = f"{where}: {b} takes {_ratio_and_interval(pooled.ratio, f' times as long as {a}')}"
    return f"{takes}: {meaning}{_disturbance(pooled)}."


def _ratio_and_interval(ratio: Estimate, between: str) -> str:
    return f"{ratio_text(ratio)}{between}{in_brackets(ratio_interval_text(ratio))}"


def _disturbance(pooled: PooledRatio) -> str:
    """What undisturbed calls add to the medians."""
    verdict, of_low, low = pooled.verdict, pooled.undisturbed_verdict, pooled.undisturbed
    if low is None or verdict == SAME:
        return ""
    times = _ratio_and_interval(low, " times")
    where = _known_sizes(pooled)
    calls = f"; undisturbed calls{where}"
    if of_low == SAME:
        there = " there" if where else ""
        return (
            f"{calls} show {_meaning(SAME, low)}: {times}. The disturbance differs{there}, not the "
            "collective itself"
        )
    if of_low == UNDECIDED:
        found = "are undecided too" if verdict == UNDECIDED else "do not confirm it"
        return f"{calls} {found}: {times}"
    if of_low == verdict:
        less = ", but less" if _is_weaker(low, pooled) else ""
        return f"{calls} are {of_low} too{less}: {times}"
    return f"{calls} alone are {of_low}: {times}"


def _known_sizes(pooled: PooledRatio) -> str:
    """For which sizes of a range undisturbed calls are known; empty where for all."""
    if pooled.undisturbed_rows == pooled.rows:
        return ""
    return f" ({format_range(pooled.undisturbed_low_bytes, pooled.undisturbed_high_bytes)})"


def _is_weaker(low: Estimate, pooled: PooledRatio) -> bool:
    """Whether the ratio of undisturbed calls is nearer to 1 than the whole interval of the ratio of
    medians."""
    least, most = pooled.ratio.ends
    if not pooled.ratio.has_interval:
        return False
    return low.value < least if pooled.verdict == SLOWER else low.value > most


def _meaning(verdict: str, ratio: Estimate) -> str:
    if verdict in CHANGED or not ratio.has_interval:
        return {SAME: "no difference"}.get(verdict, verdict)
    if verdict == SAME:
        return f"no difference above {format_part(far_end(ratio))}"
    (low, low_word), (high, high_word) = map(_end_words, ratio.ends)
    return f"undecided, from {low}{low_word if low_word != high_word else ''} to {high}{high_word}"


def _end_words(ratio: float) -> tuple[str, str]:
    """An end of an interval in words, and whether that is slower: `4 %` and ` slower`, `2.3 times`
    and ` as slow`, `no difference`."""
    if abs(log(ratio) if ratio > 0 else inf) < _NOTHING:
        return "no difference", ""
    word, adverb = (" slower", " as slow") if ratio > 1 else (" faster", " as fast")
    part = (ratio if ratio > 1 else 1 / ratio if ratio > 0 else inf) - 1
    if part == inf:
        return "any factor", word
    if part >= 1:
        return f"{round(1 + part, 1):g} times", adverb
    return f"{100 * part:.0f} %", word


def far_end(ratio: Estimate) -> float:
    """The largest difference that the interval of a ratio allows, with the digits of its cell:
    0.04 for 4 %."""
    low, high = ratio.ends
    if not ratio.has_interval or not low or high == inf:
        return inf
    return round(max(high, 1 / low) - 1, ratio_decimals(ratio))


def format_part(part: float) -> str:
    """A difference in whole percent, rounded up; as a factor from 100 % on: `4 %`, `2.3 times`."""
    if part == inf:
        return "any factor"
    if part >= 1:
        return f"{ceil(10 * (1 + part) - 1e-9) / 10:g} times"
    return f"{max(1, ceil(100 * part - 1e-9))} %"


def _short_kinds(found: Comparison) -> dict[str, str]:
    return short_titles({k: next(rows).a.case for k, rows in groupby(found.rows, _KIND)})


def smallest_differences(found: Comparison) -> str:
    """Which differences these two runs could not have shown, in the least noisy and the noisiest of
    the ranges without a difference; empty where there is none, or no interval is known."""
    known = [
        (part, pooled)
        for pooled in found.pooled
        if pooled.verdict not in CHANGED and (part := pooled.smallest_difference) is not None
    ]
    if not known:
        return ""
    least, most = min(known, key=_first), max(known, key=_first)
    texts = [_hidden(part) for part, _ in (least, most)]
    if len(found.pooled) == 1 or (texts[0] == texts[1] and len(known) == len(found.pooled)):
        return f"Noise hides {texts[0]}."
    short = _short_kinds(found)
    where = [
        f"{short[pooled.kind]} {format_range(pooled.low_bytes, pooled.high_bytes)}".strip()
        for _, pooled in (least, most)
    ]
    if len(known) == 1:
        return f"Noise hides {texts[0]} for {where[0]}."
    if texts[0] == texts[1]:
        return f"Noise hides {texts[0]} where no difference was found."
    return (
        f"Noise hides {texts[0]} for {where[0]} (least noise), and {texts[1]} for {where[1]} (most "
        "noise)."
    )


def _hidden(part: float) -> str:
    if part == inf:
        return "all differences"
    return f"differences below {'a factor of ' * (part >= 1)}{format_part(part)}".removesuffix(
        " times"
    )


def _first(item: tuple[float, Any]) -> float:
    return item[0]

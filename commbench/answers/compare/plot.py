"""Pictures of comparisons, one per kind of case: times above, ratios below, against size."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from commbench.analysis.diagnostics import WAITED
from commbench.analysis.load import distinct_names
from commbench.answers.compare.causes import known_causes
from commbench.answers.compare.comparison import Comparison
from commbench.answers.compare.document import pooled_sentences
from commbench.answers.compare.pooling import PooledRatio
from commbench.answers.compare.ratio import waited_sides
from commbench.errors import UnavailableError
from commbench.output.text import join_words
from commbench.stats import NOT_COMPARED, UNDECIDED, Estimate, collect
from commbench.views import pictures
from commbench.views.pictures import Curves, Look, Mark, Picture, Series, nth_look

MOST_SENTENCES = 4
Points = Sequence[tuple[int, Estimate]]


class Side(NamedTuple):
    """One run in a picture, by size."""

    name: str
    times: Points
    ratios: Points = ()
    """Over the times of the first run; empty for that."""
    hollow: Collection[int] = ()
    """The sizes that do not count, for its ranks waited for a core."""


def comparison_pictures(comparisons: Sequence[Comparison], limit: float = 1.0) -> list[Picture]:
    """A picture for each kind of case that both sides timed at two sizes or more. The comparisons
    have the same run A. `limit` is a ratio to mark, if it is above 1."""
    kinds = dict.fromkeys(row.kind for found in comparisons for row in found.rows)
    sides = {kind: _sides(comparisons, kind) for kind in kinds}
    # A check has verdicts of its own, which the sentences would contradict.
    compared = comparisons if limit <= 1 else ()
    said = collect(pair for each in compared for pair in pooled_sentences(each, known_causes(each)))
    return [
        _picture(comparisons, kind, found, limit, said.get(kind, []))
        for kind, found in sides.items()
        if max((len(side.times) for side in found[1:]), default=0) > 1
    ]


def require_pictures(found: list[Picture]) -> list[Picture]:
    """The pictures; UnavailableError where there is none."""
    if not found:
        why = "no plot: a curve needs at least two sizes that both sides have timed"
        raise UnavailableError(why, "measure both with the same --sizes")
    return found


def as_file_name(kind: str) -> str:
    """A kind as part of a file's name, of letters, digits and dashes, and not too long for one."""
    return re.sub(r"[^A-Za-z0-9]+", "-", kind).strip("-")[:100]


def _sides(comparisons: Sequence[Comparison], kind: str) -> list[Side]:
    first, *names = distinct_names([comparisons[0].a, *(found.b for found in comparisons)])
    times_of_a: dict[int, Estimate] = {}
    others, hollow = [], set[int]()
    for name, found in zip(names, comparisons, strict=True):
        rows = [r for r in found.rows if r.kind == kind and r.verdict != NOT_COMPARED]
        times = [(row.a.size_bytes, *row.times) for row in rows]
        times_of_a |= {size: time for size, time, _ in times if time}
        waited = [(row.a.size_bytes, waited_sides(row.a, row.b, row.in_turns)) for row in rows]
        hollow |= {size for size, sides in waited if "A" in sides}
        ratios = [(row.a.size_bytes, row.ratio) for row in rows if row.ratio]
        hollow_of_b = {size for size, sides in waited if "B" in sides}
        times_of_b = [(size, time) for size, _, time in times if time]
        others.append(Side(name, times_of_b, ratios, hollow_of_b))
    return [Side(first, sorted(times_of_a.items()), (), hollow), *(s for s in others if s.times)]


def _picture(
    comparisons: Sequence[Comparison], kind: str, sides: Sequence[Side], limit: float,
    texts: Sequence[str],
) -> Picture:  # fmt: skip
    """`texts` are the sentences about the kind."""
    first, *others = sides
    marked = [f"A line marks the limit: {limit:g} times as long."] if limit > 1 else []
    is_one = len(comparisons) == 1
    waits = any(r.waited for found in comparisons for r in found.rows if r.kind == kind)
    shown = [*texts[: MOST_SENTENCES * is_one]] or [f"No verdict on some sizes: {WAITED}."] * waits
    pooled = [each for each in comparisons[0].pooled if each.kind == kind and is_one]
    if limit > 1:  # which decides, and not the tolerance; with a history no range does
        is_pooled = comparisons[0].a.history is None
        pooled = [each._replace(verdict="") for each in pooled if is_pooled]
    how = "Mean over launches of the" if comparisons[0].are_in_turns else "Median"
    crosses = "the interval crosses an edge of the grey band"
    reasons = dict.fromkeys(p.reason or crosses for p in pooled if p.verdict == UNDECIDED)
    unsaid = [f"Undecided: {why}" for why in reasons if not any(why in text for text in shown)]
    return Picture(
        f"compare-{as_file_name(kind)}",
        f"{join_words([side.name for side in others])} compared with {first.name}: {kind}",
        " ".join([*texts, *marked]),
        ratio_panels(sides, comparisons[0].tolerance, pooled, limit),
        [*shown, *unsaid, f"{how} time of a call"],
    )


def ratio_panels(
    sides: Sequence[Side], tolerance: float, pooled: Sequence[PooledRatio] = (), limit: float = 1.0
) -> list[Curves]:
    """Times, and their ratios to those of the first side. `pooled` are ratios over ranges of sizes,
    where there is only one other side. A ratio `limit` above 1 is marked."""
    marks = [Mark(Look(pictures.GREY, width=1.0), 1.0)]
    if tolerance:
        name = f"no difference: within {tolerance * 100:g} %"
        marks.append(Mark(Look("#8a8a8a", fill=0.3), 1 / (1 + tolerance), 1 + tolerance, name))
    if limit > 1:
        name = f"limit: {limit:g} times as long"
        marks.append(Mark(Look(pictures.LIMIT, dashes=(5, 2), width=1.2), limit, name=name))
    together = "several sizes taken together"
    whole, end = Look(pictures.INK, width=1.6), Look(pictures.INK, width=0.7, dashes=(4, 2))
    doubtful = f"{together}: {UNDECIDED}", Look(pictures.GREY, width=1.6, dashes=(1.2, 1.2))
    ranges = [
        Series(name, look, [(size, Estimate(value)) for size in (low, high)], has_band=False)
        for _, low, high, rows, ratio, verdict, *_ in pooled
        for name, look, value in (
            (*(doubtful if verdict == UNDECIDED else (together, whole)), ratio.value),
            ("their 95 % interval", end, ratio.low),
            ("their 95 % interval", end, ratio.high),
        )
        if value is not None and rows > 1
    ]
    times = [Series(s.name, nth_look(n), s.times, hollow=s.hollow) for n, s in enumerate(sides)]
    ratios = [
        each._replace(points=side.ratios, hollow={*side.hollow, *sides[0].hollow})
        for side, each in zip(sides[1:], times[1:], strict=True)
    ]
    over = f"Time over that of {sides[0].name}; above 1: slower, below 1: faster"
    return [
        Curves("Time of a call", times, inches=2.8),
        Curves(over, [*ranges, *ratios], pictures.RATIOS, marks=marks, inches=2.2),
    ]

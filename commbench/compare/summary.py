"""Sentences and table cells about a comparison, which the text and the Markdown share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import units
from commbench.analysis.load import LoadedRun
from commbench.compare.comparison import ComparedRow, Comparison, Crossover, row_kind
from commbench.compare.ratio import (
    FASTER,
    NOT_COMPARED,
    OVERLAP,
    SAME,
    SIGNIFICANCE,
    SLOWER,
    UNDECIDED,
)
from commbench.units import GB, MICRO

HEADINGS = ("size", "A time", "B time", "A busbw\nGB/s", "B busbw\nGB/s", "B/A", "95 % interval",
            "verdict")  # fmt: skip
ANOTHER_LAUNCH = (
    "another launch may differ by more than these intervals say; `commbench run --launches 6` "
    "measures that"
)


class SideSummary(NamedTuple):
    """One side of a comparison."""

    letter: str
    name: str
    path: str
    extent: str
    """Rows, launches, and what is missing of it."""


class TableLine(NamedTuple):
    """One row of a table of a comparison."""

    cells: tuple[str, ...]
    verdict: str


def distinct_names(runs: Sequence[LoadedRun]) -> list[str]:
    """A name for each run; with its path where two runs have the same name."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.path})"
        for name, run in zip(names, runs, strict=True)
    ]


def sides(found: Comparison) -> list[SideSummary]:
    """A and B."""
    return [
        SideSummary(letter, run.name, str(run.path), _extent(run))
        for letter, run in (("A", found.a), ("B", found.b))
    ]


def verdict_line(found: Comparison) -> str:
    """How many rows are slower, faster, the same, undecided or not compared."""
    counts, rows = found.counts, len(found.rows)
    parts = [f"{counts[SLOWER]} slower", f"{counts[FASTER]} faster", f"{counts[SAME]} the same"]
    parts += [f"{counts[UNDECIDED]} undecided"]
    parts += [f"{counts[NOT_COMPARED]} not compared"] if counts[NOT_COMPARED] else []
    alone = len(found.only_a) + len(found.only_b)
    parts += [f"{alone} in one of the two only"] if alone else []
    common = f"{rows} {'row' if rows == 1 else 'rows'} in common"
    return f"B against A, {common}: {', '.join(parts)}; tolerance {found.tolerance * 100:g} %."


def by_kind(rows: Iterable[ComparedRow]) -> Iterator[tuple[str, list[ComparedRow]]]:
    """The rows of each kind of case; rows of one kind follow each other."""
    for kind, same in groupby(rows, attrgetter("kind")):
        yield kind, list(same)


def make_lines(rows: Sequence[ComparedRow]) -> list[TableLine]:
    """The rows of a kind as cells under HEADINGS."""
    decimals = [
        units.choose_decimals(b * GB for row in side if (b := row.busbw_GBps) is not None)
        for side in ([row.a for row in rows], [row.b for row in rows])
    ]
    return [TableLine(_cells(row, decimals), row.verdict) for row in rows]


def _cells(row: ComparedRow, decimals: Sequence[int]) -> tuple[str, ...]:
    times = [None if side.time_us is None else side.time_us * MICRO for side in (row.a, row.b)]
    like = next((time for time in times if time is not None), 0.0)
    ratio, interval = "", ""
    if row.ratio is not None and row.verdict != NOT_COMPARED:
        ratio = units.format_ratio(row.ratio)
    if row.ratio_ci_low is not None and row.verdict != NOT_COMPARED:
        assert row.ratio_ci_high is not None
        interval = (
            f"{units.format_ratio(row.ratio_ci_low)} … {units.format_ratio(row.ratio_ci_high)}"
        )
    return (
        units.format_bytes(row.a.size_bytes) if row.a.dtype else "",
        *("" if time is None else units.format_time(time, like) for time in times),
        *(
            "" if side.busbw_GBps is None else units.format_GBps(side.busbw_GBps * GB, each)
            for side, each in zip((row.a, row.b), decimals, strict=True)
        ),
        ratio,
        interval,
        row.verdict,
    )


def explanations(found: Comparison) -> list[str]:
    """Each reason why rows are undecided or not compared, with those rows, but for the common
    reason that an interval is wide; and the rows that only one side has."""
    concerned: dict[str, list[Any]] = {}
    for row in found.rows:
        if row.reason not in ("", OVERLAP):
            concerned.setdefault(row.reason, []).append(row.a)
    for side, rows in (("A", found.only_a), ("B", found.only_b)):
        if rows:
            word = "row" if len(rows) == 1 else "rows"
            concerned[f"only in {side} ({len(rows)} {word})"] = list(rows)
    return [f"{what}: {_where(rows)}." for what, rows in concerned.items()]


def _where(rows: Sequence[Any], most_kinds: int = 12, most_sizes: int = 24) -> str:
    """Which rows of results: the sizes of each kind."""
    kinds: dict[str, list[int]] = {}
    for row in rows:
        sizes = kinds.setdefault(row_kind(row), [])
        if row.dtype:
            sizes.append(row.size_bytes)
    parts = []
    for kind, sizes in islice(kinds.items(), most_kinds):
        shown = ", ".join(units.format_bytes(size) for size in sizes[:most_sizes])
        more = len(sizes) - most_sizes
        shown += f" and {more} more (--format csv lists all)" if more > 0 else ""
        parts.append(f"{kind}: {shown}" if shown else kind)
    if len(kinds) > most_kinds:
        parts.append("and other kinds (--format csv lists all)")
    return "; ".join(parts)


def crossover_text(crossover: Crossover) -> str:
    """Where B turns from faster to slower, or back."""
    below, above = (units.format_bytes(s) for s in (crossover.below_bytes, crossover.above_bytes))
    return (
        f"{crossover.kind}: B is {crossover.below} at {below} and {crossover.above} at {above}; "
        "the crossover lies between"
    )


def notes(found: Comparison) -> list[str]:
    """What limits the verdicts, and how to get better ones."""
    texts = []
    counts = found.counts
    wide = sum(row.reason == OVERLAP for row in found.rows)
    if wide:
        texts.append(
            f"{wide} {'row is' if wide == 1 else 'rows are'} undecided because the interval "
            "reaches over the tolerance: narrow it (--precision 2% --budget 2, or more "
            "--launches), or allow more (--tolerance)"
        )
    weak = [
        row
        for row in found.rows
        if row.verdict in (SLOWER, FASTER) and (row.p_value or 0) >= SIGNIFICANCE
    ]
    if weak:
        texts.append(
            f"{len(weak)} slower or faster {'row' if len(weak) == 1 else 'rows'} may be noise "
            f"(Mann-Whitney p up to {max(row.p_value or 0 for row in weak):.2g})"
        )
    if not found.has_rank_tests and counts[SLOWER] + counts[FASTER]:
        texts.append(
            "decided by intervals alone: without samples, or with fewer than four batches a side, "
            "there is nothing to rank"
        )
    return [*texts, *launches_note(found)]


def launches_note(found: Comparison) -> list[str]:
    """That a side is a single launch, and what that means; empty where none is."""
    single = [side for side, run in (("A", found.a), ("B", found.b)) if _launches(run) == 1]
    if not single or not found.rows:
        return []
    are = "is one launch" if len(single) == 1 else "are one launch each"
    return [f"{' and '.join(single)} {are}: {ANOTHER_LAUNCH}"]


def _extent(run: LoadedRun) -> str:
    rows = len(run.rows)
    launches = _launches(run)
    parts = [f"{rows} {'row' if rows == 1 else 'rows'}"]
    if launches:
        parts.append(f"{launches} {'launch' if launches == 1 else 'launches'}")
    if run.run is None:
        parts.append("no samples")
    elif run.run.end is None:
        parts.append("not ended")
    elif run.run.end.status != "complete":
        parts.append(run.run.end.status)
    return ", ".join(parts)


def _launches(run: LoadedRun) -> int | None:
    """The most launches of any row; None where it is not known."""
    return max((row.launches or 0 for row in run.rows), default=0) or None

"""What is said of a comparison: in a word, in numbers, and in what its two sides differ.

The same sentences serve the table, Markdown and the pull request they are pasted into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.load import LoadedRun
from commbench.compare.comparison import Comparison, Crossover
from commbench.compare.ratio import FASTER, NOT_COMPARED, SAME, SLOWER, UNDECIDED
from commbench.compare.reasons import CHANCE, OVERLAP
from commbench.units import (
    GB,
    MICRO,
    choose_decimals,
    format_bytes,
    format_GBps,
    format_ratio,
    format_time,
)

if TYPE_CHECKING:
    from pandas import DataFrame

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


def names_of(sources: Sequence[LoadedRun]) -> list[str]:
    """A name for each source; with its path where two have the same."""
    names = [source.name for source in sources]
    return [
        name if names.count(name) == 1 else f"{name} ({source.path})"
        for name, source in zip(names, sources, strict=True)
    ]


def sides(found: Comparison) -> tuple[SideSummary, SideSummary]:
    """A and B."""
    return _side("A", found.a), _side("B", found.b)


def _side(letter: str, source: LoadedRun) -> SideSummary:
    return SideSummary(letter, source.name, str(source.path), _extent(source))


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


def kinds_of(rows: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """The rows of each kind of case, in order."""
    for kind, found in rows.groupby("kind", observed=True, sort=True):
        yield str(kind), found


def lines_of(rows: DataFrame) -> list[TableLine]:
    """The rows of a kind as cells under HEADINGS."""
    decimals = [
        choose_decimals(busbw * GB for busbw in rows[column] if busbw == busbw)
        for column in ("busbw_a_GBps", "busbw_b_GBps")
    ]
    return [TableLine(_cells(row, decimals), str(row.verdict)) for row in rows.itertuples()]


def _cells(row: Any, decimals: Sequence[int]) -> tuple[str, ...]:
    like = next((t for t in (row.time_a_us, row.time_b_us) if t == t), 0.0) * MICRO
    ratio, interval = "", ""
    if row.ratio == row.ratio:  # NaN is not itself
        ratio = format_ratio(row.ratio)
    if row.ratio_ci_low == row.ratio_ci_low and row.verdict != NOT_COMPARED:
        interval = f"{format_ratio(row.ratio_ci_low)} … {format_ratio(row.ratio_ci_high)}"
    return (
        format_bytes(int(row.size_bytes)) if row.dtype else "",
        *(format_time(t * MICRO, like) if t == t else "" for t in (row.time_a_us, row.time_b_us)),
        *(
            format_GBps(busbw * GB, each) if busbw == busbw else ""
            for busbw, each in zip((row.busbw_a_GBps, row.busbw_b_GBps), decimals, strict=True)
        ),
        ratio if row.verdict != NOT_COMPARED else "",
        interval,
        row.verdict,
    )


def reasons(found: Comparison) -> list[tuple[str, str]]:
    """Why rows are undecided or not compared, each with the rows concerned, but for the common
    reason that an interval is wide."""
    rows = found.rows[~found.rows["reason"].isin(("", OVERLAP))]
    return [
        (str(reason), _where(concerned))
        for reason, concerned in rows.groupby("reason", observed=True, sort=True)
    ]


def left_out(found: Comparison) -> list[tuple[str, str]]:
    """Which rows only one side has."""
    return [
        (f"only in {side} ({len(rows)} {'row' if len(rows) == 1 else 'rows'})", _where(rows))
        for side, rows in (("A", found.only_a), ("B", found.only_b))
        if len(rows)
    ]


def _where(rows: DataFrame, most_kinds: int = 12, most_sizes: int = 24) -> str:
    """Which rows: the sizes of each kind."""
    parts = []
    for number, (kind, concerned) in enumerate(kinds_of(rows)):
        if number == most_kinds:
            parts.append("and other kinds (--format csv lists all)")
            break
        sizes = (
            [int(size) for size in concerned["size_bytes"]] if concerned["dtype"].iloc[0] else []
        )
        shown = ", ".join(format_bytes(size) for size in sizes[:most_sizes])
        more = len(sizes) - most_sizes
        shown += f" and {more} more (--format csv lists all)" if more > 0 else ""
        parts.append(f"{kind}: {shown}" if shown else kind)
    return "; ".join(parts)


def crossover_text(crossover: Crossover) -> str:
    """Where B turns from faster to slower, or back."""
    below, above = (format_bytes(s) for s in (crossover.below_bytes, crossover.above_bytes))
    return (
        f"{crossover.kind}: B is {crossover.below} at {below} and {crossover.above} at {above}; "
        "the crossover lies between"
    )


def notes(found: Comparison) -> list[str]:
    """What limits the verdicts, and what to do about it."""
    texts = []
    counts = found.counts
    wide = int((found.rows["reason"] == OVERLAP).sum())
    if wide:
        texts.append(
            f"{wide} {'row is' if wide == 1 else 'rows are'} undecided because the interval "
            "reaches over the tolerance: narrow it (--precision 2% --budget 2, or more "
            "--launches), or allow more (--tolerance)"
        )
    if (found.rows["reason"] == CHANCE).any():
        texts.append("the rank test has few values: more launches or batches give it more to say")
    if not found.ranked and counts[SLOWER] + counts[FASTER]:
        texts.append(
            "decided by intervals alone: without samples, or with fewer than four batches a side, "
            "there is nothing to rank"
        )
    return [*texts, *launches_note(found)]


def launches_note(found: Comparison) -> list[str]:
    """That a side is a single launch, which knows nothing of the next; empty where none is."""
    single = [side for side, source in (("A", found.a), ("B", found.b)) if _launches(source) == 1]
    if not single or not len(found.rows):
        return []
    are = "is one launch" if len(single) == 1 else "are one launch each"
    return [f"{' and '.join(single)} {are}: {ANOTHER_LAUNCH}"]


def _extent(source: LoadedRun) -> str:
    rows = len(source.frame)
    launches = _launches(source)
    parts = [f"{rows} {'row' if rows == 1 else 'rows'}"]
    if launches:
        parts.append(f"{launches} {'launch' if launches == 1 else 'launches'}")
    if source.run is None:
        parts.append("no samples")
    elif source.run.end is None:
        parts.append("not ended")
    elif source.run.end.status != "complete":
        parts.append(source.run.end.status)
    return ", ".join(parts)


def _launches(source: LoadedRun) -> int | None:
    """The most launches of any row; None where it is not known."""
    most = source.frame["launches"].max()
    return int(most) if most == most and most else None
